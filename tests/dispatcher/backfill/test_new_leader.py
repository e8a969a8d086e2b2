"""Another dispatcher takes over: what room was kept for whom, since when, and for what time."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from atoll.model.decision import Line, Phase
from atoll.model.timestamps import rfc3339
from atoll.model.verdict import Reason
from tests.dispatcher.builders import BACKFILL, START, make_binding, make_queue
from tests.dispatcher.virtual import Town, gpus


def waiting() -> Town:
    """Eight GPUs: four run for 1,000 s; the head needs all, and something that runs for a day could pass it."""
    t = Town(make_queue("q", view=BACKFILL), make_queue("z", priority=1), m=gpus(8))
    t.submit(make_binding("runs").tasks(4).firm(), runs=1000)
    t.run(10)
    t.submit(make_binding("head").tasks(8), runs=100)
    t.run(10)
    t.submit(make_binding("long").queue("z").tasks(4), runs=90_000)
    t.run(10)
    assert t.running() == ["runs"]
    return t


def test_its_first_pass_starts_nothing_that_could_not_pass_before() -> None:
    t = waiting()
    promise = t.core.reservations.made["uid-head"]
    t.lead_anew()
    t.run(10)
    assert t.running() == ["runs"]
    again = t.core.reservations.made["uid-head"]
    assert again is not promise
    assert (again.at, again.first, again.since) == pytest.approx((promise.at, promise.first, promise.since), abs=0.1)
    t.run(1100)
    started = t.started("head")
    assert started is not None
    assert started < 1010


def test_the_age_of_a_reservation_survives_many_leaders() -> None:
    t = waiting()
    made = t.core.reservations.made["uid-head"].since
    for _ in range(5):
        t.run(100)
        t.lead_anew()
    t.run(1)
    assert t.core.reservations.made["uid-head"].since == pytest.approx(made, abs=0.1)
    assert made < START + 20


def test_what_is_written_of_one_that_is_no_head_any_more_keeps_no_room() -> None:
    t = waiting()
    t.tell(make_queue("q"))
    t.lead_anew()
    t.run(10)
    assert t.running() == ["long", "runs"]


def test_when_something_was_dispatched_is_known_however_much_happened_since() -> None:
    """A story is too short for it: what runs for long would be protected as what has just started."""
    t = Town(make_queue("q"), m=gpus(1))
    uid = t.submit(make_binding("low"))
    t.run(1000)
    view = t.views[uid]
    lines = [Line(rfc3339(t.now), Phase.DISPATCHED, Reason.QUOTA_EXCEEDED)] * 16
    t.see(dataclasses.replace(view, decision=msgspec.structs.replace(view.decision, story=lines)))
    t.lead_anew()
    t.submit(make_binding("high").priority(1))
    t.run(10)
    assert t.started("high") is not None


def test_what_leaves_is_charged_with_the_pods_that_are_there_though_its_user_asks_for_fewer_by_now() -> None:
    """1. Its user holds it, and its four pods take their time. 2. He asks for two. 3. Another leader knows the old size
    from what the member reports alone.
    """
    t = Town(make_queue("q", gpu=6), m=gpus(8), check=True)
    t.submit(make_binding("leaves").tasks(4), grace=50.0)
    t.run(10)
    t.edit("uid-leaves", make_binding("leaves").tasks(4).held())
    t.run(5)
    t.edit("uid-leaves", make_binding("leaves").tasks(2).held())
    t.submit(make_binding("next").tasks(4))
    t.run(5)
    t.lead_anew()
    t.run(5)
    assert t.running() == ["leaves"]
    assert t.used("q") == 4
    t.run(60)
    assert t.running() == ["next"]
