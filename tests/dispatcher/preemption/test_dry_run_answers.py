"""When answers are due, answers that come too late for what was asked, and how long members are avoided that failed."""

from __future__ import annotations

import pytest

from atoll.dispatcher.core import Ceiling, Event, MemberAnswer, NamespaceSet, NamespaceView
from atoll.dispatcher.core.settings import CoreSettings
from atoll.dispatcher.explain.verdicts import account
from atoll.model.verdict import Reason, blocker
from tests.dispatcher.builders import (
    GPU,
    LATE,
    NEVER,
    OLD,
    ROOM,
    Scene,
    evicted,
    explained,
    let_go,
    make_binding,
    make_capacity,
    make_cluster,
    make_queue,
    names,
    scene,
)
from tests.dispatcher.preemption.dry_runs import asked, open_questions, question, step

AVOID_FIRST = CoreSettings().avoided.pause
AVOID_MAX = CoreSettings().avoided.longest_pause
COMMIT_TIMEOUT = CoreSettings().progress.commit
RESERVE_TIMEOUT = CoreSettings().progress.reserve

# -- when they are due -------------------------------------------------------------------------------------------------


def test_an_answer_is_due_when_its_time_is_over_and_then_it_is_a_no() -> None:
    s = question()
    begun = s.now
    assert step(s) == []
    due = s.core.next_deadline
    assert due == begun + RESERVE_TIMEOUT
    s.now = due
    told = explained(step(s, after=0.0))["high"].decision
    assert told.reason is Reason.PART_REFUSED


def test_of_two_questions_the_first_is_due_first() -> None:
    s = question(
        make_binding("low1").tasks(4), make_binding("low2").tasks(4), claimant=make_binding("high").priority(1)
    )
    begun = s.now
    s.submit(make_binding("next").priority(1).tasks(2))
    assert [*asked(step(s, after=3.0))] == ["next"]
    assert step(s) == []
    assert s.core.next_deadline == begun + RESERVE_TIMEOUT


def test_capacity_is_reserved_as_long_as_members_may_answer() -> None:
    s = question(make_binding("low").tasks(4), claimant=make_binding("high").tasks(8).priority(1))
    s.submit(make_binding("small").tasks(4))
    for _ in range(9):
        assert names(step(s, after=1.0)) == []
    s.answer("high")
    assert evicted(step(s)) == ["low"]


def test_until_those_have_gone_who_were_asked_about_that_is_what_the_claimant_waits_for() -> None:
    s = question()
    s.answer("high")
    told = explained(step(s))["high"].decision
    assert told.blocker == blocker("Cluster", "m", "", 0, 0)


# -- who is asked about ------------------------------------------------------------------------------------------------


def test_a_higher_priority_is_asked_about_though_equal_work_waits_without_victims() -> None:
    s = scene().submit(make_binding("low").tasks(8))
    s.run()
    s.bound("low", generation=NEVER)
    s.submit(make_binding("equal").tasks(8))
    assert not asked(step(s, after=OLD))
    s.submit(make_binding("high").tasks(8).priority(1))
    assert [*asked(step(s))] == ["high"]


def test_a_higher_priority_is_asked_about_at_once_though_the_one_before_had_no_victims() -> None:
    """Half of the member is for ever `firm`'s; the one of priority 1 can't have the other half, that of 2 can."""
    s = scene().submit(make_binding("firm").tasks(4).firm(), make_binding("runs").tasks(4).priority(1))
    for name in names(s.run()):
        s.bound(name, generation=NEVER)
    s.submit(make_binding("equal").tasks(4).priority(1))
    assert not asked(step(s, after=OLD))
    assert s.core.triggers.next is not None
    s.submit(make_binding("high").tasks(4).priority(2))
    assert [*asked(step(s))] == ["high"]


@pytest.mark.parametrize("end", ["deleted", "held"])
def test_when_one_goes_away_that_members_were_asked_about_the_next_of_its_kind_is(end: str) -> None:
    s = question()
    s.submit(make_binding("next").tasks(8).priority(1).submitted("2026-01-03T00:00:00Z"))
    assert not asked(step(s))
    if end == "deleted":
        s.gone("high")
    else:
        s.change("high", gang=make_binding("high").tasks(8).priority(1).held().build().gang)
    assert [*asked([*step(s), *step(s)])] == ["next"]


def test_an_account_says_what_the_claimant_waits_for_while_members_are_asked() -> None:
    s = question()
    found = account(s.core, "uid-high")
    assert found is not None
    assert found.reason == "AskingMembers"


# -- what is not so any more -------------------------------------------------------------------------------------------


def served(*by: str) -> object:
    return make_queue("q", view={"members": {name: Ceiling() for name in by}})


