"""The arrays in which all members lie side by side: whatever becomes of one, they are as if made anew."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.dispatcher.core.capacity.members import Members
from atoll.dispatcher.core.capacity.shape import Shape, Shapes
from atoll.dispatcher.core.events import CapacitySet, CapacityView, ClusterView, NodeClass
from atoll.fit import Placement, place
from atoll.fit.placement import MANY
from atoll.fit.requests import Requests
from tests.dispatcher.builders import (
    GPU,
    BindingBuilder,
    dispatched,
    make_binding,
    make_capacity,
    make_cluster,
    names,
    scene,
)
from tests.dispatcher.memory import size

RACKS = ("r0", "r1", "r2")


@st.composite
def capacities(draw: st.DrawFn) -> CapacityView:
    """Of one of three members: some racks, in them nodes of two profiles with or without names."""
    name = draw(st.sampled_from(["a", "b", "c"]))
    racks = RACKS[: draw(st.integers(0, 3))]
    spine = [(f"{name}-s", 2, "", "")] if draw(st.booleans()) and racks else []
    domains = [*spine, *((f"{name}-{rack}", 1, "", spine[0][0] if spine else "") for rack in racks)]
    classes = []
    for number in range(draw(st.integers(0, 3))):
        nodes = draw(st.integers(1, 3))
        names = tuple(f"{name}{number}{node}" for node in range(nodes)) if draw(st.booleans()) else ()
        labels = {"zone": "z"} if draw(st.booleans()) else {}
        where = f"{name}-{draw(st.sampled_from(racks))}" if racks else ""
        free = {GPU: draw(st.integers(0, 8)), "pods": 10}
        classes.append(NodeClass(where, labels, (), nodes, free, names))
    return CapacityView(name, "", 1, tuple(domains), tuple(classes), {})


def told(capacities_: list[CapacityView], shapes: list[Shape]) -> Members:
    """Members that were told of these, one after the other, and looked at in between."""
    members = Members()
    for name in ("a", "b", "c"):
        members.set_view(name, ClusterView(name))
    # Resources are known from the start, so that nothing but nodes and domains changes.
    members.set_root("a", "", CapacityView("a", "", 1, (), (NodeClass("", {}, (), 1, {GPU: 0, "pods": 0}),), {}))
    for shape in shapes:
        members.enroll(shape)
    for capacity in capacities_:
        members.set_root(capacity.cluster, capacity.root, capacity)
        members.refresh()
    return members


def some_shapes() -> list[Shape]:
    known = Shapes()
    builders = [
        BindingBuilder("one").tasks(1),
        BindingBuilder("pair").tasks(2, gpu=3),
        BindingBuilder("zoned").tasks(1, gpu=2, node_selector={"zone": "z"}),
    ]
    return [known.take(builder.build()) for builder in builders]


@given(st.lists(capacities(), min_size=1, max_size=6))
def test_whatever_one_member_publishes_the_arrays_are_as_if_made_anew(published: list[CapacityView]) -> None:
    shapes, again = some_shapes(), some_shapes()
    members = told(published, shapes)
    members.table.check()
    last = {each.cluster: each for each in published}
    fresh = told(list(last.values()), again)
    for shape, other in zip(shapes, again, strict=True):
        assert members.table.counts[list(shape.rows)].tolist() == fresh.table.counts[list(other.rows)].tolist()
        assert members.table.nearest_tier(shape).tolist() == fresh.table.nearest_tier(other).tolist()
        for name in last:
            rooms, others = (
                each.table.room(each.by_name[name], which) for each, which in ((members, shape), (fresh, other))
            )
            assert [room.tolist() for room in rooms] == [room.tolist() for room in others]
            helds, others = (
                each.table.held(each.by_name[name], which) for each, which in ((members, shape), (fresh, other))
            )
            assert [held.tolist() for held in helds] == [held.tolist() for held in others]


def test_large_pods_in_flight_do_not_lose_their_room_to_small_ones() -> None:
    """1. Pods of 2, 2 and 3 are sent to a node of 7. 2. Their member publishes nodes of 3, 4 and 2: all have a place,
    and what is left is on one node.
    """
    s = scene(room=(make_cluster("m"), make_capacity("m", [7])))
    s.submit(make_binding("a").tasks(1, gpu=2), make_binding("b").tasks(1, gpu=2), make_binding("c").tasks(1, gpu=3))
    assert names(s.run()) == ["a", "b", "c"]
    s.tell(make_capacity("m", [3, 4, 2], generation=2))
    s.run()
    assert s.core.members.by_name["m"].nodes.free[0].tolist() == [0, 2, 0]


def test_a_member_is_short_until_its_figures_have_room_again() -> None:
    """What was sent there counts four, of which its figures hold two for a moment."""
    s = scene(room=(make_cluster("m"), make_capacity("m", [8])))
    s.submit(make_binding("a").tasks(4))
    assert names(s.run()) == ["a"]
    short = []
    for generation, free in enumerate((2, 8), start=2):
        s.tell(make_capacity("m", [free], generation=generation)).run()
        short.append(s.core.members.by_name["m"].short)
    assert short == [True, False]


@given(st.lists(capacities(), min_size=2, max_size=6), st.integers(1, 3))
def test_what_is_in_flight_elsewhere_stays_subtracted(published: list[CapacityView], pods: int) -> None:
    shapes = some_shapes()
    members = told(published[:1], shapes)
    member = members.by_name[published[0].cluster]
    gang = BindingBuilder("flying").tasks(pods).build().gang
    assert gang is not None
    placement = place(member.nodes, gang)
    if not isinstance(placement, Placement):
        return
    members.assume(member, "flying", gang, placement)
    free = member.nodes.free.copy()
    for capacity in published[1:]:
        if capacity.cluster != member.name:
            members.set_root(capacity.cluster, capacity.root, capacity)
            members.refresh()
    assert np.array_equal(member.nodes.free, free)
    members.table.check()


@pytest.mark.parametrize(
    ("after", "fits"), [({"r0": [4, 4], "r1": []}, True), ({"r0": [], "r1": [4], "r2": [4]}, False)]
)
def test_a_node_that_moves_beside_another_one_wakes_who_waits_for_both(after: dict[str, list[int]], fits: bool) -> None:
    """There is no more room in all than before, but enough of it in one place."""
    before: dict[str, list[int]] = {"r0": [4], "r1": [4], "r2": []}
    s = scene(room=(make_cluster("m"), make_capacity("m", before)))
    s.submit(make_binding("gang").tasks(8).hard(1))
    assert not dispatched(s.run())
    s.tell(make_capacity("m", after))
    assert bool(dispatched(s.run())) is fits


@given(
    st.lists(st.tuples(st.integers(0, 5), st.dictionaries(st.sampled_from("abx"), st.integers(1, 400))), max_size=300),
    st.lists(st.tuples(st.integers(-9, 900), st.integers(-9, 900)), min_size=1, max_size=70),
)
def test_rooms_of_rows_that_ask_for_something_else_again_and_again(
    edits: list[tuple[int, dict[str, int]]], nodes: list[tuple[int, int]]
) -> None:
    """Resource x is one that nobody has, of which nothing is said."""
    requests = Requests(("a", "b"), 6)
    rows: list[dict[str, int]] = [{} for _ in range(6)]
    for row, wanted in edits:
        requests.set(row, wanted)
        rows[row] = {name: amount for name, amount in wanted.items() if name != "x"}
    rooms = requests.rooms(np.array(nodes).T.astype(np.int64))
    for wanted, found in zip(rows, rooms.tolist(), strict=True):
        frees = [{"a": a, "b": b} for a, b in nodes]
        exact = [min([max(free[name], 0) // amount for name, amount in wanted.items()], default=MANY) for free in frees]
        assert found == exact


def test_amounts_that_are_not_asked_for_any_more_are_forgotten() -> None:
    requests = Requests(("a",), 2)
    before = 0
    for amount in range(1, 5000):
        if amount == 100:
            before = size(requests)
        requests.set(amount % 2, {"a": amount})
    assert size(requests) < before + 1000
    assert requests.rooms(np.array([[9998]])).tolist() == [[9998 // 4998], [9998 // 4999]]


def test_a_kind_of_pod_that_no_workload_waited_for_in_long_is_counted_anew() -> None:
    """Rows of the last kinds are kept; that of the first is another kind's by now."""
    members = told([CapacityView("a", "", 1, (), (NodeClass("", {}, (), 2, {GPU: 600, "pods": 600}),), {})], [])
    kinds = [Shapes().take(make_binding("a").tasks(1, gpu=amount).build()) for amount in range(1, 101)]
    for each in kinds:
        members.enroll(each)
        members.release(each)
    members.enroll(kinds[0])
    assert [room.tolist() for room in members.table.room(members.by_name["a"], kinds[0])] == [[600, 600]]
    members.table.check()


