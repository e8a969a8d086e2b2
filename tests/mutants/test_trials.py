"""The trials themselves, on a module of one rule: what a test notices is killed, what none notices survives."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.__main__ import ROOT

RULE = "def large(a, limit):\n    if a < 0:\n        return False\n    return a >= limit\n"
TESTS = """
from rule import large
def test_small():
    assert not large(2, 4)
def test_large():
    assert large(14, 4)
"""
SCRIPT = """
import sys
from pathlib import Path
from tests.mutants import __main__ as program
folder = Path(sys.argv[1])
program.ROOT, program.TESTS = folder, [str(folder / "test_rule.py")]
program.SOURCES = [folder / sys.argv[2]]
sys.exit(program.main(["--count", "100", "--jobs", "2"]))
"""


def tried(folder: Path, tests: str, *, source: str = "code") -> subprocess.CompletedProcess[str]:
    (folder / "code").mkdir()
    (folder / "code" / "rule.py").write_text(RULE)
    (folder / "test_rule.py").write_text(tests)
    paths = [str(folder / "code"), str(ROOT), *filter(None, sys.path)]
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder), source],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("source", ["code", "code/rule.py"])
def test_what_no_test_notices_survives_and_is_shown(tmp_path: Path, source: str) -> None:
    run = tried(tmp_path, TESTS, source=source)
    lines = run.stdout.splitlines()
    # The limits at which nothing is tried, and what no test reaches.
    assert sorted(line for line in lines if line[0] == "+") == [
        "+        return True",
        "+    if (a <= 0):",
        "+    if a < 1:",
        "+    return (a > limit)",
    ]
    assert lines[-1] == "killed 2 of 6 (33.3 %)"
    assert run.returncode == 1
    assert (tmp_path / "code" / "rule.py").read_text() == RULE


def test_tests_that_fail_by_themselves_are_no_measure(tmp_path: Path) -> None:
    run = tried(tmp_path, TESTS.replace("not ", ""))
    assert run.returncode == 1
    assert "without any mutant a test fails" in run.stderr
