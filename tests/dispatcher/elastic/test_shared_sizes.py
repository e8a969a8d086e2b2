"""What is shared out in Karmada's ways and gets another size: what runs stays where it is."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from atoll.dispatcher.core import MemberAnswer, NamespaceSet, NamespaceView
from atoll.dispatcher.split.webster import steady
from atoll.model.verdict import Reason
from tests.dispatcher.builders import GPU, NEVER, Scene, make_capacity, make_cluster, make_queue
from tests.dispatcher.placement.sharing import divided, duplicated, parts, scene, shared


def started(made: Scene, name: str = "w") -> None:
    """Its members reserve its parts, and say that their pods have nodes."""
    made.run()
    view = made.view(name)
    if len(view.parts) > 1:
        made.change(name, reserved={cluster: MemberAnswer(True) for cluster, _ in view.parts})
        made.run()
    told(made, name)


def told(made: Scene, name: str = "w") -> None:
    """Its members say that its pods have nodes."""
    placed = {cluster: (NEVER, sum(counts)) for cluster, counts in made.view(name).parts}
    made.change(name, bound=True, placed=placed)


def scale(made: Scene, pods: int, name: str = "w") -> None:
    """Its user asks for so many pods."""
    view = made.view(name)
    assert view.gang is not None
    [task] = view.gang.tasks
    task = msgspec.structs.replace(task, replicas=pods, min_available=pods)
    gang = msgspec.structs.replace(view.gang, tasks=[task], min_available=pods)
    made.change(name, gang=gang, generation=view.generation + 1)
    made.run()


@pytest.mark.parametrize(
    ("sharing", "steps"),
    [
        pytest.param(
            divided(a1=2, b1=1),
            [(3, {"a1": 2, "b1": 1}), (6, {"a1": 4, "b1": 2}), (3, {"a1": 2, "b1": 1})],
            id="static weights",
        ),
        pytest.param(
            divided(), [(4, {"a1": 2, "b1": 2}), (5, {"a1": 3, "b1": 2}), (2, {"a1": 1, "b1": 1})], id="by room"
        ),
        pytest.param(
            duplicated(), [(2, {"a1": 2, "b1": 2}), (4, {"a1": 4, "b1": 4}), (1, {"a1": 1, "b1": 1})], id="copies"
        ),
    ],
)
def test_only_the_difference_is_shared_out(sharing: dict[str, Any], steps: list[tuple[int, dict[str, int]]]) -> None:
    made = scene(a1=8, b1=8)
    (pods, first), *others = steps
    made.submit(shared("w", pods, sharing))
    started(made)
    assert parts(made, "w") == first
    epoch = made.view("w").epoch
    for pods, expected in others:
        scale(made, pods)
        assert parts(made, "w") == expected
        assert made.used("q") == sum(expected.values())
        told(made)
        assert made.run() == []
    assert made.view("w").epoch == epoch


def test_a_changed_policy_moves_nothing_when_more_are_asked_for() -> None:
    made = scene(a1=8, b1=8)
    made.submit(shared("w", 4, divided(a1=1, b1=1)))
    started(made)
    made.change("w", sharing=divided(b1=1), affinities=({"clusterNames": ["b1"]},))
    made.run()
    assert parts(made, "w") == {"a1": 2, "b1": 2}
    scale(made, 6)
    assert parts(made, "w") == {"a1": 2, "b1": 4}


def test_more_are_asked_for_in_the_cluster_affinity_by_which_it_runs() -> None:
    made = scene(a1=2, b1=8, b2=8)
    made.submit(shared("w", 4, divided(), affinities=({"clusterNames": ["a1"]}, {"clusterNames": ["b1", "b2"]})))
    started(made)
    assert parts(made, "w") == {"b1": 2, "b2": 2}
    scale(made, 10)
    assert parts(made, "w") == {"b1": 5, "b2": 5}


def test_more_wait_for_quota_and_for_room() -> None:
    made = scene(gpu=5, a1=4, b1=4)
    made.submit(shared("w", 4, divided(a1=1, b1=1)))
    started(made)
    scale(made, 6)
    assert (parts(made, "w"), made.view("w").decision.reason) == ({"a1": 2, "b1": 2}, Reason.QUOTA_EXCEEDED)
    made.tell(make_queue("q", gpu=20))
    made.run()
    assert parts(made, "w") == {"a1": 3, "b1": 3}
    told(made)
    scale(made, 10)
    assert parts(made, "w") == {"a1": 3, "b1": 3}
    made.tell(make_capacity("a1", [9], generation=2), make_capacity("b1", [9], generation=2))
    made.run()
    assert parts(made, "w") == {"a1": 5, "b1": 5}


def test_more_wait_for_the_quota_of_their_namespace() -> None:
    made = scene(a1=4, b1=4)
    made.tell(NamespaceSet(NamespaceView("default", {GPU: 4})))
    made.submit(shared("w", 4, divided(a1=1, b1=1)))
    started(made)
    scale(made, 6)
    assert (parts(made, "w"), made.view("w").decision.reason) == ({"a1": 2, "b1": 2}, Reason.QUOTA_EXCEEDED)
    assert not made.run()
    made.tell(NamespaceSet(NamespaceView("default", {GPU: 6})))
    made.run()
    assert parts(made, "w") == {"a1": 3, "b1": 3}


def test_a_member_that_joins_gets_a_copy() -> None:
    made = scene(a1=3)
    made.submit(shared("w", 2, duplicated()))
    started(made)
    made.tell(make_cluster("c"), make_capacity("c", [3]))
    made.run()
    assert (parts(made, "w"), made.used("q")) == ({"a1": 2, "c": 2}, 4)
    told(made)
    assert made.run() == []


def test_another_leader_goes_on_with_the_new_size() -> None:
    made = scene(a1=8, b1=8)
    made.submit(shared("w", 3, divided(a1=2, b1=1)))
    started(made)
    scale(made, 6)
    made.restart()
    made.run()
    assert (parts(made, "w"), made.used("q")) == ({"a1": 4, "b1": 2}, 6)


@pytest.mark.parametrize(
    ("found", "has", "sets", "expected"),
    [
        ({"a": 4, "b": 2}, {"a": 2, "b": 1}, 6, {"a": 4, "b": 2}),
        ({"b": 6}, {"a": 2, "b": 1}, 6, {"a": 2, "b": 4}),
        ({"b": 2}, {"a": 2, "b": 1}, 2, {"a": 1, "b": 1}),
        ({"b": 1, "c": 1}, {"a": 2, "b": 2}, 2, {"a": 1, "b": 1, "c": 0}),
    ],
)
def test_what_runs_stays(found: dict[str, int], has: dict[str, int], sets: int, expected: dict[str, int]) -> None:
    assert steady(found, has, sets) == expected


def test_a_copy_that_had_no_room_is_told_of_and_made_once_there_is_some() -> None:
    """1. One of two members is full. 2. The other one has its copy. 3. Nodes come: the second copy starts."""
    made = scene(a1=8, b1=0)
    made.submit(shared("w", 2, duplicated()))
    started(made)
    made.run()
    assert parts(made, "w") == {"a1": 2}
    decision = made.view("w").decision
    assert decision.blocker is not None
    assert (decision.reason, decision.blocker.name) == (Reason.INSUFFICIENT_RESOURCES, "b1")
    assert decision.blocker.message == "its copy in b1 is missing"
    made.tell(make_capacity("b1", [4], generation=2))
    made.run()
    assert parts(made, "w") == {"a1": 2, "b1": 2}
    told(made)
    assert made.run() == []


def test_no_copy_is_missing_where_the_policy_wants_one_member() -> None:
    made = scene(a1=8, b1=0)
    made.submit(shared("w", 2, duplicated({"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1})))
    started(made)
    made.run()
    assert parts(made, "w") == {"a1": 2}
    assert made.view("w").decision.blocker is None