def test_more_kinds_of_pods_may_wait_at_once_than_there_were_rows() -> None:
    members = told([CapacityView("a", "", 1, (), (NodeClass("", {}, (), 2, {GPU: 600, "pods": 600}),), {})], [])
    kinds = [Shapes().take(make_binding("a").tasks(1, gpu=amount).build()) for amount in range(1, 201)]
    for each in kinds:
        members.enroll(each)
    assert len({each.rows for each in kinds}) == len(kinds)
    members.table.check()


@pytest.mark.parametrize("labels", [[{"zone": "new"}], [{}, {"zone": "new"}]])
def test_a_node_with_new_labels_holds_no_pod_that_asks_for_what_no_node_has(
    labels: list[dict[str, str]],
) -> None:
    """It changed, or came."""

    def told_of(*each: dict[str, str]) -> CapacitySet:
        return CapacitySet(
            CapacityView("m", "", 1, (), tuple(NodeClass("", own, (), 1, {GPU: 4, "pods": 10}) for own in each))
        )

    s = scene(room=(make_cluster("m"), told_of({})))
    s.submit(make_binding("strange").tasks(1, requests={"fpga": 1}))
    assert not dispatched(s.run())
    s.tell(told_of(*labels))
    s.core.check()
    assert not dispatched(s.run())
