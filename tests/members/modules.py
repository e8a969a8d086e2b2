"""Programs of other projects, built from their Go modules on first use and kept like those of the control plane.

Each folder beside this file that holds a go.mod pins one project. What a module ships besides code (CRDs, webhook
configurations) is read from the module itself; nothing of it is copied into this tree.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from atoll.local import binaries, download
from atoll.local.binaries import BinariesError, Tool

Json = dict[str, Any]
FOLDER = Path(__file__).parent
TIMEOUT_S = 1800
"""For tests that may have to build a project first: `pytestmark = pytest.mark.timeout(TIMEOUT_S)`."""


def tool(name: str, package: str) -> Tool:
    """A program that is only ever built: what is on the PATH is of an unknown version."""
    return Tool(name, package, ("--version",), (10_000, 0))


def programs(project: str, tools: Sequence[Tool], *, build: bool = False) -> dict[str, Path]:
    """The programs by name. Skips the test where they were not built yet, or with `build` where they can't be."""
    cache = binaries.cache_directory(os.environ, FOLDER / project)
    if not build and not all(binaries.find(each, os.environ, cache) for each in tools):
        pytest.skip(f"{project} was not built yet: python -m pytest -m long tests/members builds it")

    def none(name: str, target: Path, versions: dict[str, str]) -> None:
        raise download.Unavailable("only ever built", unreachable=True)

    try:
        return binaries.obtain(tools, FOLDER / project, report=lambda _: None, fetch=none)
    except BinariesError as error:
        pytest.skip(f"{project} can't be built here: {error}")


@cache
def sources(project: str, module: str) -> Path:
    """Where the module's files are; downloaded if need be, and the test skipped where they can't be had."""
    run = subprocess.run(
        ["go", "mod", "download", "-json", module],
        cwd=FOLDER / project,
        env={**os.environ, "GOWORK": "off"},
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode != 0:
        pytest.skip(f"the files of {module} can't be had here: {run.stderr or run.stdout}")
    return Path(json.loads(run.stdout)["Dir"])


def documents(path: Path) -> list[Json]:
    """All objects of a YAML file."""
    # The parser in Python takes 1.5 s for Kueue's CRDs, this one 0.2 s.
    return [each for each in yaml.load_all(path.read_text(), yaml.CSafeLoader) if each]


def outside(service: Json) -> Json:
    """The Service as the way to a process on this machine."""
    metadata = {key: value for key, value in service["metadata"].items() if key in ("name", "namespace", "labels")}
    return {**service, "metadata": metadata, "spec": {"type": "ExternalName", "externalName": "127.0.0.1"}}


def through(client: Json, port: int) -> None:
    """Point a webhook's clientConfig to that port of its Service."""
    client["service"]["port"] = port
