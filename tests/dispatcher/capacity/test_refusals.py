"""What members' API servers and admission refuse: whom it keeps out of which member, for how long, and when it ends."""

from __future__ import annotations

import dataclasses

import pytest

from atoll.dispatcher.core import Command, Evict
from atoll.dispatcher.core.settings import CoreSettings, RefusedSettings
from atoll.model import keys
from atoll.model.decision import Phase
from atoll.model.namespaces import NOT_ACCEPTED
from atoll.model.queues import Strategy
from atoll.model.verdict import Blocker, Reason
from tests.dispatcher.builders import (
    NEVER,
    Scene,
    dispatched,
    explained,
    let_go,
    make_binding,
    make_capacity,
    make_cluster,
    make_queue,
    scene,
    wishes,
)

MOST_REFUSALS = CoreSettings().refused.most
NOT_LET_IN_FIRST = CoreSettings().refused.namespace_pause
REFUSED_FIRST = CoreSettings().refused.pause
REFUSED_MAX = CoreSettings().refused.longest_pause

WORDS = 'pods "a-0" is forbidden: no PriorityClass with name gold was found'
FULL = 'pods "a-0" is forbidden: exceeded quota: q, requested: pods=1, used: pods=4, limited: pods=4'
OWN = f"namespace default {NOT_ACCEPTED}; kubectl label namespace default atoll.sh/accept=true in m lets it in"
LONG = 2 * REFUSED_MAX
"""Seconds after which every pause is over."""


def two(*more: object) -> Scene:
    """Members m1, which is preferred, and m2."""
    return scene(
        *more, room=(make_cluster("m1"), make_cluster("m2"), make_capacity("m1", [4]), make_capacity("m2", [8]))
    )


def refuse(s: Scene, name: str, words: str = WORDS) -> list[Command]:
    """The member of a workload refuses it; it is taken back, and nothing of it is left."""
    member = s.view(name).parts[0][0]
    s.change(name, refused={member: words})
    commands = s.run()
    s.change(name, refused={})
    let_go(s, name)
    return commands


def test_what_a_member_refuses_is_evicted_at_once_with_the_members_words() -> None:
    s = two()
    s.submit(make_binding("a").tasks(4))
    assert dispatched(s.run()) == [("a", "m1")]
    [command] = refuse(s, "a")
    assert isinstance(command, Evict)
    assert (command.decision.reason, command.decision.blocker) == (
        Reason.REFUSED_BY_MEMBER,
        Blocker("Cluster", "m1", message=WORDS),
    )
    assert WORDS in command.decision.story[-1].text
    assert command.decision.refused is not None
    assert command.decision.refused.counts == {"m1": 1}


def test_what_the_host_could_not_make_is_not_called_a_members_refusal() -> None:
    words = "override policy default/mirror can't be applied for m1: there is no /spec/template"
    s = scene()
    s.submit(make_binding("a"))
    s.run()
    [command] = refuse(s, "a", words)
    assert isinstance(command, Evict)
    assert command.decision.reason is Reason.OVERRIDE_FAILED
    assert "member refused" not in command.decision.story[-1].text
    s.run()
    assert s.verdict("a") is Reason.OVERRIDE_FAILED


def test_it_goes_to_another_member_and_back_only_after_a_pause() -> None:
    s = two()
    s.submit(make_binding("a").tasks(4))
    s.run()
    refuse(s, "a")
    assert dispatched(s.run()) == [("a", "m2")]
    refuse(s, "a")
    assert dispatched(s.run()) == []
    # Figures that move on say nothing about what was refused.
    s.tell(make_capacity("m1", [4], generation=2))
    assert dispatched(s.run()) == []
    assert dispatched(s.run(after=1.5 * REFUSED_FIRST)) == [("a", "m1")]


def test_while_all_members_refuse_it_the_reason_is_what_they_say() -> None:
    s = scene()
    s.submit(make_binding("a"))
    s.run()
    refuse(s, "a")
    s.run()
    verdict = s.core.verdict("uid-a")
    assert verdict is not None
    assert verdict.reason is Reason.REFUSED_BY_MEMBER
    assert WORDS in verdict.sentence()


def test_the_pause_doubles_with_each_refusal_and_differs_between_workloads() -> None:
    pauses: dict[str, list[float]] = {}
    for name in ("a", "b"):
        s = scene()
        s.submit(make_binding(name))
        for _ in range(3):
            s.run(after=LONG)
            refuse(s, name)
            at = s.now
            s.run()
            assert s.core.next_deadline is not None
            pauses.setdefault(name, []).append(s.core.next_deadline - at)
    for first, second, third in pauses.values():
        assert REFUSED_FIRST <= first <= 1.5 * REFUSED_FIRST
        assert second == pytest.approx(2 * first, abs=0.1)
        assert third == pytest.approx(4 * first, abs=0.1)
    assert pauses["a"] != pauses["b"]


