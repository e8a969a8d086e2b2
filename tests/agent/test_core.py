"""The member's core, told by events: what it answers, without an API server and without a clock."""

from __future__ import annotations

from typing import Any

import msgspec
import orjson

from atoll.agent.objects import Pod, PodClaim
from atoll.agent.scheduler.core import Answer, Bind, Changed, Explain, MemberCore, Pass, Remake, gangs
from atoll.agent.scheduler.core.events import (
    Again,
    ClaimSet,
    HoldAsked,
    NodeGone,
    NodeSet,
    NotBound,
    PodGone,
    PodGroupGone,
    PodGroupSet,
    PodSet,
    Released,
    VolumeSet,
    Whose,
)
from atoll.agent.scheduler.core.planner import NO_POD_GROUP, NOT_ENOUGH_TASKS, VOLUMES
from atoll.agent.scheduler.core.settings import MemberCoreSettings
from atoll.agent.scheduler.notices import refusals
from atoll.agent.volumes import IN_USE, decode_claim, decode_volume
from atoll.model import keys
from tests.agent.builders import make_group, make_node, make_pod
from tests.agent.holding import part
from tests.agent.telling import core_of, gang, of, settle

PATIENCE = MemberCoreSettings().lifted.patience
MOST = MemberCoreSettings().gangs

FEWER: dict[str, Any] = {"nvidia.com/gpu": "4"}


def test_a_gang_is_bound_by_one_command_once_it_is_whole() -> None:
    """1. One of two pods is there. 2. The other one comes. 3. Both are seen bound, and nothing is left to do."""
    core = core_of()
    pods = [make_pod(f"p{index}", group="g", index=index, gpu=4, binding="b") for index in range(2)]
    gang(core, "g", pods[0], minimum=2)
    [said] = of(Explain, settle(core))
    assert (said.gang, said.reason) == ("default/g", NOT_ENOUGH_TASKS)
    core.handle(PodSet(pods[1], Whose.OURS))
    commands = settle(core)
    uids = [pod.metadata.uid for pod in pods]
    assert of(Bind, commands) == [Bind("default/g", (("default/p0", uids[0], "n"), ("default/p1", uids[1], "n")))]
    assert of(Explain, commands)[-1] == Explain("default/g", "", "")
    assert of(Changed, commands)[-1].bindings == ("b",)
    for pod in pods:
        core.handle(PodSet(msgspec.structs.replace(pod, node="n"), Whose.OURS))
    assert of(Bind, settle(core)) == []
    assert (core.due, core.waits, core.room.placed) == (False, {}, {"b": {"n": 2}})


def test_pods_that_are_not_bound_give_their_room_back_and_wait_for_their_turn() -> None:
    """1. Both gangs want the node, the better one gets it. 2. The API server refuses its pod: the other one gets the
    node. 3. The first may be planned again, and waits.
    """
    core = core_of()
    first, second = (make_pod(name, group=name, gpu=8, priority=priority) for name, priority in (("a", 2), ("b", 1)))
    gang(core, "a", first)
    gang(core, "b", second)
    assert [each.gang for each in of(Bind, settle(core))] == ["default/a"]
    core.handle(NotBound(((first.metadata.key, first.metadata.uid),)))
    assert [each.gang for each in of(Bind, settle(core))] == ["default/b"]
    core.handle(Again("default/a"))
    assert [each.gang for each in of(Explain, settle(core)) if each.reason] == ["default/a"]


def test_what_is_said_of_a_pod_that_was_replaced_meanwhile_changes_nothing() -> None:
    core = core_of()
    pod = make_pod("p", group="g", gpu=8)
    gang(core, "g", pod)
    settle(core)
    core.handle(NotBound((("default/p", "another"),)))
    assert core.room.amounts.free("n")["nvidia.com/gpu"] == 0


def test_a_pass_decides_on_a_few_and_the_next_one_goes_on() -> None:
    """1. More gangs than a pass takes. 2. A pod of one that is still to come goes away: it is not planned."""
    count = MOST + 4
    core = core_of(make_node("n", pods="64"))
    for number in range(count):
        gang(core, f"g{number:02}", make_pod(f"p{number:02}", group=f"g{number:02}", cpu="0"))
    begun = of(Bind, core.handle(Pass(0.0)))
    assert (len(begun), core.under_way, core.due) == (MOST, True, True)
    last = f"default/p{count - 1:02}"
    core.handle(PodGone(last))
    rest = of(Bind, settle(core))
    assert (len(rest), core.under_way) == (3, False)
    assert last not in {key for each in rest for key, _, _ in each.pods}
    assert len(core.room.assumed) == count - 1


