"""What a promise is computed from: which member, which time, and what is left beside it for others."""

from __future__ import annotations

import math

import pytest

from atoll.dispatcher.core import Ceiling, Event, NamespaceSet, NamespaceView
from atoll.dispatcher.core.settings import CoreSettings
from atoll.model.verdict import Reason
from tests.dispatcher.builders import (
    BACKFILL,
    EARLY,
    GPU,
    LATE,
    NEVER,
    OLD,
    ROOM,
    START,
    Scene,
    dispatched,
    evicted,
    make_binding,
    make_capacity,
    make_cluster,
    make_queue,
    named,
    names,
    with_amounts,
)

SETTLE = CoreSettings().backfill.settle

HOUR = 3600.0


def heads(*names: str, limit: int | None = None) -> list[Event]:
    """Queues below one limit, each of which keeps room for its head."""
    top = make_queue("top") if limit is None else make_queue("top", gpu=limit)
    return [top, *(make_queue(name, view={**BACKFILL, "parent": "top"}) for name in names)]


# -- where and when ----------------------------------------------------------------------------------------------------


def test_of_two_members_that_are_free_at_once_the_one_with_more_room_now_is_kept() -> None:
    s = Scene(*heads("q"), *(make_cluster(n) for n in "mn"), make_capacity("m", [8, 8]), make_capacity("n", [8, 8]))
    for member, pods in (("m", 16), ("n", 8)):
        s.submit(make_binding(f"in-{member}").queue("q").tasks(pods).runs(HOUR).affinity(clusterNames=[member]))
    assert len(names(s.run())) == 2
    s.submit(make_binding("head").queue("q").tasks(2, gpu=8).submitted(EARLY))
    assert names(s.run()) == []
    [promise] = s.core.reservations.made.values()
    assert promise.member.name == "n"
    assert promise.at == pytest.approx(START + HOUR + SETTLE, abs=1)


def test_a_head_of_two_tasks_gets_the_time_at_which_both_fit() -> None:
    s = Scene(*heads("q"), make_cluster("m"), make_capacity("m", [8, 8]))
    for name, hours in (("first", 1), ("second", 2)):
        s.submit(make_binding(name).queue("q").tasks(1, gpu=8).runs(hours * HOUR))
        assert names(s.run()) == [name]
    s.submit(make_binding("head").queue("q").tasks(2, gpu=4).tasks(1, gpu=6).submitted(EARLY))
    s.submit(make_binding("small").queue("q").tasks(2, gpu=2).tasks(1, gpu=3).submitted(LATE))
    s.run()
    [promise] = s.core.reservations.made.values()
    assert promise.uid == "uid-head"
    assert promise.at == pytest.approx(START + 2 * HOUR + SETTLE, abs=1)


@pytest.mark.parametrize(
    ("lasts", "known"), [(60.0, True), (2 * HOUR, False)], ids=["which it can not use before its time", "that it needs"]
)
def test_quota_is_reserved_beside_an_earlier_reservation(lasts: float, known: bool) -> None:
    """1. 4 of 8 are used for an hour. 2. A head needs all 8. 3. Another one needs 1, and there is no room yet."""
    s = Scene(*heads("q", "r", limit=8), *(make_cluster(n) for n in "mn"), make_capacity("m", [8]))
    s.tell(make_capacity("n", [1]))
    s.submit(make_binding("runs").queue("q").tasks(4).runs(HOUR))
    s.run()
    s.submit(make_binding("head").queue("q").tasks(8).affinity(clusterNames=["m"]))
    s.run()
    s.submit(make_binding("other").queue("r").tasks(1, gpu=1).runs(600).affinity(clusterNames=["n"]))
    assert names(s.run()) == ["other"]
    s.submit(make_binding("next").queue("r").tasks(1, gpu=1).runs(lasts).affinity(clusterNames=["n"]))
    assert names(s.run()) == []
    # After the head, which may stay for ever, nothing is certain; then nothing is kept for it either.
    assert list(s.core.reservations.made) == (["uid-head", "uid-next"] if known else ["uid-head"])
    if known:
        assert s.core.reservations.made["uid-next"].at == pytest.approx(START + 600 + SETTLE, abs=1)


