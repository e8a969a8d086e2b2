"""Runs `atollctl` as a user would."""

from __future__ import annotations

import asyncio
import sys

from tests.integration.federation import Site


def argv(*args: str) -> list[str]:
    return [
        sys.executable,
        "-c",
        f"import sys; sys.path[:] = {sys.path!r}; from atoll.cli.app import main; main()",
        *args,
    ]


async def atollctl(site: Site, *args: str, ok: bool = True) -> str:
    """Run a command as a user would; its output, or its error text when it is expected to fail."""
    process = await asyncio.create_subprocess_exec(
        *argv(*args, f"--kubeconfig={site.federation.host.kubeconfig}", f"--namespace={site.namespace}"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, said = (text.decode() for text in await process.communicate())
    assert (process.returncode == 0) == ok, f"atollctl {' '.join(args)}: {out}{said}"
    return out if ok else said
