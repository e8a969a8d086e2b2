"""Room that is kept for blocked heads: what may pass, what may not, and that the head starts when it was promised."""

from __future__ import annotations

import dataclasses
import math

import msgspec
import pytest

from atoll.dispatcher.core import Ceiling, Strategy
from atoll.dispatcher.core.settings import CoreSettings
from atoll.fit.pods import where_seen
from atoll.model.verdict import Reason
from tests.dispatcher.builders import (
    BACKFILL,
    EARLY,
    HOUR,
    LATE,
    NEVER,
    START,
    BindingBuilder,
    Scene,
    dispatched,
    explained,
    make_binding,
    make_capacity,
    make_cluster,
    make_queue,
    names,
)

SETTLE = CoreSettings().backfill.settle
RENEWAL = CoreSettings().backfill.renewal


def busy(strategy: Strategy, *, ends: float = HOUR, more: tuple[object, ...] = ()) -> Scene:
    """One member of two nodes with 8 GPUs; one node is taken for an hour, and a gang of both waits."""
    room = (make_cluster("m"), make_capacity("m", [8, 8]))
    s = Scene(make_queue("q", view={"strategy": strategy}), make_queue("other"), *room, *more)  # type: ignore[arg-type]
    s.submit(make_binding("runs").tasks(1, gpu=8).runs(ends).created(EARLY))
    assert names(s.run()) == ["runs"]
    s.submit(make_binding("head").tasks(2, gpu=8).runs(HOUR).submitted(EARLY))
    assert names(s.run()) == []
    return s


@pytest.mark.parametrize(
    ("small", "passes"),
    [
        pytest.param(make_binding("small").runs(HOUR / 2), True, id="what ends before the head can start passes"),
        pytest.param(make_binding("small").runs(2 * HOUR), False, id="what ends later does not"),
        pytest.param(make_binding("small"), False, id="what may end at any time does not"),
        pytest.param(make_binding("small").queue("other").runs(2 * HOUR), False, id="nor does it from another queue"),
        pytest.param(make_binding("small").priority(1).runs(2 * HOUR), True, id="a higher class goes before the head"),
    ],
)
def test_what_passes_a_head_that_capacity_is_reserved_for(small: BindingBuilder, passes: bool) -> None:
    s = busy(Strategy.BACKFILL)
    s.submit(small.submitted(LATE))
    assert names(s.run()) == (["small"] if passes else [])
    if not passes:
        assert s.verdict("small") is Reason.WOULD_DELAY


@pytest.mark.parametrize("behind", [False, True], ids=["by itself", "behind equal work that is too long"])
@pytest.mark.parametrize(
    ("spare", "passes"), [(0.0, True), (-0.5, False)], ids=["just in time", "a moment later than that"]
)
def test_what_passes_ends_so_early_that_its_member_can_tell_of_the_room(
    spare: float, passes: bool, behind: bool
) -> None:
    """Times are whole seconds, so that they are exact."""
    s = Scene(make_queue("q", view=BACKFILL), make_cluster("m"), make_capacity("m", [8, 8]))
    s.submit(make_binding("runs").tasks(1, gpu=8).runs(HOUR))
    s.run(after=1.0)
    s.submit(make_binding("head").tasks(2, gpu=8).submitted(EARLY))
    s.run(after=1.0)
    [promise] = s.core.reservations.made.values()
    assert promise.at == START + 1 + HOUR + SETTLE
    if behind:
        s.submit(make_binding("long").runs(2 * HOUR).submitted(EARLY))
    left = promise.at - (s.now + 1)
    s.submit(make_binding("small").runs(left - SETTLE - spare).submitted(LATE))
    assert names(s.run(after=1.0)) == (["small"] if passes else [])


