"""How long what failed is left alone: twice as long with each failure that follows, up to a bound."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Protocol


class Bounds(Protocol):
    """Seconds."""

    @property
    def pause(self) -> float: ...
    @property
    def longest_pause(self) -> float: ...


@dataclass(slots=True)
class Pause:
    """That a member is avoided because something failed there."""

    until: float
    """Seconds since the epoch: when it may be tried again though nothing has changed."""
    count: int = 1
    """Failures one after the other."""
    over: bool = False
    """It may be tried again; the count is remembered for a while."""
    words: str = ""
    """Of the member."""
    namespace: str = ""
    """For whose workloads alone; empty for all."""

    def ends(self, now: float) -> bool:
        """Whether its time has come just now: it is over then."""
        news = not self.over and self.until <= now
        self.over |= news
        return news

    def forgotten(self, bounds: Bounds) -> float:
        """When its count is forgotten."""
        return self.until + 2 * bounds.longest_pause


def count_after(before: Pause | None) -> int:
    """Failures with one more: attempts under way when others failed fail with them, and that is one failure."""
    return 1 if before is None else before.count + before.over


def pause_after(failures: int, bounds: Bounds, first: float | None = None) -> float:
    """Seconds after so many failures, one after the other. `first`: after the first one, where bounds don't say it."""
    # So many doublings are more than any pause; more would not be a number.
    return min((bounds.pause if first is None else first) * 2.0 ** min(failures - 1, 30), bounds.longest_pause)


def spread(who: str) -> float:
    """A factor by which a pause is longer, that a replay repeats: what failed together is not tried together."""
    return 1 + zlib.crc32(who.encode()) % 100 / 200