def test_where_its_user_says_nothing_its_queue_says_how_long_it_runs() -> None:
    s = Scene(make_queue("q", view={**BACKFILL, "estimate": HOUR}), make_cluster("m"), make_capacity("m", [8]))
    for name in ("runs", "head"):
        s.submit(make_binding(name).queue("q").tasks(8))
        s.run()
    assert s.core.reservations.made["uid-head"].at == pytest.approx(START + HOUR + SETTLE, abs=1)


def test_capacity_is_reserved_no_longer_for_one_that_its_member_can_never_hold_any_more() -> None:
    s = Scene(*heads("q"), make_cluster("m"), make_capacity("m", [8, 8]))
    s.submit(make_binding("runs").queue("q").tasks(1, gpu=8).runs(60))
    s.run()
    s.bound("runs", generation=2)
    s.submit(make_binding("head").queue("q").tasks(2, gpu=8).submitted(EARLY))
    s.submit(make_binding("small").queue("q").submitted(LATE))
    assert names(s.run()) == []
    s.change("runs", finished=True)
    s.tell(make_capacity("m", [8], generation=2))
    s.run(after=HOUR)
    s.run(after=2.0)
    assert not s.core.reservations.made
    assert not s.view("small").suspended


def test_a_resource_that_nodes_get_changes_nothing_of_what_is_reserved() -> None:
    s = Scene(*heads("q"), make_cluster("m"), make_capacity("m", [8]))
    for name in ("runs", "head"):
        s.submit(make_binding(name).queue("q").tasks(8).runs(HOUR))
        s.run()
    s.tell(with_amounts(make_capacity("m", [8], generation=2), cpu=1))
    s.gone("head")
    s.submit(make_binding("next").queue("q").tasks(5))
    assert names(s.run()) == []
    [promise] = s.core.reservations.made.values()
    assert promise.at == pytest.approx(START + HOUR + SETTLE, abs=1)


def test_nodes_that_a_member_lost_are_not_counted_on_though_something_runs_there() -> None:
    s = Scene(*heads("q"), make_cluster("m"), make_capacity("m", [4, 8]))
    s.submit(make_binding("runs").queue("q").tasks(1, gpu=8).runs(HOUR))
    s.run()
    s.submit(make_binding("head").queue("q").tasks(2, gpu=4))
    s.run()
    assert s.core.reservations.made["uid-head"].at < math.inf
    s.tell(make_capacity("m", [4], generation=2))
    s.gone("head")
    s.submit(make_binding("next").queue("q").tasks(1, gpu=5))
    assert names(s.run()) == []
    assert not s.core.reservations.made


# -- what is left beside it --------------------------------------------------------------------------------------------


def test_what_passes_in_a_pass_is_counted_before_the_next_may() -> None:
    """Beside the head, which takes one node and half of the other, there are four: for one of two, not for both."""
    s = Scene(*heads("q", "r"), make_cluster("m"), make_capacity("m", [8, 8]))
    s.submit(make_binding("runs").queue("q").tasks(1, gpu=8).runs(HOUR))
    s.run()
    s.submit(make_binding("head").queue("q").tasks(3, gpu=4).submitted(EARLY))
    assert names(s.run()) == []
    s.submit(*(make_binding(f"long{n}").queue("r").tasks(1, gpu=3 + n) for n in range(2)))
    assert len(names(s.run())) == 1


def test_what_ends_earlier_than_known_frees_room_for_what_would_have_delayed_a_head() -> None:
    s = Scene(*heads("q", "r"), make_cluster("m"), make_capacity("m", [8, 8, 8]))
    s.submit(*(make_binding(f"runs{n}").queue("q").tasks(1, gpu=8).runs(HOUR) for n in range(2)))
    s.submit(make_binding("unknown").queue("q").tasks(1, gpu=4))
    assert len(names(s.run())) == 3
    for waiting in (make_binding("head").queue("q").tasks(5, gpu=4), make_binding("long").queue("r").tasks(4)):
        s.submit(waiting)
        assert names(s.run()) == []
    s.gone("unknown")
    assert names(s.run()) == ["long"]


