"""Members are asked before anybody goes: what follows from yes, no, silence, and from whatever happens meanwhile."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import msgspec
import pytest

from atoll.dispatcher.core import Dispatch, Dispatcher, Evict, MemberAnswer, Nominate, Resize, Strategy
from atoll.dispatcher.core.settings import CoreSettings, PreemptionSettings
from atoll.model.decision import Decision, Phase
from atoll.model.verdict import Reason
from tests.dispatcher.builders import (
    EARLY,
    LATE,
    NEVER,
    OLD,
    Scene,
    evicted,
    explained,
    let_go,
    make_binding,
    make_capacity,
    make_cluster,
    make_queue,
    named,
    names,
    share,
    wishes,
)
from tests.dispatcher.preemption.dry_runs import asked, open_questions, question, step

HELPLESS = CoreSettings().preemption.pause

MOST_VICTIMS = CoreSettings().preemption.victims
RESERVE_TIMEOUT = CoreSettings().progress.reserve

NO = MemberAnswer(False, requested=8, available=6)


def unasked() -> Scene:
    """`low` runs on all of m, whose nodes have names, and `high` is about to be asked about."""
    s = Scene(make_queue("q"), make_queue("other", priority=1), make_cluster("m"), named("m", [4, 4]))
    s.submit(make_binding("low").tasks(4), make_binding("low2").tasks(4))
    s.run()
    for number, name in enumerate(("low", "low2")):
        s.change(name, placed={"m": (2, 4)}, nodes={"m": {f"m-{number}": 4}})
    s.tell(named("m", [0, 0], generation=2))
    s.now += OLD
    s.submit(make_binding("high").tasks(2, gpu=4).priority(1).submitted(LATE))
    return s


def idle(s: Scene) -> None:
    """Nothing is decided any more, and nothing is due but what time alone brings."""
    for _ in range(5):
        if not step(s):
            break
    due = s.core.next_deadline
    assert due is None or due > s.now, "it goes on and on"


# -- the question ------------------------------------------------------------------------------------------------------


def test_the_question_names_parts_and_victims_under_an_epoch_of_its_own_and_starts_nothing() -> None:
    s = question()
    view = s.view("high")
    assert view.decision.question is not None
    assert view.decision.question.parts == {"m": {"t0": 8}}
    assert view.decision.question.gone == {"uid-low": None}
    assert (view.epoch, view.decision.epoch, view.decision.phase) == (1, 1, Phase.SUSPENDED)
    assert view.suspended
    assert view.parts == ()
    assert view.decision.nominated == ["m"]
    assert s.verdict("high") is Reason.ASKING_MEMBERS
    assert s.used("q") == 8, "only what runs is charged"


def test_of_an_elastic_victim_it_says_what_stays() -> None:
    s = Scene(make_queue("q"), make_cluster("m"), make_capacity("m", [8]))
    s.submit(make_binding("wide").tasks(8, minimum=2).minimum(2).submitted(EARLY))
    s.run()
    s.bound("wide", generation=NEVER)
    s.submit(make_binding("b").tasks(3).submitted(LATE))
    step(s)
    found = s.view("b").decision.question
    assert found is not None
    assert found.gone == {"uid-wide": {"t0": 5}}
    s.answer("b")
    assert [(c.name, c.parts[0].pods) for c in step(s) if isinstance(c, Resize)] == [("wide", 5)]


def test_no_other_workload_gets_room_or_victims_while_members_are_asked() -> None:
    s = question(make_binding("low").tasks(4), claimant=make_binding("high").tasks(8).priority(1).submitted(LATE))
    s.submit(
        make_binding("small").submitted(EARLY),
        make_binding("vip").tasks(4).priority(1).submitted("2026-01-03T00:00:00Z"),
    )
    commands = step(s)
    assert (names(commands), evicted(commands), [*asked(commands)]) == ([], [], [])


@pytest.mark.parametrize("first", ["high1", "high2"])
def test_two_are_asked_about_at_once_and_each_gets_its_own_answer(first: str) -> None:
    """The queue is full: each counts on those that go for the other, once they have gone."""
    s = Scene(make_queue("q", gpu=8), make_cluster("m"), make_capacity("m", [4, 4]))
    s.submit(make_binding("low1").tasks(4), make_binding("low2").tasks(4))
    for name in names(s.run()):
        s.bound(name, generation=NEVER)
    s.now += OLD
    s.submit(make_binding("high1").tasks(1, gpu=4).priority(1), make_binding("high2").tasks(4).priority(1))
    assert [*asked([*step(s), *step(s)])] == ["high1", "high2"]
    gone = []
    for name in (first, "high2" if first == "high1" else "high1"):
        s.answer(name)
        [victim] = evicted(step(s))
        gone.append(victim)
    assert sorted(gone) == ["low1", "low2"]
    let_go(s, *gone)
    assert sorted([*names(step(s)), *names(step(s))]) == ["high1", "high2"]


# -- answers -----------------------------------------------------------------------------------------------------------


def test_yes_evicts_those_who_were_named_and_the_room_is_the_claimants() -> None:
    s = question()
    s.answer("high")
    commands = step(s)
    assert evicted(commands) == ["low"]
    assert isinstance(explained(commands)["high"], Nominate)
    assert explained(commands)["high"].decision.reason is Reason.AWAITING_VICTIMS
    assert (s.view("high").decision.nominated, open_questions(s)) == (["m"], [])
    s.submit(make_binding("small").submitted(EARLY))
    let_go(s, "low")
    assert names(step(s)) == ["high"]
    assert s.view("high").epoch == 2


def test_no_evicts_no_victim_and_says_what_the_member_holds() -> None:
    s = question()
    s.answer("high", m=NO)
    commands = step(s)
    assert evicted(commands) == []
    told = explained(commands)["high"].decision
    assert told.reason is Reason.PART_REFUSED
    assert told.blocker is not None
    assert (told.blocker.name, told.blocker.requested, told.blocker.available) == ("m", "8", "6")
    assert open_questions(s) == []
    idle(s)
    assert s.view("high").suspended
    assert s.verdict("high") is Reason.PART_REFUSED, "until it is looked at again"


def test_a_member_that_said_no_is_asked_again_only_when_it_changes_or_after_a_pause() -> None:
    s = question()
    s.answer("high", m=NO)
    idle(s)
    assert not asked(step(s, after=1.0))
    s.tell(make_capacity("m", [4, 4], generation=2))
    assert [*asked(step(s, after=HELPLESS))] == ["high"]


def test_after_a_no_others_elsewhere_are_looked_at() -> None:
    s = question(make_binding("low1").tasks(8), make_binding("low2").tasks(8), members=("m1", "m2"))
    [first] = s.view("high").decision.nominated
    s.answer("high", **{first: NO})
    commands = step(s)
    if not asked(commands):
        commands = step(s)
    assert [*asked(commands)] == ["high"]
    assert [*s.view("high").decision.nominated] == [name for name in ("m1", "m2") if name != first]
    s.answer("high")
    assert len(evicted(step(s))) == 1


def test_silence_is_a_no() -> None:
    s = question()
    assert s.core.next_deadline is not None
    assert evicted(step(s, after=RESERVE_TIMEOUT - 1)) == []
    assert open_questions(s) == ["high"]
    commands = step(s, after=1.1)
    assert evicted(commands) == []
    told = explained(commands)["high"].decision
    assert (told.reason, told.story[-1].text) == (Reason.PART_REFUSED, "no answer from m within 10 s")
    # An answer that comes too late says nothing of what is asked by then.
    s.change("high", reserved={"m": MemberAnswer(True)})
    idle(s)
    assert s.view("low").decision.phase is Phase.DISPATCHED


def test_a_divided_claimant_needs_the_yes_of_all_its_members() -> None:
    s = question(
        make_binding("low1").tasks(8),
        make_binding("low2").tasks(8),
        claimant=make_binding("high").tasks(16).priority(1).divided(),
        members=("m1", "m2"),
    )
    s.change("high", reserved={"m1": MemberAnswer(True)})
    assert evicted(step(s)) == []
    s.change("high", reserved={"m1": MemberAnswer(True), "m2": NO})
    assert evicted(step(s)) == []
    assert s.view("high").decision.reason is Reason.PART_REFUSED
    t = question(
        make_binding("low1").tasks(8),
        make_binding("low2").tasks(8),
        claimant=make_binding("high").tasks(16).priority(1).divided(),
        members=("m1", "m2"),
    )
    t.answer("high")
    assert sorted(evicted(step(t))) == ["low1", "low2"]


# -- meanwhile ---------------------------------------------------------------------------------------------------------


def test_a_victim_that_ended_meanwhile_leaves_room_enough() -> None:
    """1. Both are named. 2. One ends. 3. The yes comes: what was asked about is not so any more. 4. The other is asked about."""
    s = question(make_binding("low1").tasks(4), make_binding("low2").tasks(4))
    s.change("low1", finished=True)
    s.answer("high")
    commands = step(s)
    assert evicted(commands) == []
    commands += step(s) if not asked(commands) else []
    found = s.view("high").decision.question
    assert found is not None
    assert found.gone == {"uid-low2": None}
    s.answer("high")
    assert evicted(step(s)) == ["low2"]


def test_a_claimant_that_fits_by_now_starts_without_an_eviction() -> None:
    s = question()
    s.change("low", finished=True)
    s.answer("high")
    assert (names(step(s)), open_questions(s)) == (["high"], [])


def test_it_starts_elsewhere_under_a_newer_epoch() -> None:
    s = question()
    s.tell(make_cluster("other"), make_capacity("other", [8]))
    assert names(step(s)) == ["high"]
    assert (s.view("high").epoch, s.view("high").parts[0][0], open_questions(s)) == (2, "other", [])
    s.change("high", reserved={"m": MemberAnswer(True)})
    assert evicted(step(s)) == []


def _hold(s: Scene) -> None:
    gang = s.view("high").gang
    assert gang is not None
    s.change("high", gang=msgspec.structs.replace(gang, hold=True), generation=2)


def _lower(s: Scene) -> None:
    gang = s.view("high").gang
    assert gang is not None
    s.change("high", gang=msgspec.structs.replace(gang, priority=0), generation=2)


def _firm(s: Scene) -> None:
    wishes(s, "low", preemptable=False)


def _raise(s: Scene) -> None:
    wishes(s, "low", priority=1)


@pytest.mark.parametrize(
    "meanwhile",
    [
        pytest.param(lambda s: s.gone("high"), id="the claimant is deleted"),
        pytest.param(lambda s: s.change("high", finished=True), id="the claimant is over"),
        pytest.param(_hold, id="its user holds the claimant"),
        pytest.param(_lower, id="the claimant has no higher priority any more"),
        pytest.param(_firm, id="its user protects the victim"),
        pytest.param(_raise, id="the victim has as high a priority"),
        pytest.param(
            lambda s: s.tell(make_queue("q", view={"protection": 3600.0})), id="the queue protects the victim"
        ),
        pytest.param(lambda s: s.tell(make_queue("q", is_open=False)), id="the queue is closed"),
        pytest.param(lambda s: s.tell(make_cluster("m", ready=False)), id="the member is not ready"),
        pytest.param(lambda s: s.tell(make_capacity("m", [0], generation=NEVER)), id="a node is gone"),
    ],
)
def test_a_yes_to_what_is_not_so_any_more_evicts_no_victim(meanwhile: Callable[[Scene], object]) -> None:
    s = question()
    meanwhile(s)
    if any(view.name == "high" for view in s.views.values()):
        s.answer("high")
    for _ in range(5):
        commands = step(s)
        assert evicted(commands) == []
        if not commands:
            break
    idle(s)
    assert open_questions(s) == [] or s.view("high").finished


@pytest.mark.timeout(30)
@pytest.mark.parametrize("strategy", Strategy)
def test_the_claimant_of_an_overtaken_dry_run_waits_as_before(strategy: Strategy) -> None:
    """In a strict queue the head is not looked at again before the next pass, and has no reason until then."""
    s = question(strategy=strategy)
    s.submit(make_binding("other").tasks(8).submitted(LATE))
    _firm(s)
    s.answer("high")
    step(s)
    assert s.core.next_deadline is not None
    step(s)
    idle(s)
    assert s.view("high").decision.reason is Reason.INSUFFICIENT_RESOURCES


def test_a_victim_that_was_evicted_and_runs_again_is_not_meant() -> None:
    s = question()
    view = s.view("low")
    decision = Decision(2, Phase.DISPATCHED, Reason.DISPATCHED, story=view.decision.story)
    s.see(dataclasses.replace(view, epoch=2, decision=decision, generation=view.generation + 1))
    s.answer("high")
    assert evicted(step(s)) == []


def test_a_refused_question_is_asked_again() -> None:
    s = unasked()
    [command] = asked(s.decide()).values()
    s.refuse(command)
    [again] = asked([*s.decide(), *s.decide()]).values()
    assert (again.epoch, again.decision.epoch) == (0, 1)


def test_before_the_question_is_written_nothing_is_due() -> None:
    s = unasked()
    [command] = asked(s.decide()).values()
    for _ in range(4):
        assert not s.decide(after=RESERVE_TIMEOUT)
        due = s.core.next_deadline
        assert due is None or due > s.now
    s.write(command)
    s.answer("high")
    assert evicted(step(s)) == ["low", "low2"]


def test_a_workload_that_changes_while_the_question_is_written_is_decided_on_as_it_is() -> None:
    """1. The question is decided. 2. Its user wants fewer pods. 3. They fit. 4. The question's write is refused."""
    s = unasked()
    [command] = asked(s.decide()).values()
    s.tell(make_cluster("other"), make_capacity("other", [4]))
    gang = make_binding("high").tasks(1, gpu=4).priority(1).submitted(LATE).build().gang
    s.change("high", gang=gang, generation=2)
    [dispatch] = [each for each in s.decide() if isinstance(each, Dispatch)]
    assert (dispatch.epoch, dispatch.generation, dispatch.parts[0].pods) == (0, 2, 1)
    s.refuse(command)
    s.write(dispatch)
    assert s.view("high").parts == (("other", (1,)),)