def test_refusals_keep_no_other_workload_out_of_the_member() -> None:
    """Neither an equal one of another tenant nor an equal one of the same namespace."""
    s = two()
    s.submit(make_binding("a").tasks(4))
    s.run()
    refuse(s, "a")
    s.submit(dataclasses.replace(make_binding("theirs").tasks(4).build(), namespace="other"))
    commands = s.run()
    assert ("theirs", "m1") in dispatched(commands)
    assert ("a", "m2") in dispatched(commands)
    t = two()
    t.submit(make_binding("a").tasks(4))
    t.run()
    refuse(t, "a")
    t.submit(make_binding("mine").tasks(4))
    assert ("mine", "m1") in dispatched(t.run())


def test_one_that_is_refused_does_not_hold_up_equal_ones_of_its_queue() -> None:
    s = scene()
    s.submit(make_binding("a").priority(9))
    s.run()
    refuse(s, "a")
    s.run()
    s.submit(make_binding("b"))
    assert dispatched(s.run()) == [("b", "m")]


def test_a_full_quota_keeps_its_namespace_out_of_the_member_and_no_other() -> None:
    s = two()
    s.submit(make_binding("a").tasks(4))
    s.run()
    refuse(s, "a", FULL)
    assert dispatched(s.run()) == [("a", "m2")]
    s.submit(make_binding("b").tasks(2))
    s.submit(dataclasses.replace(make_binding("theirs").tasks(4).build(), namespace="other"))
    found = dict(dispatched(s.run()))
    assert found == {"b": "m2", "theirs": "m1"}


def test_a_full_quota_is_not_counted_against_the_workload() -> None:
    s = scene()
    s.submit(make_binding("a"))
    for _ in range(MOST_REFUSALS + 2):
        assert dispatched(s.run(after=LONG)) == [("a", "m")]
        refuse(s, "a", FULL)
    s.run()
    assert s.verdict("a") is Reason.REFUSED_BY_MEMBER


def test_a_full_quota_is_tried_again_when_something_of_the_namespace_ends_there() -> None:
    s = scene()
    s.submit(make_binding("first").tasks(4))
    s.run()
    s.change("first", bound=True)
    s.submit(make_binding("a"))
    s.run()
    refuse(s, "a", FULL)
    assert dispatched(s.run()) == []
    s.change("first", finished=True)
    assert dispatched(s.run()) == [("a", "m")]


def test_a_namespace_that_is_not_let_in_is_tried_again_after_minutes() -> None:
    s = scene()
    s.submit(make_binding("a"), make_binding("b").tasks(2))
    first = dict(dispatched(s.run()))
    assert first.keys() == {"a", "b"}
    for name in first:
        refuse(s, name, OWN)
    s.submit(make_binding("c"))
    for pause in (NOT_LET_IN_FIRST, 2 * NOT_LET_IN_FIRST, 4 * NOT_LET_IN_FIRST):
        assert dispatched(s.run(after=0.95 * pause)) == []
        tried = dispatched(s.run(after=0.6 * pause))
        assert tried
        for name, _ in tried:
            refuse(s, name, OWN)
    assert s.verdict("c") is Reason.NAMESPACE_NOT_ACCEPTED


def test_it_is_tried_at_once_when_its_user_or_the_members_administrator_asks_for_that() -> None:
    s = scene()
    s.submit(make_binding("a"))
    s.run()
    refuse(s, "a", OWN)
    assert dispatched(s.run()) == []
    wishes(s, "a", attempt="1")
    assert dispatched(s.run()) == [("a", "m")]
    refuse(s, "a", OWN)
    assert dispatched(s.run()) == []
    s.tell(make_cluster("m", taints=[{"key": keys.CORDONED, "effect": "NoSchedule"}]))
    assert dispatched(s.run()) == []
    s.tell(make_cluster("m"))
    assert dispatched(s.run()) == [("a", "m")]


def test_after_some_refusals_by_one_member_it_is_deactivated_until_its_user_acts() -> None:
    s = scene()
    s.submit(make_binding("a"))
    for _ in range(MOST_REFUSALS):
        assert dispatched(s.run(after=LONG)) == [("a", "m")]
        refuse(s, "a")
    told = explained(s.run())["a"].decision
    assert (told.phase, told.reason) == (Phase.SUSPENDED, Reason.DEACTIVATED)
    assert told.blocker == Blocker("Cluster", "m", message=WORDS)
    assert dispatched(s.run(after=100 * LONG)) == []
    assert s.verdict("a") is Reason.DEACTIVATED
    s.restart()
    assert dispatched(s.run()) == []
    assert s.verdict("a") is Reason.DEACTIVATED
    wishes(s, "a", attempt="1")
    assert dispatched(s.run()) == [("a", "m")]
    refuse(s, "a")
    assert s.view("a").decision.refused is not None
    assert s.view("a").decision.refused.counts == {"m": 1}  # type: ignore[union-attr]


