"""What waits is looked at again when something other than room changes: rights, patience, estimates, what is published."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from random import Random

import msgspec
import pytest

from atoll.dispatcher.core import (
    Ask,
    CapacityGone,
    CapacitySet,
    Command,
    Event,
    NamespaceSet,
    NamespaceView,
    QueueGone,
    Resize,
    Strategy,
)
from atoll.dispatcher.core.backlog import wakeups
from atoll.dispatcher.core.settings import CoreSettings, PreemptionSettings
from atoll.model.gang import Gang
from atoll.model.verdict import Reason
from tests.dispatcher.builders import (
    BACKFILL,
    EARLY,
    GPU,
    LATE,
    NEVER,
    OLD,
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
    scene,
    share,
    with_amounts,
)


def later(s: Scene) -> list[Command]:
    """What is decided at once, and then while nothing else happens: passes run when they are due."""
    commands = s.run()
    for _ in range(50):
        due = s.core.next_deadline
        if due is None or due > s.now + OLD:
            break
        commands += s.run(after=max(due - s.now, 0.0))
    return commands


def running(s: Scene, *names: str) -> Scene:
    s.run()
    for name in names:
        s.bound(name, generation=NEVER)
    s.run(after=OLD)
    return s


def regang(s: Scene, name: str, change: Callable[[Gang], Gang]) -> None:
    gang = s.view(name).gang
    assert gang is not None
    s.change(name, gang=change(gang), generation=s.view(name).generation + 1)


def lenders() -> Scene:
    """Queue a uses all 6 GPUs but those of queue b, which uses what it deserves; one more of b waits."""
    s = Scene(make_cluster("m"), make_capacity("m", [6]), share("a", 2), share("b", 4))
    s.submit(*(make_binding(f"v{number}").queue("a") for number in range(3)))
    s.submit(make_binding("one").queue("b"), make_binding("two").queue("b").tasks(1, gpu=2))
    running(s, "v0", "v1", "v2", "one", "two")
    s.submit(make_binding("waits").queue("b").tasks(2).submitted(LATE))
    assert later(s)
    assert s.verdict("waits") == "InsufficientResources"
    return s


def test_a_queue_that_deserves_more_by_now_reclaims() -> None:
    s = lenders()
    s.tell(share("b", 6), share("a", 0))
    assert evicted(later(s))


def test_of_many_each_pass_looks_at_some_until_all_were_looked_at() -> None:
    one = CoreSettings(preemption=PreemptionSettings(looks=1))
    s = Scene(make_cluster("m"), make_capacity("m", [6]), share("a", 2), share("b", 4), share("c", 0), settings=one)
    s.submit(*(make_binding(f"v{number}").queue("a").tasks(1, gpu=2) for number in range(3)))
    running(s, "v0", "v1", "v2")
    s.tell(share("a", 6), share("b", 0))
    s.submit(*(make_binding(f"w{number}").queue("c").tasks(1, gpu=number).submitted(LATE) for number in (1, 2, 3)))
    assert not evicted(later(s))
    s.submit(make_binding("waits").queue("b").submitted(LATE))
    assert not evicted(later(s))
    s.tell(share("a", 2), share("b", 4))
    assert evicted(later(s))


def test_the_next_pass_for_those_that_are_left_is_a_moment_away() -> None:
    one = CoreSettings(preemption=PreemptionSettings(looks=1, look_pause=7.0))
    s = Scene(make_cluster("m"), make_capacity("m", [4]), share("a", 4), share("c", 0), settings=one)
    s.submit(*(make_binding(f"v{number}").queue("a").tasks(1, gpu=2) for number in range(2)))
    running(s, "v0", "v1")
    s.submit(*(make_binding(f"w{number}").queue("c").tasks(1, gpu=number).submitted(LATE) for number in (1, 2)))
    s.run()
    s.tell(share("a", 3))
    s.run(after=1000.0)
    assert s.core.next_deadline == s.now + 7.0


def test_a_queue_that_is_entitled_again_after_an_end_of_its_own_reclaims() -> None:
    s = lenders()
    s.change("one", finished=True)
    assert evicted(later(s))


def test_one_of_its_queue_that_passed_it_goes_once_that_helps() -> None:
    s = scene(room=(make_cluster("m"), make_capacity("m", [4])))
    s.submit(make_binding("one").priority(5), make_binding("two").tasks(1, gpu=2).priority(5))
    running(s, "one", "two")
    s.submit(make_binding("waits").tasks(2).priority(3))
    later(s)
    s.submit(make_binding("passes").priority(1))
    assert dispatched(s.run()) == [("passes", "m")]
    s.bound("passes", generation=NEVER)
    later(s)
    s.change("one", finished=True)
    assert evicted([*s.run(after=OLD), *later(s)]) == ["passes"]


def test_one_of_its_queue_goes_once_its_priority_is_lower() -> None:
    s = scene(room=(make_cluster("m"), make_capacity("m", [2])))
    s.submit(make_binding("runs").tasks(2).priority(3))
    running(s, "runs")
    s.submit(make_binding("waits").tasks(2).priority(3))
    assert not evicted(later(s))
    regang(s, "runs", lambda gang: msgspec.structs.replace(gang, priority=1))
    assert evicted(later(s)) == ["runs"]


def test_one_of_its_queue_shrinks_once_it_can() -> None:
    s = scene(room=(make_cluster("m"), make_capacity("m", [4])))
    s.submit(make_binding("runs").tasks(4))
    running(s, "runs")
    s.submit(make_binding("waits").tasks(2))
    assert not evicted(later(s))

    def elastic(gang: Gang) -> Gang:
        return msgspec.structs.replace(
            gang, tasks=[msgspec.structs.replace(gang.tasks[0], min_available=1)], min_available=1
        )

    regang(s, "runs", elastic)
    assert [command.name for command in later(s) if isinstance(command, Resize)] == ["runs"]


def test_while_its_namespace_is_full_no_member_is_asked_for_it() -> None:
    s = scene(make_queue("q", gpu=2), NamespaceSet(NamespaceView("default", {GPU: 3})))
    s.submit(make_binding("other").queue("elsewhere").tasks(2).priority(9))
    s.tell(make_queue("elsewhere"))
    s.submit(make_binding("runs").tasks(1))
    running(s, "other", "runs")
    s.submit(make_binding("waits").tasks(2).priority(9))
    assert not [command for command in later(s) if isinstance(command, Ask)]
    s.change("other", finished=True)
    assert evicted(later(s)) == ["runs"]


@pytest.mark.parametrize("patience", [20.0, 0.0])
def test_a_queue_that_gets_a_patience_keeps_room_for_what_waits_too_long_already(patience: float) -> None:
    s = scene()
    s.submit(make_binding("runs").tasks(5).runs(1000.0))
    running(s, "runs")
    s.submit(make_binding("waits").tasks(8))
    s.run()
    s.tell(make_queue("q", view={"patience": patience}))
    s.run(after=30.0)
    assert s.core.reservations.made


def test_a_queue_that_gets_more_patience_keeps_no_room_yet() -> None:
    s = Scene(make_queue("q", view={"patience": 200.0}), make_cluster("m"), make_capacity("m", [8]))
    s.submit(make_binding("runs").tasks(5).runs(5000.0))
    running(s, "runs")
    s.submit(make_binding("waits").tasks(8).submitted("2027-01-15T08:00:00Z"))
    s.run()
    s.tell(make_queue("q", view={"patience": 2000.0}))
    s.run(after=200.0)
    assert not s.core.reservations.made
    s.run(after=2000.0)
    assert s.core.reservations.made


def test_how_long_a_queue_expects_its_workloads_to_run_counts_for_what_runs_already() -> None:
    s = scene(make_queue("q", view=BACKFILL))
    s.submit(make_binding("runs").tasks(5))
    s.run()
    s.submit(make_binding("waits").tasks(8).submitted(EARLY))
    s.run()
    s.tell(make_queue("q", view=BACKFILL | {"estimate": 100.0}))
    s.run(after=2.0)
    assert s.core.reservations.made["uid-waits"].at < START + 110.0
    s.submit(make_binding("short").runs(20.0).submitted(LATE))
    assert dispatched(s.run()) == [("short", "m")]


def test_once_what_was_published_last_about_some_nodes_is_gone_the_others_count_by_themselves() -> None:
    old, new = named("m", [2], generation=1), named("m", {"o": 4}, generation=5)
    s = Scene(make_queue("q"), make_cluster("m"), old, CapacitySet(dataclasses.replace(new.capacity, root="other")))
    s.submit(make_binding("runs").tasks(4))
    s.run()
    s.tell(CapacitySet(dataclasses.replace(new.capacity, root="other", classes=named("m", {"o": 0}).capacity.classes)))
    s.bound("runs", generation=4)
    assert s.core.members.by_name["m"].expected
    s.tell(CapacityGone("m", ""))
    assert not s.core.members.by_name["m"].expected


def test_what_waits_in_a_circle_of_queues_waits_where_they_hang_once_that_is_broken() -> None:
    above = {"a": "b", "b": "c", "c": "a"}
    s = scene(*(make_queue(name, view={"parent": parent}) for name, parent in above.items()))
    s.submit(*(make_binding(name).queue(name) for name in "abc"))
    s.tell(make_queue("c"))
    assert dispatched(s.run()) == [("a", "m")]


@pytest.mark.parametrize(("goes", "stays"), [("above", "below"), ("below", "above")])
def test_where_workloads_of_a_queue_and_of_one_below_it_wait_for_the_same_each_leaves_for_itself(
    goes: str, stays: str
) -> None:
    s = scene(make_queue("top", gpu=2), make_queue("q", view={"parent": "top"}))
    s.submit(make_binding("above").tasks(4))
    s.run()
    s.tell(make_queue("low", view={"parent": "q"}))
    s.submit(make_binding("below").queue("low").tasks(4))
    s.run()
    s.gone(goes)
    s.tell(make_queue("top"))
    started = dispatched(s.run())
    assert started == ([("below", "m")] if stays == "below" else [])
    assert s.verdict(stays) == (None if started else "QueueNotLeaf")


STOPS = [
    pytest.param(make_queue("b", is_open=False, view=BACKFILL), Reason.QUEUE_CLOSED, id="is closed"),
    pytest.param(QueueGone("b"), Reason.QUEUE_NOT_FOUND, id="is deleted"),
    pytest.param(make_queue("below", view={"parent": "b"}), Reason.QUEUE_NOT_LEAF, id="gets a queue below it"),
]


@pytest.mark.parametrize(("event", "reason"), STOPS)
def test_nothing_is_reserved_for_the_head_of_a_queue_that(event: Event, reason: Reason) -> None:
    s = scene(make_queue("b", view=BACKFILL))
    s.submit(make_binding("runs").tasks(4))
    running(s, "runs")
    s.submit(make_binding("head").queue("b").tasks(8).submitted(EARLY))
    s.run()
    s.submit(make_binding("long").tasks(4).submitted(LATE))
    s.run()
    assert s.verdict("long") is Reason.WOULD_DELAY
    s.tell(event)
    assert names(s.run()) == ["long"]
    assert s.verdict("head") is reason


@pytest.mark.parametrize(("event", "reason"), STOPS)
def test_what_waits_for_room_says_so_at_once_when_its_queue(event: Event, reason: Reason) -> None:
    s = scene(make_queue("b", view=BACKFILL))
    s.submit(make_binding("head").queue("b").tasks(9).submitted(EARLY))
    s.submit(make_binding("next").queue("b").tasks(10).submitted(LATE))
    s.run()
    assert s.verdict("next") is Reason.INSUFFICIENT_RESOURCES
    s.tell(event)
    assert s.view("next").decision.reason is not reason
    s.run()
    assert s.view("next").decision.reason is reason


def test_capacity_is_reserved_for_its_head_again_once_the_queue_is_open() -> None:
    s = scene(make_queue("b", view=BACKFILL))
    s.submit(make_binding("runs").tasks(4))
    running(s, "runs")
    s.submit(make_binding("head").queue("b").tasks(8).submitted(EARLY))
    s.run()
    s.tell(make_queue("b", is_open=False, view=BACKFILL))
    s.run()
    assert not s.core.reservations.made
    s.tell(make_queue("b", view=BACKFILL))
    s.run()
    assert list(s.core.reservations.made) == ["uid-head"]


@pytest.mark.parametrize("view", [{"is_open": False}, {"strategy": Strategy.FIFO}], ids=["closed", "strict"])
def test_nothing_is_reserved_for_what_waits_too_long_for_something_else(view: dict[str, object]) -> None:
    """In a strict queue it stands behind one that never fits."""
    is_open = bool(view.get("is_open", True))
    strategy = view.get("strategy", Strategy.TRAVERSE)
    s = scene(make_queue("b", is_open=is_open, view={"strategy": strategy, "patience": 10.0}))
    s.submit(make_binding("runs").tasks(4))
    running(s, "runs")
    s.submit(make_binding("huge").queue("b").tasks(80).submitted(EARLY))
    s.submit(make_binding("waits").queue("b").tasks(8).submitted(LATE))
    s.run()
    s.submit(make_binding("long").tasks(4).submitted(LATE))
    assert names(s.run(after=20.0)) == ["long"]


def test_classes_that_wait_for_one_amount_go_in_the_order_of_their_members() -> None:
    s = scene(make_queue("q", gpu=4), room=(make_cluster("m"), with_amounts(make_capacity("m", [100]), x=100)))
    s.submit(make_binding("fill").tasks(4))
    assert names(s.run()) == ["fill"]
    for day, (name, amount) in enumerate([("k1", 1), ("k2", 2), ("k3", 2), ("k4", 1)], 1):
        s.submit(make_binding(name).tasks(1, gpu=4, requests={"x": amount}).submitted(f"2026-02-0{day}T00:00:00Z"))
    assert names(s.run()) == []
    s.tell(make_queue("q", gpu=12))
    assert names(s.run()) == ["k1", "k2"]


def started(seed: int) -> list[str]:
    """All starts, in order, of workloads of a hundred shapes in queues of several orders, while others end."""
    draw = Random(seed)
    views: list[dict[str, object]] = [{}, {"strategy": Strategy.FIFO}, {**BACKFILL}, {}]
    s = Scene(*(make_queue(f"q{n}", priority=n % 2, view=view) for n, view in enumerate(views)), checked=False)
    for name in ("m1", "m2"):
        s.tell(make_cluster(name), with_amounts(make_capacity(name, [8, 8]), cpu=64_000))
    found: list[str] = []
    running: list[str] = []
    for turn in range(40):
        for number in range(60 if turn == 0 else draw.randint(0, 6)):
            work = make_binding(f"w{turn}-{number}").queue(f"q{draw.randrange(4)}").priority(draw.randint(0, 2))
            s.submit(work.tasks(draw.randint(1, 6), gpu=draw.choice((1, 2)), requests={"cpu": draw.randint(1, 3000)}))
        starts = names(s.run())
        for name in starts:
            parts = s.view(name).parts
            s.change(name, placed={member: (NEVER, sum(pods)) for member, pods in parts})
        found += starts
        running += starts
        for _ in range(min(draw.randint(1, 3), len(running))):
            s.gone(running.pop(draw.randrange(len(running))))
        s.core.check()
    return found


@pytest.mark.parametrize("seed", [0, 5, 6])
def test_shapes_that_wake_in_turn_start_as_if_all_woke_at_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakeups, "_FEW", sys.maxsize)
    at_once = started(seed)
    monkeypatch.setattr(wakeups, "_FEW", 0)
    assert started(seed) == at_once
    assert len(at_once) > 60


@pytest.mark.parametrize("above", [False, True], ids=["itself", "the queue above"])
@pytest.mark.parametrize("closed_first", [False, True], ids=["closed after the move", "closed before the move"])
@pytest.mark.parametrize("view", [{}, {"strategy": Strategy.FIFO}, BACKFILL], ids=["traverse", "fifo", "backfill"])
def test_one_that_moved_into_a_closed_queue_starts_once_that_is_opened(
    view: dict[str, object], closed_first: bool, above: bool
) -> None:
    s = Scene(make_queue("top"), make_queue("a", gpu=0, view=view), make_queue("b", view={**view, "parent": "top"}))
    s.tell(make_cluster("m"), make_capacity("m", [8]))
    s.submit(make_binding("x").queue("a").tasks(2), make_binding("beside").queue("a").tasks(2))
    assert names(s.run()) == []

    def opened(is_open: bool) -> None:
        fields = {} if above else {**view, "parent": "top"}
        s.tell(make_queue("top" if above else "b", is_open=is_open, view=fields))

    if closed_first:
        opened(False)
        s.run()
    gang = s.view("x").gang
    assert gang is not None
    s.change("x", gang=msgspec.structs.replace(gang, queue="b"), generation=s.view("x").generation + 1)
    opened(False)
    assert names(s.run()) == []
    s.now += OLD
    s.run()
    assert s.verdict("x") is Reason.QUEUE_CLOSED
    opened(True)
    assert names(s.run()) == ["x"]
