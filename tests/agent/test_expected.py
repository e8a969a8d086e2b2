"""Gangs are placed where the host expects them, as long as that is possible."""

from __future__ import annotations

from collections import Counter

import pytest

from atoll.agent.objects import Pod
from atoll.agent.scheduler.core.expected import Expected
from atoll.agent.scheduler.core.gangs import by_name, standing
from atoll.agent.scheduler.core.planner import Plan, plan
from atoll.agent.scheduler.core.room import Room
from atoll.model.decision import Spots
from tests.agent.builders import make_group, make_node, make_room
from tests.agent.holding import pods, racks, view


def placed(room: Room, waiting: list[Pod], spots: Spots, *, epoch: int = 1) -> dict[str, int]:
    expected = Expected()
    expected.expect("b", epoch, spots)
    [outcome] = plan(room, [view(room, len(waiting), waiting)], expected=expected)
    assert isinstance(outcome, Plan)
    return dict(Counter(node for _, node in outcome.nodes))


@pytest.fixture
def room() -> Room:
    """The tightest gap is on r0n0."""
    room = racks(domains=False)
    for pod, node in ((each, "r0n0") for each in pods(1, uid="other")):
        room.assume(pod, node)
    return room


def test_it_goes_where_it_is_expected_though_another_node_is_the_tighter_gap(room: Room) -> None:
    assert placed(room, pods(1), [("w", "r1n1", 1)]) == {"r1n1": 1}


def test_each_node_gets_as_many_as_are_expected_there(room: Room) -> None:
    assert placed(room, pods(2), [("w", "r0n1", 1), ("w", "r1n0", 1)]) == {"r0n1": 1, "r1n0": 1}


def test_tasks_go_where_their_own_pods_are_expected() -> None:
    room = make_room(make_node("a"), make_node("b"))
    waiting = [*pods(1, task="w"), *pods(1, task="x", gpu=8)]
    assert placed(room, waiting, [("x", "a", 1), ("w", "b", 1)]) == {"a": 1, "b": 1}
    assert room.amounts.free("a")["nvidia.com/gpu"] == 0


@pytest.mark.parametrize(
    ("spots", "epoch"),
    [
        pytest.param([], 1, id="nobody expects it anywhere"),
        pytest.param([("w", "gone", 1)], 1, id="the node is gone"),
        pytest.param([("w", "r1n1", 1)], 2, id="another dispatch was meant"),
        pytest.param([("other", "r1n1", 1)], 1, id="not this task"),
    ],
)
def test_else_it_goes_where_it_fits_best(room: Room, spots: Spots, epoch: int) -> None:
    assert placed(room, pods(1), spots, epoch=epoch) == {"r0n0": 1}


def test_more_pods_than_are_expected_go_where_they_fit_best(room: Room) -> None:
    assert placed(room, pods(2), [("w", "r1n1", 1)]) == {"r0n1": 2}


def test_pods_by_which_it_grows_go_where_they_are_expected_one_after_the_other(room: Room) -> None:
    """Each of two nodes has room for both; one of each is left to somebody else."""
    expected = Expected()
    expected.expect("b", 1, [("w", "r1n0", 1), ("w", "r1n1", 1)])
    [first, one, other] = pods(3)
    room.assume(first, "r0n1")
    found = []
    for made in ([first, one], [first, one, other]):
        view = standing("default/b", make_group("b", 1), made, room, by_name("atoll"))
        [outcome] = plan(room, [view], expected=expected)
        assert isinstance(outcome, Plan)
        found += [node for _, node in outcome.nodes]
    assert sorted(found) == ["r1n0", "r1n1"]


def test_where_the_room_was_taken_it_goes_elsewhere() -> None:
    room = racks(domains=False)
    for pod in pods(2, uid="other"):
        room.assume(pod, "r1n1")
    assert "r1n1" not in placed(room, pods(1), [("w", "r1n1", 1)])


def test_what_must_be_in_one_domain_stays_in_one_whatever_is_expected() -> None:
    room = racks()
    waiting = pods(2)
    group = make_group("b", 2, topology={"mode": "hard", "highestTierAllowed": 1})
    expected = Expected()
    expected.expect("b", 1, [("w", "r0n0", 1), ("w", "r1n0", 1)])
    [outcome] = plan(room, [standing("default/b", group, waiting, room, by_name("atoll"))], expected=expected)
    assert isinstance(outcome, Plan)
    assert len({node[:2] for _, node in outcome.nodes}) == 1


def test_a_newer_dispatch_is_not_forgotten_for_an_older_one_and_what_is_over_is(room: Room) -> None:
    expected = Expected()
    expected.expect("b", 2, [("w", "r1n1", 1)])
    expected.expect("b", 1, [("w", "r1n0", 1)])
    waiting = pods(1, epoch=2)
    [outcome] = plan(room, [view(room, 1, waiting)], expected=expected)
    assert isinstance(outcome, Plan)
    assert [node for _, node in outcome.nodes] == ["r1n1"]
    expected.forget("b")
    assert expected.wanted(view(room, 1, waiting)) is None


def side_by_side(room: Room, *, gpu: int = 4) -> dict[str, set[str]]:
    """Binding -> nodes: `a` is older, and `b` is expected on r0n0, where 4 GPUs are free."""
    expected = Expected()
    expected.expect("b", 1, [("w", "r0n0", 1)])
    gangs = [view(room, 1, pods(1, uid="a", gpu=gpu), "a"), view(room, 1, pods(1), "b")]
    plans = [each for each in plan(room, gangs, expected=expected) if isinstance(each, Plan)]
    return {each.gang.binding_uid: {node for _, node in each.nodes} for each in plans}


def test_an_older_one_leaves_the_nodes_to_the_gang_that_the_host_expects_there(room: Room) -> None:
    for node in ("r0n1", "r1n0"):
        for pod in pods(2, uid=f"on-{node}"):
            room.assume(pod, node)
    assert side_by_side(room, gpu=2) == {"a": {"r1n1"}, "b": {"r0n0"}}


def test_an_older_one_that_fits_nowhere_else_takes_them(room: Room) -> None:
    for node in ("r0n1", "r1n0", "r1n1"):
        for pod in pods(2, uid=f"on-{node}"):
            room.assume(pod, node)
    assert side_by_side(room) == {"a": {"r0n0"}}
