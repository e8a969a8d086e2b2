"""Pods of a lower priority leave so that a gang fits inside a member: which, and what is kept meanwhile."""

from __future__ import annotations

from typing import Any

import msgspec
import orjson
import pytest

from atoll.agent.objects import HyperNode, Node, Pod, decode_budget
from atoll.agent.scheduler.core import Bind, Evict, Explain, MemberCore, Nominate, Pass
from atoll.agent.scheduler.core.events import (
    BudgetSet,
    HoldAsked,
    HyperNodeSet,
    NodeSet,
    PodGone,
    PodGroupSet,
    PodSet,
    Whose,
)
from atoll.agent.scheduler.core.settings import MemberCoreSettings, PreemptionSettings
from tests.agent.builders import make_domain, make_group, make_node, make_pod
from tests.agent.holding import part
from tests.agent.telling import of, settle

NODES = [make_node(name) for name in ("n0", "n1")]


def core_of(*nodes: Node, domains: list[HyperNode] | None = None, **settings: Any) -> MemberCore:
    core = MemberCore(MemberCoreSettings(preemption=PreemptionSettings(**settings)))
    for node in nodes or NODES:
        core.handle(NodeSet(node))
    for domain in domains or []:
        core.handle(HyperNodeSet(domain))
    return core


def gang(core: MemberCore, name: str, *pods: Pod, minimum: int | None = None, **more: Any) -> None:
    core.handle(PodGroupSet(make_group(name, len(pods) if minimum is None else minimum, **more)))
    for pod in pods:
        core.handle(PodSet(pod, Whose.OURS))


def running(core: MemberCore, name: str, *nodes: str, gpu: int = 8, minimum: int | None = None, **more: Any) -> None:
    """A gang of a pod on each of these nodes."""
    pods = [make_pod(f"{name}{i}", group=name, index=i, gpu=gpu, node=node, **more) for i, node in enumerate(nodes)]
    gang(core, name, *pods, minimum=minimum)


def waiting(core: MemberCore, name: str, pods: int, gpu: int = 8, priority: int = 10, **more: Any) -> None:
    topology = more.pop("topology", None)
    made = [make_pod(f"{name}{i}", group=name, index=i, gpu=gpu, priority=priority, **more) for i in range(pods)]
    gang(core, name, *made, topology=topology)


def bare(core: MemberCore, name: str, **more: Any) -> None:
    core.handle(PodSet(make_pod(name, **more), Whose.OURS))


def evicted(commands: list[Any]) -> list[str]:
    return sorted(key.removeprefix("default/") for each in of(Evict, commands) for key, _ in each.pods)


def leave(core: MemberCore, *names: str) -> None:
    """Evicted pods are deleted, and still there."""
    for name in names:
        pod = core.roster.pod(f"default/{name}")
        assert pod is not None
        meta = msgspec.structs.replace(pod.metadata, deletion_timestamp="2026-01-01T00:01:00Z")
        core.handle(PodSet(msgspec.structs.replace(pod, metadata=meta), Whose.OURS))


def gone(core: MemberCore, *names: str) -> None:
    for name in names:
        core.handle(PodGone(f"default/{name}"))


def budget(allowed: int, **labels: str) -> BudgetSet:
    spec = {"selector": {"matchLabels": labels}}
    meta = {"name": "b", "namespace": "default"}
    status = {"disruptionsAllowed": allowed}
    return BudgetSet(decode_budget(orjson.dumps({"metadata": meta, "spec": spec, "status": status})))


def test_a_gang_gets_the_nodes_of_lower_ones_once_they_are_gone() -> None:
    """1. A whole gang is evicted and its nodes are nominated. 2. One pod is gone: nothing is bound. 3. The other one
    is: the gang is bound there.
    """
    core = core_of()
    running(core, "low", "n0", "n1")
    waiting(core, "high", 2)
    commands = settle(core)
    assert evicted(commands) == ["low0", "low1"]
    [kept] = of(Nominate, commands)
    assert sorted(node for _, _, node in kept.pods) == ["n0", "n1"]
    assert "2 of 2 victims have not ended yet" in core.waits["default/high"].message
    leave(core, "low0", "low1")
    gone(core, "low0")
    commands = settle(core)
    assert (of(Bind, commands), evicted(commands)) == ([], [])
    gone(core, "low1")
    [bound] = of(Bind, settle(core))
    assert (bound.gang, len(bound.pods), core.nominations.get("default/high")) == ("default/high", 2, None)


@pytest.mark.parametrize(
    "of_victims",
    [
        pytest.param({"priority": 10}, id="of the same priority"),
        pytest.param({"binding": "b"}, id="sent by the host"),
        pytest.param({"scheduler": "default-scheduler"}, id="placed by others"),
    ],
)
def test_what_is_not_evicted(of_victims: dict[str, Any]) -> None:
    core = core_of(NODES[0])
    whose = Whose.OTHERS if "scheduler" in of_victims else Whose.OURS
    core.handle(PodSet(make_pod("low", gpu=8, node="n0", **of_victims), whose))
    bare(core, "high", gpu=8, priority=10)
    assert evicted(settle(core)) == []