@pytest.mark.parametrize(
    ("strategy", "passes"), [(Strategy.TRAVERSE, True), (Strategy.BACKFILL, False), (Strategy.FIFO, False)]
)
def test_an_endless_stream_of_small_work(strategy: Strategy, passes: bool) -> None:
    s = busy(strategy, ends=60.0)
    for number in range(8):
        s.submit(make_binding(f"small{number}").runs(HOUR).submitted(LATE))
        assert names(s.run(after=1.0)) == ([f"small{number}"] if passes else [])
    assert s.verdict("small7") is (None if passes else Reason.BEHIND_HEAD if strategy == "fifo" else Reason.WOULD_DELAY)
    s.change("runs", finished=True)
    assert ("head" in names(s.run(after=60.0))) is not passes


def test_the_head_starts_by_the_reserved_time() -> None:
    s = busy(Strategy.BACKFILL)
    [promise] = s.core.reservations.made.values()
    assert promise.first == pytest.approx(START + HOUR + SETTLE, abs=1)
    s.submit(*(make_binding(f"short{n}").runs(HOUR - 60).submitted(LATE) for n in range(4)))
    assert len(names(s.run())) == 4
    for n in range(4):
        s.change(f"short{n}", finished=True)
    s.change("runs", finished=True)
    s.now = START + HOUR
    assert names(s.run()) == ["head"]
    assert s.now <= promise.first
    assert not s.core.reservations.made


def test_work_that_is_as_long_as_it_likes_uses_what_the_head_does_not_need() -> None:
    s = busy(Strategy.BACKFILL, more=(make_cluster("n"), make_capacity("n", [4])))
    s.submit(*(make_binding(f"long{n}").submitted(LATE) for n in range(5)))
    assert dispatched(s.run()) == [(f"long{n}", "n") for n in range(4)]


def test_of_equal_work_the_one_that_is_short_enough_passes() -> None:
    s = busy(Strategy.BACKFILL)
    s.submit(make_binding("long").runs(2 * HOUR).submitted(EARLY), make_binding("short").runs(60).submitted(LATE))
    assert names(s.run()) == ["short"]


def test_one_that_is_short_enough_passes_though_equal_work_that_is_not_waits_already() -> None:
    s = busy(Strategy.BACKFILL)
    s.submit(make_binding("long").runs(2 * HOUR).submitted(EARLY))
    assert names(s.run()) == []
    s.submit(make_binding("short").runs(60).submitted(LATE))
    assert names(s.run()) == ["short"]


def test_unknown_ends_keep_the_member_for_the_head() -> None:
    s = Scene(make_queue("q", view=BACKFILL), make_cluster("m"), make_capacity("m", [8, 8]))
    s.submit(make_binding("runs").tasks(1, gpu=8))
    s.run()
    s.submit(make_binding("head").tasks(2, gpu=8).submitted(EARLY), make_binding("small").runs(1).submitted(LATE))
    assert names(s.run()) == []
    s.change("runs", finished=True)
    assert names(s.run()) == ["head"]


def test_a_queue_below_its_guarantee_goes_before_a_head() -> None:
    guaranteed = make_queue("sure", view={"guarantee": {"nvidia.com/gpu": 4}})
    s = busy(Strategy.BACKFILL, more=(guaranteed,))
    s.submit(make_binding("small").queue("sure").submitted(LATE))
    assert names(s.run()) == ["small"]
    assert all(promise.overtaken for promise in s.core.reservations.made.values())


def test_a_head_that_quota_blocks_is_not_starved_by_smaller_work_of_its_queue() -> None:
    room = (make_cluster("m"), make_capacity("m", [32]))
    s = Scene(make_queue("q", gpu=8, view=BACKFILL), *room)
    s.submit(*(make_binding(f"runs{n}").tasks(4).runs(100 * (n + 1)) for n in range(2)))
    assert len(names(s.run())) == 2
    s.submit(make_binding("head").tasks(8).runs(10).submitted(EARLY))
    s.run()
    s.change("runs0", finished=True)
    s.submit(make_binding("long").runs(HOUR).submitted(LATE), make_binding("short").runs(20).submitted(LATE))
    assert names(s.run(after=100.0)) == ["short"]
    s.change("short", finished=True)
    s.change("runs1", finished=True)
    assert names(s.run(after=100.0)) == ["head"]


