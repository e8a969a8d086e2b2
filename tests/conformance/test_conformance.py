"""The samples in the tree, and the program that replays any other file."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.interpreter import NotCompared
from tests.conformance.suites import SUITES, cases

SAMPLES = Path(__file__).parent / "samples"


@pytest.mark.parametrize("file", sorted(SAMPLES.glob("*.jsonl.xz")), ids=lambda file: file.name)
def test_every_sample_is_answered_as_upstream_answers_it(file: Path):
    suite = SUITES[file.name.removesuffix(".jsonl.xz")]
    differing, compared = {}, 0
    for case in cases(file):
        with contextlib.suppress(NotCompared):
            compared += 1
            if found := suite(case):
                differing[case["id"]] = found
    assert differing == {}
    assert compared > 0


def test_the_program_names_what_differs_and_ends_with_the_counts(tmp_path: Path):
    [first, second, *_] = [case for case in cases(SAMPLES / "karmada-division.jsonl.xz") if case["op"] == "webster"]
    wrong = {**second, "expect": {"seats": {"nowhere": 1}}}
    file = tmp_path / "cases.jsonl"
    file.write_text("".join(json.dumps(case) + "\n" for case in (first, wrong, {**wrong, "upstreamBug": {}})))
    run = subprocess.run(
        [sys.executable, "-m", "tests.conformance", "webster", str(file)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    assert run.stdout.splitlines()[0].startswith(f"{wrong['id']}: seats: ")
    assert run.stdout.splitlines()[-1] == "1 passed, 1 failed"


def test_what_is_not_compared_is_skipped_and_not_passed(tmp_path: Path):
    found = list(cases(SAMPLES / "karmada-interpret.jsonl.xz"))
    compared = next(
        each for each in found if each["operation"] == "InterpretReplica" and each["kind"] == "batch/v1/Job"
    )
    other = next(each for each in found if each["operation"] == "Retain" and each["expect"].get("supported", True))
    file = tmp_path / "cases.jsonl"
    file.write_text("".join(json.dumps(case) + "\n" for case in (compared, other)))
    run = subprocess.run(
        [sys.executable, "-m", "tests.conformance", "karmada-interpret", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stdout.splitlines() == [
        "skipped 1: Retain: members' objects and statuses are taken as they are",
        "1 passed, 0 failed, 1 skipped",
    ]


def test_the_program_names_the_line_that_is_no_case(tmp_path: Path):
    file = tmp_path / "cases.jsonl"
    file.write_text('{"id": "a", "op": "assign"\n')
    run = subprocess.run(
        [sys.executable, "-m", "tests.conformance", "webster", str(file)], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout) == (2, "")
    assert "line 1" in run.stderr
