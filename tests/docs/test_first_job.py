"""docs/first-job.md shows what its commands print: all of them are typed, in its order, in a federation as it says."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from atoll.local.atoll_federation import AtollFederation
from atoll.local.binaries import ensure
from atoll.local.layout import default_config
from tests.atollctl import atollctl
from tests.docs.pages import DOCS, blocks

pytestmark = pytest.mark.integration

PAGE = DOCS / "first-job.md"
_ELSEWHERE = "local up"
"""In a block that needs another federation."""
_LOOKS = ("atollctl explain", "atollctl job list", "atollctl queue list", "atollctl queue describe", "kubectl get")
"""Commands that change nothing, so that they may be asked again until what is shown is there."""
_PATIENCE = 30.0
"""Seconds for that."""
_SLOW = "does not answer; it is tried for some seconds more"
"""What commands say beside their output where an API server takes its time: on a busy machine one does."""


def steps() -> Iterator[tuple[str, str]]:
    """What the page tells its reader to type, and what it shows as the answer."""
    for block in blocks(PAGE, "console"):
        if _ELSEWHERE not in block:
            for step in re.split(r"^\$ ", block, flags=re.M)[1:]:
                command, _, shown = step.partition("\n")
                yield command, shown


def files() -> Iterator[tuple[str, str]]:
    """The files of the page: their first line is a comment with the name."""
    for block in blocks(PAGE, "yaml"):
        if named := re.match(r"# (\S+)\n", block):
            yield named[1], block


def alike(text: str) -> list[str]:
    """The lines without what differs from run to run: times, ages, and how wide columns are for these."""
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)
    text = re.sub(r"\b(\d+m)?\d+s\b", "AGE", text)
    lines = [line for line in text.strip().splitlines() if _SLOW not in line]
    return [re.sub(r" {2,}", "  ", line).rstrip() for line in lines]


def shows(page: str, printed: str) -> bool:
    """Whether the page shows what was printed; an ellipsis ends what it shows."""
    told, seen = alike(page), alike(printed)
    return told[:-1] == seen[: len(told) - 1] if told and told[-1] == "..." else told == seen


async def run(command: str, kubeconfig: Path, folder: Path) -> str:
    """What a shell prints."""
    first, *words = shlex.split(command)
    if first == "atollctl":
        ran = await atollctl(*words, environment={"KUBECONFIG": str(kubeconfig)})
        return ran.out + ran.said
    places = [str(Path(ensure(report=lambda _: None).kubectl).parent), os.environ["PATH"]]
    process = await asyncio.create_subprocess_shell(
        command,
        cwd=folder,
        env={**os.environ, "KUBECONFIG": str(kubeconfig), "PATH": os.pathsep.join(places)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    return (await process.communicate())[0].decode()


async def test_the_page_shows_what_its_commands_print(tmp_path: Path) -> None:
    for name, content in files():
        (tmp_path / name).write_text(content)
    loop = asyncio.get_running_loop()
    async with AtollFederation(default_config(2, 8), tmp_path / "federation") as federation:
        for command, shown in steps():
            end = loop.time() + (_PATIENCE if command.startswith(_LOOKS) else 0.0)
            printed = await run(command, federation.host.kubeconfig, tmp_path)
            while not shows(shown, printed) and loop.time() < end:
                await asyncio.sleep(0.2)
                printed = await run(command, federation.host.kubeconfig, tmp_path)
            assert shows(shown, printed), f"$ {command}\n{printed}"
