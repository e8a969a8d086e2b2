"""What sleeps is told of what it sleeps on, and of nothing else."""

from __future__ import annotations

from atoll.dispatcher.core.backlog.wake_index import KEPT, MEMBERS, SETTINGS, Cause, Trigger, WakeIndex
from atoll.dispatcher.core.quota.queue import Queue


class Owner:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Cause]] = []

    def wake(self, items: list[str], trigger: Trigger) -> None:
        self.heard += [(item, trigger.cause) for item in items]

    def take(self) -> list[tuple[str, Cause]]:
        heard, self.heard = self.heard, []
        return heard


def test_each_owner_hears_of_its_own_in_the_order_in_which_they_were_parked() -> None:
    index, one, other = WakeIndex(), Owner(), Owner()
    for item in ("b", "a"):
        index.park(item, one.wake, (KEPT, SETTINGS))
    index.park("c", other.wake, (KEPT,))
    index.fire(MEMBERS)
    assert (one.take(), other.take()) == ([], [])
    index.fire(KEPT)
    assert one.take() == [("b", Cause.KEPT), ("a", Cause.KEPT)]
    assert other.take() == [("c", Cause.KEPT)]
    index.fire(SETTINGS)
    assert (one.take(), other.take()) == ([("b", Cause.SETTINGS), ("a", Cause.SETTINGS)], [])


def test_who_is_parked_elsewhere_or_dropped_is_not_told_any_more() -> None:
    index, owner = WakeIndex(), Owner()
    index.park("moves", owner.wake, (KEPT, SETTINGS))
    index.park("goes", owner.wake, (KEPT,))
    index.park("moves", owner.wake, (MEMBERS,))
    index.drop("goes")
    index.drop("goes")
    assert ("moves" in index, "goes" in index, len(index)) == (True, False, 1)
    index.fire(KEPT)
    index.fire(SETTINGS)
    assert owner.take() == []
    index.fire(MEMBERS)
    assert owner.take() == [("moves", Cause.MEMBERS)]


def test_an_owner_may_drop_and_park_while_it_is_told() -> None:
    index, told = WakeIndex(), []

    def wake(items: list[str], trigger: Trigger) -> None:
        for item in items:
            told.append(item)
            index.drop(item)
            index.park(f"{item}!", wake, (trigger,))

    for item in ("a", "b"):
        index.park(item, wake, (KEPT,))
    index.fire(KEPT)
    assert told == ["a", "b"]
    assert ("a!" in index, "a" in index, len(index)) == (True, False, 2)


def test_only_that_is_told_for_which_it_is_enough() -> None:
    index, owner = WakeIndex(), Owner()
    grown = Trigger(Cause.ROW, 3)
    for item in ("small", "large"):
        index.park(item, owner.wake, (grown,))
    index.fire(grown, lambda item: item == "small")
    assert owner.take() == [("small", Cause.ROW)]


def test_what_is_given_back_is_told_to_every_limit_that_it_concerns() -> None:
    root, up, leaf, beside = (Queue(name) for name in ("root", "up", "leaf", "beside"))
    for child, parent in ((up, root), (leaf, up), (beside, up)):
        child.parent = parent
    up.tracks = True
    index, owner = WakeIndex(), Owner()
    for queue in (root, up, leaf, beside):
        for cause in (Cause.LEFT, Cause.FELL, Cause.CEILING):
            index.park(f"{queue.name} {cause.name}", owner.wake, (Trigger(cause, queue),))
    index.use_changed(leaf)
    assert [item for item, _ in owner.take()] == ["leaf LEFT", "up LEFT", "root LEFT"]
    index.use_fell(leaf)
    assert [item for item, _ in owner.take()] == ["up CEILING", "root CEILING", "leaf FELL", "up FELL", "root FELL"]
    index.limits_changed(leaf)
    assert [item for item, _ in owner.take()] == ["leaf LEFT", "up LEFT", "up CEILING", "root CEILING", "leaf FELL"]


def test_times_come_in_order_and_those_of_what_was_dropped_do_not() -> None:
    index, owner = WakeIndex(), Owner()
    for item, when in (("late", 30.0), ("dropped", 10.0), ("soon", 20.0)):
        index.park(item, owner.wake, (Trigger(Cause.TIME, when),))
    index.drop("dropped")
    assert index.next_time == 20.0
    index.time_passed(19.9)
    assert owner.take() == []
    index.time_passed(30.0)
    assert owner.take() == [("soon", Cause.TIME), ("late", Cause.TIME)]
    assert index.next_time is None