def test_waiting_long_enough_gets_room_kept_in_a_queue_that_lets_others_pass() -> None:
    room = (make_cluster("m"), make_capacity("m", [8, 8]))
    s = Scene(make_queue("q", view={"patience": 600.0}), *room)
    s.submit(make_binding("runs").tasks(1, gpu=8).runs(HOUR).created("2027-01-15T08:00:00Z"))
    assert names(s.run()) == ["runs"]
    s.submit(make_binding("head").tasks(2, gpu=8).created("2027-01-15T08:00:00Z"))
    s.submit(make_binding("early").runs(2 * HOUR).created("2027-01-15T08:00:01Z"))
    assert names(s.run()) == ["early"]
    s.change("early", finished=True)
    s.run()
    s.submit(make_binding("late").runs(2 * HOUR).created("2027-01-15T08:09:00Z"))
    assert s.core.next_deadline is not None
    assert names(s.run(after=700.0)) == []
    assert s.verdict("late") is Reason.WOULD_DELAY


def test_of_two_heads_the_one_with_the_older_reservation_is_not_held_up_by_the_other() -> None:
    queues = [make_queue(name, view=BACKFILL) for name in ("q", "r")]
    s = Scene(*queues, make_cluster("m"), make_capacity("m", [8, 8]))
    s.submit(*(make_binding(f"runs{n}").queue("r").tasks(1, gpu=8).runs(HOUR).created(EARLY) for n in range(2)))
    assert len(names(s.run())) == 2
    s.submit(make_binding("first").tasks(1, gpu=8).submitted(EARLY))
    s.run()
    s.submit(make_binding("second").queue("r").tasks(1, gpu=8).submitted(LATE))
    assert names(s.run()) == []
    assert len(s.core.reservations.made) == 2
    s.change("runs0", finished=True)
    assert names(s.run()) == ["first"]


def test_of_equal_workloads_the_first_tells_whether_capacity_is_reserved_or_there_is_none() -> None:
    s = busy(Strategy.BACKFILL)
    s.submit(*(make_binding(f"small{n}").runs(2 * HOUR).submitted(LATE) for n in range(3)))
    assert {told.decision.reason for told in explained(s.run()).values()} == {Reason.WOULD_DELAY}
    # Somebody takes what is free; with the other queue's new limit all is looked at again.
    s.tell(make_capacity("m", [8, 0], generation=2), make_queue("other", gpu=4))
    assert {name: told.decision.reason for name, told in explained(s.run()).items()} == {
        "small0": Reason.INSUFFICIENT_RESOURCES
    }


def test_the_first_time_that_is_known_is_the_one_that_was_reserved() -> None:
    s = Scene(make_queue("q", view=BACKFILL), make_cluster("m"), make_capacity("m", [8]))
    s.submit(make_binding("known").tasks(4).runs(HOUR).created(EARLY), make_binding("unknown").tasks(4).created(EARLY))
    assert len(names(s.run())) == 2
    s.submit(make_binding("head").tasks(8).submitted(LATE))
    s.run()
    [promise] = s.core.reservations.made.values()
    assert promise.at == promise.first == math.inf
    s.change("unknown", finished=True)
    s.run(after=2.0)
    [promise] = s.core.reservations.made.values()
    assert promise.at == promise.first == pytest.approx(START + HOUR + SETTLE, abs=1)


def test_no_head_gets_room_that_an_older_reservation_needs_later() -> None:
    queues = [make_queue(name, view=BACKFILL) for name in ("q", "r")]
    s = Scene(*queues, make_cluster("m"), make_capacity("m", [8, 8]))
    running = [("a", 4, 100.0), ("b", 4, 1000.0), ("c", 8, 5000.0)]
    s.submit(*(make_binding(name).tasks(1, gpu=gpu).runs(ends).created(EARLY) for name, gpu, ends in running))
    assert len(names(s.run())) == 3
    for queue, gpu in (("q", 8), ("r", 1)):
        s.submit(make_binding(f"head-{queue}").queue(queue).tasks(1, gpu=gpu).runs(50_000.0).submitted(EARLY))
        assert names(s.run()) == []
    promised = [promise.first for promise in s.core.reservations.made.values()]
    assert promised == pytest.approx([START + 1000.0 + SETTLE, START + 5000.0 + SETTLE], abs=1)


