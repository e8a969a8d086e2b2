"""Workloads whose policies share them out in Karmada's ways: where they go, and what they wait for."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.dispatcher.core.events import Ceiling
from atoll.model.verdict import Reason
from tests.dispatcher.builders import GPU, NEVER, evicted, make_binding, make_capacity, make_queue
from tests.dispatcher.placement.sharing import by, divided, duplicated, parts, scene, shared

REGIONS = (by("region", 2, 2), by("cluster", 2, 2))


@pytest.mark.parametrize(
    ("sharing", "expected"),
    [
        pytest.param(divided(a1=2, b1=1), {"a1": 4, "b1": 2}, id="static weights"),
        pytest.param(divided(a1=1, b1=1, a2=0), {"a1": 3, "b1": 3}, id="a member without weight gets nothing"),
        pytest.param(divided(), {"a1": 3, "a2": 1, "b1": 1, "b2": 1}, id="weights by room"),
        pytest.param(divided("Aggregated"), {"a1": 6}, id="aggregated"),
        pytest.param(divided("Weighted", *REGIONS), {"a1": 4, "b1": 2}, id="two regions"),
        pytest.param(
            divided("Weighted", by("zone", 3, 3), by("cluster", 3, 3)), {"a1": 3, "a2": 2, "b1": 1}, id="zones"
        ),
        pytest.param(
            divided("Aggregated", by("provider", 1, 1), by("cluster", 2, 2)), {"a1": 6}, id="aggregated in one provider"
        ),
        pytest.param(
            divided("Weighted", {"spreadByLabel": "ring", "minGroups": 2, "maxGroups": 2}, by("cluster", 2, 2)),
            {"a1": 4, "a2": 2},
            id="by a label",
        ),
        pytest.param(duplicated(), {"a1": 6}, id="copies where there is room for all"),
    ],
)
def test_replicas_are_shared_out(sharing: dict[str, Any], expected: dict[str, int]) -> None:
    made = scene(a1=10, a2=5, b1=5, b2=4)
    made.submit(shared("w", 6, sharing))
    made.run()
    assert parts(made, "w") == expected


def test_a_copy_runs_in_each_member_and_each_is_charged() -> None:
    made = scene(a1=3, a2=2, b1=4)
    made.submit(shared("w", 3, duplicated()))
    made.run()
    assert parts(made, "w") == {"a1": 3, "b1": 3}
    assert made.used("q") == 6
    made.gone("w")
    assert made.used("q") == 0


def test_copies_wait_until_their_queue_has_quota_for_all_of_them() -> None:
    made = scene(gpu=5, a1=3, b1=3)
    made.submit(shared("w", 3, duplicated()))
    made.run()
    assert (parts(made, "w"), made.verdict("w")) == ({}, Reason.QUOTA_EXCEEDED)
    made.tell(make_queue("q", gpu=6))
    made.run()
    assert parts(made, "w") == {"a1": 3, "b1": 3}


def test_what_weights_give_to_a_full_member_waits_for_room_there() -> None:
    made = scene(a1=10, b1=1)
    made.submit(shared("w", 6, divided(a1=2, b1=1)))
    made.run()
    assert (parts(made, "w"), made.verdict("w")) == ({}, Reason.INSUFFICIENT_RESOURCES)
    made.tell(make_capacity("b1", [2], generation=2))
    made.run()
    assert parts(made, "w") == {"a1": 4, "b1": 2}


def test_what_a_member_has_room_for_ends_at_the_ceiling_of_the_queue_there() -> None:
    made = scene(a1=10, b1=10)
    made.tell(make_queue("q", view={"members": {"a1": Ceiling(capability={GPU: 2}), "b1": Ceiling()}}))
    made.submit(shared("w", 6, divided()))
    made.run()
    assert parts(made, "w") == {"a1": 1, "b1": 5}


def test_too_few_regions_are_named() -> None:
    made = scene(a1=10, a2=10)
    made.submit(shared("w", 4, divided("Weighted", *REGIONS)))
    made.run()
    verdict = made.core.verdict("uid-w")
    assert verdict is not None
    assert verdict.reason is Reason.NO_CLUSTER
    assert "1 regions are feasible, the spread constraint wants at least 2" in verdict.sentence()


def test_the_overflow_takes_what_the_first_tier_has_no_room_for() -> None:
    group = {"clusterNames": ["a1"], "overflowAffinities": [{"clusterNames": ["b1"]}, {"clusterNames": ["a2"]}]}
    made = scene(a1=4, a2=10, b1=1)
    made.submit(
        shared("w", 6, divided(), affinities=(group,)), shared("x", 3, divided("Aggregated"), affinities=(group,))
    )
    made.run()
    assert parts(made, "w") == {"a1": 4, "a2": 1, "b1": 1}
    assert parts(made, "x") == {"a2": 3}


def test_ties_go_to_the_name_that_the_workloads_uid_says() -> None:
    made = scene(a1=9, b1=9)
    made.submit(shared("first", 3, divided(a1=1, b1=1)), shared("last", 3, {**divided(a1=1, b1=1), "lastFirst": True}))
    made.run()
    assert parts(made, "first") == {"a1": 2, "b1": 1}
    assert parts(made, "last") == {"a1": 1, "b1": 2}


def test_sets_of_tasks_are_shared_out_whole() -> None:
    made = scene(a1=20, b1=20)
    made.submit(shared("w", 3, divided(a1=2, b1=1)).tasks(6))
    made.run()
    assert dict(made.view("w").parts) == {"a1": (2, 4), "b1": (1, 2)}


def test_such_work_evicts_nothing() -> None:
    made = scene(a1=4, b1=4)
    made.submit(make_binding("low").tasks(4))
    made.run()
    made.bound("low", generation=NEVER)
    made.submit(shared("high", 6, divided(a1=1, b1=1)).priority(9))
    assert evicted(made.run(after=1000)) == []
    assert made.verdict("high") is Reason.INSUFFICIENT_RESOURCES
    made.submit(make_binding("plain").tasks(6).divided().priority(9))
    assert evicted(made.run()) == ["low"]


def test_another_leader_counts_copies_as_they_were_decided() -> None:
    made = scene(a1=3, b1=4)
    made.submit(shared("w", 3, duplicated()))
    made.run()
    made.restart()
    made.run()
    assert (parts(made, "w"), made.used("q")) == ({"a1": 3, "b1": 3}, 6)
