"""How often victims are searched, and for which class next, to the moment."""

from __future__ import annotations

from atoll.dispatcher.core.backlog.backlog import ShapeClass
from atoll.dispatcher.core.capacity.shape import Shapes
from atoll.dispatcher.core.preemption.budget import Searches
from atoll.dispatcher.core.quota.queue import Queue
from atoll.dispatcher.core.settings import PreemptionSettings
from tests.dispatcher.builders import make_binding

SETTINGS = PreemptionSettings(searches=2.0, burst=2, pause=8.0, longest_pause=20.0, pause_each=1.0)


def waiting(name: str, priority: int = 0) -> ShapeClass:
    """A class of one workload."""
    shape = Shapes().take(make_binding(name).tasks(1).build())
    return ShapeClass(Queue("q"), shape, [(-priority, "2026-01-01T00:00:00Z", name)])


def test_the_next_search_is_due_once_it_may_be_made() -> None:
    searches, group = Searches(SETTINGS), waiting("a")
    assert searches.next_due(100.0) is None
    searches.consider(group)
    assert searches.next_due(100.0) == 100.0
    searches.tokens -= 1.5
    assert searches.take() is None
    assert searches.next_due(100.0) == 100.25
    searches.pass_begins(0.25, 100.25)
    assert searches.take() is group
    assert not searches.waiting
    assert searches.next_due(100.25) is None


def test_no_more_searches_are_saved_up_than_may_be_made_at_once() -> None:
    searches = Searches(SETTINGS)
    searches.tokens -= 2
    searches.pass_begins(-5.0, 100.0)
    assert searches.tokens == 0.0
    searches.pass_begins(60.0, 160.0)
    assert searches.tokens == 2.0


def test_a_class_without_victims_is_looked_at_again_after_a_pause_that_doubles_up_to_a_bound() -> None:
    searches, group = Searches(SETTINGS), waiting("a")
    now, pauses = 100.0, []
    searches.consider(group)
    for _ in range(4):
        assert searches.take() is group
        searches.try_again(group, now)
        due = searches.next_due(now)
        assert due is not None
        pauses.append(due - now)
        searches.pass_begins(due - now - 0.5, due - 0.5)
        assert not searches.waiting
        searches.pass_begins(0.5, due)
        now = due
    assert pauses == [8.0, 16.0, 20.0, 20.0]


def test_a_pause_may_be_longer_the_more_such_classes_come_before() -> None:
    searches = Searches(PreemptionSettings(pause=8.0, longest_pause=8.0, pause_each=5.0))
    first, second, third = (waiting(name, priority) for name, priority in (("a", 3), ("b", 2), ("c", 1)))
    for group in (first, second, third):
        searches.try_again(group, 100.0)
    assert searches.next_due(100.0) == 108.0
    searches.pass_begins(8.0, 108.0)
    assert [searches.take() for _ in range(2)] == [first, second]
    searches.tokens += 1
    assert searches.take() is third
    searches.try_again(third, 108.0)
    assert searches.next_due(108.0) == 118.0


def test_what_is_new_goes_by_priority_and_takes_turns_with_what_steps_back() -> None:
    searches = Searches(SETTINGS)
    old, low, high = waiting("old", 9), waiting("low", 1), waiting("high", 2)
    searches.try_after(old, 5.0, 100.0)
    searches.pass_begins(5.0, 105.0)
    for group in (low, high):
        searches.consider(group)
    assert [searches.take() for _ in range(4)] == [high, old, low, None]


def test_a_class_that_steps_back_is_considered_again_only_if_something_changed_for_it() -> None:
    searches, group = Searches(SETTINGS), waiting("a")
    searches.try_after(group, 5.0, 100.0)
    searches.consider(group)
    assert not searches.waiting
    searches.look_soon(group)
    assert searches.take() is group
    searches.look_anew(group)
    assert searches.take() is group
    searches.pass_begins(50.0, 200.0)
    assert not searches.waiting