def test_of_equal_work_the_one_passes_that_is_over_before_any_head_is_due() -> None:
    """The pods of each are on two nodes, the first of which is promised in an hour, the second in two."""
    s = Scene(*heads("q", "r", "x"), make_cluster("m"), make_capacity("m", [8, 8]))
    s.submit(*(make_binding(f"runs{n}").queue("x").tasks(1, gpu=7).runs((n + 1) * HOUR) for n in range(2)))
    assert len(names(s.run())) == 2
    for queue in ("q", "r"):
        s.submit(make_binding(f"head-{queue}").queue(queue).tasks(1, gpu=8))
        s.run()
    assert [round((promise.at - START) / HOUR) for promise in s.core.reservations.made.values()] == [1, 2]
    for number, hours in enumerate((3.0, 1.5, 0.5)):
        s.submit(
            make_binding(f"pair{number}").queue("x").tasks(2).runs(hours * HOUR).submitted(f"2026-01-0{number + 1}")
        )
    assert names(s.run()) == ["pair2"]


def test_the_quota_of_victims_is_counted_as_their_claimants() -> None:
    """Of 8, `low` and `other` have 4 each. 1. `low` goes for `high`. 2. A head needs 4: those of `other`, in an hour."""
    s = Scene(*heads("q", "r", "x", limit=8), make_cluster("m"), make_capacity("m", [16]))
    s.submit(make_binding("low").queue("q").tasks(4), make_binding("other").queue("x").tasks(4).runs(HOUR))
    for name in names(s.run()):
        s.bound(name, generation=NEVER)
    s.submit(make_binding("high").queue("q").tasks(4).priority(1))
    assert evicted(s.run(after=OLD)) == ["low"]
    s.submit(make_binding("head").queue("r").tasks(4))
    s.run()
    assert s.core.reservations.made["uid-head"].at == pytest.approx(START + HOUR + SETTLE, abs=1)


def evicting() -> Scene:
    """Three nodes of 8, all used: `low` goes from one for `high`, the others are free in an hour and in two."""
    s = Scene(*heads("q", "r"), make_queue("x"), make_cluster("m"), named("m", [8, 8, 8]))
    for name, hours in (("low", 10), ("one", 1), ("two", 2)):
        wanted = make_binding(name).queue("x").tasks(1, gpu=8).runs(hours * HOUR)
        s.submit(wanted if name == "low" else wanted.firm())
    for name in names(s.run()):
        s.bound(name, generation=NEVER)
    s.now += OLD
    return s


def test_what_victims_leave_is_counted_once_for_a_head_that_needs_more() -> None:
    s = evicting()
    s.submit(make_binding("high").queue("x").tasks(1, gpu=8).priority(1))
    assert evicted(s.run()) == ["low"]
    s.submit(make_binding("head").queue("r").tasks(2, gpu=8))
    s.run()
    assert s.core.reservations.made["uid-head"].at == pytest.approx(START + 2 * HOUR + SETTLE, abs=1)


def test_what_victims_leave_to_a_head_is_counted_on_once_their_pods_have_had_their_time() -> None:
    """Beside `high` there are four GPUs then."""
    s = evicting()
    s.submit(make_binding("high").queue("x").tasks(1, gpu=4).priority(1))
    assert evicted(s.run()) == ["low"]
    s.submit(make_binding("whole").queue("q").tasks(1, gpu=8))
    s.run()
    s.submit(make_binding("half").queue("r").tasks(1, gpu=4))
    s.run()
    at = {uid: each.at for uid, each in s.core.reservations.made.items()}
    assert at["uid-whole"] == pytest.approx(START + HOUR + SETTLE, abs=1)
    assert at["uid-half"] == pytest.approx(s.now + CoreSettings().backfill.grace, abs=1)


def test_quota_of_what_ends_a_moment_after_a_head_is_due_is_not_counted_on() -> None:
    """Of 12, 4 are free in an hour and 2 a second later, when the head takes 9: beside it there is 1."""
    s = Scene(*heads("q", "r", limit=12), make_cluster("m"), make_capacity("m", [32]))
    s.submit(*(make_binding(f"runs{n}").queue("r").tasks(4 - 2 * n).runs(HOUR + n) for n in range(2)))
    assert len(names(s.run())) == 2
    s.submit(make_binding("head").queue("q").tasks(9))
    s.run()
    assert s.core.reservations.made["uid-head"].at == pytest.approx(START + HOUR + SETTLE, abs=0.1)
    s.submit(make_binding("long").queue("r").tasks(2))
    assert names(s.run()) == []
    s.submit(make_binding("one").queue("r"))
    assert names(s.run()) == ["one"]


