"""Commands in forks of one process end as commands in processes of their own do."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from tests.atollctl import atollctl


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["queue", "--help"], id="help"),
        pytest.param(["queue", "list"], id="no kubeconfig"),
        pytest.param(["queue", "lst"], id="a word that is none"),
    ],
)
async def test_a_fork_says_what_a_process_says(words: list[str], tmp_path: Path) -> None:
    own = {"HOME": str(tmp_path), "KUBECONFIG": "", "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "atoll.cli", *words, env={**os.environ, **own},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, said = (text.decode() for text in await process.communicate())
    ran = await atollctl(*words, environment=own)
    assert (ran.code, ran.out, ran.said) == (process.returncode, out, said)


async def test_a_command_leaves_nothing_to_the_next(tmp_path: Path) -> None:
    there = tmp_path / "there"
    first, second = await asyncio.gather(
        atollctl("queue", "list", environment={"KUBECONFIG": str(there)}),
        atollctl("queue", "list", environment={"KUBECONFIG": str(tmp_path / "elsewhere")}),
    )
    assert (first.code, second.code) == (1, 1)
    assert str(there) in first.said
    assert str(there) not in second.said