def test_one_that_was_parked_behind_others_gets_a_reservation_once_it_is_the_head() -> None:
    s = Scene(make_queue("q", view=BACKFILL), make_cluster("m"), make_capacity("m", [8, 8]))
    s.submit(*(make_binding(f"runs{n}").tasks(1, gpu=7).runs(HOUR * (n + 1)).created(EARLY) for n in range(2)))
    assert len(names(s.run())) == 2
    for number, gpu in enumerate((2, 8)):
        s.submit(make_binding(f"head{number}").tasks(1, gpu=gpu).runs(60).submitted(f"2026-01-02T00:00:0{number}Z"))
        assert names(s.run()) == []
    assert [promise.uid for promise in s.core.reservations.made.values()] == ["uid-head0"]
    s.gone("head0")
    assert names(s.run()) == []
    assert [promise.uid for promise in s.core.reservations.made.values()] == ["uid-head1"]


def test_what_would_delay_a_head_goes_as_soon_as_another_member_has_room() -> None:
    s = busy(Strategy.BACKFILL, more=(make_cluster("n"), make_capacity("n", [0])))
    s.submit(make_binding("small").tasks(2).submitted(LATE))
    assert names(s.run()) == []
    assert s.verdict("small") is Reason.WOULD_DELAY
    s.tell(make_capacity("n", [1], generation=2))
    assert names(s.run()) == []
    s.tell(make_capacity("n", [2], generation=3))
    assert dispatched(s.run()) == [("small", "n")]


def three_members(limit: int) -> Scene:
    """Of four GPUs each; queues q and r, that keep room for their heads, share a limit."""
    queues = [make_queue(name, view={**BACKFILL, "parent": "p"}) for name in ("q", "r")]
    members = [event for name in ("m1", "m2", "m3") for event in (make_cluster(name), make_capacity(name, [4]))]
    return Scene(make_queue("p", gpu=limit), *queues, *members)


def four_in(member: str, name: str, runs: float, queue: str = "q") -> BindingBuilder:
    work = make_binding(name).queue(queue).tasks(1, gpu=4).runs(runs).created(EARLY).submitted(EARLY)
    return work.affinity(clusterNames=[member])


def test_the_share_of_work_that_ends_later_than_it_should_is_free_once_it_is_over() -> None:
    s = three_members(8)
    s.submit(four_in("m1", "long", 110.0), four_in("m2", "overdue", 100.0))
    for name in names(s.run()):
        s.bound(name, generation=NEVER)
    s.submit(four_in("m1", "head", HOUR))
    assert names(s.run(after=105.0)) == []
    s.change("overdue", finished=True)
    s.submit(four_in("m2", "small", HOUR, "r"))
    assert names(s.run()) == ["small"]


def test_a_share_that_was_reserved_for_two_in_turn_is_counted_once_when_the_first_starts() -> None:
    s = three_members(12)
    s.submit(four_in("m1", "long", 100.0), four_in("m2", "short", 50.0))
    assert len(names(s.run())) == 2
    s.submit(four_in("m2", "first", HOUR))
    assert names(s.run()) == []
    s.submit(four_in("m1", "second", HOUR, "r"))
    assert names(s.run()) == []
    assert len(s.core.reservations.made) == 2
    s.change("short", finished=True)
    assert names(s.run()) == ["first"]
    s.submit(four_in("m3", "beside", HOUR))
    assert names(s.run()) == ["beside"]


