"""Heads beside each other: each is kept a place and a share, and what passes is told where it is in nobody's way."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from atoll.dispatcher.core import Command, Dispatch
from atoll.dispatcher.core.settings import CoreSettings
from tests.dispatcher.backfill.scenes import two_nodes_of_which_the_head_gets_the_second
from tests.dispatcher.builders import (
    BACKFILL,
    EARLY,
    HOUR,
    LATE,
    OLD,
    START,
    Scene,
    evicted,
    let_go,
    make_binding,
    make_cluster,
    make_queue,
    named,
    names,
)

SETTLE = CoreSettings().backfill.settle


def test_a_limit_is_kept_for_all_heads_together() -> None:
    """Of 10 GPUs 2 are free, 6 after 50 s, all after 100."""
    queues = [make_queue(name, view={"parent": "top", **BACKFILL}) for name in ("q", "r", "s")]
    s = Scene(make_queue("top", gpu=10), *queues, make_cluster("m"), named("m", [99]))
    for name, seconds in (("x", 50.0), ("y", 100.0)):
        s.submit(make_binding(name).tasks(1, gpu=4).runs(seconds).created(EARLY))
    assert len(names(s.run())) == 2
    for head in (make_binding("large").tasks(1, gpu=7), make_binding("soon").queue("r").tasks(1, gpu=3)):
        s.submit(head.runs(HOUR).submitted(EARLY))
        assert names(s.run()) == []
    assert [promise.at - START for promise in s.core.reservations.made.values()] == pytest.approx([102.0, 52.0], abs=1)
    # Beside each of them there would be room for it, beside both there is none.
    s.submit(make_binding("passes").queue("s").tasks(1, gpu=2).runs(HOUR).submitted(LATE))
    assert names(s.run()) == []
    s.submit(make_binding("short").queue("s").tasks(1, gpu=2).runs(40.0).submitted(LATE))
    assert names(s.run()) == ["short"]


def test_a_head_that_would_delay_others_gets_a_time_until_an_elder_comes_back() -> None:
    s = Scene(make_queue("q", view=BACKFILL), make_queue("r", view=BACKFILL), make_cluster("m"), named("m", [8, 8, 4]))
    for name, gpu, seconds in (("runs", 8, HOUR), ("longer", 4, 2 * HOUR)):
        s.submit(make_binding(name).tasks(1, gpu=gpu).runs(seconds).created(EARLY))
    assert len(names(s.run())) == 2
    s.submit(make_binding("head").tasks(2, gpu=8).runs(10 * HOUR).submitted(EARLY))
    assert names(s.run()) == []
    for name, submitted in (("b", LATE), ("a", EARLY)):
        s.submit(make_binding(name).queue("r").runs(10 * HOUR).submitted(submitted))
        assert names(s.run()) == []
        assert list(s.core.reservations.made) == ["uid-head", f"uid-{name}"]


def test_an_elder_that_joins_equal_work_which_sleeps_is_the_head_at_once() -> None:
    s = Scene(make_queue("q", view=BACKFILL), make_cluster("m"), named("m", [8, 8]))
    s.submit(*(make_binding(f"runs{n}").tasks(1, gpu=8).runs(HOUR * n).created(EARLY) for n in (1, 2)))
    assert len(names(s.run())) == 2
    s.submit(make_binding("small").tasks(1, gpu=4).runs(HOUR).submitted("2026-01-01T12:00:00Z"))
    s.submit(make_binding("late").tasks(2, gpu=8).runs(HOUR).submitted(LATE))
    s.run()
    assert list(s.core.reservations.made) == ["uid-small"]
    s.submit(make_binding("elder").tasks(2, gpu=8).runs(HOUR).submitted(EARLY))
    s.run()
    assert list(s.core.reservations.made) == ["uid-elder"]


def over() -> Scene:
    """Beside `long` and `most`, `over` has ended; the figures were without it before its binding said so."""
    s = Scene(make_queue("q", view=BACKFILL), make_cluster("m"), named("m", [8, 8]))
    for name, gpu, seconds in (("over", 2, HOUR), ("long", 6, 10 * HOUR), ("most", 7, HOUR)):
        s.submit(make_binding(name).tasks(1, gpu=gpu).runs(seconds).created(EARLY))
        assert names(s.run()) == [name]
        s.bound(name, generation=2)
    s.tell(named("m", [2, 1], generation=2))
    s.run()
    s.change("over", finished=True)
    return s


def test_room_of_what_has_left_is_not_counted_twice_though_no_figures_come() -> None:
    s = over()
    s.run(after=10.0)
    s.submit(make_binding("head").tasks(1, gpu=4).submitted(EARLY))
    assert names(s.run()) == []
    assert s.core.reservations.made["uid-head"].at == pytest.approx(START + HOUR + SETTLE, abs=1)


def test_a_head_that_counted_it_twice_gets_its_time_though_no_figures_come() -> None:
    """It needs a node and half of one, and `long` has most of one."""
    s = over()
    s.submit(make_binding("head").tasks(1, gpu=8).tasks(1, gpu=4).submitted(EARLY))
    assert names(s.run()) == []
    head = s.core.reservations.made["uid-head"]
    assert head.at == pytest.approx(START + HOUR + SETTLE, abs=1)
    for name, after in (("before", 0.0), ("later", SETTLE + 1)):
        s.run(after=after)
        s.submit(make_binding(name).tasks(1, gpu=1).runs(5 * HOUR).submitted(LATE))
        assert names(s.run()) == []
    assert names(s.run(after=CoreSettings().backfill.doubt + 1)) == ["before", "later"]
    assert s.core.reservations.made["uid-head"].at == pytest.approx(START + 10 * HOUR + SETTLE, abs=1)


@pytest.mark.parametrize(
    ("free", "without", "wanted", "at"),
    [(6, 2, 7, HOUR), (2, 3, 6, 0.0)],
    ids=["figures first", "figures still to come"],
)
def test_room_of_what_has_ended_is_counted_once_whether_its_figures_come_before_or_after(
    free: int, without: int, wanted: int, at: float
) -> None:
    """Of two nodes the second has 2 GPUs free, and 6 once what has ended is gone from the figures."""
    s = Scene(make_queue("q", view=BACKFILL), make_cluster("m"), named("m", [8, 8]))
    for name, gpu, seconds in (("long", 7, 10 * HOUR), ("over", 4, HOUR), ("most", 2, HOUR)):
        s.submit(make_binding(name).tasks(1, gpu=gpu).runs(seconds).created(EARLY))
        assert names(s.run()) == [name]
        s.bound(name, generation=2)
    s.tell(named("m", [1, free], generation=2))
    s.run()
    s.change("over", placed={"m": (without, 0)}, nodes={}, finished=True)
    if without > 2:
        # Told again, as when something else changed: that is no proof of the contrary.
        s.tell(named("m", [1, free], generation=2))
    s.submit(make_binding("head").tasks(1, gpu=wanted).submitted(EARLY))
    s.run()
    assert s.core.reservations.made["uid-head"].at == pytest.approx(START + at + SETTLE, abs=1)


def test_room_of_pods_that_have_ended_is_counted_once_though_their_workload_is_not_over() -> None:
    """The second node has 6 GPUs free, as the figures say; its workload is expected to run for another hour."""
    s = Scene(make_queue("q", view=BACKFILL), make_cluster("m"), named("m", [8, 8]))
    for name, gpu, seconds in (("long", 8, 10 * HOUR), ("ends", 4, HOUR), ("stays", 2, 5 * HOUR)):
        s.submit(make_binding(name).tasks(1, gpu=gpu).runs(seconds).created(EARLY))
        assert names(s.run()) == [name]
        s.bound(name, generation=2)
    s.tell(named("m", [0, 2], generation=2))
    s.change("ends", placed={"m": (3, 0)}, nodes={})
    s.tell(named("m", [0, 6], generation=3))
    s.submit(make_binding("head").tasks(1, gpu=8).submitted(EARLY))
    s.run()
    assert s.core.reservations.made["uid-head"].at == pytest.approx(START + 5 * HOUR + SETTLE, abs=1)


def expected(commands: Sequence[Command]) -> list[object]:
    return [command.decision.expected for command in commands if isinstance(command, Dispatch)]


def test_what_passes_a_head_is_told_a_node_on_which_it_is_in_the_way_of_nothing() -> None:
    s = two_nodes_of_which_the_head_gets_the_second()
    s.submit(make_binding("passes").runs(2 * HOUR).submitted(LATE))
    assert expected(s.run()) == [{"m": [("t0", "m-0", 1)]}]


def test_what_is_over_before_goes_where_it_fits_best() -> None:
    s = two_nodes_of_which_the_head_gets_the_second()
    s.submit(make_binding("passes").runs(60.0).submitted(LATE))
    assert expected(s.run()) == [{"m": [("t0", "m-1", 1)]}]


def test_where_nothing_is_reserved_any_node_will_do() -> None:
    s = Scene(make_queue("q", view=BACKFILL), make_cluster("m"), named("m", [8]))
    assert expected(s.submit(make_binding("a")).run()) == [{}]


def test_who_went_for_another_one_is_told_a_node_on_which_it_is_not_in_its_way() -> None:
    """1. A pod of 4 runs on the node of 8, and goes for one of 8. 2. Both start in one pass. 3. The member is told which
    of them is meant for which node, in whatever order it hears of them.
    """
    s = Scene(make_queue("q"), make_cluster("m"), named("m", [8, 0])).submit(make_binding("low").tasks(1, gpu=4))
    s.run()
    s.change("low", placed={"m": (2, 1)}, nodes={"m": {"m-0": 1}})
    s.tell(named("m", [4, 4], generation=2))
    s.submit(make_binding("high").tasks(1, gpu=8).priority(1))
    assert evicted(s.run(after=OLD)) == ["low"]
    let_go(s, "low")
    s.tell(named("m", [8, 4], generation=3))
    assert expected(s.run()) == [{"m": [("t0", "m-0", 1)]}, {"m": [("t0", "m-1", 1)]}]


def test_nothing_passes_two_heads_of_which_each_could_still_start_but_not_both() -> None:
    """Three nodes: one is free after 100 s, the others, on which some is free now, after 1000."""
    queues = [make_queue(name, view=BACKFILL) for name in ("q", "r", "s")]
    s = Scene(*queues, make_cluster("m"), named("m", [8, 8, 8]))
    for name, gpu, seconds in (("x", 8, 100.0), ("y", 5, 1000.0), ("z", 5, 1000.0)):
        s.submit(make_binding(name).tasks(1, gpu=gpu).runs(seconds).created(EARLY))
    assert len(names(s.run())) == 3
    # Two nodes once y and z are over; and the one of x before, for good.
    for head in (make_binding("pair").tasks(2, gpu=8), make_binding("one").queue("r").tasks(1, gpu=8)):
        s.submit(head.runs(HOUR).submitted(EARLY))
        assert names(s.run()) == []
    assert [promise.at - START for promise in s.core.reservations.made.values()] == pytest.approx(
        [1002.0, 102.0], abs=1
    )
    s.submit(make_binding("passes").queue("s").tasks(1, gpu=3).runs(HOUR).submitted(LATE))
    assert names(s.run()) == []
    s.submit(make_binding("short").queue("s").tasks(1, gpu=3).runs(90.0).submitted(LATE))
    assert names(s.run()) == ["short"]


def test_no_head_gets_a_time_in_a_member_that_for_a_moment_would_not_hold_an_older_reservation() -> None:
    """Two nodes of 8: `long` leaves 2 on the first for ten hours, `most` leaves 1 on the second for one."""
    s = two_nodes_of_which_the_head_gets_the_second()
    head = s.core.reservations.made["uid-head"]
    # Somebody else's pod is on the second node.
    s.tell(named("m", [8, 7]))
    s.submit(make_binding("other").queue("r").tasks(1, gpu=1).submitted(LATE))
    assert names(s.run()) == [], "the head's room is not touched while figures contradict each other"
    assert head.lost < math.inf
    assert "uid-other" not in s.core.reservations.made
    s.tell(named("m", [8, 8]))
    assert names(s.run()) == ["other"]


def test_a_head_starts_where_it_is_expected_though_another_would_not_be_held_for_a_moment() -> None:
    s = Scene(*(make_queue(name, view=BACKFILL) for name in "qr"), make_cluster("m"), named("m", [8, 8]))
    for name, seconds in (("minute", 60.0), ("hour", HOUR)):
        s.submit(make_binding(name).tasks(1, gpu=8).runs(seconds).created(EARLY))
        assert names(s.run()) == [name]
        s.bound(name, generation=2)
    s.tell(named("m", [0, 0], generation=2))
    s.submit(make_binding("first").tasks(1, gpu=8).runs(HOUR).submitted(EARLY))
    s.run()
    s.submit(make_binding("second").queue("r").tasks(1, gpu=8).runs(HOUR).submitted(LATE))
    s.run()
    stay = s.core.reservations.timeline.get("uid-hour")
    assert stay is not None
    [(_, node, _)] = stay.parts["m"][1]
    s.now = START + 55
    # Somebody else has a pod where the second is expected.
    s.tell(named("m", [0 if each != node else -1 for each in range(2)], generation=3))
    s.run()
    s.tell(named("m", [8 if each != node else -1 for each in range(2)], generation=4))
    s.change("minute", finished=True, placed={"m": (4, 0)})
    started = names(s.run())
    assert s.core.reservations.made["uid-second"].lost < math.inf
    assert "first" in started


def test_a_head_waits_for_an_older_reservation_that_would_not_be_held_for_a_moment() -> None:
    """Three nodes: one is free after a minute, some of the next after an hour, the last after two.

    1. `pair` is promised the first two, then `one` the last. 2. `short` starts on the second. 3. The figures contain
    its pod before its binding is reported: it counts twice, and the pair has no place. 4. The first node is free.
    """
    s = Scene(*(make_queue(name, view=BACKFILL) for name in "qrs"), make_cluster("m"), named("m", [8, 8, 8]))
    for name, gpu, seconds in (("minute", 8, 60.0), ("hour", 4, HOUR), ("two", 8, 2 * HOUR)):
        s.submit(make_binding(name).tasks(1, gpu=gpu).runs(seconds).created(EARLY))
        assert names(s.run()) == [name]
        s.bound(name, generation=2)
    s.tell(named("m", [0, 4, 0], generation=2))
    for head in (make_binding("pair").tasks(2, gpu=8), make_binding("one").queue("r").tasks(1, gpu=8)):
        s.submit(head.runs(10 * HOUR).submitted(EARLY))
        assert names(s.run()) == []
    promised = {name: s.core.reservations.made[f"uid-{name}"].at for name in ("pair", "one")}
    assert [at - START for at in promised.values()] == pytest.approx([HOUR + SETTLE, 2 * HOUR + SETTLE], abs=1)
    s.submit(make_binding("short").queue("s").runs(60.0))
    assert names(s.run(after=50.0)) == ["short"]
    s.tell(named("m", [0, 3, 0], generation=3))
    s.change("minute", finished=True, placed={"m": (4, 0)})
    s.tell(named("m", [8, 3, 0], generation=4))
    assert names(s.run()) == []
    assert s.core.reservations.made["uid-pair"].lost < math.inf
    s.bound("short", generation=3)
    assert names(s.run()) == []
    assert {name: s.core.reservations.made[f"uid-{name}"].at for name in promised} == promised


def test_nothing_passes_where_a_head_would_lose_the_place_of_another() -> None:
    """Two nodes: after an hour 4 are free of the first, for good, and 6 of the second, all of which are after two.

    1. `half` is promised the first, then `whole` the second. 2. `between` is over before `whole` starts; on the first
    node `half` would not fit beside it, and go to the second.
    """
    s = Scene(*(make_queue(name, view=BACKFILL) for name in "qrs"), make_cluster("m"), named("m", [8, 8]))
    for name, gpu, hours in (("a", 4, 50.0), ("b", 3, 1.0), ("c", 6, 1.0), ("d", 2, 2.0)):
        s.submit(make_binding(name).tasks(1, gpu=gpu).runs(hours * HOUR).created(EARLY))
    assert names(s.run()) == ["a", "b", "c", "d"]
    for head in (make_binding("half").tasks(1, gpu=4), make_binding("whole").queue("r").tasks(1, gpu=8)):
        s.submit(head.runs(10 * HOUR).submitted(EARLY))
        assert names(s.run()) == []
    promised = s.core.reservations.made["uid-half"], s.core.reservations.made["uid-whole"]
    assert [each.at - START for each in promised] == pytest.approx([HOUR + SETTLE, 2 * HOUR + SETTLE], abs=1)
    s.submit(*(make_binding(name).queue("s").runs(1.5 * HOUR).submitted(EARLY) for name in ("between", "other")))
    assert names(s.run()) == []
    s.submit(make_binding("before").queue("s").runs(0.5 * HOUR).submitted(LATE))
    assert names(s.run()) == ["before"], "it is found behind those that are too long"
    s.run()
    assert all(each.lost == math.inf for each in promised)
