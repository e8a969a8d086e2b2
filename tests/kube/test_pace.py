"""News waits as long as starts and a slow server make it, and no longer."""

from __future__ import annotations

import pytest

from atoll.kube.pace import MOST, SOON, Pace
from atoll.kube.workqueue import WorkQueue


def paced(answer: float, *, now: float = 100.0) -> Pace:
    pace = Pace()
    pace.observe(answer, now)
    return pace


@pytest.mark.parametrize(
    ("answer", "urgent", "delay"),
    [(0.004, 0, 0.0), (0.004, 15, 0.1), (0.02, 0, 0.2), (0.02, 20, 0.6), (0.1, 100, MOST)],
    ids=["all is calm", "starts wait", "the server is slow", "both", "never longer"],
)
def test_news_waits_for_the_time_that_urgent_writes_take(answer: float, urgent: int, delay: float) -> None:
    assert paced(answer).delay(urgent, now=100.0) == pytest.approx(delay)


def test_the_first_word_waits_a_little_only() -> None:
    assert paced(1.0).delay(100, most=SOON, now=100.0) == SOON


def test_a_server_that_was_slow_is_not_taken_for_slow_for_long() -> None:
    pace = paced(0.2)
    assert pace.delay(0, now=100.5) > 0.1
    assert pace.delay(0, now=110.0) == 0.0
    pace.observe(0.004, 110.0)
    assert pace.delay(0, now=110.0) == 0.0


def test_many_quick_answers_of_one_moment_do_not_hide_slow_ones() -> None:
    pace = paced(0.2)
    for number in range(100):
        pace.observe(0.001, 100.0 + number / 10_000)
    assert pace.delay(0, now=100.01) > MOST / 2


async def test_a_queue_counts_the_urgent_keys_that_wait_for_a_worker() -> None:
    queue: WorkQueue[str] = WorkQueue("test")
    queue.add("a")
    queue.add("b", priority=1)
    queue.add("later", priority=1, after=60)
    assert (queue.due, queue.waiting(1), queue.waiting(0)) == (2, 1, 1)
    queue.add("a", priority=1)
    assert (queue.due, queue.waiting(1), queue.waiting(0)) == (2, 2, 0)
    assert {await queue.get(), await queue.get()} == {"a", "b"}
    assert (queue.due, queue.waiting(1)) == (0, 0)