def test_no_head_gets_a_share_that_an_older_reservation_needs_later() -> None:
    s = three_members(8).tell(make_queue("other"))
    s.submit(
        four_in("m1", "long", 1000.0, "other"), four_in("m3", "medium", 2000.0), four_in("m2", "short", 500.0, "r")
    )
    assert len(names(s.run())) == 3
    s.submit(four_in("m1", "first", HOUR))
    assert names(s.run()) == []
    # When its node is free there is a share for it, but not beside the first once that starts.
    s.submit(four_in("m2", "second", HOUR, "r"))
    assert names(s.run()) == []
    at = {promise.uid: promise.at - START for promise in s.core.reservations.made.values()}
    assert at == pytest.approx({"uid-first": 1000.0 + SETTLE, "uid-second": 2000.0 + SETTLE}, abs=1)


@pytest.mark.parametrize("why", ["its policy", "its queue", "it is not ready"])
def test_nothing_is_reserved_where_the_head_may_not_go(why: str) -> None:
    """n has more room than m, but not for the head, whatever the reason."""
    ready = why != "it is not ready"
    view = {**BACKFILL, "members": {"m": Ceiling()}} if why == "its queue" else BACKFILL
    s = Scene(make_queue("q", view=view), make_queue("other"), make_cluster("m"), make_cluster("n", ready=ready))
    s.tell(make_capacity("m", [8]), make_capacity("n", [9]))
    s.submit(make_binding("runs").tasks(4).runs(HOUR).affinity(clusterNames=["m"]))
    s.submit(make_binding("beside").queue("other").tasks(8).runs(60).affinity(clusterNames=["n"]))
    s.run()
    head = make_binding("head").tasks(8).submitted(EARLY)
    s.submit(head.affinity(clusterNames=["m"]) if why == "its policy" else head)
    assert names(s.run()) == []
    assert [promise.member.name for promise in s.core.reservations.made.values()] == ["m"]


def test_what_was_kept_for_a_head_is_everybodys_in_the_pass_in_which_it_goes() -> None:
    s = busy(Strategy.BACKFILL)
    s.submit(make_binding("long").tasks(4).submitted(LATE))
    assert names(s.run()) == []
    # A third node comes; nothing has ended.
    s.tell(make_capacity("m", [8, 8, 12], generation=2))
    assert names(s.run()) == ["head", "long"]


def test_a_workload_may_be_more_patient_than_its_queue_and_not_less() -> None:
    s = Scene(make_queue("q", view={"patience": 600.0}), make_cluster("m"), make_capacity("m", [8, 8]))
    s.submit(make_binding("runs").tasks(16).runs(HOUR))
    s.run()
    for name, patience in (("hasty", 60.0), ("calm", 900.0)):
        view = make_binding(name).tasks(8).created("2027-01-15T08:00:00Z").build()
        assert view.gang is not None
        s.see(dataclasses.replace(view, gang=msgspec.structs.replace(view.gang, patience=patience)))
    s.run()
    s.run(after=61.0)
    assert s.core.reservations.made == {}
    s.run(after=541.0)
    assert list(s.core.reservations.made) == ["uid-hasty"]
    s.gone("hasty")
    s.run(after=200.0)
    assert s.core.reservations.made == {}
    s.run(after=100.0)
    assert list(s.core.reservations.made) == ["uid-calm"]


def test_a_workload_is_kept_no_room_for_by_its_own_word() -> None:
    s = Scene(make_queue("q"), make_cluster("m"), make_capacity("m", [8]))
    s.submit(make_binding("runs").tasks(4).runs(HOUR))
    s.run()
    view = make_binding("hasty").tasks(8).created("2027-01-15T08:00:00Z").build()
    assert view.gang is not None
    s.see(dataclasses.replace(view, gang=msgspec.structs.replace(view.gang, patience=1.0)))
    s.run(after=61.0)
    assert s.core.reservations.made == {}


