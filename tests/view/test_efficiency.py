"""What became of the hours that runs held."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.model.runs import Part, Record, Run, columns
from atoll.model.timestamps import rfc3339
from atoll.view.efficiency import FATES, HEADERS, efficiency, records, table

NOON = datetime(2026, 10, 15, 12, tzinfo=UTC)
GPU = "nvidia.com/gpu"
OCTOBER = (datetime(2026, 10, 1, tzinfo=UTC), datetime(2026, 11, 1, tzinfo=UTC))


def at(hours: float | None) -> str:
    return "" if hours is None else rfc3339((NOON + timedelta(hours=hours)).timestamp())


def row(
    outcome: str, bound: float | None, running: float | None, ended: float, released: float, *, held: float = 8.0
) -> dict[str, Any]:
    begin = bound if bound is not None else 0.0
    part = Part("alpha", 1, granted={GPU: held}, seconds={GPU: held * (released - begin) * 3600, "pods": 7.0})
    run = Run(
        1, at(0), at(0), "q", "ann", at(0), bound=at(bound), running=at(running), ended=at(ended),
        released=at(released), outcome=outcome, asked={GPU: 8.0}, parts=[part],
    )  # fmt: skip
    return columns(Record("uid", "team", outcome.lower(), "Job.batch", run))


@pytest.mark.parametrize(
    ("times", "fates"),
    [
        pytest.param(("Succeeded", 0, 1, 4, 4.5), {"starting": 8, "succeeded": 24, "leaving": 4}, id="succeeded"),
        pytest.param(("Evicted", 0, 1, 2, 2), {"starting": 8, "evicted": 8}, id="evicted"),
        pytest.param(("Evicted", 0, None, 2, 3), {"starting": 16, "leaving": 8}, id="evicted before it ran"),
        pytest.param(("Deleted", 1, 1, 2, 2), {"deleted": 8}, id="deleted"),
        pytest.param(("Failed", None, None, 2, 2), {"starting": 16}, id="never bound"),
    ],
)
def test_each_hour_has_one_fate(times: Any, fates: dict[str, float]) -> None:
    [line] = efficiency([row(*times)], "queue", *OCTOBER).values()
    assert list(line.amounts) == [GPU]
    assert {fate: hours for fate, hours in line.amounts[GPU].fates.items() if hours} == pytest.approx(fates)


@given(
    st.lists(st.floats(0, 100), min_size=4, max_size=4),
    st.sampled_from(["Succeeded", "Failed", "Evicted", "Deleted"]),
    st.floats(-50, 150),
)
def test_fates_add_up_to_what_was_held(times: list[float], outcome: str, cut: float) -> None:
    run = row(outcome, *sorted(times))
    for line in efficiency([run], "user", NOON + timedelta(hours=cut), OCTOBER[1]).values():
        for amount in line.amounts.values():
            assert sum(amount.fates.values()) == pytest.approx(amount.held, abs=1e-3)


def test_an_elastic_run_holds_less_than_it_asked_for() -> None:
    [line] = efficiency([row("Succeeded", 0, 0, 2, 2, held=2.0)], "workload", *OCTOBER).values()
    assert (line.amounts[GPU].asked, line.amounts[GPU].held) == (16.0, 4.0)


def test_table_and_records_have_a_row_for_each_resource() -> None:
    lines = efficiency([row("Succeeded", 0, 1, 4, 4), row("Failed", 0, 1, 4, 4)], "user", *OCTOBER)
    [shown] = table(lines)
    assert len(shown) == len(HEADERS) + 1
    assert dict(zip(HEADERS, shown[1:], strict=True)) | {"START": "60m", "SUCCEEDED": "38%", "FAILED": "38%"} == dict(
        zip(HEADERS, shown[1:], strict=True)
    )
    [record] = records(lines, "user")
    assert (record["user"], record["held"], record["mean_start_seconds"]) == ("ann", 64.0, 3600.0)
    assert set(FATES) <= set(record)


def test_use_is_a_part_of_what_measured_runs_held() -> None:
    """8 CPUs for 4 hours, of which 2 were busy; another run of which nothing is known; and devices, which are not."""
    run = row("Succeeded", 0, 0, 4, 4)
    known = {**run, "asked": [("cpu", 8.0)], "seconds": [("cpu", 8.0 * 4 * 3600)], "busy": [("cpu", 2.0)]}
    [line] = efficiency([known, {**known, "busy": []}, run], "queue", *OCTOBER).values()
    amount = line.amounts["cpu"]
    assert (amount.held, amount.measured, amount.busy) == (64.0, 32.0, 8.0)
    shown = {each[3]: each[6] for each in table({"q": line})}
    assert shown == {"cpu": "25%", GPU: "unknown"}
    assert {each["resource"]: each["busy"] for each in records({"q": line}, "queue")} == {"cpu": 8.0, GPU: None}
