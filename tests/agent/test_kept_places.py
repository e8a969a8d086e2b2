"""Places that the descheduler keeps on nodes: for their owners alone, until these come, or their time is over."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from atoll.agent.objects import Node, Pod
from atoll.agent.scheduler.core import Answer, Bind, Command, MemberCore, Pass
from atoll.agent.scheduler.core.events import HoldAsked, NodeGone, NodeSet, PodSet, Whose
from atoll.agent.scheduler.core.kept import Place, decode, encode
from atoll.model import keys
from atoll.model.objects import OwnerReference
from atoll.model.timestamps import rfc3339_seconds
from tests.agent.builders import make_node, make_pod
from tests.agent.holding import part
from tests.agent.telling import core_of, gang, of

WALL = 1_800_000_000.0
UNTIL = rfc3339_seconds(WALL + 180)


def place(owner: str, *, cpu: int = 8000, gpu: int = 0, priority: int = 0) -> Place:
    return Place(owner, {"cpu": cpu, "nvidia.com/gpu": gpu, "pods": 1}, priority, UNTIL)


def keeping(name: str, *places: Place) -> Node:
    node = make_node(name)
    notes = {keys.KEPT_PLACES: encode(places)}
    return msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, annotations=notes))


def replica(name: str, owner: str, **more: Any) -> Pod:
    pod = make_pod(name, cpu="8", **more)
    owners = [OwnerReference(kind="ReplicaSet", name=owner, uid=owner, controller=True)]
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, owner_references=owners))


def settle(core: MemberCore, now: float = 0.0) -> list[Command]:
    core.due = True
    commands: list[Command] = []
    while core.due:
        commands += core.handle(Pass(now, WALL + now))
    return commands


def placed(core: MemberCore, now: float = 0.0) -> dict[str, str]:
    return {key.partition("/")[2]: node for bind in of(Bind, settle(core, now)) for key, _, node in bind.pods}


def test_another_pod_waits_until_the_time_of_the_place_is_over() -> None:
    core = core_of(keeping("n", place("mine")))
    core.handle(PodSet(replica("other", "theirs"), Whose.OURS))
    assert placed(core) == {}
    assert core.deadline == 180.0
    assert placed(core, 179.0) == {}
    assert placed(core, 180.0) == {"other": "n"}
    assert core.room.amounts.free("n")["cpu"] == 0


def test_the_owner_gets_it_and_what_is_left_is_free_for_others() -> None:
    core = core_of(keeping("n1", place("mine")), make_node("n2"))
    core.handle(PodSet(replica("mine-1", "mine"), Whose.OURS))
    assert placed(core) == {"mine-1": "n1"}
    # A second replica has no place of its own; the node says the same as before.
    core.handle(NodeSet(keeping("n1", place("mine"))))
    core.handle(PodSet(replica("mine-2", "mine"), Whose.OURS))
    assert placed(core) == {"mine-2": "n2"}
    assert [core.room.amounts.free(name)["cpu"] for name in ("n1", "n2")] == [0, 0]


def test_a_gang_gets_the_places_of_its_binding_whole() -> None:
    core = core_of(keeping("n1", place("b")), keeping("n2", place("b")), make_node("n3"), make_node("n4"))
    pods = [make_pod(f"g{index}", group="g", index=index, cpu="8", binding="b") for index in range(2)]
    gang(core, "g", *pods)
    assert placed(core) == {"g0": "n1", "g1": "n2"}
    assert not core.kept


def test_an_owner_that_comes_elsewhere_gives_its_place_back() -> None:
    core = core_of(keeping("n1", place("mine")), make_node("n2"))
    core.handle(PodSet(replica("mine-1", "mine", spec={"nodeSelector": {"kubernetes.io/hostname": "n2"}}), Whose.OURS))
    core.handle(PodSet(replica("other", "theirs"), Whose.OURS))
    assert placed(core) == {"mine-1": "n2", "other": "n1"}


def test_a_gang_of_a_higher_priority_does_not_wait_for_it() -> None:
    core = core_of(keeping("n", place("mine", priority=5)))
    core.handle(PodSet(replica("equal", "theirs", priority=5), Whose.OURS))
    assert placed(core) == {}
    core.handle(PodSet(replica("higher", "others", priority=6), Whose.OURS))
    assert placed(core) == {"higher": "n"}


def test_a_hold_for_the_same_gang_takes_its_places() -> None:
    core = core_of(keeping("n", place("b", cpu=1000, gpu=8)))
    for uid, state in (("other", "Refused"), ("b", "Reserved")):
        [answer] = of(Answer, core.handle(HoldAsked(uid, 2, part(1, gpu=8), uid, "default", 0.0)))
        assert answer.state == state
    assert not core.kept


def test_places_that_a_node_carries_no_more_and_nodes_that_go_are_given_back() -> None:
    core = core_of(keeping("n1", place("a"), place("a", cpu=1)), keeping("n2", place("b")))
    core.handle(NodeSet(keeping("n1", place("a", cpu=1))))
    core.handle(NodeGone("n2"))
    assert core.room.amounts.free("n1")["cpu"] == 7999
    core.handle(NodeSet(make_node("n2")))
    assert core.room.amounts.free("n2")["cpu"] == 8000


@pytest.mark.parametrize(
    "text",
    ["", "{", "[1]", "[" * 5000, '[{"owner":"a","requests":{"cpu":-1},"priority":0,"until":"2030-01-01T00:00:00Z"}]',
     '[{"owner":"a","requests":{"cpu":1},"priority":0,"until":"soon"}]'],
)  # fmt: skip
def test_text_that_is_no_place_keeps_nothing(text: str) -> None:
    assert decode(text) == []