@pytest.mark.parametrize("when", ["07:59:00Z", "08:00:30Z"], ids=["an elder", "a younger"])
def test_what_has_a_reservation_is_not_delayed_by_what_comes_later(when: str) -> None:
    """An elder of its queue included, such as one that was evicted: else its time would be worth nothing to others."""
    s = Scene(make_queue("q", view={"patience": 60.0}), make_cluster("m"), make_capacity("m", [8]))
    s.submit(make_binding("runs").tasks(4).runs(HOUR))
    s.run()
    s.submit(make_binding("hasty").tasks(8).created("2027-01-15T08:00:00Z"))
    s.run(after=61.0)
    assert list(s.core.reservations.made) == ["uid-hasty"]
    s.submit(make_binding("small").created(f"2027-01-15T{when}"))
    assert names(s.run()) == []


def test_the_minimum_of_a_gang_that_may_be_divided_does_not_take_what_is_kept() -> None:
    s = Scene(make_queue("q", view=BACKFILL), make_cluster("m"), make_capacity("m", [8]))
    s.submit(make_binding("runs").tasks(4))
    s.run()
    s.submit(make_binding("head").tasks(8).submitted(EARLY))
    s.run()
    s.submit(make_binding("wide").tasks(12, minimum=2).divided().submitted(LATE))
    assert names(s.run()) == []
    assert s.verdict("wide") is Reason.WOULD_DELAY


def test_a_reservation_whose_time_has_passed_is_computed_again() -> None:
    s = busy(Strategy.BACKFILL, ends=60.0)
    [before] = s.core.reservations.made.values()
    assert before.at == pytest.approx(START + 60.0 + SETTLE, abs=1)
    s.run(after=120.0)
    [promise] = s.core.reservations.made.values()
    # What runs longer than expected is expected to run on for a tenth of its time.
    assert promise.at == pytest.approx(s.now + 6.0 + SETTLE, abs=1)
    assert promise.first == before.first


def test_what_would_still_run_when_a_head_is_due_does_not_take_its_quota() -> None:
    """Of 8 both on the way up and in the queue, the head needs 6 after an hour."""
    s = Scene(make_queue("top", gpu=8), make_queue("q", view={**BACKFILL, "parent": "top"}))
    s.tell(make_queue("beside", view={"parent": "top"}), make_cluster("m"), make_capacity("m", [32]))
    s.submit(make_binding("runs").tasks(4).runs(HOUR))
    s.run()
    s.submit(make_binding("head").tasks(6).submitted(EARLY))
    s.run()
    s.submit(make_binding("much").queue("beside").tasks(3).runs(2 * HOUR).submitted(LATE))
    assert names(s.run()) == []
    assert s.verdict("much") is Reason.WOULD_DELAY
    s.submit(make_binding("little").queue("beside").tasks(2).runs(2 * HOUR).submitted(LATE))
    assert names(s.run()) == ["little"]
    s.submit(make_binding("brief").queue("beside").tasks(2).runs(60).submitted(LATE))
    assert names(s.run()) == ["brief"]
    for name in ("brief", "little"):
        s.change(name, finished=True)
        assert names(s.run()) == []


def test_room_that_a_head_of_another_queue_gives_up_is_reserved_no_more() -> None:
    """Of 12, 6 and 5 are promised once `runs` is over; what stays for ever may have the rest."""
    s = Scene(*(make_queue(name, view=BACKFILL) for name in ("q", "r")), make_cluster("m"), make_capacity("m", [12]))
    s.submit(make_binding("runs").tasks(8).runs(HOUR))
    s.run()
    for queue, gpu in (("q", 6), ("r", 5)):
        s.submit(make_binding(f"head-{queue}").queue(queue).tasks(1, gpu=gpu).submitted(EARLY))
        assert names(s.run()) == []
    s.submit(make_binding("small").tasks(3).submitted(LATE))
    assert names(s.run()) == []
    s.gone("head-q")
    assert names(s.run()) == ["small"]


