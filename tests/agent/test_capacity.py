"""The summary of a member's room is kept while pods come and go, and says the same as one made anew."""

from __future__ import annotations

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from atoll.agent.capacity import MemberCapacity
from atoll.agent.objects import HyperNode, Node, Pod
from atoll.agent.scheduler.core.room import Room
from atoll.model.gang import Task
from atoll.model.objects import Meta

NODES = [f"n{i}" for i in range(5)]
PODS = [f"p{i}" for i in range(8)]

ONE = Task("w", 1, 1, {"nvidia.com/gpu": 1})


def make_node(name: str, gpu: int, zone: str, *, cordoned: bool = False, ready: bool = True) -> Node:
    body = {
        "metadata": {"name": name, "labels": {"zone": zone, "host": name}},
        "spec": {"unschedulable": cordoned},
        "status": {
            "allocatable": {"nvidia.com/gpu": str(gpu), "pods": "110"},
            "conditions": [{"type": "Ready", "status": str(ready)}],
        },
    }
    return msgspec.convert(body, Node)


def make_rack(names: list[str], *, lost: bool = False) -> HyperNode:
    members = [{"type": "Node", "selector": {"exactMatch": {"name": name}}} for name in names]
    status = {"conditions": [{"type": "Available", "status": str(not lost)}]}
    return HyperNode(Meta("rack"), {"tier": 1, "members": members}, status)


class Kept(RuleBasedStateMachine):
    """One summary follows a room; another is made at every look."""

    @initialize()
    def begin(self) -> None:
        self.room, self.nodes, self.pods = Room(), dict[str, Node](), dict[str, Pod]()
        self.kept = MemberCapacity("m", self.room)

    @rule(
        name=st.sampled_from(NODES),
        gpu=st.integers(1, 8),
        zone=st.sampled_from("ab"),
        cordoned=st.booleans(),
        ready=st.booleans(),
    )
    def set_node(self, name: str, gpu: int, zone: str, cordoned: bool, ready: bool) -> None:
        node = make_node(name, gpu, zone, cordoned=cordoned, ready=ready)
        self.room.node_changed(name, node)
        self.nodes[name] = node

    @rule(name=st.sampled_from(NODES))
    def drop_node(self, name: str) -> None:
        if self.nodes.pop(name, None) is not None:
            self.room.node_changed(name, None)

    @rule(names=st.lists(st.sampled_from(NODES), unique=True, min_size=1), lost=st.booleans())
    def set_rack(self, names: list[str], lost: bool) -> None:
        rack = make_rack(names, lost=lost)
        self.room.hyper_node_changed(rack.metadata.name, rack)

    @rule(name=st.sampled_from(PODS), node=st.sampled_from(NODES), gpu=st.integers(1, 8))
    def bind(self, name: str, node: str, gpu: int) -> None:
        pod = Pod(Meta(name, "default", uid=f"{name}-{gpu}"), node=node, requests={"nvidia.com/gpu": gpu, "pods": 1})
        self.room.pod_changed(self.pods.get(name), pod)
        self.pods[name] = pod

    @rule(name=st.sampled_from(PODS))
    def end(self, name: str) -> None:
        if (pod := self.pods.pop(name, None)) is not None:
            self.room.pod_changed(pod, None)

    @rule(node=st.sampled_from(NODES), back=st.booleans())
    def reserve(self, node: str, back: bool) -> None:
        self.room.reserve(node, ONE, 1)
        if back:
            self.room.unreserve(node, ONE, 1)

    @invariant()
    def says_the_same(self) -> None:
        if hasattr(self, "kept"):
            assert self.kept.specs() == MemberCapacity("m", self.room).specs()


Kept.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestKept = Kept.TestCase


def test_nodes_of_a_domain_that_is_lost_are_neither_used_nor_published_until_it_is_back() -> None:
    room, nodes = Room(), [make_node(name, 8, "a") for name in "xyz"]
    for node in nodes:
        room.node_changed(node.metadata.name, node)
    whole, lost = make_rack(["x", "y"]), make_rack(["x", "y"], lost=True)
    kept = MemberCapacity("m", room)
    for new, names in ((whole, "xyz"), (lost, "z"), (whole, "xyz"), (None, "xyz")):
        room.hyper_node_changed(whole.metadata.name, new)
        assert list(room.arrays.nodes().names) == list(names)
        published = [each for spec in kept.specs().values() for each in spec["classes"]]
        assert sorted(name for each in published for name in each["names"]) == list(names)
