"""What NUMA nodes of each kind of node have rules out on the host what no node could ever align."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from atoll.dispatcher.core import CapacitySet, Dispatch, Evict, Explain, MemberAnswer
from atoll.model.numa import Cells, Policy
from atoll.model.verdict import Reason
from tests.dispatcher.builders import GPU, BindingBuilder, make_binding, make_capacity, make_cluster, scene

SINGLE = Cells(Policy.SINGLE, ("cpu",), ((8,), (8,)), ((8,), (8,)))


def aligning(name: str) -> CapacitySet:
    published = make_capacity(name, [4, 4]).capacity
    classes = tuple(dataclasses.replace(each, numa=SINGLE) for each in published.classes)
    return CapacitySet(dataclasses.replace(published, classes=classes, aligns=True))


@pytest.mark.parametrize(
    ("wish", "fits"),
    [
        pytest.param({"aligned": [{"cpu": 8}]}, True, id="one NUMA node has as many"),
        pytest.param({"aligned": [{"cpu": 9}]}, False, id="none ever has"),
        pytest.param({"aligned": [{"cpu": 8}, {"cpu": 8}]}, True, id="each container by itself"),
        pytest.param({"aligned": [{"cpu": 2}], "numa": "restricted"}, False, id="another policy"),
        pytest.param({"aligned": [{"gpu": 9}]}, True, id="nothing is known of such devices"),
        pytest.param({}, True, id="shares of CPUs"),
    ],
)
def test_what_no_node_could_ever_align_is_sent_to_no_member_and_told(wish: dict[str, Any], fits: bool) -> None:
    s = scene(room=(make_cluster("m"), aligning("m")))
    [command] = s.submit(make_binding("a").tasks(1, **wish)).run()
    assert isinstance(command, Dispatch) == fits
    if not fits:
        assert isinstance(command, Explain)
        blocker = command.decision.blocker
        assert blocker is not None
        assert "even if it were empty" in blocker.message


WIDE: dict[str, Any] = {"aligned": [{"cpu": 9}]}


def other_member() -> tuple[Any, ...]:
    """One that could take any pod and is not allowed."""
    return (make_cluster("other", labels={"of": "others"}), make_capacity("other", [4, 4]))


def ours(name: str) -> BindingBuilder:
    return make_binding(name).affinity(clusterNames=["m", "n"])


@pytest.mark.parametrize("divided", [False, True])
def test_a_member_that_may_not_be_used_hides_no_numa_node(divided: bool) -> None:
    room = (make_cluster("m"), aligning("m"), make_cluster("n"), aligning("n"), *other_member())
    wide = ours("a").tasks(2, **WIDE)
    [command] = scene(room=room).submit(wide.divided() if divided else wide).run()
    assert isinstance(command, Explain)
    blocker = command.decision.blocker
    assert command.decision.reason is Reason.NO_NODE_MATCHES
    assert blocker is not None
    assert "even if it were empty" in blocker.message


def test_the_nearest_member_is_one_that_would_take_it_if_it_were_empty() -> None:
    room = (make_cluster("m"), aligning("m"), make_cluster("n"), make_capacity("n", [0, 0]))
    [command] = scene(room=room).submit(ours("a").tasks(1, **WIDE)).run()
    assert isinstance(command, Explain)
    blocker = command.decision.blocker
    assert blocker is not None
    assert (command.decision.reason, blocker.name) == (Reason.INSUFFICIENT_RESOURCES, "n")


def test_where_other_nodes_are_full_the_verdict_names_numa() -> None:
    capacity = aligning("m").capacity
    full = dataclasses.replace(capacity.classes[0], free={**capacity.classes[0].free, GPU: 0}, numa=None, labels={})
    room = (make_cluster("m"), CapacitySet(dataclasses.replace(capacity, classes=(*capacity.classes, full))))
    [command] = scene(room=room).submit(ours("a").tasks(1, **WIDE)).run()
    assert isinstance(command, Explain)
    blocker = command.decision.blocker
    assert blocker is not None
    assert command.decision.reason is Reason.INSUFFICIENT_RESOURCES
    assert "NUMA" in blocker.message


def test_a_member_that_reserves_nothing_is_quoted_while_it_is_avoided() -> None:
    s = scene(room=(make_cluster("m"), aligning("m"), *other_member()))
    s.submit(ours("a").tasks(1, aligned=[{"cpu": 8}])).run()
    no = MemberAnswer(False, requested=1, available=0, message="no NUMA node has as many free")
    s.change("a", reserved={"m": no})
    [evicted] = s.run()
    assert isinstance(evicted, Evict)
    assert evicted.decision.story[-1].text.endswith("m holds 0 of the 1 pod of its part: no NUMA node has as many free")
    s.change("a", released=s.view("a").generation)
    s.run()
    assert s.verdict("a") is Reason.AVOIDED
    blocker = s.view("a").decision.blocker
    assert blocker is not None
    assert blocker.message == "no NUMA node has as many free"
