"""Victims that take their time, or never go: how many go for one claimant, and what becomes of it."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from atoll.dispatcher.core import Command, Dispatch, Evict, Resize
from atoll.model.verdict import Blocker, Reason
from tests.dispatcher.builders import (
    BACKFILL,
    NEVER,
    OLD,
    evicted,
    explained,
    make_binding,
    make_queue,
    names,
    scene,
    share,
)
from tests.dispatcher.virtual import Town, gpus


def town(grace: float, refuses: Callable[[Command], bool] = lambda _: False) -> Town:
    """Ten GPUs of ten nodes, all used by work of no priority."""
    t = Town(make_queue("q"), grace=grace, refuses=refuses, m=gpus(*[1] * 10))
    for number in range(10):
        t.submit(make_binding(f"low{number}"))
    t.run(100)
    assert len(t.running()) == 10
    return t


def test_one_goes_for_one_though_it_takes_ten_minutes() -> None:
    t = town(600)
    t.submit(make_binding("high").priority(1))
    t.run(590)
    assert len(t.evicted()) == 1
    assert t.started("high") is None
    t.run(30)
    assert t.started("high") is not None
    assert len(t.evicted()) == 1


def test_no_other_victim_is_evicted_for_a_claimant_that_is_submitted_anew_each_minute() -> None:
    t = town(600)
    for turn in range(8):
        t.submit(make_binding(f"high{turn}").priority(1))
        t.run(60)
        t.delete(f"uid-high{turn}")
    assert len(t.evicted()) == 1


def test_nor_for_one_that_its_user_edits_each_minute() -> None:
    t = town(600)
    uid = t.submit(make_binding("high").priority(1))
    for turn in range(8):
        t.run(60)
        t.edit(uid, make_binding("high").priority(1).runs(1000.0 + turn))
    assert len(t.evicted()) == 1
    t.run(150)
    assert t.started("high") is not None


def test_what_leaves_already_counts_for_the_next_one_that_needs_more() -> None:
    t = town(600)
    t.submit(make_binding("high").priority(1))
    t.run(30)
    t.delete("uid-high")
    t.submit(make_binding("wide").tasks(3).priority(1))
    t.run(600)
    assert len(t.evicted()) == 3
    t.run(60)
    assert t.started("wide") is not None
    assert len(t.evicted()) == 3


def test_two_claimants_do_not_count_on_the_same_victim() -> None:
    t = town(600)
    t.submit(make_binding("high").priority(1))
    t.submit(make_binding("other").priority(2))
    t.run(630)
    assert len(t.evicted()) == 2
    assert None not in (t.started("high"), t.started("other"))


def test_nor_does_one_wait_for_the_victims_of_an_equal_one_that_was_submitted_before() -> None:
    t = town(600)
    t.submit(make_binding("high").priority(1))
    t.run(30)
    t.submit(make_binding("next").priority(1))
    t.run(30)
    assert len(t.evicted()) == 2


def test_a_new_leader_counts_on_those_who_leave_as_well() -> None:
    t = town(600)
    t.submit(make_binding("high").priority(1))
    t.run(100)
    t.lead_anew()
    t.run(100)
    t.lead_anew()
    t.run(480)
    assert len(t.evicted()) == 1
    assert t.started("high") is not None


def test_another_one_goes_for_it_after_a_bound_where_the_first_never_does() -> None:
    t = town(2)
    for job in t.jobs.values():
        job.grace = math.inf
    t.submit(make_binding("high").priority(1))
    t.run(1100)
    assert len(t.evicted()) == 1
    for job in t.jobs.values():
        job.grace = 2.0
    t.run(200)
    assert len(t.evicted()) == 2
    assert t.started("high") is not None


def test_reclaim_waits_for_slow_victims_too() -> None:
    t = Town(share("mine", 4), share("theirs", 4), grace=600, m=gpus(8))
    for number in range(8):
        t.submit(make_binding(f"r{number}").queue("theirs"))
    t.run(100)
    t.submit(make_binding("c").queue("mine").tasks(2))
    t.run(580)
    assert len(t.evicted()) == 2
    t.run(40)
    assert t.started("c") is not None
    assert len(t.evicted()) == 2


def test_a_queue_gives_up_nothing_for_what_is_only_to_start_in_room_that_others_leave() -> None:
    """What its user holds leaves slowly, and the other queue is to borrow that room: it has not got it yet."""
    t = Town(share("mine", 2), share("theirs", 2), m=gpus(1, 1, 1, 1))
    for name, queue in (("a1", "mine"), ("a2", "mine"), ("t1", "theirs"), ("t2", "theirs")):
        t.submit(make_binding(name).queue(queue), grace=90 if name == "t1" else 2)
    t.run(100)
    t.edit("uid-t1", make_binding("t1").queue("theirs").held())
    t.run(5)
    t.submit(make_binding("a3").queue("mine"))
    t.run(5)
    t.submit(make_binding("t3").queue("theirs"))
    t.run(70)
    assert t.evicted() == []
    t.run(150)
    assert t.started("t3") is not None
    assert t.used("mine") == 2


def test_a_claimant_starts_although_what_victims_of_another_left_was_reserved() -> None:
    """
    1. v waits for the room that t1 leaves, slowly.
    2. The head h of another queue is promised two GPUs when e ends.
    3. w1 goes for x, of the same priority as v: x starts in that room, and nobody else goes.
    """
    backfill = make_queue("heads", view=dict(BACKFILL))
    t = Town(make_queue("q"), backfill, m=gpus(1, 2, 1, 1))
    t.submit(make_binding("t1").queue("heads"), grace=90)
    t.submit(make_binding("e").queue("heads").tasks(2), runs=1000)
    for name in ("w1", "w2"):
        t.submit(make_binding(name))
    t.run(100)
    t.edit("uid-t1", make_binding("t1").queue("heads").held())
    t.run(5)
    t.submit(make_binding("v").priority(5))
    t.run(5)
    t.submit(make_binding("h").queue("heads").tasks(2), runs=100)
    t.run(5)
    t.submit(make_binding("x").priority(5), runs=100)
    t.run(60)
    assert t.started("x") is not None
    assert len(t.evicted()) == 1


def test_that_bound_is_the_one_after_which_its_queue_has_its_quota_back() -> None:
    t = Town(make_queue("q", view={"evict_timeout": 100.0}), grace=math.inf, m=gpus(1, 1))
    t.submit(make_binding("low0"))
    t.submit(make_binding("low1"))
    t.run(100)
    t.submit(make_binding("high").priority(1))
    t.run(90)
    assert len(t.evicted()) == 1
    t.run(60)
    assert len(t.evicted()) == 2


# -- refused evictions -------------------------------------------------------------------------------------------------


class Refusing:
    """The API server refuses the first evictions of a workload."""

    def __init__(self, times: int) -> None:
        self.left, self.name = times, ""

    def __call__(self, command: Command) -> bool:
        if isinstance(command, Evict) and self.left and self.name in ("", command.name):
            self.name, self.left = command.name, self.left - 1
            return True
        return False


@pytest.mark.parametrize("times", [1, 3])
def test_a_plan_of_which_one_eviction_is_refused_is_repaired_at_once(times: int) -> None:
    t = town(2, Refusing(times))
    t.submit(make_binding("high").tasks(2).priority(1))
    t.run(15)
    assert t.started("high") is not None
    assert len(t.evicted()) == 2 + times, "nobody goes twice, and nobody else goes"
    assert len(t.running()) == 9


def test_or_dropped_whole_where_no_other_can_go() -> None:
    """The second one is not to go any more, by its user's wish; the first is back as soon as it has gone."""
    t = Town(make_queue("q"), m=gpus(1, 1))
    t.submit(make_binding("low0"))
    t.submit(make_binding("low1"))
    t.run(100)

    def refuses(command: Command) -> bool:
        if isinstance(command, Evict) and command.name == "low1":
            t.edit("uid-low1", make_binding("low1").firm())
            return True
        return False

    t.refuses = refuses
    t.submit(make_binding("high").tasks(2).priority(1))
    t.run(10)
    assert t.started("high") is None
    assert t.running() == ["low0", "low1"]
    t.run(600)
    assert t.evicted() == t.evicted()[:2]