def test_a_reservation_that_moves_to_another_member_leaves_its_room_to_others() -> None:
    """1. `first` is promised m, `later` as well. 2. What it waits for there runs on. 3. In n something ends sooner."""
    members = [each for name in "mn" for each in (make_cluster(name), make_capacity(name, [12]))]
    s = Scene(*(make_queue(name, view=BACKFILL) for name in ("q", "r")), make_queue("other"), *members)
    for name, gpu, member, seconds in (
        ("soon", 4, "m", HOUR),
        ("long", 4, "m", 10 * HOUR),
        ("there", 12, "n", HOUR + 200),
    ):
        s.submit(make_binding(name).queue("other").tasks(1, gpu=gpu).runs(seconds).affinity(clusterNames=[member]))
    assert len(names(s.run())) == 3
    s.submit(make_binding("first").tasks(1, gpu=6).submitted(EARLY))
    s.run()
    s.submit(make_binding("later").queue("r").tasks(1, gpu=5).affinity(clusterNames=["m"]).submitted(EARLY))
    s.run()
    s.submit(make_binding("filler").queue("other").tasks(1, gpu=3).affinity(clusterNames=["m"]).submitted(LATE))
    assert names(s.run()) == []
    assert [promise.member.name for promise in s.core.reservations.made.values()] == ["m", "m"]
    assert names(s.run(after=HOUR + 100)) == ["filler"]
    assert {uid: promise.member.name for uid, promise in s.core.reservations.made.items()} == {
        "uid-first": "n",
        "uid-later": "m",
    }


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        pytest.param({"a": 3, "b": 2}, [(0, 0, 2), (1, 0, 1), (1, 1, 2)], id="tasks in order, nodes by name"),
        pytest.param({"b": 2, "a": 1}, [(0, 0, 1), (0, 1, 1), (1, 1, 1)], id="as many as there are"),
        pytest.param({"a": 9}, [(0, 0, 2), (1, 0, 3)], id="not more than it has"),
        pytest.param({"c": 2, "b": 3}, [(0, 1, 2), (1, 1, 1)], id="only on nodes that are known"),
    ],
)
def test_where_pods_are_by_a_report_that_counts_them(
    seen: dict[str, int], expected: list[tuple[int, int, int]]
) -> None:
    gang = make_binding("g").tasks(2).tasks(3).build().gang
    assert gang is not None
    assert where_seen(gang, seen, {"a": 0, "b": 1}) == expected


def test_capacity_is_reserved_for_two_heads_of_which_is_not_known_when_they_can_start() -> None:
    s = Scene(*(make_queue(name, view=BACKFILL) for name in ("q", "r")), make_cluster("m"), make_capacity("m", [8]))
    s.submit(make_binding("runs").tasks(8))
    s.run()
    for queue in ("q", "r"):
        s.submit(make_binding(f"head-{queue}").queue(queue).tasks(8))
        s.run()
    assert [(promise.uid, promise.at) for promise in s.core.reservations.made.values()] == [
        ("uid-head-q", math.inf),
        ("uid-head-r", math.inf),
    ]


def test_of_several_reservations_the_first_that_is_due_is_looked_at_first() -> None:
    s = Scene(*(make_queue(name, view=BACKFILL) for name in ("q", "r")), make_cluster("m"), make_capacity("m", [8, 8]))
    s.submit(*(make_binding(f"runs{n}").tasks(1, gpu=8).runs(n * HOUR) for n in (1, 2)))
    for name in names(s.run()):
        s.bound(name, generation=NEVER)
    for queue in ("q", "r"):
        s.submit(make_binding(f"head-{queue}").queue(queue).tasks(1, gpu=8))
        s.run()
    s.run()
    assert [round((promise.at - START) / HOUR) for promise in s.core.reservations.made.values()] == [1, 2]
    assert s.core.next_deadline == pytest.approx(START + HOUR + SETTLE + RENEWAL, abs=1)


def test_a_head_that_needs_all_of_a_queue_that_uses_nothing_gets_a_time() -> None:
    s = Scene(make_queue("q", gpu=8, view=BACKFILL), make_queue("other"), make_cluster("m"), make_capacity("m", [8]))
    s.submit(make_binding("runs").queue("other").tasks(4).runs(HOUR))
    s.run()
    s.submit(make_binding("head").tasks(8))
    s.run()
    [promise] = s.core.reservations.made.values()
    assert promise.at == pytest.approx(START + HOUR + SETTLE, abs=1)