def test_what_its_user_does_not_want_evicted_stays() -> None:
    core = core_of(NODES[0])
    pod = make_pod("low", gpu=8, node="n0")
    notes = {**pod.metadata.annotations, "volcano.sh/preemptable": "false"}
    meta = msgspec.structs.replace(pod.metadata, annotations=notes)
    core.handle(PodSet(msgspec.structs.replace(pod, metadata=meta), Whose.OURS))
    bare(core, "high", gpu=8, priority=10)
    assert evicted(settle(core)) == []


def test_a_pod_whose_policy_is_never_waits_and_says_so() -> None:
    core = core_of(NODES[0])
    bare(core, "low", gpu=8, node="n0")
    bare(core, "high", gpu=8, priority=10, spec={"preemptionPolicy": "Never"})
    commands = settle(core)
    assert evicted(commands) == []
    assert "not eligible due to preemptionPolicy=Never" in of(Explain, commands)[-1].message


def test_it_can_be_turned_off() -> None:
    core = core_of(NODES[0], enabled=False)
    bare(core, "low", gpu=8, node="n0")
    bare(core, "high", gpu=8, priority=10)
    assert evicted(settle(core)) == []


def test_an_elastic_gang_gives_what_it_can_spare_and_runs_on() -> None:
    core = core_of()
    running(core, "elastic", "n0", "n0", "n1", "n1", gpu=4, minimum=2)
    bare(core, "high", gpu=8, priority=10)
    assert evicted(settle(core)) == ["elastic2", "elastic3"]


def test_a_gang_that_has_no_pod_to_spare_goes_whole() -> None:
    core = core_of()
    running(core, "low", "n0", "n1")
    bare(core, "high", gpu=8, priority=10)
    assert evicted(settle(core)) == ["low0", "low1"]


def test_the_minimum_of_each_task_stays() -> None:
    """Two pods of four may go, but only workers."""
    core = core_of(NODES[0])
    pods = [make_pod(f"p{i}", group="g", task="ps" if i > 1 else "w", index=i % 2, gpu=2, node="n0") for i in range(4)]
    gang(core, "g", *pods, minimum=2, tasks={"ps": 2})
    bare(core, "high", gpu=4, priority=10)
    assert evicted(settle(core)) == ["p0", "p1"]


def test_the_lowest_priority_goes_though_one_victim_of_a_higher_one_would_do() -> None:
    core = core_of()
    for name in ("a", "b"):
        bare(core, name, gpu=4, node="n0")
    bare(core, "middle", gpu=8, node="n1", priority=5)
    bare(core, "high", gpu=8, priority=10)
    assert evicted(settle(core)) == ["a", "b"]


def test_a_domain_is_freed_and_not_scattered_nodes() -> None:
    """Each rack of four has low pods on two nodes; the rack with one more low pod is the one that can be freed."""
    nodes = [make_node(f"n{i}") for i in range(8)]
    racks = [make_domain(f"r{r}", 1, [f"n{i}" for i in range(4 * r, 4 * r + 4)]) for r in range(2)]
    core = core_of(*nodes, domains=racks)
    for i in range(8):
        bare(core, f"p{i}", gpu=8, node=f"n{i}", priority=20 if i in (0, 1, 4) else 0)
    waiting(core, "high", 3, topology={"mode": "hard", "highestTierAllowed": 1})
    commands = settle(core)
    assert evicted(commands) == ["p5", "p6", "p7"]
    [kept] = of(Nominate, commands)
    assert sorted(node for _, _, node in kept.pods) == ["n5", "n6", "n7"]


def test_no_budget_is_broken() -> None:
    """1. A budget allows one pod to go, two are needed. 2. It allows two."""
    core = core_of(NODES[0])
    core.handle(budget(1, **{"volcano.sh/task-index": "0"}))
    for name in ("a", "b"):
        bare(core, name, gpu=4, node="n0")
    bare(core, "high", gpu=8, priority=10)
    assert evicted(settle(core)) == []
    core.handle(budget(2, **{"volcano.sh/task-index": "0"}))
    assert evicted(settle(core)) == ["a", "b"]


def test_a_pod_beside_what_a_budget_keeps_goes() -> None:
    core = core_of(NODES[0])
    core.handle(budget(0, **{"volcano.sh/task-index": "7"}))
    bare(core, "kept", gpu=4, node="n0", index=7)
    bare(core, "free", gpu=4, node="n0")
    bare(core, "high", gpu=4, priority=10)
    assert evicted(settle(core)) == ["free"]


def test_nothing_lower_takes_what_is_kept_and_nobody_else_is_evicted_for_it() -> None:
    """1. A node is kept for a gang. 2. A lower pod, which fits in the free half, comes when half is free."""
    core = core_of(NODES[0])
    for name in ("a", "b"):
        bare(core, name, gpu=4, node="n0")
    bare(core, "high", gpu=8, priority=10)
    assert evicted(settle(core)) == ["a", "b"]
    leave(core, "a", "b")
    gone(core, "a")
    bare(core, "between", gpu=4, priority=5)
    commands = settle(core)
    assert (of(Bind, commands), evicted(commands)) == ([], [])
    gone(core, "b")
    assert [each.gang for each in of(Bind, settle(core))] == ["pod/default/high"]


