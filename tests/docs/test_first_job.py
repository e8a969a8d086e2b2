"""docs/first-job.md shows what its commands print: all of them are typed, in its order, in a federation as it says."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from atoll.local.atoll_federation import AtollFederation
from atoll.local.layout import default_config
from tests.atollctl import atollctl
from tests.docs.pages import DOCS, blocks
from tests.docs.replay import shell, shows, steps

pytestmark = pytest.mark.integration

PAGE = DOCS / "first-job.md"
_ELSEWHERE = "local up"
"""In a block that needs another federation."""
_LOOKS = ("atollctl explain", "atollctl job list", "atollctl queue list", "atollctl queue describe", "kubectl get")
"""Commands that change nothing, so that they may be asked again until what is shown is there."""
_PATIENCE = 30.0
"""Seconds for that."""


def typed() -> Iterator[tuple[str, str]]:
    """What the page tells its reader to type in the federation that it begins with."""
    for block in steps(PAGE):
        if not any(_ELSEWHERE in command for command, _ in block):
            yield from block


def files() -> Iterator[tuple[str, str]]:
    """The files of the page: their first line is a comment with the name."""
    for block in blocks(PAGE, "yaml"):
        if named := re.match(r"# (\S+)\n", block):
            yield named[1], block


async def run(command: str, kubeconfig: Path, folder: Path) -> str:
    """What a shell prints."""
    first, *words = shlex.split(command)
    if first == "atollctl":
        ran = await atollctl(*words, environment={"KUBECONFIG": str(kubeconfig)})
        return ran.out + ran.said
    return (await shell(command, folder, {"KUBECONFIG": str(kubeconfig)}))[0]


async def test_the_page_shows_what_its_commands_print(tmp_path: Path) -> None:
    for name, content in files():
        (tmp_path / name).write_text(content)
    loop = asyncio.get_running_loop()
    async with AtollFederation(default_config(2, 8), tmp_path / "federation") as federation:
        for command, shown in typed():
            end = loop.time() + (_PATIENCE if command.startswith(_LOOKS) else 0.0)
            printed = await run(command, federation.host.kubeconfig, tmp_path)
            while not shows(shown, printed) and loop.time() < end:
                await asyncio.sleep(0.2)
                printed = await run(command, federation.host.kubeconfig, tmp_path)
            assert shows(shown, printed), f"$ {command}\n{printed}"
