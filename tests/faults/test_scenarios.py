"""The verdict of a suite of faults, the clock that is off, and each scenario in its quick size."""

from __future__ import annotations

import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.chaos.checks import CHECKS, Violation
from tests.chaos.record import Pod, Record, Span
from tests.faults import verdict
from tests.faults.__main__ import NAMES, main
from tests.faults.ground import jobs
from tests.faults.scenarios import host_restored
from tests.faults.verdict import DOUBLED, LOST

_TELL = """
import datetime, time
usual = __import__("_datetime").datetime(2026, 1, 1)
from datetime import datetime as taken
now = taken.now(datetime.timezone.utc)
print(time.time(), time.time_ns() / 1e9, now.timestamp(), isinstance(now, taken), isinstance(usual, taken))
"""


def test_a_violation_is_lost_doubled_or_stuck() -> None:
    found = [Violation(check, "w", 0.0, "") for check in ("nothing lost", "ran once", "all returned", "nothing left")]
    assert str(verdict.of("x", 3, found)) == "x: 3 faults, lost 1, doubled 1, stuck 2"
    assert {check.__name__.replace("_", " ") for check in CHECKS} >= LOST | DOUBLED


@pytest.mark.parametrize(
    ("faults", "problems", "broken", "good"),
    [(1, [], "", True), (0, [], "", False), (1, ["it is there"], "", False), (1, [], "KeyError()", False)],
    ids=["nothing came of it", "nothing was played", "something is there", "broken off"],
)
def test_a_verdict_is_good_only_where_faults_were_played_and_nothing_came_of_them(
    faults: int, problems: list[str], broken: str, *, good: bool
) -> None:
    assert verdict.of("x", faults, [], problems, broken).good is good


@pytest.mark.parametrize("skew", [300, -300, 0])
def test_a_clock_that_is_off_is_off_in_all_that_python_tells(skew: int, tmp_path: Path) -> None:
    (tmp_path / "tell.py").write_text(_TELL)
    (tmp_path / "skew").write_text(str(skew))
    told = subprocess.run(
        [sys.executable, "-m", "tests.faults.skewed", str(tmp_path / "skew"), "tell"],
        env={"PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2]}"}, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    assert [float(each) for each in told[:3]] == pytest.approx([time.time() + skew] * 3, abs=60)
    assert told[3:] == ["True", "True"]
    assert datetime.now(UTC).timestamp() == pytest.approx(time.time(), abs=5)


@pytest.mark.integration
@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_lost_doubled_or_stuck(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--quick"]) == 0, capsys.readouterr().out


@pytest.mark.parametrize(
    ("pods", "found"),
    [
        pytest.param([("east", "w-0", 0, 50), ("west", "w-0", 50, 90)], 0, id="one after the other"),
        pytest.param([("east", "w-0", 0, 50), ("west", "w-0", 10, 90)], 1, id="one of a name in two members"),
        pytest.param([("east", "a", 0, 50), ("east", "b", 0, 50), ("west", "c", 9, 99)], 1, id="more than it asks for"),
        pytest.param([("east", "w-0", 0, 50), ("west", "w-1", 10, 90)], 0, id="two indexes"),
        pytest.param([("east", "w-0", 0, None), ("west", "w-0", 10, None)], 1, id="to the end"),
    ],
)
def test_a_restored_host_may_have_no_index_run_twice(pods: list[tuple[str, str, int, int | None]], found: int) -> None:
    [wish] = jobs("w", 1)
    made = {
        str(number): Pod(str(number), cluster, name, wish.name, "b", 1, began, bound=began, gone=gone)
        for number, (cluster, name, began, gone) in enumerate(pods)
    }
    record = Record({wish.name: wish}, {}, {}, pods=made, end=100.0)
    assert len(host_restored.own_checks(record)) == found


@pytest.mark.parametrize(("gone", "found"), [pytest.param(50, 0, id="across"), pytest.param(30, 1, id="not across")])
def test_a_host_is_restored_under_pods_that_run(gone: float, found: int) -> None:
    [wish] = jobs("w", 1)
    pod = Pod("1", "east", "w-0", wish.name, "b", 1, 1, bound=1, gone=gone)
    record = Record({wish.name: wish}, {}, {}, faults=[Span("outage", "host", 20.0, 40.0)], pods={"1": pod}, end=100.0)
    assert len(host_restored.own_checks(record)) == found
