"""Counters of the dealings with API servers; `atoll.kube.collector` shows it.

Clients, caches and queues announce themselves here at birth and are forgotten with their last reference, so that no
process has to wire its metrics by hand.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from typing import Protocol
from weakref import WeakSet

from atoll.kube.drain import Writes

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0)
"""Seconds."""


class Durations:
    """A histogram of seconds that costs a fraction of a microsecond to observe and is merged over its owners."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        #: per bound, then beyond the last one; not cumulative
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds

    def add(self, other: Durations) -> None:
        self.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        self.total += other.total

    def buckets(self) -> list[tuple[str, float]]:
        """As Prometheus has them: (upper bound, how many up to it)."""
        so_far, result = 0, []
        for bound, count in zip((*map(str, BOUNDS), "+Inf"), self.counts, strict=True):
            so_far += count
            result.append((bound, float(so_far)))
        return result


class Client(Protocol):
    """An `ApiServer`."""

    writes: Writes
    requests: Counter[tuple[str, str, int]]
    """(verb, resource, code) -> answers; code 0 = none."""

    @property
    def seconds(self) -> Mapping[str, Durations]:
        """Verb -> time to the answer."""


class Cache(Protocol):
    """A `Reflector`."""

    relists: int
    heard_at: float
    """time.monotonic() of the last event or list."""

    @property
    def active_at(self) -> float | None:
        """time.monotonic() of the last attempt or sign of life; None while it does not run."""

    @property
    def name(self) -> str: ...

    def __len__(self) -> int: ...


class Queue(Protocol):
    """A `WorkQueue`."""

    name: str
    retries: int
    handled: int
    waits: Durations
    looks: Durations

    @property
    def delayed(self) -> int:
        """Keys that wait for their time."""

    @property
    def unfinished(self) -> list[float]:
        """Seconds since a worker got each of the keys that are with one."""

    def __len__(self) -> int: ...


class Named(Protocol):
    """A cache or a queue."""

    @property
    def name(self) -> str: ...


class Events(Protocol):
    """A `Recorder`."""

    outcomes: Counter[str]
    """written, repeated, dropped or failed -> calls."""


clients: WeakSet[Client] = WeakSet()
caches: WeakSet[Cache] = WeakSet()
queues: WeakSet[Queue] = WeakSet()
recorders: WeakSet[Events] = WeakSet()


refused: Counter[tuple[str, str]] = Counter()
"""(kind, namespace) of objects written by members -> number of disbelieved reports."""