def test_what_was_to_shrink_shrinks_all_the_same_where_others_have_its_quota() -> None:
    left = [1]

    def refuses(command: Command) -> bool:
        return (
            isinstance(command, Resize) and command.decision.reason is Reason.SHRUNK and bool(left) and bool(left.pop())
        )

    t = Town(make_queue("q", gpu=4), refuses=refuses, m=gpus(8))
    t.submit(make_binding("wide").tasks(4, minimum=1))
    t.run(100)
    t.submit(make_binding("claimant").tasks(2))
    t.run(10)
    assert not left
    assert t.started("claimant") is not None
    assert t.used("q") == 4


def test_a_claimant_says_what_keeps_its_victims_until_it_starts() -> None:
    s = scene()
    s.submit(*(make_binding(name).tasks(4) for name in ("low0", "low1")))
    for name in names(s.run()):
        s.bound(name, generation=NEVER)
    s.submit(make_binding("high").tasks(8).priority(1))
    assert sorted(evicted(s.run(after=OLD))) == ["low0", "low1"]
    for name in ("low1", "low0"):
        s.change(name, stuck=f"m: a pod of {name} is terminating")
    said = explained(s.run())["high"].decision.blocker
    assert said == Blocker(
        "Cluster",
        "m",
        message="low0 does not end: m: a pod of low0 is terminating; low1 does not end: m: a pod of low1 is terminating",
    )
    assert s.run() == [], "it says so once"
    for name in ("low0", "low1"):
        s.change(name, stuck="", released=s.view(name).generation, placed={})
    commands = s.run()
    assert [type(each) for each in commands if each.name == "high"] == [Dispatch]


def test_what_keeps_the_victims_of_a_claimant_that_is_gone_is_no_news() -> None:
    s = scene().submit(make_binding("low").tasks(8))
    s.run()
    s.bound("low", generation=NEVER)
    s.submit(make_binding("high").tasks(8).priority(1))
    assert evicted(s.run(after=OLD)) == ["low"]
    s.gone("high")
    s.change("low", stuck="m: a pod is terminating")
    assert s.run() == []
