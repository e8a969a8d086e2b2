"""Each key at most once, never with two workers, later if it failed."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from unittest import mock

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from atoll.kube import workqueue
from atoll.kube.collector import KubeCollector
from atoll.kube.errors import Busy, Retry
from atoll.kube.workqueue import WorkQueue


async def drain(queue: WorkQueue[str], count: int) -> list[str]:
    keys = []
    async with asyncio.timeout(5):
        for _ in range(count):
            keys.append(await queue.get())
            queue.done(keys[-1])
    return keys


async def run_until(
    queue: WorkQueue[str], reconcile: Callable[[str], Awaitable[None]], over: asyncio.Event, workers: int = 4
) -> None:
    task = asyncio.create_task(queue.run(reconcile, workers=workers))
    try:
        async with asyncio.timeout(5):
            await over.wait()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_key_that_is_asked_for_twice_is_given_once() -> None:
    queue: WorkQueue[str] = WorkQueue("t")
    for key in ("a", "b", "a"):
        queue.add(key)
    assert (len(queue), await drain(queue, 2), len(queue)) == (2, ["a", "b"], 0)


async def test_ten_thousand_keys_of_a_namespace_do_not_delay_the_first_of_another() -> None:
    queue: WorkQueue[str] = WorkQueue("t")
    for number in range(10_000):
        queue.add(f"busy/{number}")
    await drain(queue, 100)
    queue.add("quiet/a")
    queue.add("quiet/b")
    queue.add("other/a")
    first = await drain(queue, 8)
    assert [key for key in first if not key.startswith("busy")] == ["quiet/a", "other/a", "quiet/b"]
    assert len(queue) == 10_003 - 108


async def test_turns_are_taken_within_a_priority() -> None:
    queue: WorkQueue[tuple[str, str]] = WorkQueue("t")
    for number in range(100):
        queue.add(("jobs", f"busy/{number}"), priority=1)
    queue.add(("jobs", "low/a"))
    queue.add(("jobs", "high/a"), priority=1)
    async with asyncio.timeout(5):
        taken = [await queue.get() for _ in range(3)]
    assert ("jobs", "high/a") in taken
    assert ("jobs", "low/a") not in taken


async def test_higher_priority_goes_first_and_the_highest_wish_for_a_key_counts() -> None:
    queue: WorkQueue[str] = WorkQueue("t")
    queue.add("low")
    queue.add("high", priority=2)
    queue.add("raised")
    queue.add("raised", priority=3)
    queue.add("raised", priority=1)
    assert await drain(queue, 3) == ["raised", "high", "low"]
    assert len(queue) == 0


async def test_a_delayed_key_comes_after_its_time_and_an_earlier_wish_stands() -> None:
    queue: WorkQueue[str] = WorkQueue("t")
    loop = asyncio.get_running_loop()
    started = loop.time()
    queue.add("a", after=0.03)
    queue.add("a", after=60)
    queue.add("b", after=60)
    queue.add("b", after=0.01)
    assert await drain(queue, 2) == ["b", "a"]
    assert loop.time() - started >= 0.03
    assert len(queue) == 0


async def test_asking_now_overtakes_a_delay() -> None:
    queue: WorkQueue[str] = WorkQueue("t")
    queue.add("a", after=60)
    queue.add("a")
    assert (len(queue), await drain(queue, 1), len(queue)) == (1, ["a"], 0)


async def test_a_waiting_worker_wakes_for_a_key_that_is_due_earlier_than_what_it_waits_for() -> None:
    queue: WorkQueue[str] = WorkQueue("t")
    queue.add("late", after=60)
    waiting = asyncio.create_task(drain(queue, 1))
    while queue._changed.is_set():
        await asyncio.sleep(0)
    queue.add("soon", after=0.01)
    assert await waiting == ["soon"]


async def test_a_key_is_never_with_two_workers_and_is_looked_at_again_when_asked_meanwhile() -> None:
    queue: WorkQueue[str] = WorkQueue("t")
    active, looks, over = Counter[str](), Counter[str](), asyncio.Event()

    async def reconcile(key: str) -> None:
        active[key] += 1
        assert active[key] == 1
        looks[key] += 1
        if looks[key] < 5:
            queue.add(key)
            queue.add(key)
        await asyncio.sleep(0)
        active[key] -= 1
        if all(looks[k] == 5 for k in "abc"):
            over.set()

    for key in "abc":
        queue.add(key)
    await run_until(queue, reconcile, over)
    assert looks == {"a": 5, "b": 5, "c": 5}


@pytest.mark.parametrize(
    "error",
    [Busy("no"), RuntimeError("bug"), asyncio.CancelledError()],
    ids=["refused by the server", "a bug", "what it waited for was cancelled"],
)
async def test_a_failure_is_tried_again_and_the_worker_lives(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workqueue, "_BACKOFF_FIRST", 0.001)
    queue: WorkQueue[str] = WorkQueue("t")
    looks, over = Counter[str](), asyncio.Event()

    async def reconcile(key: str) -> None:
        looks[key] += 1
        if looks[key] < 3:
            raise error
        over.set()

    queue.add("a")
    await run_until(queue, reconcile, over, workers=1)
    assert looks["a"] == 3


async def test_backoff_doubles_up_to_its_ceiling_and_starts_anew_after_success(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "uniform", lambda low, high: high)
    queue: WorkQueue[str] = WorkQueue("t")
    delays = []
    with mock.patch.object(asyncio.get_running_loop(), "time", return_value=1000.0):
        for _ in range(12):
            queue.retry("a")
            delays.append(queue._later.pop("a")[0] - 1000.0)
        queue.forget("a")
        queue.retry("a")
        delays.append(queue._later.pop("a")[0] - 1000.0)
    assert delays == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30, 0.05])


async def test_a_wish_that_was_overtaken_gives_its_place_to_none_for_the_same_time() -> None:
    loop = asyncio.get_running_loop()
    queue: WorkQueue[str] = WorkQueue("t")
    with mock.patch.object(loop, "time", return_value=1000.0) as clock:
        queue.add("a", after=0.5)
        queue.add("a")
        assert await queue.get() == "a"
        queue.add("b", after=0.5)
        queue.add("a", after=0.5)
        queue.done("a")
        clock.return_value = 1001.0
        assert [await queue.get(), await queue.get()] == ["b", "a"]


async def test_a_wish_to_be_called_later_is_no_failure() -> None:
    queue: WorkQueue[str] = WorkQueue("t")
    looks, over = Counter[str](), asyncio.Event()

    async def reconcile(key: str) -> None:
        looks[key] += 1
        if looks[key] == 1:
            raise Retry(0.01)
        over.set()

    queue.add("a")
    await run_until(queue, reconcile, over, workers=1)
    assert len(queue._backoff) == 0


async def test_the_highest_priority_of_all_wishes_counts_also_when_the_earliest_was_another() -> None:
    queue: WorkQueue[str] = WorkQueue("t")
    queue.add("urgent", priority=5, after=60)
    queue.add("usual", priority=1)
    queue.add("urgent")
    assert await drain(queue, 2) == ["urgent", "usual"]


async def test_a_key_whose_priority_was_raised_once_has_no_better_place_the_next_time() -> None:
    queue: WorkQueue[str] = WorkQueue("t")
    queue.add("raised", priority=1)
    queue.add("raised", priority=2)
    assert await drain(queue, 1) == ["raised"]
    queue.add("first", priority=1)
    queue.add("raised", priority=1)
    assert await drain(queue, 2) == ["first", "raised"]


async def test_a_server_that_asks_for_patience_gets_it() -> None:
    queue: WorkQueue[str] = WorkQueue("t")
    looks, over = Counter[str](), asyncio.Event()

    async def reconcile(key: str) -> None:
        looks[key] += 1
        over.set()
        raise Busy("later", code=429, retry_after=20)

    queue.add("a")
    now = asyncio.get_running_loop().time()
    await run_until(queue, reconcile, over, workers=1)
    assert queue._later["a"][0] - now >= 20


async def test_what_a_scrape_says_of_queues_of_one_name_is_said_once() -> None:
    queues: list[WorkQueue[str]] = [WorkQueue("scraped"), WorkQueue("scraped")]
    for queue in queues:
        queue.add("done")
        assert await drain(queue, 1) == ["done"]
        queue.add("held")
        assert await queue.get() == "held"
        queue.add("waits")
        queue.add("later", after=60)
    text = generate_latest(registry_of(KubeCollector())).decode()
    found = {
        line.split("{")[0]: float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if '{queue="scraped"}' in line and "_created" not in line
    }
    assert found["atoll_workqueue_depth"] == 2
    assert found["atoll_workqueue_delayed"] == 2
    assert found["atoll_workqueue_wait_seconds_count"] == 4
    assert found["atoll_workqueue_look_seconds_count"] == 2
    assert found["atoll_workqueue_unfinished_seconds"] >= found["atoll_workqueue_longest_seconds"] > 0
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    assert len({line.rpartition(" ")[0] for line in samples}) == len(samples)


def registry_of(collector: KubeCollector) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(collector)
    return registry
