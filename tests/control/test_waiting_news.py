"""What of a binding's status waits for what comes next, and what goes at once as something is decided by it."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.control.status import _may_wait

Json = dict[str, Any]


def status(*conditions: str, counts: Json | None = None, **told: Any) -> Json:
    said = {"running": 1, "placement": {"nodes": {"n": 1}, "running": 1}, **(counts or {}), **told}
    listed = [{"type": each, "status": "True", "reason": "R"} for each in conditions]
    return {"conditions": listed, "aggregatedStatus": [{"clusterName": "east", "applied": True, "status": said}]}


BOUND = status("Scheduled", "Bound")


@pytest.mark.parametrize(
    ("old", "new", "waits"),
    [
        (BOUND, BOUND, False),
        (BOUND, status("Scheduled", "Bound", counts={"running": 2}), True),
        (BOUND, status("Scheduled", "Bound", placement={"nodes": {"n": 1}, "running": 0}), True),
        ({}, {"conditions": status("Scheduled")["conditions"], "aggregatedStatus": []}, True),
        (BOUND, status("Scheduled", "Bound", placement={"nodes": {"n": 2}, "running": 1}), False),
        (BOUND, status("Scheduled", "Bound", "Finished"), False),
        (status("Scheduled"), BOUND, False),
        (BOUND, status("Scheduled", "Bound", refused={"epoch": 1}), False),
        (BOUND, status("Scheduled", "Bound", reservation={"state": "Held"}), False),
    ],
    ids=[
        "nothing",
        "counts",
        "pods that run",
        "the dispatch",
        "nodes",
        "the end",
        "bound",
        "a refusal",
        "a reservation",
    ],
)
def test_only_counts_and_the_dispatch_wait(old: Json, new: Json, waits: bool) -> None:
    assert _may_wait(old, new) is waits
