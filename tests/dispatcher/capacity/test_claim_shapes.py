"""Figures about claims decide where a workload with claims goes, as far as members give any."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.dispatcher.core import Ask, CapacitySet, Dispatch
from atoll.model.claim_shapes import name_of, shape_of
from tests.dispatcher.builders import (
    EARLY,
    LATE,
    OLD,
    dispatched,
    make_binding,
    make_capacity,
    make_cluster,
    make_queue,
    named,
    scene,
)
from tests.dispatcher.claiming import OTHER, OTHERS, PAIRS, claims, pairs, saying


def test_a_gang_goes_where_its_claims_fit_together() -> None:
    m, n = make_capacity("m", [4, 4]), make_capacity("n", [4, 4])
    room = (make_cluster("m"), saying(m, [1, 1]), make_cluster("n"), saying(n, [2, 2]))
    assert dispatched(scene(room=room).submit(pairs("a", 4)).run()) == [("a", "n")]
    assert dispatched(scene(room=room).submit(pairs("a", 5)).run()) == []
    assert dispatched(scene(room=room).submit(make_binding("a").tasks(5)).run()) == [("a", "m")]


def test_a_member_that_says_nothing_of_a_shape_is_judged_by_the_sums_of_its_devices() -> None:
    m, n = make_capacity("m", [4, 4]), make_capacity("n", [8, 8])
    room = (make_cluster("m"), saying(m, [1, 1]), make_cluster("n"), saying(n, [1, 1], OTHERS))
    assert dispatched(scene(room=room).submit(pairs("a", 8)).run()) == [("a", "n")]
    alone = (make_cluster("m"), make_capacity("m", [4, 4]))
    assert dispatched(scene(room=alone).submit(pairs("a", 8)).run()) == [("a", "m")]


def test_pods_that_are_on_their_way_are_counted() -> None:
    s = scene(room=(make_cluster("m"), saying(named("m", [4, 4]), [2, 1])))
    assert dispatched(s.submit(pairs("a", 2).submitted(EARLY), pairs("b", 2).submitted(LATE)).run()) == [("a", "m")]
    s.tell(saying(named("m", [4, 4], generation=2), [2, 1]))
    assert dispatched(s.run()) == []
    s.tell(saying(named("m", [4, 4], generation=3), [2, 2]))
    assert dispatched(s.run()) == [("b", "m")]


def test_a_gang_of_several_tasks_keeps_to_the_figures() -> None:
    room = (make_cluster("m"), saying(make_capacity("m", [8, 8]), [1, 3]))
    for pods, fits in ((4, True), (5, False)):
        s = scene(room=room).submit(pairs("a", pods).tasks(1))
        assert bool(dispatched(s.run())) == fits


def test_a_gang_is_divided_by_the_figures() -> None:
    m, n = make_capacity("m", [8]), make_capacity("n", [8])
    room = (make_cluster("m"), saying(m, [1]), make_cluster("n"), saying(n, [3]))
    s = scene(room=room).submit(pairs("a", 4).divided())
    [command] = [each for each in s.decide() if isinstance(each, Dispatch)]
    assert {part.cluster: sum(count for _, count in part.tasks) for part in command.parts} == {"m": 1, "n": 3}


def test_a_workload_with_other_claims_may_go_for_one_whose_claims_fit_nowhere() -> None:
    """Only the member knows which devices come free: it is asked before."""
    s = scene(make_queue("q"), room=(make_cluster("m"), named("m", [4])))
    s.submit(make_binding("low").tasks(4, claims=OTHER).submitted(EARLY))
    assert dispatched(s.run()) == [("low", "m")]
    s.bound("low", generation=2)
    s.tell(saying(named("m", [0], generation=2), [0]))
    s.submit(pairs("high", 1).priority(9).submitted(LATE))
    commands = s.decide(after=OLD * 10)
    assert [each.name for each in commands if isinstance(each, Ask)] == ["high"]


def test_tasks_that_differ_in_claims_alone_are_counted_apart() -> None:
    room = (make_cluster("m"), saying(saying(make_capacity("m", [8]), [1]), [5], OTHERS))
    s = scene(room=room).submit(pairs("a", 5).submitted(EARLY), make_binding("b").tasks(5, claims=OTHER))
    assert dispatched(s.run()) == [("b", "m")]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 6), st.none() | st.integers(0, 6)), min_size=1, max_size=4), st.integers(1, 12)
)
def test_each_node_holds_as_many_pods_as_devices_and_figures_allow(
    nodes: list[tuple[int, int | None]], pods: int
) -> None:
    event = make_capacity("m", [gpus for gpus, _ in nodes])
    classes = [
        each if fits is None else dataclasses.replace(each, free={**each.free, PAIRS: fits})
        for each, (_, fits) in zip(event.capacity.classes, nodes, strict=True)
    ]
    room = (make_cluster("m"), CapacitySet(dataclasses.replace(event.capacity, classes=tuple(classes))))
    holds = sum(gpus if fits is None else min(gpus, fits) for gpus, fits in nodes)
    assert bool(dispatched(scene(room=room).submit(pairs("a", pods)).run())) == (holds >= pods)


@pytest.mark.parametrize("same", [True, False])
def test_names_and_parameters_make_no_shape(same: bool) -> None:
    other = claims("root" if same else "numa")
    other[0]["name"] = "another"
    other[0]["spec"]["devices"]["config"] = [{"opaque": {"driver": "d", "parameters": {"secret": 1}}}]
    assert (name_of(shape_of(other)) == PAIRS) == same
    assert "secret" not in str(shape_of(other))


def test_a_pod_that_asks_for_a_shape_by_its_name_goes_nowhere() -> None:
    room = (make_cluster("m"), saying(make_capacity("m", [4]), [4]))
    s = scene(room=room).submit(make_binding("a").tasks(1, requests={PAIRS: 1}).submitted(EARLY), pairs("b", 4))
    assert dispatched(s.run()) == [("b", "m")]