def test_what_ends_while_the_question_is_written_is_over() -> None:
    s = unasked()
    s.decide()
    s.tell(make_cluster("other"), make_capacity("other", [8]))
    s.change("high", finished=True)
    assert names(s.decide()) == []


# -- another leader ----------------------------------------------------------------------------------------------------


def test_the_next_leader_forgets_a_question_and_asks_its_own() -> None:
    s = unasked()
    step(s)
    s.restart()
    s.answer("high")
    commands = step(s)
    assert evicted(commands) == []
    assert asked(commands)["high"].decision.epoch == 2
    s.answer("high")
    assert evicted(step(s)) == ["low", "low2"]
    idle(s)
    assert (s.view("low").epoch, s.view("low2").epoch) == (2, 2), "evicted once"


def test_the_next_leader_withdraws_what_it_does_not_ask_any_more() -> None:
    s = unasked()
    step(s)
    s.change("low", gang=make_binding("low").tasks(4).firm().build().gang)
    s.restart()
    idle(s)
    assert open_questions(s) == []


@pytest.mark.parametrize("gone", [False, True], ids=["while its pods end", "when its pods are gone"])
def test_the_next_leader_keeps_the_room_for_which_only_some_evictions_were_written(gone: bool) -> None:
    """1. Yes. 2. One of two evictions is written, then the leader dies. 3. The next one sees the question, and who went."""
    s = unasked()
    step(s)
    s.answer("high")
    first = next(command for command in s.decide() if isinstance(command, Evict))
    s.write(first)
    if gone:
        let_go(s, first.name)
    s.restart()
    s.submit(make_binding("small").queue("other"))
    assert names(step(s)) == []
    if not gone:
        let_go(s, first.name)
    s.tell(named("m", [4, 0], generation=3))
    assert names(step(s)) == []


