"""Nodes with too much use take no pods of low priority while their taint says so, and what waits says why."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from atoll.agent.objects import Node, Pod
from atoll.agent.scheduler.core import Answer, Bind, Explain, MemberCore
from atoll.agent.scheduler.core.events import HoldAsked, NodeSet, Pass, PodSet, Whose
from atoll.agent.scheduler.notices import refusals
from atoll.fit.constraints import taints
from atoll.model import keys
from atoll.model.objects import OwnerReference
from atoll.model.timestamps import rfc3339_seconds
from tests.agent.builders import make_node, make_pod
from tests.agent.holding import part
from tests.agent.telling import core_of, gang, of, settle

WALL = 1_800_000_000.0
TOLERATES = {"tolerations": [{"key": keys.HOT, "operator": "Exists"}]}


def hot(name: str, below: int | None, renewed: float | None = None) -> Node:
    node, value = make_node(name), taints.hot(below)
    taint = {"key": keys.HOT, "effect": "PreferNoSchedule", "value": value}
    if renewed is not None:
        taint["timeAdded"] = rfc3339_seconds(renewed)
    return msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, taints=[taint]))


def of_daemon_set(pod: Pod) -> Pod:
    owner = OwnerReference(kind="DaemonSet", name="d", uid="d", controller=True)
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, owner_references=[owner]))


def placed(core: MemberCore) -> dict[str, str]:
    return {key.partition("/")[2]: node for bind in of(Bind, settle(core)) for key, _, node in bind.pods}


@pytest.mark.parametrize(
    ("below", "priority", "starts"),
    [
        pytest.param(1000, 999, False, id="a pod below the number waits"),
        pytest.param(1000, 1000, True, id="a pod at the number starts"),
        pytest.param(-5, -6, False, id="the number may be negative"),
        pytest.param(-5, 0, True, id="a pod above a negative number starts"),
        pytest.param(None, -9, True, id="without a number the taint is a preference"),
    ],
)
def test_a_hot_node_takes_no_pods_below_its_number(below: int | None, priority: int, starts: bool) -> None:
    core = core_of(hot("n", below))
    gang(core, "g", make_pod("g0", group="g", priority=priority))
    core.handle(PodSet(make_pod("bare", priority=priority), Whose.OURS))
    assert placed(core).keys() == ({"g0", "bare"} if starts else set())


@pytest.mark.parametrize("value", ["", "below-", "below-x", "below-99999999999", "1000"])
def test_a_value_that_is_no_number_keeps_no_pod_away(value: str) -> None:
    assert taints.accepts([], [{"key": keys.HOT, "effect": "PreferNoSchedule", "value": value}], -1)


def test_pods_that_tolerate_it_and_pods_of_daemon_sets_start() -> None:
    core = core_of(hot("n", 1000))
    core.handle(PodSet(make_pod("tolerates", spec=TOLERATES), Whose.OURS))
    core.handle(PodSet(of_daemon_set(make_pod("daemon")), Whose.OURS))
    assert placed(core).keys() == {"tolerates", "daemon"}


def test_a_gang_waits_whole_with_the_reason_and_starts_once_the_node_has_cooled() -> None:
    core = core_of(hot("n1", 1000), make_node("n2"))
    pods = [make_pod(f"g{index}", group="g", index=index, cpu="5") for index in range(2)]
    gang(core, "g", *pods)
    [told] = of(Explain, settle(core))
    assert told.message == (
        "2/2 tasks in gang unschedulable: there is room for 1 of the 2 pods that must start together"
        "; nodes too hot for pods of priority 0 (taint atoll.sh/hot): 1"
    )
    assert refusals(core.room, make_pod("x", cpu="9")) == (
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were hot (atoll.sh/hot) for pods of priority 0."
    )
    core.handle(NodeSet(make_node("n1")))
    assert sorted(placed(core).values()) == ["n1", "n2"]


def test_a_number_that_no_look_renews_counts_no_more() -> None:
    """1. Two nodes are tainted. 2. A look renews one. 3. The descheduler is gone: both numbers end, one after the other."""
    core = core_of(hot("n1", 1000, WALL), hot("n2", 1000, WALL))
    core.handle(PodSet(make_pod("a", cpu="5"), Whose.OURS))
    core.handle(PodSet(make_pod("b", cpu="5"), Whose.OURS))

    def bound(now: float) -> list[str]:
        return [node for bind in of(Bind, core.handle(Pass(now, WALL + now))) for _, _, node in bind.pods]

    assert bound(1) == []
    core.handle(NodeSet(hot("n2", 1000, WALL + 300)))
    assert bound(599) == []
    assert core.deadline == 600
    assert bound(600) == ["n1"]
    # A heartbeat of its kubelet brings the old taint again.
    core.handle(NodeSet(hot("n1", 1000, WALL)))
    assert core.deadline == 900
    assert bound(900) == ["n2"]
    assert core.deadline is None


@pytest.mark.parametrize("renewed", [None, WALL - 601, WALL + 601])
def test_a_number_without_a_time_that_may_be_is_a_preference(renewed: float | None) -> None:
    core = core_of(hot("n", 1000, renewed))
    core.handle(PodSet(make_pod("a"), Whose.OURS))
    assert of(Bind, core.handle(Pass(1, WALL)))


def test_a_gang_of_a_higher_priority_uses_hot_nodes_after_all_others() -> None:
    core = core_of(hot("n1", 1000), make_node("n2"))
    for name in ("a", "b"):
        gang(core, name, make_pod(name, group=name, cpu="5", priority=1000))
        assert placed(core) == {name: {"a": "n2", "b": "n1"}[name]}


def test_the_pod_of_the_lowest_priority_decides_for_pods_that_are_alike() -> None:
    core = core_of(hot("n", 1000))
    gang(core, "g", make_pod("g0", group="g", priority=2000), make_pod("g1", group="g", index=1, priority=0))
    assert placed(core) == {}


def test_no_hot_node_is_kept_for_a_part_of_low_priority_and_the_host_hears_why() -> None:
    answers: dict[int, Any] = {}
    for priority in (0, 1000):
        core = core_of(hot("n", 1000))
        asked = msgspec.structs.replace(part(1), priority=priority)
        [answers[priority]] = of(Answer, core.handle(HoldAsked("b", 1, asked, "g", "default", 0.0)))
    assert (answers[0].state, answers[1000].state) == ("Refused", "Reserved")
    assert "nodes too hot for pods of priority 0 (taint atoll.sh/hot): 1" in answers[0].message
