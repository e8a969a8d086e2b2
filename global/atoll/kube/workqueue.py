"""A queue of keys to reconcile: each key at most once in it, never with two workers, later if it failed.

Level-based: a key says "look again", not what happened, so any number of changes while a worker is busy cost one more
look.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

import structlog

from atoll.kube import metrics
from atoll.kube.errors import ApiError, Retry

K = TypeVar("K", bound=Hashable)

_BACKOFF_FIRST, _BACKOFF_MAX = 0.05, 30.0

log = structlog.get_logger(__name__)


class WorkQueue(Generic[K]):
    """Keys that wait for a worker, by priority (larger first), then by time."""

    def __init__(self, name: str) -> None:
        self.name = name
        #: (-priority, order, key) of keys that are due; entries of keys that left `_due` are skipped when popped
        self._ready: list[tuple[int, int, K]] = []
        #: (due time, order, key, priority) of keys that wait for their time
        self._delayed: list[tuple[float, int, K, int]] = []
        #: key -> priority of keys that are due and not with a worker; disjoint from `_active`
        self._due: dict[K, int] = {}
        #: key -> earliest due time in `_delayed`
        self._later: dict[K, float] = {}
        self._active: set[K] = set()
        #: key -> priority: asked for again while a worker had it
        self._again: dict[K, int] = {}
        self._failures: dict[K, int] = {}
        self._order = itertools.count()
        self._changed = asyncio.Event()
        self.handled = self.retries = 0
        metrics.queues.add(self)

    def __len__(self) -> int:
        return len(self._due) + len(self._later)

    def add(self, key: K, *, priority: int = 0, after: float = 0.0) -> None:
        """Ask for a look at `key`, `after` seconds from now; an earlier wish for the same key stands."""
        if after > 0:
            due = asyncio.get_running_loop().time() + after
            if key in self._due or self._later.get(key, due + 1) <= due:
                return
            self._later[key] = due
            heapq.heappush(self._delayed, (due, next(self._order), key, priority))
        elif key in self._active:
            self._again[key] = max(priority, self._again.get(key, priority))
            return
        elif key not in self._due or self._due[key] < priority:
            self._later.pop(key, None)
            self._due[key] = priority
            heapq.heappush(self._ready, (-priority, next(self._order), key))
        self._changed.set()

    def retry(self, key: K) -> None:
        """Ask again after this key's backoff, which doubles until `forget`."""
        self.retries += 1
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        ceiling = min(_BACKOFF_FIRST * 2 ** min(failures - 1, 20), _BACKOFF_MAX)
        self.add(key, after=random.uniform(ceiling / 2, ceiling))

    def forget(self, key: K) -> None:
        """The key succeeded: its backoff starts anew."""
        self._failures.pop(key, None)

    async def get(self) -> K:
        """The next key; call `done` with it afterwards."""
        while True:
            self._promote()
            while self._ready:
                negative, _, key = heapq.heappop(self._ready)
                if self._due.get(key) != -negative or key in self._active:
                    continue
                del self._due[key]
                self._active.add(key)
                return key
            self._changed.clear()
            await self._wait_for_change()

    def done(self, key: K) -> None:
        """The worker is finished with the key."""
        self._active.discard(key)
        if key in self._again:
            self.add(key, priority=self._again.pop(key))

    def _promote(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._delayed and self._delayed[0][0] <= now:
            due, _, key, priority = heapq.heappop(self._delayed)
            if self._later.get(key) == due:
                del self._later[key]
                self.add(key, priority=priority)

    async def _wait_for_change(self) -> None:
        pause = self._delayed[0][0] - asyncio.get_running_loop().time() if self._delayed else None
        try:
            async with asyncio.timeout(pause):
                await self._changed.wait()
        except TimeoutError:
            return

    async def run(self, reconcile: Callable[[K], Awaitable[None]], *, workers: int = 1) -> None:
        """Reconcile keys with so many workers until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(self._work(reconcile))

    async def _work(self, reconcile: Callable[[K], Awaitable[None]]) -> None:
        while True:
            key = await self.get()
            self.handled += 1
            try:
                await reconcile(key)
            except Retry as wish:
                self.forget(key)
                self.add(key, after=wish.after)
            except ApiError as error:
                log.warning("will try again", queue=self.name, key=str(key), error=str(error))
                self.retry(key)
            except Exception:
                log.exception("reconcile failed, will try again", queue=self.name, key=str(key))
                self.retry(key)
            else:
                self.forget(key)
            finally:
                self.done(key)