def test_a_class_that_the_host_lacks_is_asked_of_each_member_once_and_again_when_it_has_come() -> None:
    s = two()
    s.submit(make_binding("a"))
    wishes(s, "a", classless=True)
    for member in ("m1", "m2"):
        assert dispatched(s.run(after=LONG)) == [("a", member)]
        refuse(s, "a")
    told = explained(s.run())["a"].decision
    assert (told.reason, told.blocker) == (
        Reason.DEACTIVATED,
        Blocker(
            "Cluster",
            "m2",
            message=f"{WORDS}; the host does not have it either, and it is tried again once it is created there",
        ),
    )
    assert dispatched(s.run(after=100 * LONG)) == []
    wishes(s, "a", classless=False)
    assert dispatched(s.run()) == [("a", "m1")], "it goes along from now on"
    refuse(s, "a")
    assert s.view("a").decision.refused.counts == {"m1": 1}, "a member may know of it a moment late"  # type: ignore[union-attr]


def test_it_is_not_deactivated_while_another_member_may_take_it() -> None:
    """One member refuses it, the other one has no room: it waits for that room, and is tried in the first no more."""
    s = two()
    s.submit(make_binding("full").affinity(clusterNames=["m2"]).tasks(8))
    s.run()
    s.bound("full", generation=NEVER)
    s.submit(make_binding("a").tasks(4))
    for _ in range(MOST_REFUSALS):
        assert dispatched(s.run(after=LONG)) == [("a", "m1")]
        refuse(s, "a")
    assert dispatched(s.run(after=LONG)) == []
    assert s.verdict("a") is Reason.INSUFFICIENT_RESOURCES
    s.change("full", finished=True)
    assert dispatched(s.run()) == [("a", "m2")]


def test_what_is_deactivated_holds_up_nothing_in_a_strict_queue() -> None:
    s = Scene(make_queue("q", view={"strategy": Strategy.FIFO}), make_cluster("m"), make_capacity("m", [8]))
    s.submit(make_binding("a").priority(9))
    for _ in range(MOST_REFUSALS):
        s.run(after=LONG)
        refuse(s, "a")
    s.run()
    assert s.verdict("a") is Reason.DEACTIVATED
    s.submit(make_binding("b"))
    assert dispatched(s.run()) == [("b", "m")]


def test_what_ran_begins_to_count_anew() -> None:
    s = scene()
    s.submit(make_binding("a"))
    s.run()
    refuse(s, "a")
    assert dispatched(s.run(after=LONG)) == [("a", "m")]
    s.change("a", bound=True)
    s.run()
    wishes(s, "a", hold=True)
    s.run()
    assert s.view("a").decision.reason is Reason.HELD
    assert s.view("a").decision.refused is None


def test_a_refusal_after_it_was_bound_takes_nothing_back() -> None:
    s = scene()
    s.submit(make_binding("a").tasks(4, minimum=2))
    s.run()
    s.change("a", bound=True)
    s.change("a", refused={"m": WORDS})
    assert [command for command in s.run() if isinstance(command, Evict)] == []


def test_a_new_leader_keeps_the_pauses() -> None:
    s = scene()
    s.submit(make_binding("a"))
    s.run()
    refuse(s, "a")
    s.restart()
    assert dispatched(s.run()) == []
    assert dispatched(s.run(after=1.5 * REFUSED_FIRST)) == [("a", "m")]


def test_deactivation_can_be_turned_off() -> None:
    s = Scene(*scene().log, settings=CoreSettings(refused=RefusedSettings(most=0)))
    s.submit(make_binding("a"))
    for _ in range(MOST_REFUSALS + 2):
        assert dispatched(s.run(after=LONG)) == [("a", "m")]
        refuse(s, "a")


def test_one_refusal_may_be_enough() -> None:
    s = Scene(*scene().log, settings=CoreSettings(refused=RefusedSettings(most=1)))
    s.submit(make_binding("a"))
    assert dispatched(s.run()) == [("a", "m")]
    refuse(s, "a")
    assert dispatched(s.run(after=LONG)) == []


def test_one_part_that_is_refused_takes_all_parts_back() -> None:
    s = two()
    s.submit(make_binding("a").tasks(10).divided())
    s.run()
    s.change("a", reserved={})
    for name in ("m1", "m2"):
        assert name in dict(s.view("a").parts)
    s.change("a", refused={"m2": WORDS})
    [command] = s.run()
    assert isinstance(command, Evict)
    assert command.decision.blocker == Blocker("Cluster", "m2", message=WORDS)
