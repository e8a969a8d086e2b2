"""What is bound and does not run in time is taken back, waits longer after each round, and costs nobody else a member."""

from __future__ import annotations

import pytest

from atoll.dispatcher.core import Evict, Explain
from atoll.dispatcher.core.settings import CoreSettings, ProgressSettings
from atoll.model.decision import Phase
from atoll.model.timestamps import rfc3339_seconds, to_seconds
from atoll.model.verdict import Reason
from tests.dispatcher.builders import (
    BindingBuilder,
    Scene,
    dispatched,
    evicted,
    let_go,
    make_binding,
    make_cluster,
    make_queue,
    names,
    scene,
    two_members,
    wishes,
)

PAUSE_FIRST = CoreSettings().progress.pause
PAUSE_MAX = CoreSettings().progress.longest_pause
REGAIN_TIMEOUT = CoreSettings().progress.regain
MOST_REFUSALS = CoreSettings().refused.most

BACK_OFF = "ImagePullBackOff (pod a-0, container main: Back-off pulling image nosuch)"


def patient(name: str, seconds: float | None) -> BindingBuilder:
    return make_binding(name).tasks(4).gang(ready_timeout=seconds)


def bind(s: Scene, name: str, **more: object) -> None:
    """All its pods have nodes, as control says."""
    view = s.view(name)
    member = view.parts[0][0]
    s.change(name, bound=True, bound_at=rfc3339_seconds(s.now), placed={member: (9, 4)}, **more)


def after_one_round(s: Scene) -> Evict:
    assert names(s.run()) == ["a"]
    bind(s, "a", held_up={"m": BACK_OFF})
    assert evicted(s.run(after=59)) == []
    [command] = s.run(after=3)
    assert isinstance(command, Evict)
    return command


def test_what_does_not_run_in_time_is_evicted_with_the_containers_own_words() -> None:
    s = scene().submit(patient("a", 60.0))
    decision = after_one_round(s).decision
    assert (decision.phase, decision.reason, decision.rounds) == (Phase.EVICTING, Reason.NOT_READY_IN_TIME, 1)
    assert decision.story[-1].text == f"its minimum was bound in m and did not run in time: m: {BACK_OFF}"
    assert decision.blocker is not None
    assert BACK_OFF in decision.blocker.message


def test_it_waits_a_while_and_says_so_and_others_take_the_room() -> None:
    """1. It is taken back. 2. Its pods are gone: it waits, with its reason. 3. An equal one starts in the same member at
    once. 4. That one ends, and the pause too: it is tried again.
    """
    s = scene().submit(patient("a", 60.0))
    after_one_round(s)
    let_go(s, "a")
    assert s.used("q") == 0
    s.submit(make_binding("b").tasks(4).tasks(4))
    commands = s.run()
    assert names(commands) == ["b"]
    [told] = [c for c in commands if isinstance(c, Explain)]
    assert (told.name, told.decision.phase, told.decision.reason) == ("a", Phase.SUSPENDED, Reason.NOT_READY_IN_TIME)
    assert (told.decision.rounds, told.decision.not_before != "") == (1, True)
    assert told.decision.blocker is not None
    assert BACK_OFF in told.decision.blocker.message
    assert s.verdict("a") is Reason.NOT_READY_IN_TIME
    assert s.run() == []
    s.change("b", finished=True)
    assert s.run() == []
    assert s.core.next_deadline == pytest.approx(to_seconds(told.decision.not_before))
    assert names(s.run(after=PAUSE_FIRST)) == ["a"]
    assert s.view("a").decision.rounds == 1


def test_each_round_doubles_the_pause_until_it_has_run() -> None:
    s = scene().submit(patient("a", 60.0))
    for number in (1, 2, 3):
        assert names(s.run(after=PAUSE_MAX)) == ["a"]
        bind(s, "a")
        [command] = s.run(after=62)
        assert command.decision.rounds == number
        pause = to_seconds(command.decision.not_before) - s.now
        assert pause == pytest.approx(PAUSE_FIRST * 2 ** (number - 1), abs=0.01)
        let_go(s, "a")
    assert names(s.run(after=PAUSE_MAX)) == ["a"]
    bind(s, "a", started=True)
    assert evicted(s.run(after=3600)) == []


def test_a_pause_is_never_longer_than_its_bound() -> None:
    s = Scene(*scene().log, settings=CoreSettings(progress=ProgressSettings(longest_pause=90.0)))
    s.submit(patient("a", 60.0))
    for pause in (60.0, 90.0, 90.0):
        assert names(s.run(after=90.0)) == ["a"]
        bind(s, "a")
        [command] = s.run(after=62)
        assert to_seconds(command.decision.not_before) - s.now == pytest.approx(pause, abs=0.01)
        let_go(s, "a")


def test_a_leader_that_begins_goes_on_with_the_pause() -> None:
    s = scene().submit(patient("a", 60.0))
    after_one_round(s)
    let_go(s, "a")
    s.run()
    s.restart()
    assert names(s.run()) == []
    assert s.verdict("a") is Reason.NOT_READY_IN_TIME
    assert names(s.run(after=PAUSE_FIRST)) == ["a"]


def test_a_leader_that_begins_evicts_what_was_bound_long_ago() -> None:
    s = scene().submit(patient("a", 60.0))
    s.run()
    bind(s, "a")
    s.restart()
    assert evicted(s.run(after=61)) == ["a"]


def test_the_queue_says_it_for_those_that_do_not_say_it_themselves() -> None:
    s = scene().submit(patient("a", None))
    s.run()
    bind(s, "a")
    assert evicted(s.run(after=100)) == []
    s.tell(make_queue("q", view={"ready_timeout": 120.0}))
    assert evicted(s.run(after=15)) == []
    assert evicted(s.run(after=6)) == ["a"]


