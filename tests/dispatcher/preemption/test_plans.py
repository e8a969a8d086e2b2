"""Room that is made or found in several places: where the claimant then goes, and who goes for what."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from atoll.dispatcher.core.preemption.search import Plan
from atoll.fit.site import Site
from atoll.model.gang import TopologyWish
from atoll.model.verdict import Reason
from tests.dispatcher.builders import (
    GPU,
    NEVER,
    OLD,
    Scene,
    dispatched,
    evicted,
    make_binding,
    make_capacity,
    make_cluster,
    make_queue,
    names,
    scene,
    with_amounts,
)
from tests.dispatcher.preemption.stage import Stage, either_way, queue

PAIR = tuple(make_cluster(name) for name in "mn")


def test_who_goes_for_quota_need_not_run_where_the_claimant_goes() -> None:
    s = Scene(make_queue("q", gpu=4), *PAIR, make_capacity("m", [8]), make_capacity("n", [8]))
    s.submit(make_binding("low").tasks(4).affinity(clusterNames=["m"]))
    s.run()
    s.bound("low", generation=NEVER)
    s.submit(make_binding("high").tasks(4).priority(1).affinity(clusterNames=["n"]))
    assert evicted(s.run(after=OLD)) == ["low"]


def test_of_members_that_both_get_room_the_one_is_taken_where_the_least_is_left() -> None:
    stage = Stage(queue("a", 8), queue("b", 0), m=[4], n=[2]).run("gang", "b", {"m": {0: 4}, "n": {0: 2}})
    outcome = stage.plan(stage.claimant("a", 2))
    assert isinstance(outcome, Plan)
    assert [member.name for member in outcome.choice.members] == ["n"]


@either_way
def test_what_was_tried_and_did_not_do_is_there_again_when_the_next_is_tried() -> None:
    """The surplus makes room for each of two tasks, and not for both."""
    stage = Stage(queue("a", 8), queue("b", 0), m=[4]).run("elastic", "b", {"m": {0: 4}}, surplus={"m": {0: 2}})
    assert stage.claim("a", 2, tasks=[(2, 1)]) == {"elastic": "all"}


def test_others_lend_no_more_than_before_once_a_victim_below_the_claimant_s_top_queue_stays() -> None:
    """That victim is put back as the claimant fits without its departure; `a` has a larger share then, and `b` lends
    it less, so the other victims must be tried again with that.
    """
    queues = (queue("a", 16), queue("b", 8), queue("a0", 13, parent="a"), queue("a1", 3, parent="a"))
    stage = Stage(*queues, m=[8, 8, 8])
    for uid, leaf, nodes, started in (
        ("a", "a1", {2: 2}, 55),
        ("b", "a0", {2: 2}, 48),
        ("c", "b", {1: 1}, 57),
        ("d", "b", {2: 2, 1: 1}, 96),
        ("e", "b", {0: 1}, 79),
        ("f", "b", {1: 3}, 92),
        ("g", "b", {1: 1, 0: 3}, 4),
        ("h", "a1", {0: 1}, 23),
        ("i", "a0", {0: 1}, 20),
        ("j", "a1", {0: 2}, 72),
    ):
        stage.run(uid, leaf, {"m": nodes}, started=float(started))
    assert stage.claim("a0", 10) == {"g": "all", "j": "all"}


@either_way
def test_nodes_that_one_gang_leaves_are_emptied_at_once_and_others_after_them() -> None:
    stage = Stage(queue("a", 12), queue("b", 0), m=[4, 4, 4]).run("gang", "b", {"m": {0: 4, 1: 4}})
    stage.run("x", "b", {"m": {2: 2}}).run("y", "b", {"m": {2: 2}})
    assert stage.claim("a", 3, gpu=4) == {"gang": "all", "x": "all", "y": "all"}


@pytest.mark.parametrize(("gpus", "goes"), [(4, []), (5, ["b"])])
def test_of_several_resources_those_count_to_which_the_claimant_is_entitled(gpus: int, goes: list[str]) -> None:
    """What b uses beyond its CPUs is nothing to a, which has had its own of them."""
    deserved = {GPU: 4, "cpu": 1}
    s = Scene(*(make_queue(name, view={"deserved": deserved}) for name in "ab"), make_cluster("m"))
    s.tell(with_amounts(make_capacity("m", [gpus]), cpu=100))
    s.submit(make_binding("b").queue("b").tasks(gpus, requests={"cpu": 1}))
    s.run()
    s.bound("b", generation=NEVER)
    s.submit(make_binding("a").queue("a").tasks(1, requests={"cpu": 2}))
    assert evicted(s.run(after=OLD)) == goes


@either_way
def test_what_two_queues_lend_together_is_no_more_than_the_one_above_them_has_too_much() -> None:
    """It uses eight and deserves six: each of the two may go by itself, but whichever goes first, the other may not."""
    views = [queue("a", 8), queue("top", 6), queue("b", 1, parent="top"), queue("c", 1, parent="top")]
    stage = (
        Stage(*views, m=[8]).run("three", "b", {"m": {0: 3}}, started=1.0).run("one", "c", {"m": {0: 1}}, started=2.0)
    )
    stage.run("firm-b", "b", {"m": {0: 1}}, preemptable=False).run("firm-c", "c", {"m": {0: 3}}, preemptable=False)
    assert stage.claim("a", 4) is None


def test_room_is_made_in_a_domain_of_a_tier_that_is_named() -> None:
    racks = make_capacity("m", {"r1": [4], "r2": [4]})
    s = scene(room=(make_cluster("m"), racks)).submit(make_binding("low").tasks(8))
    s.run()
    s.bound("low", generation=NEVER)
    view = make_binding("high").tasks(4).priority(1).build()
    assert view.gang is not None
    wish = TopologyWish("hard", highest_tier_name="rack")
    s.submit(dataclasses.replace(view, gang=msgspec.structs.replace(view.gang, network_topology=wish)))
    assert evicted(s.run(after=OLD)) == ["low"]


@either_way
def test_a_node_where_one_is_enough_is_emptied_though_others_there_come_first() -> None:
    stage = Stage(queue("a", 8), queue("b", 0), m=[6, 4]).run("large", "b", {"m": {0: 4}})
    for uid, node, pods in (("s1", 0, 1), ("s2", 0, 1), ("t1", 1, 2), ("t2", 1, 2)):
        stage.run(uid, "b", {"m": {node: pods}}, started=9.0)
    assert stage.claim("a", 1, gpu=4) == {"large": "all"}


def test_room_is_made_for_one_that_asks_for_nothing_of_a_resource() -> None:
    s = scene().submit(make_binding("low").tasks(8))
    s.run()
    s.bound("low", generation=NEVER)
    s.submit(make_binding("high").tasks(8, requests={"cpu": 0}).priority(1))
    assert evicted(s.run(after=OLD)) == ["low"]


@either_way
def test_a_topology_that_allows_several_tiers_empties_as_much_of_the_widest_as_it_must() -> None:
    stage = Stage(queue("a", 8), queue("b", 0), m={"r1": [2, 2], "r2": [2, 2]})
    for number, uid in enumerate("wxyz"):
        stage.run(uid, "b", {"m": {number: 2}}, started=float(number))
    assert stage.claim("a", 6, hard=2) == {"x": "all", "y": "all", "z": "all"}


def test_tasks_that_fit_each_by_itself_and_not_together_go_where_there_is_room_for_all() -> None:
    s = scene(room=(*PAIR, make_capacity("m", [4]), make_capacity("n", [0])))
    s.submit(make_binding("a").tasks(3).tasks(3))
    assert names(s.run()) == []
    assert s.verdict("a") is Reason.INSUFFICIENT_RESOURCES
    s.tell(make_capacity("n", [6], generation=2))
    assert dispatched(s.run()) == [("a", "n")]


def test_room_that_is_just_enough_for_all_together_is_used_in_the_pass_in_which_it_is_found() -> None:
    s = scene(room=(*PAIR, make_capacity("m", [0]), make_capacity("n", [0])))
    s.submit(make_binding("first").tasks(2).priority(1), make_binding("divided").tasks(4).divided())
    assert names(s.run()) == []
    s.tell(make_capacity("m", [3], generation=2), make_capacity("n", [3], generation=2))
    assert names(s.run()) == ["first", "divided"]


@pytest.mark.parametrize("fits", [True, False])
def test_a_policy_that_wants_several_members_and_forbids_to_divide_leads_nowhere(fits: bool) -> None:
    s = scene()
    view = make_binding("a").tasks(4 if fits else 9).divided(least=2).build()
    s.submit(dataclasses.replace(view, divided=False))
    assert names(s.run()) == []
    assert s.verdict("a") is (Reason.NO_CLUSTER if fits else Reason.INSUFFICIENT_RESOURCES)


@pytest.mark.parametrize("freed", [0, 3, 8])
def test_what_nodes_hold_after_much_was_freed_is_counted_as_after_each(freed: int) -> None:
    """Pods of 2 and of 3 on nodes of 1, 2 and 7: in bulk, and node by node."""
    stage = Stage(queue("a", 8), m=[1, 2, 7])
    claimant = stage.claimant("a", 1, gpu=2, tasks=[(1, 3)])
    member = stage.members.by_name["m"]
    at_once, one_by_one = (
        Site(
            member.nodes.copy(),
            claimant.shape.least,
            [each.copy() for each in stage.members.table.room(member, claimant.shape)],
            claimant.shape.floor,
        )
        for _ in range(2)
    )
    at_once.nodes.free[at_once.nodes.resources.index(GPU)] += freed
    at_once.refill()
    for node in range(3):
        one_by_one.change(node, {GPU: freed}, 1)
    expected = [[(has + freed) // size for has in (1, 2, 7)] for size in (2, 3)]
    for site in (at_once, one_by_one):
        assert [room.tolist() for room in site.room] == expected
        assert site.held == [[sum(room) for room in expected]]
