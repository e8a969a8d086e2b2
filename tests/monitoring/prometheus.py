"""A real Prometheus with a configuration of the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from atoll.local.ports import free_ports
from tests.monitoring.files import program


@asynccontextmanager
async def serving(jobs: list[dict[str, Any]], folder: Path, *, interval: str) -> AsyncIterator[str]:
    """The address of one that scrapes these jobs; the test is skipped where no Prometheus is on PATH."""
    config = {"global": {"scrape_interval": interval, "scrape_timeout": interval}, "scrape_configs": jobs}
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    [port] = free_ports(1)
    process = await asyncio.create_subprocess_exec(
        program("prometheus"),
        f"--config.file={folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        await process.wait()
