"""How long what failed is left alone: twice as long with each failure that follows, up to a bound."""

from __future__ import annotations

import zlib
from typing import Protocol


class Bounds(Protocol):
    """Seconds."""

    @property
    def pause(self) -> float: ...
    @property
    def longest_pause(self) -> float: ...


def pause_after(failures: int, bounds: Bounds, first: float | None = None) -> float:
    """Seconds after so many failures, one after the other. `first`: after the first one, where bounds don't say it."""
    # So many doublings are more than any pause; more would not be a number.
    return min((bounds.pause if first is None else first) * 2.0 ** min(failures - 1, 30), bounds.longest_pause)


def spread(who: str) -> float:
    """A factor by which a pause is longer, that a replay repeats: what failed together is not tried together."""
    return 1 + zlib.crc32(who.encode()) % 100 / 200
