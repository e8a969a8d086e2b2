"""The demo itself, at its small scale, on real API servers."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[2]


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    search = os.pathsep.join([str(ROOT), *(path for path in sys.path if path)])
    return subprocess.Popen(
        [sys.executable, "-u", "-m", "demo", "--scale", "small", "--keep", str(folder), *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": search},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # A shell that runs tests in the background has had them ignore interrupts, which is inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def processes_of(folder: Path) -> list[str]:
    """Command lines that name a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != str(os.getpid()):
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if str(folder) in line:
                found.append(line)
    return found


def test_the_small_demo_passes_its_checks_and_leaves_nothing(tmp_path: Path) -> None:
    demo = start(tmp_path / "fed")
    output, _ = demo.communicate(timeout=120)
    assert demo.returncode == 0, output
    assert re.search(r"(\d+)/\1 submitted, 0 running, \1 final", output), output
    assert output.count("  ok ") == 5, output
    assert "FAILED" not in output
    assert re.search(r"Jobs by queue and cluster(.|\n)*Gangs by topology tier reached", output), output
    assert processes_of(tmp_path) == []


@pytest.mark.long
def test_the_checks_hold_when_each_process_is_killed_meanwhile(tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    demo = start(tmp_path / "fed", "--kill", str(seed))
    output, _ = demo.communicate(timeout=180)
    assert demo.returncode == 0, output
    assert output.count("  ok ") == 5, output
    told = re.search(rf"killed with seed {seed}: (.*);", output)
    assert told, output
    counts = {name: int(count) for name, count in (each.split() for each in told[1].split(", "))}
    assert len(counts) == 5, output
    assert all(counts.values()), output


def test_an_interrupted_demo_leaves_nothing(tmp_path: Path) -> None:
    demo = start(tmp_path / "fed")
    assert demo.stdout is not None
    began = time.monotonic()
    for line in demo.stdout:
        if "API servers" in line:
            break
        assert time.monotonic() - began < 60
    demo.send_signal(signal.SIGINT)
    output, _ = demo.communicate(timeout=60)
    assert demo.returncode == 130, output
    assert "Traceback" not in output
    assert processes_of(tmp_path) == []
