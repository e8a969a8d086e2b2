"""How long what failed is left alone: twice as long each time, up to a limit, until it succeeds."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


def ceiling(first: float, failures: int, most: float) -> float:
    """The longest pause in seconds after so many failures in a row; `first` after one."""
    return min(first * 2.0 ** min(failures - 1, 20), most)


def pause(first: float, failures: int, most: float) -> float:
    """Seconds after so many failures in a row: at least half of the ceiling."""
    longest = ceiling(first, failures, most)
    return random.uniform(longest / 2, longest)


class Backoff(Generic[K]):
    """The pauses of keys that fail; one that is gone must be forgotten, or it is remembered for ever."""

    def __init__(self, first: float, most: float) -> None:
        """Begin without failures.

        Args:
            first: seconds after the first failure, at most; at least half of that.
            most: the same after any number of them.
        """
        self._first, self._most = first, most
        #: key -> (failures in a row, by loop.time() when the pause after the last one ends)
        self._failed: dict[K, tuple[int, float]] = {}

    def failed(self, key: K, *, at_least: float = 0.0) -> float:
        """The key failed once more: seconds until it should be tried again."""
        failures = self._failed.get(key, (0, 0.0))[0] + 1
        seconds = max(pause(self._first, failures, self._most), at_least)
        self._failed[key] = (failures, asyncio.get_running_loop().time() + seconds)
        return seconds

    def pauses(self, key: K) -> bool:
        """Whether it is too early to try the key again."""
        return key in self._failed and asyncio.get_running_loop().time() < self._failed[key][1]

    def forget(self, key: K) -> None:
        """The key succeeded or is gone: its pauses start anew."""
        self._failed.pop(key, None)

    def __len__(self) -> int:
        return len(self._failed)
