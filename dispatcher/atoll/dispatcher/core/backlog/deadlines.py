"""Times at which bindings must be looked at, each under its UID; the earliest is found without searching."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator

AGAIN = 1.0
"""Seconds until a workload is looked at again that can't be decided on now: another decision on it is being written, or
its member is away.
"""
_SLACK = 64
"""Times that hold no more, beside as many as do: a core that follows another's decisions looks at none."""


class Deadlines:
    """At most one time for each UID."""

    def __init__(self) -> None:
        #: UID -> seconds since the epoch
        self._times: dict[str, float] = {}
        #: (time, UID); one that `_times` does not say is skipped
        self._heap: list[tuple[float, str]] = []

    def set(self, uid: str, when: float | None) -> None:
        """Replaces an earlier deadline; None, or infinite, for none."""
        if when is None or when == math.inf:
            self._times.pop(uid, None)
        elif self._times.get(uid) != when:
            self._times[uid] = when
            heapq.heappush(self._heap, (when, uid))
            if len(self._heap) > 2 * len(self._times) + _SLACK:
                self._heap = [(each, of) for of, each in self._times.items()]
                heapq.heapify(self._heap)

    def drop(self, uid: str) -> None:
        """There may be none."""
        self._times.pop(uid, None)

    @property
    def first(self) -> float | None:
        """The earliest; None where there is none."""
        while self._heap and self._times.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, now: float) -> Iterator[str]:
        """Take out due UIDs, the earliest first."""
        while (first := self.first) is not None and first <= now:
            uid = heapq.heappop(self._heap)[1]
            del self._times[uid]
            yield uid


def earliest(*times: float | None) -> float | None:
    """The first of these times; None where none is known."""
    return min((when for when in times if when is not None), default=None)
