"""What docs/first-job.md tells its reader to type: in its order, in the federation that docs/install.md starts."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from tests.atollctl import atollctl
from tests.docs.pages import DOCS, blocks
from tests.docs.replay import shell, shows, steps

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


async def type_all(kubeconfig: Path, folder: Path) -> None:
    """Type the page in this folder.

    Raises:
        AssertionError: a command prints what the page does not show.
    """
    for name, content in files():
        (folder / name).write_text(content)
    loop = asyncio.get_running_loop()
    for command, shown in typed():
        end = loop.time() + (_PATIENCE if command.startswith(_LOOKS) else 0.0)
        printed = await run(command, kubeconfig, folder)
        while not shows(shown, printed) and loop.time() < end:
            await asyncio.sleep(0.2)
            printed = await run(command, kubeconfig, folder)
        assert shows(shown, printed), f"$ {command}\n{printed}"