def test_why_a_gang_waits_is_told_when_that_changes_only() -> None:
    core = core_of()
    gang(core, "g", make_pod("p", group="g", gpu=9))
    assert len(of(Explain, settle(core))) == 1
    core.handle(NodeSet(make_node("n", labels={"a": "b"})))
    assert of(Explain, settle(core)) == []
    core.handle(NodeSet(make_node("n", **FEWER)))
    [said] = of(Explain, settle(core))
    assert "short by 5" in said.message


def test_nothing_is_left_of_a_gang_that_goes() -> None:
    core = core_of()
    gang(core, "g", make_pod("p", group="g", gpu=9))
    settle(core)
    core.handle(PodGroupGone("default/g"))
    assert [each.reason for each in of(Explain, settle(core))] == [NO_POD_GROUP]
    core.handle(PodGone("default/p"))
    assert of(Explain, settle(core)) == [Explain("default/g", "", "")]
    assert (core.waits, core.roster.gangs, core.roster.pods, core._pending) == ({}, {}, {}, {})


def test_a_pod_becomes_ours_when_its_workload_is_known() -> None:
    core = core_of()
    pod = make_pod("p")
    core.handle(PodSet(pod, Whose.OTHERS))
    assert of(Bind, settle(core)) == []
    core.handle(PodSet(pod, Whose.JOINING))
    assert of(Bind, settle(core)) == [], "it is to get a PodGroup first"
    core.handle(PodSet(pod, Whose.OURS))
    assert [each.gang for each in of(Bind, settle(core))] == [gangs.key_of(pod)]


def test_a_hold_is_answered_at_once_and_told_when_its_nodes_go() -> None:
    core = core_of(make_node("n0"))
    [kept] = of(Answer, core.handle(HoldAsked("b", 1, part(2), "train", "default", 0.0)))
    assert (kept.state, kept.nodes, kept.requested) == ("Reserved", (("n0", 2),), 2)
    core.handle(NodeGone("n0"))
    core.handle(NodeSet(make_node("n1")))
    told = of(Answer, settle(core))
    assert [(each.state, each.nodes) for each in told] == [("Refused", ()), ("Reserved", (("n1", 2),))]
    assert told[-1].kept != kept.kept
    assert of(Answer, core.handle(Released("b"))) == [Answer("b", -1, "Over")]


def test_a_pod_that_another_scheduler_does_not_bind_is_made_again() -> None:
    core = core_of()
    pod = make_pod("p", gpu=4, binding="b", scheduler="default-scheduler")
    notes = {**pod.metadata.annotations, keys.PLANNED_NODE: "n"}
    pod = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=notes))
    core.handle(PodSet(pod, Whose.LET_GO))
    settle(core, 100.0)
    assert core.deadline == 100.0 + PATIENCE
    assert of(Remake, core.handle(Pass(100.0 + PATIENCE))) == [Remake("default/p", pod.metadata.uid)]
    assert core.room.amounts.free("n")["nvidia.com/gpu"] == 8


def with_port(name: str, **fields: Any) -> Pod:
    containers = [{"resources": {"requests": {"cpu": "1"}}, "ports": [{"hostPort": 80}]}]
    return make_pod(name, spec={"containers": containers}, **fields)


def test_pods_with_a_host_port_get_nodes_where_it_is_free() -> None:
    """1. Another's pod has the port of one of two nodes. 2. Two pods want it: one is bound, the other waits. 3. The
    port is free again.
    """
    core = core_of(make_node("n0"), make_node("n1"))
    core.handle(PodSet(with_port("theirs", node="n0"), Whose.OTHERS))
    gang(core, "a", with_port("a", group="a", priority=2))
    gang(core, "b", with_port("b", group="b", priority=1))
    commands = settle(core)
    assert [(each.gang, each.pods[0][2]) for each in of(Bind, commands)] == [("default/a", "n1")]
    assert [each.gang for each in of(Explain, commands) if each.reason] == ["default/b"]
    assert "1 node(s) didn't have free ports" not in refusals(core.room, make_pod("p"))
    assert refusals(core.room, with_port("p")) == (
        "0/2 nodes are available: 2 node(s) didn't have free ports for the requested pod ports."
    )
    core.handle(PodGone("default/theirs"))
    assert [(each.gang, each.pods[0][2]) for each in of(Bind, settle(core))] == [("default/b", "n0")]


