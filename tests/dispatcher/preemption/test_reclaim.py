"""Who must go so that a waiting workload fits: preemption in a queue, reclaim between queues."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.dispatcher.core.events import QueueView
from atoll.dispatcher.core.placement.choice import Choice
from atoll.dispatcher.core.placement.rules import Rules
from atoll.dispatcher.core.preemption.search import Plan
from atoll.dispatcher.core.settings import CoreSettings
from atoll.model.verdict import Reason
from tests.dispatcher.preemption.stage import NOW, Stage, either_way, losses, queue

BUDGET = CoreSettings().preemption.evictions


A, B = queue("a", 4), queue("b", 4)


def full(*extra: QueueView, **more: Any) -> Stage:
    """One node of 8 GPUs: eight jobs of b, the later the younger."""
    stage = Stage(A, B, *extra, m=[8])
    for number in range(8):
        stage.run(f"b{number}", "b", {"m": {0: 1}}, started=float(number), **more)
    return stage


@either_way
def test_a_queue_reclaims_what_it_deserves_from_one_that_borrows_the_youngest_first():
    assert full().claim("a", 3) == {"b5": "all", "b6": "all", "b7": "all"}


def test_the_plan_says_where_the_claimant_goes_and_why_each_victim():
    stage = full()
    outcome = stage.plan(stage.claimant("a", 2))
    assert isinstance(outcome, Plan)
    assert [loss.reason for loss in outcome.losses] == [Reason.RECLAIMED] * 2
    assert outcome.victims == ("b6", "b7")
    assert outcome.choice.members == (stage.members.by_name["m"],)
    assert outcome.choice.placements[0].pods == [(0, 0, 2)]


@either_way
def test_a_lender_keeps_what_it_deserves():
    stage = full()
    assert stage.claim("a", 5) is None  # a deserves 4
    stage = Stage(queue("a", 8), B, m=[8])
    for number in range(8):
        stage.run(f"b{number}", "b", {"m": {0: 1}})
    assert stage.claim("a", 4, uid="x") == {f"b{n}": "all" for n in range(4)}
    assert stage.claim("a", 5, uid="y") is None


def test_the_last_victim_may_take_a_lender_below_what_it_deserves_but_never_below_its_guarantee():
    for guarantee, outcome in ((0, {"gang": "all"}), (1, None)):
        stage = Stage(A, queue("b", 4, guarantee=guarantee), m=[8]).run("gang", "b", {"m": {0: 8}})
        assert stage.claim("a", 1) == outcome


def test_whichever_of_several_goes_last_its_queue_is_above_its_entitlement_until_then():
    stage = Stage(queue("a", 9), queue("b", 8), m=[10])
    stage.run("large", "b", {"m": {0: 9}}).run("small", "b", {"m": {0: 1}})
    assert stage.claim("a", 9) == {"large": "all"}
    stage = Stage(queue("a", 10), queue("b", 8), m=[10])
    stage.run("large", "b", {"m": {0: 9}}).run("small", "b", {"m": {0: 1}})
    assert stage.claim("a", 10) is None


@pytest.mark.parametrize(
    "lender",
    [
        pytest.param(queue("b", 4, reclaimable=False), id="its queue is not reclaimable"),
        pytest.param(queue("b", 8), id="its queue uses no more than it deserves"),
        pytest.param(queue("b", 4, guarantee=8), id="its queue is guaranteed what it uses"),
    ],
)
def test_nothing_is_taken_from_another_queue_when(lender):
    stage = Stage(A, lender, m=[8])
    for number in range(8):
        stage.run(f"b{number}", "b", {"m": {0: 1}})
    assert stage.claim("a") is None


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"started": NOW - 59}, id="it is younger than the protection time"),
        pytest.param({"started": NOW - 3000, "protection": 3600.0}, id="its queue protects it longer"),
        pytest.param({"evictions": BUDGET}, id="it was evicted as often as it may be"),
        pytest.param({"cleared": ("uid-c", "c")}, id="the claimant made room for it"),
    ],
)
def test_a_workload_is_no_victim_when(fields):
    stage = Stage(A, B, m=[8])
    stage.run("b", "b", {"m": {0: 8}}, **fields)
    assert stage.claim("a") is None


def test_what_is_not_preemptable_may_still_be_reclaimed_unless_its_queue_says_otherwise():
    """The wish of its user is about its own queue: what is due to others is not its to refuse."""
    for queues, outcome in (
        ((A, B), {"b": "all"}),
        ((A, queue("b", 4, reclaims_firm=False)), None),
    ):
        stage = Stage(*queues, m=[8])
        stage.run("b", "b", {"m": {0: 8}}, preemptable=False)
        assert stage.claim("a") == outcome


def test_nothing_of_its_own_queue_takes_the_place_of_what_is_not_preemptable():
    stage = Stage(A, B, m=[8])
    stage.run("low", "a", {"m": {0: 8}}, preemptable=False)
    assert stage.claim("a", priority=1) is None


def test_a_workload_that_had_victims_may_be_a_victim():
    stage = Stage(A, B, m=[8]).run("b", "b", {"m": {0: 8}}, cleared=("another",))
    assert stage.claim("a") == {"b": "all"}


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"started": NOW - 1}, id="it has just started"),
        pytest.param({"evictions": BUDGET}, id="it was evicted as often as it may be"),
    ],
)
@pytest.mark.parametrize("own", [False, True], ids=["of another queue", "of the claimant's queue"])
def test_the_surplus_of_a_workload_may_go_although(fields, own):
    stage = Stage(A, queue("b", 0), m=[8]).run("e", "a" if own else "b", {"m": {0: 8}}, surplus={"m": {0: 2}}, **fields)
    assert stage.claim("a", 2 if own else 1) == {"e": 2}


@either_way
def test_in_one_queue_only_a_lower_priority_is_evicted():
    stage = Stage(B, m=[2]).run("low", "b", {"m": {0: 1}}).run("high", "b", {"m": {0: 1}}, priority=5)
    assert stage.claim("b", 1, priority=5, uid="x") == {"low": "all"}
    assert stage.claim("b", 2, priority=5, uid="y") is None
    assert stage.claim("b", 1, priority=0, uid="z") is None


@either_way
def test_preemption_needs_no_entitlement_and_gives_back_the_queues_own_limit():
    stage = Stage(queue("b", 0, limit=2), m=[8]).run("x", "b", {"m": {0: 2}})
    assert stage.claim("b", 2, priority=1) == {"x": "all"}


def test_a_queue_does_not_stop_its_own_work_to_become_entitled():
    stage = Stage(A, B, m=[4], n=[4])
    stage.run("own", "a", {"m": {0: 4}}).run("b0", "b", {"n": {0: 4}}).run("b1", "b", {"m": {0: 0}})
    assert stage.claim("a", 4, priority=1) == {"own": "all"}


@either_way
def test_other_queues_give_before_the_claimants_own():
    stage = Stage(A, B, m=[8]).run("own", "a", {"m": {0: 1}}, started=9.0)
    for number in range(7):
        stage.run(f"b{number}", "b", {"m": {0: 1}})
    assert stage.claim("a", 1, priority=9) == {"b0": "all"}


def test_the_queue_most_above_what_it_deserves_gives_first_then_the_lower_priority_then_the_uid():
    stage = Stage(A, queue("b", 2), queue("c", 1), m=[8])
    stage.run("b", "b", {"m": {0: 3}})
    for uid, priority in (("c3", 1), ("c2", 0), ("c1", 0), ("c4", 2)):
        stage.run(uid, "c", {"m": {0: 1}}, priority=priority)
    stage.run("c5", "c", {"m": {0: 1}}, priority=0, started=-1.0)
    assert stage.claim("a", 1, uid="x") == {"c1": "all"}
    assert stage.claim("a", 2, uid="y") == {"b": "all"}, "one workload rather than two"


@either_way
def test_a_gang_goes_whole_in_all_its_members():
    stage = Stage(A, B, m=[4], n=[4]).run("gang", "b", {"m": {0: 4}, "n": {0: 4}})
    assert stage.claim("a", 4) == {"gang": "all"}


def test_room_for_the_minimum_is_made_where_there_is_none_for_all_in_one_member():
    stage = Stage(queue("a", 8), queue("b", 0), m=[4]).run("b", "b", {"m": {0: 4}})
    assert stage.claim("a", 8, minimum=4) == {"b": "all"}


@either_way
def test_nodes_in_no_domain_make_no_room_for_a_hard_topology():
    stage = Stage(queue("a", 8), queue("b", 0), m={"": [4], "r1": [1], "r2": [1]}).run("b", "b", {"m": {0: 4}})
    assert stage.claim("a", 4, hard=1) is None


def test_where_several_members_get_room_it_goes_where_all_of_it_fits():
    stage = Stage(queue("a", 8), queue("b", 0), m=[2], n=[4]).run("gang", "b", {"m": {0: 2}, "n": {0: 4}})
    outcome = stage.plan(stage.claimant("a", 4, minimum=2, divided=True))
    assert isinstance(outcome, Plan)
    assert [member.name for member in outcome.choice.members] == ["n"]


@either_way
def test_all_nodes_that_a_gang_leaves_are_counted():
    stage = Stage(queue("a", 8), queue("b", 0), m=[4, 4]).run("gang", "b", {"m": {0: 4, 1: 4}})
    assert stage.claim("a", 2, gpu=4) == {"gang": "all"}


def test_the_surplus_of_an_elastic_workload_goes_before_any_other():
    stage = Stage(A, B, m=[8]).run("elastic", "b", {"m": {0: 4}}, surplus={"m": {0: 2}}, priority=9)
    stage.run("b", "b", {"m": {0: 4}}, started=9.0)
    assert stage.claim("a", 2, uid="x") == {"elastic": 2}
    assert stage.claim("a", 4, uid="y") == {"b": "all"}


@either_way
def test_an_elastic_workload_that_must_go_goes_with_its_surplus():
    stage = Stage(A, queue("b", 0), m=[4]).run("elastic", "b", {"m": {0: 4}}, surplus={"m": {0: 2}})
    assert stage.claim("a", 4) == {"elastic": "all"}


@either_way
def test_pods_that_need_a_whole_node_empty_the_node_that_needs_the_fewest_victims():
    stage = Stage(queue("a", 8), B, m=[4, 4, 5])
    for number in range(4):
        stage.run(f"x{number}", "b", {"m": {0: 1}}, started=99.0)
        stage.run(f"z{number}", "b", {"m": {2: 1}}, started=99.0)
    stage.run("y0", "b", {"m": {1: 3}}).run("y1", "b", {"m": {1: 1}})
    assert stage.claim("a", 1, gpu=4) == {"y0": "all", "y1": "all"}
    assert stage.claim("a", 1, gpu=5, uid="z") == {f"z{n}": "all" for n in range(4)}


@either_way
def test_of_several_sets_that_make_room_on_a_node_the_first_in_order_goes():
    stage = Stage(queue("a", 8), queue("b", 0), m=[6])
    for gpus, uid in enumerate("xyz", 1):
        stage.run(uid, "b", {"m": {0: 1}}, gpu=gpus, started=-float(gpus))
    # The youngest is the smallest: it goes, and of the other two the one beside which that is enough.
    assert stage.claim("a", 1, gpu=4) == {"x": "all", "z": "all"}


@either_way
def test_a_hard_topology_empties_one_domain():
    racks = {"r1": [2, 2], "r2": [2, 2]}
    stage = Stage(queue("a", 4), queue("b", 0), m=racks)
    for number, uid in enumerate("wxyz"):
        stage.run(uid, "b", {"m": {number: 2}}, gpu=1, started=float(number % 2))
    outcome = stage.claim("a", 4, hard=1)
    assert outcome in ({"w": "all", "x": "all"}, {"y": "all", "z": "all"})
    assert stage.claim("a", 5, hard=1, uid="x") is None


@either_way
def test_a_divided_claimant_empties_several_members():
    stage = Stage(queue("a", 8), queue("b", 0), m=[4], n=[4])
    stage.run("x", "b", {"m": {0: 4}}).run("y", "b", {"n": {0: 4}})
    assert stage.claim("a", 8, uid="one") is None
    assert stage.claim("a", 8, divided=True, uid="two") == {"x": "all", "y": "all"}


@either_way
def test_a_gang_of_several_tasks_finds_room_for_each():
    stage = Stage(queue("a", 8), queue("b", 0), m=[4, 4])
    for number in range(4):
        stage.run(f"x{number}", "b", {"m": {0: 1}}).run(f"y{number}", "b", {"m": {1: 1}})
    outcome = stage.claim("a", 1, gpu=4, tasks=[(2, 1)])
    assert isinstance(outcome, dict)
    assert len(outcome) == 6


@either_way
def test_reclaim_goes_up_the_tree_and_stays_within_each_queues_right():
    stage = Stage(
        queue("org", 4), queue("a", 4, parent="org"), queue("team", 4), queue("b", 2, parent="team"),
        queue("c", 2, parent="team"), m=[8],
    )  # fmt: skip
    stage.run("b", "b", {"m": {0: 2}}).run("c0", "c", {"m": {0: 2}}).run("c1", "c", {"m": {0: 2}}).run(
        "c2", "c", {"m": {0: 2}}
    )
    assert stage.claim("a", 4) == {"c0": "all", "c1": "all"}


@either_way
def test_victims_leave_room_under_a_limit_above_even_where_nodes_are_free():
    stage = Stage(queue("top", limit=8), queue("a", 4, parent="top"), queue("b", 4, parent="top"), m=[16])
    for number in range(8):
        stage.run(f"b{number}", "b", {"m": {0: 1}}, started=float(number))
    assert stage.claim("a", 2) == {"b6": "all", "b7": "all"}


def test_no_eviction_helps_what_is_larger_than_the_limit_of_its_queue():
    stage = Stage(queue("b", limit=2), m=[8]).run("x", "b", {"m": {0: 2}})
    assert stage.claim("b", 3, priority=1) is None


def test_who_fits_as_it_is_needs_no_victims():
    stage = Stage(A, B, m=[8]).run("b", "b", {"m": {0: 4}})
    assert stage.claim("a", 4) == {}


@either_way
def test_the_walk_back_spares_who_need_not_go():
    # Kueue's fill-back: the small ones come first in order, and the large one alone is enough.
    stage = Stage(queue("a", 4), queue("b", 0), m=[6])
    stage.run("s1", "b", {"m": {0: 1}}, started=9.0).run("s2", "b", {"m": {0: 1}}, started=8.0)
    stage.run("large", "b", {"m": {0: 4}})
    assert stage.claim("a", 4) == {"large": "all"}


@either_way
def test_members_that_do_not_serve_or_failed_lately_lose_nothing():
    stage = Stage(A, queue("b", 0), m=[4], n=[4]).run("x", "b", {"m": {0: 4}}).run("y", "b", {"n": {0: 4}}, started=9.0)
    claimant = stage.claimant("a", 4)
    assert losses(stage.plan(claimant)) == {"y": "all"}
    rules = Rules()
    rules.avoided = {"n"}
    assert losses(stage.plan(claimant, rules=rules)) == {"x": "all"}


class Forbidding(Rules):
    """Forbids choices in one member."""

    permit_all = False

    def __init__(self, member: str) -> None:
        self._member = member

    def permits(self, choice: Choice) -> bool:
        return choice.members[0].name != self._member


def test_a_choice_that_is_not_permitted_stops_no_other():
    stage = full()

    assert stage.plan(stage.claimant("a", 1), rules=Forbidding("m")) is None


@either_way
def test_victims_are_sought_where_the_choice_is_permitted():
    stage = Stage(A, queue("b", 0), m=[4], n=[4]).run("x", "b", {"m": {0: 4}}).run("y", "b", {"n": {0: 4}}, started=9.0)
    assert losses(stage.plan(stage.claimant("a", 4), rules=Forbidding("n"))) == {"x": "all"}


@either_way
def test_the_rest_of_an_elastic_workload_does_not_go_before_its_surplus():
    stage = Stage(queue("a", 8), queue("b", 0), m=[1, 1, 2])
    stage.run("elastic", "b", {"m": {0: 1, 1: 1, 2: 2}}, surplus={"m": {0: 1, 1: 1}})
    outcome = stage.plan(stage.claimant("a", 1, gpu=2))
    assert losses(outcome) == {"elastic": "all"}
    assert isinstance(outcome, Plan)
    assert outcome.losses[0].surplus is None