def limited(gpus: int) -> NamespaceSet:
    return NamespaceSet(NamespaceView("default", {GPU: gpus}))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(served("m"), served("n"), id="its queue may not use the member"),
        pytest.param(limited(16), limited(12), id="its namespace has less"),
    ],
)
def test_a_yes_evicts_no_victim_where(before: Event, after: Event) -> None:
    s = Scene(make_queue("q"), *ROOM, make_cluster("n"), make_capacity("n", [0]))
    s.tell(before)
    s.submit(make_binding("low").tasks(8))
    s.run()
    s.bound("low", generation=NEVER)
    s.submit(make_binding("high").tasks(8).priority(1))
    assert [*asked(step(s, after=OLD))] == ["high"]
    s.tell(after)
    s.answer("high")
    assert evicted(step(s)) == []
    assert [name for name in names(s.run(after=OLD)) if name == "high"] == []
    assert open_questions(s) == [], "a question about what may not be is withdrawn"


def test_a_yes_evicts_no_victim_where_equal_work_has_failed_meanwhile() -> None:
    """1. `first` is not bound in time. 2. A moment before, its member is asked about `high`, and says yes."""
    s = scene().submit(make_binding("low").tasks(4))
    s.run()
    s.bound("low", generation=NEVER)
    s.submit(make_binding("first").tasks(4).priority(1))
    assert names(s.run(after=OLD)) == ["first"]
    s.submit(make_binding("high").tasks(4).priority(1))
    assert [*asked(step(s, after=COMMIT_TIMEOUT - 1))] == ["high"]
    s.answer("high")
    assert evicted(step(s, after=1.1)) == ["first"]


def test_a_yes_evicts_no_victim_where_a_victim_is_being_evicted_already() -> None:
    s = question(make_binding("low1").tasks(4), make_binding("low2").tasks(4))
    gang = make_binding("low1").tasks(4).held().build().gang
    s.change("low1", gang=gang)
    s.answer("high")
    assert evicted(step(s)) == ["low1"]


def test_who_was_held_while_others_went_for_it_is_asked_about_again_once_it_may_run() -> None:
    s = question()
    s.answer("high")
    assert evicted(step(s)) == ["low"]
    wish = make_binding("high").tasks(8).priority(1).submitted(LATE)
    before = wish.build().gang
    s.change("high", gang=wish.held().build().gang)
    let_go(s, "low")
    assert names(step(s)) == ["low"]
    s.bound("low", generation=NEVER)
    s.change("high", gang=before)
    assert [*asked([*step(s, after=OLD), *step(s)])] == ["high"]


def test_room_that_was_made_for_one_that_is_gone_when_the_next_leader_begins_is_everybodys() -> None:
    s = question()
    s.answer("high")
    assert evicted(step(s)) == ["low"]
    let_go(s, "low")
    s.restart()
    s.gone("high")
    assert names(step(s)) == ["low"]


def test_a_question_that_is_overtaken_is_withdrawn_though_no_member_has_answered() -> None:
    s = question(make_binding("low1").tasks(4), make_binding("low2").tasks(4))
    s.change("low1", gang=make_binding("low1").tasks(4).held().build().gang)
    before = s.view("high").epoch
    assert evicted(step(s)) == ["low1"]
    step(s)
    assert open_questions(s) == ["high"]
    assert s.view("high").epoch > before
    s.change("low2", gang=make_binding("low2").tasks(4).firm().build().gang)
    s.answer("high")
    assert evicted(step(s)) == []
    step(s)
    assert open_questions(s) == []
    assert s.view("high").decision.reason is Reason.INSUFFICIENT_RESOURCES


# -- members that are behind -------------------------------------------------------------------------------------------


def burst(number: int) -> Scene:
    """So many pods are sent to the member at once."""
    s = scene(room=(make_cluster("m"), make_capacity("m", [number]))).submit(
        *(make_binding(f"b{index}") for index in range(number))
    )
    assert len(names(s.run())) == number
    return s


def test_what_waits_its_turn_in_a_member_is_not_evicted() -> None:
    """1. A member gets sixty pods at once and binds one a second. 2. Nobody has to start over."""
    s = burst(60)
    for index in range(60):
        assert evicted(s.run(after=1.0)) == []
        s.bound(f"b{index}", generation=NEVER)
    assert evicted(s.run(after=COMMIT_TIMEOUT)) == []


def test_what_ends_is_as_good_as_what_is_bound() -> None:
    s = burst(50)
    for index in range(50):
        assert evicted(s.run(after=1.0)) == []
        s.change(f"b{index}", finished=True)