def test_a_replay_gives_the_same_questions() -> None:
    s = question(make_binding("low1").tasks(4), make_binding("low2").tasks(4))
    s.change("low1", finished=True)
    s.answer("high")
    for _ in range(3):
        step(s)
    again = Dispatcher()
    assert [again.handle(event) for event in s.log] == s.answers


# -- bounds ------------------------------------------------------------------------------------------------------------


def test_questions_do_not_push_a_story_out() -> None:
    s = question()
    for number in range(20):
        s.answer("high", m=NO)
        step(s)
        s.tell(make_capacity("m", [4, 4], generation=2 + number))
        for _ in range(20):
            if asked(step(s, after=HELPLESS)):
                break
    reasons = [line.reason for line in s.view("high").decision.story]
    assert reasons.count(Reason.ASKING_MEMBERS) == 1


def test_a_question_of_more_names_than_a_binding_holds_is_not_asked() -> None:
    assert MOST_VICTIMS * 60 < 256 * 1024
    one = CoreSettings(preemption=PreemptionSettings(victims=1))
    s = Scene(make_queue("q"), make_cluster("m"), make_capacity("m", [4, 4]), settings=one)
    s.submit(make_binding("low1").tasks(4), make_binding("low2").tasks(4))
    for name in names(s.run()):
        s.bound(name, generation=NEVER)
    s.now += OLD
    s.submit(make_binding("high").tasks(8).priority(1))
    assert not asked(step(s))


def test_reclaim_asks_too() -> None:
    s = Scene(share("a", 4), share("b", 4), make_cluster("m"), make_capacity("m", [4, 4]))
    s.submit(*(make_binding(f"a{n}").queue("a").tasks(1, gpu=2) for n in range(4)))
    for name in names(s.run()):
        s.bound(name, generation=NEVER)
    s.now += OLD
    s.submit(make_binding("b").queue("b").tasks(2, gpu=2))
    assert evicted(step(s)) == []
    s.answer("b")
    assert {c.decision.reason for c in step(s) if isinstance(c, Evict)} == {Reason.RECLAIMED}