def test_a_hold_keeps_ports_and_is_refused_when_others_took_them() -> None:
    core = core_of(make_node("n0"))
    wanted = part(1)
    wanted = msgspec.structs.replace(wanted, tasks=[msgspec.structs.replace(wanted.tasks[0], ports=[("", "TCP", 80)])])
    [kept] = of(Answer, core.handle(HoldAsked("b", 1, wanted, "train", "default", 0.0)))
    assert kept.state == "Reserved"
    gang(core, "g", with_port("p", group="g"))
    assert of(Bind, settle(core)) == []
    core.handle(PodSet(with_port("theirs", node="n0"), Whose.OTHERS))
    assert {each.state for each in of(Answer, settle(core))} == {"Refused"}
    core.handle(PodGone("default/theirs"))
    assert of(Answer, settle(core))[-1].state == "Reserved"
    core.handle(Released("b"))
    assert [each.gang for each in of(Bind, settle(core))] == ["default/g"]


def mounting(core: MemberCore, name: str, claim: str, **more: Any) -> Pod:
    pod = msgspec.structs.replace(make_pod(name, **more), claims=(PodClaim(claim),))
    core.handle(PodSet(pod, Whose.OURS))
    return pod


def one_pod_claim(core: MemberCore, name: str) -> None:
    spec = {"volumeName": "v", "accessModes": ["ReadWriteOncePod"]}
    meta = {"name": name, "namespace": "default", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    core.handle(ClaimSet(decode_claim(orjson.dumps({"metadata": meta, "spec": spec, "status": {"phase": "Bound"}}))))
    core.handle(VolumeSet(decode_volume(orjson.dumps({"metadata": {"name": "v"}}))))


def test_a_claim_of_one_pod_is_used_by_one_pod_at_a_time() -> None:
    """1. Two pods come that use it: the better one is bound, the other one waits with that reason. 2. It is seen
    bound. 3. It ends: the other one is bound.
    """
    core = core_of()
    one_pod_claim(core, "data")
    first = mounting(core, "first", "data", priority=1)
    mounting(core, "second", "data")
    commands = settle(core)
    assert [each.gang for each in of(Bind, commands)] == ["pod/default/first"]
    [said] = [each for each in of(Explain, commands) if each.gang == "pod/default/second"]
    assert (said.reason, said.message) == (VOLUMES, IN_USE)
    core.handle(PodSet(msgspec.structs.replace(first, node="n"), Whose.OURS))
    assert of(Bind, settle(core)) == []
    core.handle(PodSet(msgspec.structs.replace(first, node="n", phase="Succeeded"), Whose.OURS))
    assert [each.gang for each in of(Bind, settle(core))] == ["pod/default/second"]


def test_a_claim_of_one_pod_is_free_again_when_its_pod_is_not_bound() -> None:
    core = core_of()
    one_pod_claim(core, "data")
    first = mounting(core, "first", "data", priority=1)
    mounting(core, "second", "data")
    settle(core)
    core.handle(NotBound(((first.metadata.key, first.metadata.uid),)))
    core.handle(PodGone(first.metadata.key))
    assert [each.gang for each in of(Bind, settle(core))] == ["pod/default/second"]


def test_an_elastic_gang_starts_with_one_of_the_pods_that_share_a_claim_of_one_pod() -> None:
    core = core_of()
    one_pod_claim(core, "data")
    core.handle(PodGroupSet(make_group("g", 1)))
    for index in range(2):
        mounting(core, f"p{index}", "data", group="g", index=index)
    commands = settle(core)
    assert [[key for key, _, _ in each.pods] for each in of(Bind, commands)] == [["default/p0"]]
    bound = core.roster.pod("default/p0")
    assert bound is not None
    core.handle(PodSet(msgspec.structs.replace(bound, node="n"), Whose.OURS))
    settle(core)
    assert core.waits["default/g"].message == IN_USE


def test_a_gang_that_needs_two_pods_with_one_claim_of_one_pod_waits() -> None:
    core = core_of()
    one_pod_claim(core, "data")
    core.handle(PodGroupSet(make_group("g", 2)))
    for index in range(2):
        mounting(core, f"p{index}", "data", group="g", index=index)
    assert of(Bind, settle(core)) == []
    assert (core.waits["default/g"].reason, core.waits["default/g"].message) == (VOLUMES, IN_USE)