def test_a_member_that_stands_still_is_not_waited_for() -> None:
    """1. A member binds one of two pods soon, and then nothing. 2. The other one is taken back in time."""
    s = burst(2)
    s.run(after=1.0)
    s.bound("b0", generation=NEVER)
    assert evicted(s.run(after=COMMIT_TIMEOUT - 1.1)) == []
    assert evicted(s.run(after=0.2)) == ["b1"]


def test_a_member_that_stops_is_waited_for_half_as_long_again_at_most() -> None:
    s = burst(2)
    s.run(after=COMMIT_TIMEOUT - 1)
    s.bound("b0", generation=NEVER)
    assert evicted(s.run(after=1.0)) == []
    assert s.core.next_deadline == s.now + COMMIT_TIMEOUT / 2
    assert evicted(s.run(after=COMMIT_TIMEOUT / 2)) == ["b1"]


def test_another_leader_hears_of_a_member_first() -> None:
    """1. A member is behind when another dispatcher takes over. 2. Nobody is taken back before it can have heard."""
    s = burst(60)
    for index in range(35):
        s.run(after=1.0)
        s.bound(f"b{index}", generation=NEVER)
    s.restart()
    assert evicted(s.run(after=0.5)) == []
    s.bound("b35", generation=NEVER)
    assert evicted(s.run(after=COMMIT_TIMEOUT / 2 - 1)) == []
    assert len(evicted(s.run(after=COMMIT_TIMEOUT / 2))) == 24


def test_what_others_overtake_is_evicted() -> None:
    """1. A pod is sent every second, and bound at once, but for the first. 2. The first is taken back in time."""
    s = scene(room=(make_cluster("m"), make_capacity("m", [40]))).submit(make_binding("stuck"))
    s.run()
    for index in range(29):
        s.submit(make_binding(f"b{index}"))
        assert names(s.run(after=1.0)) == [f"b{index}"]
        s.bound(f"b{index}", generation=NEVER)
    assert evicted(s.run(after=1.1)) == ["stuck"]


def test_parts_of_several_members_are_not_waited_for() -> None:
    """What some members have started must not wait for those that are behind."""
    s = scene(room=(*map(make_cluster, "mn"), make_capacity("m", [4]), make_capacity("n", [4])))
    s.submit(make_binding("gang").tasks(6).divided())
    s.run()
    s.submit(make_binding("one"), make_binding("two"))
    s.change("gang", reserved={name: MemberAnswer(True) for name in "mn"})
    s.run()
    s.run(after=COMMIT_TIMEOUT - 1)
    s.bound("one", generation=NEVER)
    s.bound("two", generation=NEVER)
    assert evicted(s.run(after=1.1)) == ["gang"]


# -- members that failed -----------------------------------------------------------------------------------------------


def test_what_fails_with_others_puts_the_next_attempt_off_without_making_the_pause_longer() -> None:
    """1. Two of one shape start three seconds apart, and are not bound. 2. What failed last ends the pause."""
    s = scene().submit(make_binding("a"))
    s.run()
    s.submit(make_binding("b"))
    s.run(after=3.0)
    begun = s.now
    assert evicted(s.run(after=COMMIT_TIMEOUT - 2.9)) == ["a"]
    assert evicted(s.run(after=3.0)) == ["b"]
    for name in "ab":
        s.change(name, released=s.view(name).generation)
    # The pause of the first, with all of its jitter, is over; that of the second is not, without any.
    s.now = begun + COMMIT_TIMEOUT + AVOID_FIRST - 0.1
    assert names(s.run(after=0.0)) == []
    assert s.verdict("a") is Reason.AVOIDED
    s.now = begun + COMMIT_TIMEOUT + 1.5 * AVOID_FIRST + 0.2
    assert sorted(names(s.run(after=0.0))) == ["a", "b"]


def test_what_a_member_failed_is_remembered_for_ten_minutes_after_the_pause() -> None:
    s = scene().submit(make_binding("a"))
    s.run()
    s.run(after=COMMIT_TIMEOUT + 0.1)
    [avoided] = s.core.state.failures.known.values()
    s.gone("a")
    s.now = avoided.until + 2 * AVOID_MAX
    s.run(after=-0.5)
    assert [each.over for each in s.core.state.failures.known.values()] == [True]
    s.now = avoided.until + 2 * AVOID_MAX
    s.run(after=0.0)
    assert not s.core.state.failures.known


def test_figures_that_came_before_it_failed_forgive_nothing() -> None:
    s = scene().submit(make_binding("a"))
    s.run()
    s.tell(make_capacity("m", [8], generation=2))
    assert evicted(s.run(after=COMMIT_TIMEOUT + 0.1)) == ["a"]
    s.change("a", released=s.view("a").generation)
    assert names(s.run()) == []
    s.tell(make_capacity("m", [8], generation=3))
    assert names(s.run()) == ["a"]
