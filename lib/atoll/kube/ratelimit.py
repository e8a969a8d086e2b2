"""A limit of our own on requests to one API server, for hosts whose owners ask for one."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field


@dataclass(slots=True)
class RateLimit:
    """A token bucket: `burst` requests at once, `qps` a second after that, in the order in which they were asked for.

    Slots are handed out ahead of time (the generic cell rate algorithm, ITU-T I.371), so that waiting needs no queue
    and nobody is overtaken. Use it from one event loop.
    """

    qps: float
    burst: int = 1
    #: when the bucket is full again, on the loop's clock
    _full_at: float = field(default=float("-inf"), init=False)

    def __post_init__(self) -> None:
        if not self.qps > 0 or self.burst < 1:
            raise ValueError(f"qps {self.qps:g} and burst {self.burst}: qps must be above 0, burst at least 1")

    def reserve(self, now: float, patience: float) -> float | None:
        """Take the next slot: seconds to wait for it, or None when that is longer than `patience` (nothing is taken).

        Args:
            now: on the loop's clock.
            patience: seconds.
        """
        full_at = max(self._full_at, now) + 1 / self.qps
        wait = max(full_at - now - self.burst / self.qps, 0.0)
        if wait > patience:
            return None
        self._full_at = full_at
        return wait

    async def take(self, patience: float) -> bool:
        """Wait for the next slot; False at once when it comes later than in `patience` seconds."""
        wait = self.reserve(asyncio.get_running_loop().time(), patience)
        if wait:
            await asyncio.sleep(wait)
        return wait is not None