def test_what_is_reserved_for_two_leaves_nothing_to_a_third() -> None:
    """Of 8, 5 are used for an hour; then two heads take 4 each."""
    s = Scene(*heads("q", "r", "x", limit=8), make_cluster("m"), make_capacity("m", [32]))
    s.submit(make_binding("runs").queue("q").tasks(5).runs(HOUR))
    s.run()
    for queue in ("q", "r"):
        s.submit(make_binding(f"head-{queue}").queue(queue).tasks(4))
        assert names(s.run()) == []
    s.submit(make_binding("long").queue("x"))
    assert names(s.run()) == []
    s.submit(make_binding("short").queue("x").runs(60))
    assert names(s.run()) == ["short"]


def test_what_is_reported_to_be_elsewhere_will_be_gone_from_there() -> None:
    """1. It is expected on the first node, and a head is promised two of three. 2. It is on the second."""
    s = Scene(*heads("q", "r"), make_cluster("m"), named("m", [8, 8, 8]))
    s.submit(make_binding("runs").queue("q").tasks(1, gpu=4).runs(HOUR), make_binding("two").queue("q").tasks(2, gpu=8))
    assert names(s.run()) == ["runs", "two"]
    s.change("two", finished=True)
    s.submit(make_binding("head").queue("q").tasks(3, gpu=8).submitted(EARLY))
    assert names(s.run()) == []
    s.change("runs", placed={"m": (2, 1)}, nodes={"m": {"m-1": 1}})
    s.tell(named("m", [8, 4, 8], generation=2))
    s.gone("head")
    s.submit(make_binding("next").queue("q").tasks(3, gpu=8).submitted(EARLY))
    assert names(s.run()) == []
    [promise] = s.core.reservations.made.values()
    assert promise.at == pytest.approx(START + HOUR + SETTLE, abs=1)


def test_nothing_is_reserved_in_one_member_for_a_head_that_must_be_divided() -> None:
    s = Scene(make_queue("q", view=BACKFILL), make_cluster("m1"), make_cluster("m2"))
    s.tell(make_capacity("m1", [8]), make_capacity("m2", [1]))
    s.submit(make_binding("head").tasks(4, gpu=2).divided(least=2).submitted(EARLY))
    s.submit(make_binding("small").tasks(4).submitted(LATE))
    assert dispatched(s.run()) == [("small", "m1")]
    assert s.verdict("head") is Reason.INSUFFICIENT_RESOURCES


@pytest.mark.parametrize("what", ["its namespace", "a ceiling"])
def test_nothing_is_reserved_for_what_has_waited_too_long_for_another_limit(what: str) -> None:
    ceilings = {"members": {"m": Ceiling(1, {GPU: 5})}} if what == "a ceiling" else {}
    s = Scene(make_queue("q", view={"patience": 10.0, **ceilings}), make_queue("r"), *ROOM)
    if what == "its namespace":
        s.tell(NamespaceSet(NamespaceView("default", {GPU: 5})))
    s.submit(make_binding("waits").tasks(6).submitted(EARLY))
    s.run(after=20.0)
    assert s.verdict("waits") is Reason.QUOTA_EXCEEDED
    s.submit(make_binding("small").queue("r").tasks(4).submitted(LATE))
    assert names(s.run()) == ["small"]


def test_capacity_is_reserved_once_its_namespace_would_let_it_start() -> None:
    s = Scene(make_queue("q", view={"patience": 10.0}), *ROOM, NamespaceSet(NamespaceView("default", {GPU: 5})))
    s.submit(make_binding("runs").tasks(4).runs(3600), make_binding("waits").tasks(6).submitted(EARLY))
    s.run(after=20.0)
    s.tell(NamespaceSet(NamespaceView("default", {GPU: 16})))
    s.run(after=20.0)
    assert list(s.core.reservations.made) == ["uid-waits"]
