"""Work that is to be placed anew because somebody asked for it."""

from __future__ import annotations

from atoll.dispatcher.core.commands import Evict
from atoll.model.timestamps import rfc3339
from tests.dispatcher.builders import START, Scene, dispatched, evicted, let_go, make_binding, scene


def asked(made: Scene, seconds: float) -> None:
    made.change("a", rescheduled=rfc3339(START + seconds))


def test_what_was_dispatched_before_the_time_is_placed_anew_once() -> None:
    made = scene()
    made.submit(make_binding("a").tasks(4))
    assert dispatched(made.run()) == [("a", "m")]
    asked(made, 5)
    assert evicted(made.run(after=1)) == []
    assert made.core.next_deadline == START + 5
    assert evicted(made.run(after=5)) == ["a"]
    let_go(made, "a")
    assert dispatched(made.run()) == [("a", "m")]
    assert evicted(made.run(after=10)) == []
    asked(made, 3)
    assert evicted(made.run()) == []


def test_what_waits_is_not_touched() -> None:
    made = scene()
    made.submit(make_binding("a").tasks(9))
    made.run()
    asked(made, -10)
    assert made.run() == []


def test_it_goes_by_what_its_policy_says_now() -> None:
    made = scene()
    made.submit(make_binding("a").tasks(4))
    made.run()
    made.change("a", affinities=({"clusterNames": ["other"]},))
    assert evicted(made.run(after=1)) == []
    asked(made, 0.5)
    assert evicted(made.run(after=1)) == ["a"]
    let_go(made, "a")
    assert dispatched(made.run()) == []


def test_another_leader_waits_for_the_time_as_well() -> None:
    made = scene()
    made.submit(make_binding("a").tasks(4))
    made.run()
    asked(made, 5)
    made.restart()
    assert evicted(made.run(after=6)) == ["a"]


def test_the_story_has_the_reason_of_the_member_that_asks() -> None:
    made = scene()
    made.submit(make_binding("a").tasks(4))
    made.run()
    made.change("a", leaves={"m": "device d/p/0 has taint broken:NoExecute"})
    assert made.run() == []
    asked(made, 1)
    [command] = made.run(after=1)
    assert isinstance(command, Evict)
    text = "it was asked that it is placed anew: m: device d/p/0 has taint broken:NoExecute"
    assert text in str(command.decision.story[-1])
