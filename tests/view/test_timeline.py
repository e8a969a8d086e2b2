"""Events in time: each run starts once and ends once, and of a member the last change counts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from atoll.model.timestamps import rfc3339
from atoll.view.timeline import ENDED, EVICTED, LOST, READY, STARTED, events
from tests.view.run_rows import NOON, row

Json = dict[str, Any]
DAY = (NOON - timedelta(hours=12), NOON + timedelta(hours=12))


def cluster(status: str, hours: float) -> Json:
    at = rfc3339((NOON + timedelta(hours=hours)).timestamp())
    ready = {"type": "Ready", "status": status, "lastTransitionTime": at, "message": "no report"}
    return {"metadata": {"name": "east"}, "status": {"conditions": [ready]}}


def test_runs_start_and_end_and_evictions_name_rule_and_claimant() -> None:
    more: Json = {"reason": "Preempted", "message": "for a higher priority", "evicted_for": "team/vip"}
    found = list(events([row("a", 2), row("b", 1, begin=3, outcome="Evicted", **more)], [], *DAY))
    assert [(each.kind, each.name, (each.at - NOON).total_seconds() / 3600) for each in found] == [
        (STARTED, "a", 0), (ENDED, "a", 2), (STARTED, "b", 3), (EVICTED, "b", 4),
    ]  # fmt: skip
    assert found[1].text == "Succeeded"
    assert found[3].text == "Preempted for team/vip: for a higher priority"
    assert found[3].members == ("alpha", "beta")


def test_events_outside_of_the_time_are_left_out() -> None:
    assert [each.kind for each in events([row("a", 48)], [], *DAY)] == [STARTED]
    assert [each.kind for each in events([row("a", 30, begin=-24)], [], *DAY)] == [ENDED]


def test_a_run_that_goes_on_has_no_end() -> None:
    going = {**row("a", 2), "ended": None, "released": None, "outcome": ""}
    assert [each.kind for each in events([going], [], *DAY)] == [STARTED]


@pytest.mark.parametrize(
    ("made", "kinds"),
    [
        pytest.param(cluster("False", 1), [LOST], id="a member that is lost"),
        pytest.param(cluster("Unknown", 1), [LOST], id="a member that does not answer"),
        pytest.param(cluster("True", 1), [READY], id="a member that came back"),
        pytest.param(cluster("False", 13), [], id="a change after the time"),
        pytest.param({"metadata": {"name": "east"}}, [], id="a member without a report"),
        pytest.param(
            {
                "metadata": {"name": "x"},
                "status": {"conditions": [{"type": "Ready", "lastTransitionTime": "2026-10-15"}]},
            },
            [],
            id="a time without a zone",
        ),
    ],
)
def test_members(made: Json, kinds: list[str]) -> None:
    assert [each.kind for each in events([], [made], *DAY)] == kinds