def test_without_such_a_wish_containers_may_take_any_time() -> None:
    s = scene().submit(patient("a", None))
    s.run()
    bind(s, "a", held_up={"m": BACK_OFF})
    assert evicted(s.run(after=1e6)) == []


def test_hold_and_release_end_the_pause() -> None:
    s = scene().submit(patient("a", 60.0))
    after_one_round(s)
    let_go(s, "a")
    s.run()
    wishes(s, "a", hold=True)
    s.run()
    assert s.verdict("a") is Reason.HELD
    wishes(s, "a", hold=False)
    assert names(s.run()) == ["a"]


def test_a_gang_that_lost_pods_of_its_minimum_is_evicted_unless_they_are_bound_again_in_time() -> None:
    """1. A gang runs. 2. It loses pods; in time they are bound again. 3. It loses some for longer: it is taken back, and
    that member is avoided for a while.
    """
    s = scene().submit(patient("a", None))
    assert names(s.run()) == ["a"]
    bind(s, "a", started=True)
    s.change("a", lost_at=rfc3339_seconds(s.now), waiting={"m": "no room"}, placed={"m": (9, 3)})
    assert evicted(s.run(after=REGAIN_TIMEOUT - 5)) == []
    s.change("a", lost_at="", waiting={}, placed={"m": (9, 4)})
    assert evicted(s.run(after=10)) == []
    s.change("a", lost_at=rfc3339_seconds(s.now), waiting={"m": "no room"}, placed={"m": (9, 3)})
    [command] = s.run(after=REGAIN_TIMEOUT + 2)
    assert isinstance(command, Evict)
    assert command.decision.reason is Reason.DEADLINE_EXCEEDED
    assert (
        command.decision.story[-1].text
        == "pods of its minimum lost their nodes in m and got no others within 30 s: m: no room"
    )


def test_a_gang_that_lost_pods_is_judged_once_its_member_is_heard_again() -> None:
    s = scene().submit(patient("a", None))
    assert names(s.run()) == ["a"]
    bind(s, "a", started=True)
    s.change("a", lost_at=rfc3339_seconds(s.now), waiting={"m": "no room"}, placed={"m": (9, 3)})
    s.tell(make_cluster("m", ready=False))
    assert evicted(s.run(after=REGAIN_TIMEOUT + 2)) == []
    s.tell(make_cluster("m"))
    assert evicted(s.run(after=REGAIN_TIMEOUT + 2)) == ["a"]


def test_a_gang_that_is_not_bound_in_time_is_evicted_with_its_members_words() -> None:
    s = scene().submit(patient("a", None))
    assert names(s.run()) == ["a"]
    s.change("a", waiting={"m": "default-scheduler has not bound 2 of its pods"}, placed={"m": (9, 2)})
    [command] = [each for each in s.run(after=62) if isinstance(each, Evict)]
    assert command.decision.story[-1].text.endswith("within 30 s: m: default-scheduler has not bound 2 of its pods")


def not_ready(s: Scene, name: str, rounds: int) -> None:
    """So many times it is bound and does not run."""
    for _ in range(rounds):
        assert names(s.run(after=PAUSE_MAX)) == [name]
        bind(s, name, held_up={s.view(name).parts[0][0]: BACK_OFF})
        assert evicted(s.run(after=62)) == [name]
        let_go(s, name)


def test_what_never_runs_is_deactivated_until_its_user_acts() -> None:
    s = scene().submit(patient("a", 60.0))
    not_ready(s, "a", MOST_REFUSALS)
    commands = s.run()
    assert s.verdict("a") is Reason.DEACTIVATED
    [told] = [command for command in commands if isinstance(command, Explain)]
    assert told.decision.blocker is not None
    assert BACK_OFF in told.decision.blocker.message
    s.restart()
    assert names(s.run(after=10 * PAUSE_MAX)) == []
    assert s.verdict("a") is Reason.DEACTIVATED
    # It holds nobody up.
    s.submit(make_binding("b").tasks(4))
    assert names(s.run()) == ["b"]
    s.change("b", finished=True)
    wishes(s, "a", attempt="again")
    assert names(s.run()) == ["a"]


def test_where_one_member_never_gets_it_to_run_another_one_is_tried() -> None:
    s = two_members()
    s.change("a", finished=True)
    s.submit(patient("b", 60.0))
    first = dispatched(s.decide())
    s.restart()
    not_ready(s, "b", MOST_REFUSALS)
    [(_, second)] = dispatched(s.run())
    assert [(name, second) for name, _ in first] != first


@pytest.mark.parametrize("told", [{"bound": False}, {"bound_at": ""}], ids=["not bound", "no time"])
def test_nothing_is_late_whose_pods_are_not_known_to_be_bound_since_when(told: dict[str, object]) -> None:
    s = scene().submit(patient("a", 60.0))
    assert names(s.run()) == ["a"]
    bind(s, "a")
    s.change("a", **told)
    assert evicted(s.run(after=61)) == []


def test_what_ran_once_is_not_counted() -> None:
    s = scene().submit(patient("a", 60.0))
    not_ready(s, "a", MOST_REFUSALS - 1)
    s.run(after=PAUSE_MAX)
    bind(s, "a", started=True)
    wishes(s, "a", hold=True)
    assert evicted(s.run()) == ["a"]
    let_go(s, "a")
    wishes(s, "a", hold=False)
    s.change("a", started=False, bound=False, bound_at="")
    not_ready(s, "a", 1)
    s.run(after=PAUSE_MAX)
    assert s.verdict("a") is not Reason.DEACTIVATED
