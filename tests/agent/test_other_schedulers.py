"""Pods that another scheduler binds: what they take, how long they are waited for, and those that kubelets reject."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from atoll.agent.jobs.rejections import blameless
from atoll.agent.objects import Pod
from atoll.agent.scheduler.core.lifted import Lifted, pinned, refusal
from atoll.agent.scheduler.core.settings import MemberCoreSettings
from atoll.model import keys
from tests.agent.builders import make_node, make_pod, make_room

PATIENCE = MemberCoreSettings().lifted.patience
AFTER_NO = MemberCoreSettings().lifted.after_refusal

GATED = {"schedulingGates": [{"name": keys.GANG_GATE}]}
NO = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}]


def let_go(name: str = "p", node: str = "n", **more: Any) -> Pod:
    """A pod whose gate was lifted for a node."""
    pod = make_pod(name, gpu=4, binding="b", scheduler="default-scheduler", **more)
    notes = {**pod.metadata.annotations, keys.PLANNED_NODE: node}
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=notes))


def test_a_planned_pod_takes_room_at_once_and_counts_when_it_is_bound() -> None:
    """1. Planned while its gate is there. 2. The gate is lifted. 3. It is bound."""
    room = make_room(make_node("n"))
    held = make_pod("p", gpu=4, binding="b", spec=GATED, scheduler="default-scheduler")
    assert (held.held, held.gated) == (True, False)
    room.pod_changed(None, held)
    room.assume(held, "n")
    assert (room.amounts.free("n")["nvidia.com/gpu"], room.placed, room.node_of(held), room.is_bound(held)) == (
        4,
        {},
        "n",
        False,
    )
    room.pod_changed(held, let_go())
    assert (room.amounts.free("n")["nvidia.com/gpu"], room.placed) == (4, {})
    bound = make_pod("p", gpu=4, binding="b", node="n", scheduler="default-scheduler")
    room.pod_changed(let_go(), bound)
    assert (room.amounts.free("n")["nvidia.com/gpu"], room.placed, room.is_bound(bound)) == (4, {"b": {"n": 1}}, True)


def test_a_restarted_agent_keeps_the_nodes_of_pods_that_were_let_go() -> None:
    room = make_room(make_node("n"), pods=[let_go()])
    assert (room.amounts.free("n")["nvidia.com/gpu"], room.placed) == (4, {})


def test_what_is_given_up_is_free_and_stays_so_until_it_is_bound() -> None:
    room = make_room(make_node("n"), pods=[let_go()])
    room.give_up(let_go())
    assert room.amounts.free("n")["nvidia.com/gpu"] == 8
    room.pod_changed(let_go(), let_go(conditions=NO))
    assert room.amounts.free("n")["nvidia.com/gpu"] == 8
    room.pod_changed(let_go(), make_pod("p", gpu=4, node="n", binding="b"))
    assert room.amounts.free("n")["nvidia.com/gpu"] == 4


def test_room_that_another_scheduler_makes_for_a_pod_is_taken() -> None:
    """Its victims are still there, then go: what they leave is not free."""
    nominated = msgspec.structs.replace(make_pod("theirs", gpu=8, scheduler="default-scheduler"), nominated="n")
    victim = make_pod("victim", gpu=8, node="n", scheduler="default-scheduler")
    room = make_room(make_node("n"), pods=[victim, nominated])
    room.pod_changed(victim, None)
    assert room.amounts.free("n")["nvidia.com/gpu"] == 0
    room.pod_changed(nominated, msgspec.structs.replace(nominated, nominated=""))
    assert room.amounts.free("n")["nvidia.com/gpu"] == 8


def test_nodes_that_are_not_ours_are_not_used() -> None:
    room = make_room(make_node("ours", labels={"pool": "batch"}), make_node("theirs"))
    room.use_nodes(lambda node: node.metadata.labels.get("pool") == "batch")
    assert [node.metadata.name for node in room.fleet.ready()] == ["ours"]
    room.node_changed("theirs", make_node("theirs", labels={"pool": "batch"}))
    assert len(room.fleet.ready()) == 2
    room.use_nodes(lambda node: True)
    room.node_changed("ours", None)
    assert [node.metadata.name for node in room.fleet.ready()] == ["theirs"]


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        pytest.param([], [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}], id="none"),
        pytest.param(
            [{"matchExpressions": [1]}, {"matchFields": [2]}],
            [
                {"matchExpressions": [1], "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]},
                {"matchFields": [2, {"key": "metadata.name", "operator": "In", "values": ["n"]}]},
            ],
            id="each of its own is kept and added to",
        ),
    ],
)
def test_a_pod_is_restricted_to_its_node(terms: list[Any], expected: list[Any]) -> None:
    assert pinned(terms, "n") == expected


def test_a_pod_that_is_not_bound_is_overdue_sooner_once_it_was_refused() -> None:
    open_ = Lifted()
    for pod in (let_go("a"), let_go("b"), let_go("c")):
        open_.pod_changed(None, pod)
    assert open_.overdue(100.0) == []
    open_.pod_changed(let_go("a"), let_go("a", conditions=NO))
    open_.pod_changed(let_go("b"), make_pod("b", node="n"))
    assert open_.overdue(101.0) == []
    assert open_.deadline == 101.0 + AFTER_NO
    assert [pod.metadata.name for pod in open_.overdue(101.0 + AFTER_NO)] == ["a"]
    open_.pod_changed(let_go("a"), let_go("a", conditions=NO))
    assert open_.overdue(102.0 + AFTER_NO) == [], "each is given out once"
    assert [pod.metadata.name for pod in open_.overdue(100.0 + PATIENCE)] == ["c"]


def test_a_refusal_has_the_schedulers_words() -> None:
    assert refusal([let_go(conditions=NO), let_go("q")]) == "default-scheduler has not bound 2 of its pods: 0/1 nodes"
    assert refusal([let_go()]) == "default-scheduler has not bound 1 of its pods yet"


DISRUPTED = [{"type": "DisruptionTarget", "status": "True"}]
ENDS: list[tuple[str, Pod, bool, bool]] = [
    ("no room on the node", make_pod("p", phase="Failed", reason="OutOfcpu"), True, True),
    ("a device is gone", make_pod("p", phase="Failed", reason="UnexpectedAdmissionError"), True, True),
    ("its node changed", make_pod("p", phase="Failed", reason="NodeAffinity"), True, True),
    ("its node was shut down", make_pod("p", phase="Failed", reason="NodeShutdown"), True, False),
    ("pushed out for another", make_pod("p", phase="Failed", reason="Preempting"), True, False),
    ("evicted", make_pod("p", phase="Failed", reason="Evicted", conditions=DISRUPTED), True, False),
    ("its own program failed", make_pod("p", phase="Failed", codes=[1]), False, False),
    ("it runs", make_pod("p", phase="Running"), False, False),
]


@pytest.mark.parametrize(("pod", "expected", "watched"), [c[1:] for c in ENDS], ids=[c[0] for c in ENDS])
def test_ends_that_are_not_a_pods_own(pod: Pod, expected: bool, watched: bool) -> None:
    assert blameless(pod, evictions_count=False) is expected
    assert blameless(pod, evictions_count=True) is watched
