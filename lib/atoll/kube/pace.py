"""How long news that may wait does wait, so that a process starts workloads before it tells of them.

The order of writes is the same in every process. Starts (dispatches, Works, workloads, pods and their nodes) and final
states go at once. The first word of pods on nodes waits half a second at most, as their capacity is counted twice until
it comes. All else waits for up to a second in each process, while urgent writes wait or the server is slow.
"""

from __future__ import annotations

import time

URGENT = 1
"""Priority in a work queue of keys that start something or say that it has ended; of all else it is 0."""

LEAST, SOON, MOST = 0.1, 0.5, 1.0
"""Seconds: no shorter wait saves a write; the first word waits so long at most, and all else, in each process."""
_ANSWERS = 10
"""Answer times for which news waits when nothing urgent does."""
_HALF_LIFE = 1.0
"""Seconds after which an answer time counts half."""


class Pace:
    """How quickly one server answers writes."""

    def __init__(self) -> None:
        self._seconds, self._at = 0.0, 0.0

    def observe(self, seconds: float, now: float | None = None) -> None:
        """A write was answered after so many seconds."""
        now = time.monotonic() if now is None else now
        kept = self._kept(now)
        self._seconds, self._at = self._seconds * kept + seconds * (1 - kept), now

    def delay(self, urgent: int, *, most: float = MOST, now: float | None = None) -> float:
        """Seconds that news waits while so many urgent keys do; 0 where the server is quick and none does."""
        now = time.monotonic() if now is None else now
        wait = self._seconds * self._kept(now) * (_ANSWERS + urgent)
        return min(wait, most) if wait >= LEAST else 0.0

    def _kept(self, now: float) -> float:
        """Weight of the answers until the last one: a server that is not asked is taken for idle."""
        return float(0.5 ** max((now - self._at) / _HALF_LIFE, 0.0))
