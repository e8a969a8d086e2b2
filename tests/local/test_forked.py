"""Programs of Atoll that tests start as forks end as others do."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from atoll.local.processes import ProcessSpec, python_path
from tests.forked import Fork, launch


async def fork(log: Path, *words: str) -> Fork:
    spec = ProcessSpec("p", [sys.executable, "-m", "atoll.agent", *words], env={"PYTHONPATH": python_path()})
    with log.open("ab") as file:
        started = await launch(spec, file)
    assert isinstance(started, Fork)
    return started


@pytest.mark.parametrize(("words", "code", "line"), [(["--help"], 0, "usage"), (["--nothing"], 2, "--nothing")])
async def test_its_exit_code_and_its_output_are_the_programs(
    tmp_path: Path, words: list[str], code: int, line: str
) -> None:
    started = await fork(tmp_path / "log", *words)
    assert await started.wait() == started.returncode == code
    text = (tmp_path / "log").read_text()
    assert line in text
    assert "Warning" not in text


async def test_a_signal_to_its_group_ends_it(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "absent"
    os.mkfifo(kubeconfig)  # It waits for a writer.
    started = await fork(tmp_path / "log", "--cluster=c", f"--kubeconfig={kubeconfig}")
    assert started.returncode is None
    os.killpg(started.pid, signal.SIGKILL)
    assert await started.wait() == -signal.SIGKILL


async def test_other_programs_are_executed(tmp_path: Path) -> None:
    spec = ProcessSpec("p", [sys.executable, "-c", "raise SystemExit(3)"])
    with (tmp_path / "log").open("ab") as file:
        started = await launch(spec, file)
    assert not isinstance(started, Fork)
    assert await started.wait() == 3
