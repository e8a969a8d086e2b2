"""How much of the dispatcher's time the reports of one member may take.

A member may write its ClusterCapacity objects as often as the host lets it. Each member has a bucket of tokens: one for
each time that something of it is taken in, one for so many bytes, and up to eight more where nodes, domains or
resources are other ones than before. While the bucket is empty only the latest of each object is kept, and all are
taken in together once it is not: what a member says too often reaches the core later, and no other member's decisions
wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from atoll.dispatcher.capacity import Capacities
from atoll.dispatcher.core import Event
from atoll.dispatcher.objects import CapacityObject, CapacityReport, read_report
from atoll.model import keys

BURST, REFILL = 32.0, 4.0
"""Tokens of a bucket, and how many come back in a second: agents publish twice a second at most."""
BYTES = 500_000
"""Of reports, for a token."""
OBJECTS = 50
"""Of a member, which count as much as `BYTES` where they are looked at together."""
REARRANGED = 8.0
"""Tokens for other nodes, domains or resources than before, of which more must be computed again: the smaller what
changed, the fewer, so that nodes of a small member that come one by one are heard at once.
"""


class Clock(Protocol):
    """What of an event loop is needed here."""

    def time(self) -> float: ...

    def call_later(self, delay: float, callback: Callable[[str], None], /, *args: str) -> object: ...


@dataclass(slots=True)
class _Bucket:
    tokens: float
    #: when that was, on the loop's clock
    at: float
    #: name of an object -> (as it was taken in last, as it is now), of waiting ones
    waiting: dict[str, tuple[CapacityReport | None, CapacityReport | None]] = field(default_factory=dict)


class Intake:
    """Between the watch and `Capacities`."""

    def __init__(
        self,
        capacities: Capacities,
        tell: Callable[[str, Iterable[Event]], None],
        replaced: Callable[[str], None],
        clock: Clock | None = None,
    ) -> None:
        """Take everything in at once, for a leader that begins reads all before it decides; see `begin`.

        Args:
            capacities: what makes events of reports.
            tell: gets the name of a member and the events that follow from its reports.
            replaced: called with the name of a member when a report of it is replaced by a newer one before its turn.
            clock: of the bucket; None for the loop that runs.
        """
        self._given = clock
        self._capacities, self._tell, self._replaced = capacities, tell, replaced
        #: cluster -> its bucket
        self._buckets: dict[str, _Bucket] = {}
        self._limits = False

    @property
    def _clock(self) -> Clock | asyncio.AbstractEventLoop:
        return self._given or asyncio.get_running_loop()

    def begin(self) -> None:
        """From now on members wait for their tokens."""
        self._limits = True

    def changed(self, old: CapacityReport | None, new: CapacityReport | None) -> None:
        """An object was made, changed or deleted."""
        found = new or old
        if found is None or not found.metadata.namespace.startswith(keys.EXECUTION_PREFIX):
            return
        cluster, name = keys.cluster_of(found.metadata.namespace), found.metadata.name
        if not self._limits:
            self._tell(cluster, self._events(old, new))
            return
        bucket = self._buckets.setdefault(cluster, _Bucket(BURST, self._clock.time()))
        before = bucket.waiting.get(name)
        waits = bool(bucket.waiting)
        bucket.waiting[name] = (before[0] if before is not None else old, new)
        if before is not None:
            self._replaced(cluster)
        if not waits:
            self._take_in(cluster)

    def _events(self, old: CapacityReport | None, new: CapacityReport | None) -> list[Event]:
        known = CapacityObject(old.metadata) if old is not None else None
        if new is None:
            return list(self._capacities.changed(known, None))
        try:
            return list(self._capacities.changed(known, read_report(new)))
        except msgspec.MsgspecError as error:
            return list(self._capacities.unreadable(CapacityObject(new.metadata), str(error)))

    def _take_in(self, cluster: str) -> None:
        """All that waits of a member, or have it tried again when there is a token."""
        bucket, now = self._buckets[cluster], self._clock.time()
        bucket.tokens, bucket.at = min(BURST, bucket.tokens + (now - bucket.at) * REFILL), now
        if bucket.tokens < 1:
            self._clock.call_later((1 - bucket.tokens) / REFILL + 0.001, self._take_in, cluster)
            return
        waiting, bucket.waiting = bucket.waiting, {}
        rearranged, size = self._capacities.rearranged, 0
        for old, new in waiting.values():
            size += memoryview(new.spec).nbytes if new is not None else 0
            self._tell(cluster, self._events(old, new))
        bucket.tokens -= 1 + size / BYTES
        if self._capacities.rearranged > rearranged:
            weight = max(size / BYTES, len(self._capacities.views(cluster)) / OBJECTS)
            bucket.tokens -= REARRANGED * min(weight, 1.0)