def test_a_higher_gang_gets_what_is_kept_for_a_lower_one_without_other_victims() -> None:
    core = core_of()
    bare(core, "low", gpu=8, node="n0")
    bare(core, "firm", gpu=8, node="n1", priority=30)
    bare(core, "high", gpu=8, priority=10)
    assert evicted(settle(core)) == ["low"]
    leave(core, "low")
    bare(core, "highest", gpu=8, priority=20)
    commands = settle(core)
    assert evicted(commands) == []
    assert [(each.gang, [node for _, _, node in each.pods]) for each in of(Nominate, commands)] == [
        ("pod/default/high", [""]),
        ("pod/default/highest", ["n0"]),
    ]
    gone(core, "low")
    assert [each.gang for each in of(Bind, settle(core))] == ["pod/default/highest"]


def test_after_a_restart_nobody_else_is_evicted_and_the_nodes_are_kept_again() -> None:
    """A core begins while victims leave; its pod says which node was kept."""
    core = core_of()
    bare(core, "low", gpu=8, node="n0")
    bare(core, "other", gpu=8, node="n1")
    leave(core, "low")
    core.handle(PodSet(msgspec.structs.replace(make_pod("high", gpu=8, priority=10), nominated="n0"), Whose.OURS))
    commands = settle(core)
    assert evicted(commands) == []
    assert [node for each in of(Nominate, commands) for _, _, node in each.pods] == ["n0"]
    bare(core, "between", gpu=8, priority=5)
    assert evicted(settle(core)) == ["other"]


def test_a_victim_that_does_not_leave_is_given_up_after_a_while() -> None:
    """1. The only victim does not go. 2. After its grace period and patience another one is looked for: there is
    none. 3. The pod's node is kept no longer.
    """
    core = core_of(NODES[0], patience=10.0)
    bare(core, "low", gpu=8, node="n0")
    bare(core, "high", gpu=8, priority=10)
    settle(core)
    leave(core, "low")
    settle(core, 1.0)
    assert core.deadline == 40.0
    commands = core.handle(Pass(40.0)) + settle(core, 40.0)
    assert [node for each in of(Nominate, commands) for _, _, node in each.pods] == [""]
    assert evicted(commands) == []
    assert core.deadline is None


def test_victims_are_not_looked_for_beyond_so_many_a_pass_and_all_get_their_turn() -> None:
    nodes = [make_node(f"n{i}") for i in range(6)]
    core = core_of(*nodes, searches=2)
    for i in range(6):
        bare(core, f"low{i}", gpu=8, node=f"n{i}")
        bare(core, f"high{i}", gpu=8, priority=10)
    assert len(evicted(core.handle(Pass(0.0)))) == 2
    assert len(evicted(settle(core))) == 4


def test_reserved_nodes_of_a_part_are_no_victims_and_stay_reserved() -> None:
    """A hold and a low pod share a node: the pod is evicted, the hold keeps what it has."""
    core = core_of(NODES[0])
    bare(core, "low", gpu=4, node="n0")
    core.handle(HoldAsked("b", 1, part(1, gpu=4), "train", "default", 0.0))
    bare(core, "high", gpu=4, priority=10)
    commands = settle(core)
    assert evicted(commands) == ["low"]
    hold = core.holds.get("b")
    assert hold is not None
    assert hold.state == "Reserved"
    leave(core, "low")
    settle(core)
    assert hold.state == "Reserved"


def test_a_pod_with_a_host_port_evicts_the_one_that_has_it() -> None:
    ports = {"containers": [{"resources": {"requests": {"cpu": "1"}}, "ports": [{"hostPort": 80}]}]}
    core = core_of(NODES[0])
    bare(core, "other", node="n0")
    bare(core, "low", node="n0", spec=ports)
    bare(core, "high", priority=10, spec=ports)
    assert evicted(settle(core)) == ["low"]
    leave(core, "low")
    gone(core, "low")
    assert [each.gang for each in of(Bind, settle(core))] == ["pod/default/high"]


def test_nothing_is_kept_for_a_gang_that_goes() -> None:
    core = core_of(NODES[0])
    bare(core, "low", gpu=8, node="n0")
    bare(core, "high", gpu=8, priority=10)
    settle(core)
    gone(core, "high")
    settle(core)
    assert core.nominations.get("pod/default/high") is None
    gone(core, "low")
    settle(core)
    assert core.room.amounts.free("n0")["nvidia.com/gpu"] == 8


def test_growth_beyond_a_minimum_evicts_nobody() -> None:
    core = core_of()
    bare(core, "low", gpu=8, node="n0")
    running(core, "g", "n1", priority=10, minimum=1)
    core.handle(PodSet(make_pod("g1", group="g", index=1, gpu=8, priority=10), Whose.OURS))
    assert evicted(settle(core)) == []
