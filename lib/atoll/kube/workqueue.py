"""A queue of keys to reconcile: each key at most once in it, never with two workers, later if it failed.

Groups, which are namespaces, take turns: ten thousand keys of one do not delay the first key of another.

Level-based: a key says "look again", not what happened, so any number of changes while a worker is busy cost one more
look.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Any, Generic, TypeVar

import structlog

from atoll.kube import client_metrics
from atoll.kube.backoff import Backoff
from atoll.kube.errors import ApiError, Retry
from atoll.kube.logs import working_on

K = TypeVar("K", bound=Hashable)

_BACKOFF_FIRST, _BACKOFF_MAX = 0.05, 30.0
_SLACK = 64
"""Entries of a heap that may be out of date before it is made anew."""

log = structlog.get_logger(__name__)


class WorkQueue(Generic[K]):
    """Keys that wait for a worker, by priority (larger first), then by turns of their groups, then by time."""

    def __init__(
        self,
        name: str,
        about: Callable[[K], Mapping[str, str]] = lambda key: {"key": str(key)},
        group: Callable[[K], str] | None = None,
        owns: Callable[[str], bool] | None = None,
    ) -> None:
        """No I/O happens here.

        Args:
            name: in metrics and logs.
            about: the fields that every log line of a look at this key gets, such as `{"workload": "ns/name"}`.
            group: whose turn a key takes; the namespace of keys such as `ns/name` and `(resource, "ns/name")`.
            owns: whether keys of a group are looked at here; None: of all.
        """
        self.name = name
        self._about, self._group, self._owns = about, group or _namespace, owns
        #: (-priority, turn, order, key) of keys that are due; an entry whose order `_due` does not hold is skipped
        self._ready: list[tuple[int, int, int, K]] = []
        #: priority -> the turn that was served last; and -> group -> its last turn
        self._served: defaultdict[int, int] = defaultdict(int)
        self._turns: defaultdict[int, dict[str, int]] = defaultdict(dict)
        #: (due time, order, key) of keys that wait for their time; one whose order `_later` does not hold is skipped
        self._delayed: list[tuple[float, int, K]] = []
        #: key -> (priority, turn, order, since when) of keys that are due, not with a worker; disjoint from `_active`
        self._due: dict[K, tuple[int, int, int, float]] = {}
        #: key -> (due time, priority, order); disjoint from `_due` and `_again`
        self._later: dict[K, tuple[float, int, int]] = {}
        #: key -> time.monotonic() at which a worker got it
        self._active: dict[K, float] = {}
        #: key -> (priority, since when): asked for again while a worker had it
        self._again: dict[K, tuple[int, float]] = {}
        #: priority -> keys of it in `_due`
        self._due_by: Counter[int] = Counter()
        self._backoff: Backoff[K] = Backoff(_BACKOFF_FIRST, _BACKOFF_MAX)
        self._order = itertools.count()
        self._changed = asyncio.Event()
        self.handled = self.retries = 0
        #: from the time at which a key was due until a worker got it
        self.waits = client_metrics.Durations()
        #: from then until the worker was done with it
        self.looks = client_metrics.Durations()
        client_metrics.queues.add(self)

    def __len__(self) -> int:
        return len(self._due) + len(self._later)

    @property
    def delayed(self) -> int:
        """Keys that wait for their time, not for a worker."""
        return len(self._later)

    @property
    def due(self) -> int:
        """Keys that wait for a worker."""
        return len(self._due)

    def waiting(self, priority: int) -> int:
        """Keys of this priority that wait for a worker."""
        return self._due_by[priority]

    @property
    def unfinished(self) -> list[float]:
        """For each key that is with a worker, seconds since it got it: one that grows is a worker that hangs."""
        now = time.monotonic()
        return [now - since for since in list(self._active.values())]

    def add(self, key: K, *, priority: int = 0, after: float = 0.0) -> None:
        """Ask for a look at `key`, `after` seconds from now.

        Of several wishes for one key the earliest time and the highest priority count; a wish for a key that is with
        a worker is for one more look afterwards.
        """
        if self._owns is not None and not self._owns(self._group(key)):
            return
        now = asyncio.get_running_loop().time()
        # First keys due before this wish, so that it keeps its place.
        self._promote()
        if after <= 0 or key in self._due or key in self._again:
            self._make_due(key, priority, now)
            return
        due, highest, order = self._later.get(key, (math.inf, priority, -1))
        if now + after < due:
            due, order = now + after, next(self._order)
            heapq.heappush(self._delayed, (due, order, key))
            self._changed.set()
        self._later[key] = (due, max(highest, priority), order)
        if len(self._delayed) > _SLACK + 2 * len(self._later):
            self._delayed = [(due, order, key) for key, (due, _, order) in self._later.items()]
            heapq.heapify(self._delayed)

    def _make_due(self, key: K, priority: int, now: float) -> None:
        if key in self._later:
            priority = max(priority, self._later.pop(key)[1])
        if key in self._active:
            highest, since = self._again.get(key, (priority, now))
            self._again[key] = (max(highest, priority), since)
            return
        before, _, _, since = self._due.get(key, (None, 0, 0, now))
        if before is None or before < priority:
            if not self._due:
                self._turns.clear()
            # Start-time fair queuing: a group's keys have one turn each, the first one no earlier than the present.
            turns, group = self._turns[priority], self._group(key)
            turn = turns[group] = max(self._served[priority], turns.get(group, -1) + 1)
            order = next(self._order)
            self._due[key] = (priority, turn, order, since)
            self._due_by[priority] += 1
            if before is not None:
                self._due_by[before] -= 1
            heapq.heappush(self._ready, (-priority, turn, order, key))
            if len(self._ready) > _SLACK + 2 * len(self._due):
                self._ready = [(-each, turn, order, key) for key, (each, turn, order, _) in self._due.items()]
                heapq.heapify(self._ready)
            self._changed.set()

    def retry(self, key: K, *, at_least: float = 0.0) -> None:
        """Ask again after this key's backoff, which doubles until `forget`; not before `at_least` seconds."""
        self.retries += 1
        self.add(key, after=self._backoff.failed(key, at_least=at_least))

    def forget(self, key: K) -> None:
        """The key succeeded: its backoff starts anew."""
        self._backoff.forget(key)

    async def get(self) -> K:
        """The next key; call `done` with it afterwards."""
        while True:
            self._promote()
            while self._ready:
                _, turn, order, key = heapq.heappop(self._ready)
                priority, _, current, since = self._due.get(key, (0, 0, -1, 0.0))
                if order != current:
                    continue
                del self._due[key]
                self._due_by[priority] -= 1
                self._served[priority] = turn
                self._active[key] = time.monotonic()
                self.waits.observe(asyncio.get_running_loop().time() - since)
                return key
            self._changed.clear()
            await self._wait_for_change()

    def done(self, key: K) -> None:
        """The worker is finished with the key."""
        since = self._active.pop(key, None)
        if since is not None:
            self.looks.observe(time.monotonic() - since)
        if key in self._again:
            priority, asked = self._again.pop(key)
            self._make_due(key, priority, asked)

    def _promote(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._delayed and self._delayed[0][0] <= now:
            due, order, key = heapq.heappop(self._delayed)
            _, priority, current = self._later.get(key, (0.0, 0, -1))
            if current == order:
                self._make_due(key, priority, due)

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
            with working_on(controller=self.name, **self._about(key)):
                await self._look(key, reconcile)

    async def _look(self, key: K, reconcile: Callable[[K], Awaitable[None]]) -> None:
        try:
            await reconcile(key)
        except Retry as wish:
            self.forget(key)
            self.add(key, after=wish.after)
        except ApiError as error:
            log.warning("will try again", key=str(key), error=str(error))
            self.retry(key, at_least=min(error.retry_after or 0.0, _BACKOFF_MAX))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Something that it waited for was cancelled, not this worker: it would end, and forget the key, unheard.
            log.warning("what it waited for was cancelled, will try again", key=str(key))
            self.retry(key)
        except Exception:
            log.exception("reconcile failed, will try again", key=str(key))
            self.retry(key)
        else:
            self.forget(key)
        finally:
            self.done(key)


async def every(*work: Awaitable[Any]) -> list[Any]:
    """Do all of it, whatever fails; then raise the first failure, else give the results."""
    outcomes = await asyncio.gather(*work, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return outcomes


def _namespace(key: Hashable) -> str:
    text = key[-1] if isinstance(key, tuple) else key
    return text.rpartition("/")[0] if isinstance(text, str) else ""
