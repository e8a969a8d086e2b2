"""Which of the workloads of a class are to be told why it waits."""

from __future__ import annotations

import pytest

from atoll.dispatcher.core.backlog.backlog import Key, ShapeClass, Waiting
from atoll.dispatcher.core.backlog.wake_index import WakeIndex
from atoll.dispatcher.core.capacity.shape import Shapes
from atoll.dispatcher.core.events import QueueView
from atoll.dispatcher.core.quota.tree import Tree
from atoll.model.queues import Strategy
from atoll.model.verdict import Blocker, Reason, Verdict
from tests.dispatcher.builders import make_binding

FULL = Verdict(Reason.INSUFFICIENT_RESOURCES, Blocker("Cluster", "m", "pods", "2", "1"))
DELAYS, QUOTA = Verdict(Reason.WOULD_DELAY), Verdict(Reason.QUOTA_EXCEEDED, Blocker("Queue", "q"))
FIRST, SECOND, THIRD = keys = tuple((0, f"2026-01-01T00:00:0{number}Z", f"u{number}") for number in range(3))


def parked(verdict: Verdict, strategy: Strategy = Strategy.TRAVERSE) -> tuple[Waiting, ShapeClass]:
    """Three workloads of one class, all of which know this verdict."""
    tree = Tree()
    tree.set_queue(QueueView("q", {}, strategy=strategy))
    waiting, shape = Waiting(tree, WakeIndex()), Shapes().take(make_binding("a").tasks(2).build())
    for key in keys:
        group = waiting.add(tree.queue("q"), shape, key)
    waiting.park_until_told(group, verdict)
    return know(waiting, group), group


def know(waiting: Waiting, group: ShapeClass) -> Waiting:
    """All of them were told."""
    waiting.unsaid.clear()
    group.told, group.first_told = len(group.members), True
    return waiting


@pytest.mark.parametrize(
    ("key", "told", "from_"),
    [
        pytest.param(FIRST, DELAYS, 0, id="the first, another reason that comes and goes"),
        pytest.param(SECOND, DELAYS, None, id="not another one"),
        pytest.param(SECOND, QUOTA, 1, id="another one, a reason that stays"),
        pytest.param(THIRD, None, 2, id="one that knows nothing"),
        pytest.param(SECOND, FULL, None, id="one that knows it"),
    ],
)
def test_who_says_something_else_is_told_again(key: Key, told: Verdict | None, from_: int | None) -> None:
    waiting, group = parked(FULL)
    waiting.tell_again(group.leaf, group.shape, key, told)
    assert (group in waiting.unsaid, group.told) == ((False, 3) if from_ is None else (True, from_))


@pytest.mark.parametrize(
    ("before", "now", "told", "first"),
    [
        pytest.param(FULL, DELAYS, 3, False, id="reasons that come and go are for the first alone"),
        pytest.param(FULL, QUOTA, 0, True, id="another reason is for all"),
        pytest.param(FULL, FULL, 3, True, id="the same is news to none"),
    ],
)
def test_a_class_that_waits_for_something_else_says_so(before: Verdict, now: Verdict, told: int, first: bool) -> None:
    waiting, group = parked(before)
    waiting.say(group, now)
    assert (group.told, group.first_told) == (told, first)


def test_behind_the_head_of_a_strict_queue_only_the_first_is_told_what_stops_it() -> None:
    waiting, group = parked(FULL, Strategy.FIFO)
    waiting.say(group, QUOTA)
    assert (group.told, group.first_told) == (3, False)
    second = group.verdict(SECOND)
    assert second is not None
    assert (group.verdict(FIRST), second.reason) == (QUOTA, Reason.BEHIND_HEAD)


def test_a_workload_before_those_that_know_is_told_and_one_that_goes_is_not_counted() -> None:
    waiting, group = parked(FULL)
    waiting.add(group.leaf, group.shape, (0, "2026-01-01T00:00:00Z", "u00"))
    assert group.told == 1
    know(waiting, group)
    waiting.remove(group.leaf, group.shape, SECOND)
    assert (group.told, group.members) == (3, [FIRST, (0, "2026-01-01T00:00:00Z", "u00"), THIRD])
