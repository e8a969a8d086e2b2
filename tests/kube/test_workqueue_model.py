"""The queue against a model without heaps and events: any order of wishes, looks, failures and time."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Coroutine
from typing import Any
from unittest import mock

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from atoll.kube.workqueue import WorkQueue
from tests.kube.virtual_time import VirtualLoop

KEYS = st.sampled_from("abcde")
PRIORITIES = st.integers(-1, 2)
DELAYS = st.sampled_from([0.0, 0.5, 1.0, 2.0, 60.0])


class Model:
    """What the queue promises, in the plainest way."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.due: dict[str, tuple[int, int]] = {}
        self.later: dict[str, tuple[float, int, int]] = {}
        self.active: set[str] = set()
        self.again: dict[str, int] = {}
        self.order = itertools.count()

    def pass_time(self) -> None:
        for key, (due, _, _) in sorted(self.later.items(), key=lambda item: (item[1][0], item[1][2])):
            if due <= self.now:
                self.ask(key, self.later[key][1])

    def ask(self, key: str, priority: int) -> None:
        priority = max(priority, self.later.pop(key, (0, priority, 0))[1])
        if key in self.active:
            self.again[key] = max(priority, self.again.get(key, priority))
        elif key not in self.due or self.due[key][0] < priority:
            self.due[key] = (priority, next(self.order))

    def add(self, key: str, priority: int, after: float) -> None:
        self.pass_time()
        if not after or key in self.due or key in self.again:
            return self.ask(key, priority)
        due, highest, order = self.later.get(key, (float("inf"), priority, 0))
        if self.now + after < due:
            due, order = self.now + after, next(self.order)
        self.later[key] = (due, max(highest, priority), order)

    def first(self) -> str | None:
        self.pass_time()
        return min(self.due, key=lambda key: (-self.due[key][0], self.due[key][1]), default=None)


class Queueing(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualLoop()
        self.queue = self.run(self._make())
        self.model = Model()
        self.failures: dict[str, int] = {}

    async def _make(self) -> WorkQueue[str]:
        return WorkQueue("t")

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(coroutine)

    def teardown(self) -> None:
        for key in sorted(self.model.active):
            self.done(key)
        # Whatever was asked for is looked at in the end, once each.
        self.advance(3600.0)
        while self.model.first() is not None:
            self.take()
            self.done(next(iter(self.model.active)))
        assert len(self.queue) == 0
        self.loop.close()

    @rule(key=KEYS, priority=PRIORITIES, after=DELAYS)
    def add(self, key: str, priority: int, after: float) -> None:
        async def ask() -> None:
            self.queue.add(key, priority=priority, after=after)

        self.run(ask())
        self.model.add(key, priority, after)

    @rule()
    def take(self) -> None:
        """A worker asks for a key and has no patience: what it does not get, it must not lose either."""

        async def take() -> str | None:
            task = asyncio.create_task(self.queue.get())
            for _ in range(3):
                await asyncio.sleep(0)
            if not task.done():
                task.cancel()
            await asyncio.wait([task])
            return None if task.cancelled() else task.result()

        expected = self.model.first()
        assert self.run(take()) == expected
        if expected is not None:
            assert expected not in self.model.active
            del self.model.due[expected]
            self.model.active.add(expected)

    @precondition(lambda self: self.model.active)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        self.done(data.draw(st.sampled_from(sorted(self.model.active))))

    def done(self, key: str) -> None:
        async def finish() -> None:
            self.queue.done(key)

        self.run(finish())
        self.model.active.discard(key)
        if key in self.model.again:
            self.model.ask(key, self.model.again.pop(key))

    @precondition(lambda self: self.model.active)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.model.active)))
        self.failures[key] = self.failures.get(key, 0) + 1

        async def fail() -> None:
            with mock.patch.object(random, "uniform", lambda low, high: high):
                self.queue.retry(key)

        self.run(fail())
        self.model.add(key, 0, min(0.05 * 2 ** (self.failures[key] - 1), 30.0))
        self.done(key)

    @rule(key=KEYS)
    def succeed(self, key: str) -> None:
        self.queue.forget(key)
        self.failures.pop(key, None)

    @rule(seconds=st.sampled_from([0.5, 1.0, 30.0]))
    def advance(self, seconds: float) -> None:
        # Not through the loop: float sums of many waits would differ from the model's.
        self.model.now += seconds
        self.loop.now = self.model.now

    @invariant()
    def as_deep_as_the_model(self) -> None:
        # What became due is moved when somebody next asks; both count it once either way.
        assert len(self.queue) == len(self.model.due) + len(self.model.later)

    @invariant()
    def heaps_stay_in_proportion(self) -> None:
        assert len(self.queue._ready) <= 64 + 2 * len(self.queue._due) + 1
        assert len(self.queue._delayed) <= 64 + 2 * len(self.queue._later) + 1


TestQueueing = Queueing.TestCase
TestQueueing.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
