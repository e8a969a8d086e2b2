"""Virtual time: what happens when, in one total order."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

Action = Callable[[], None]

_IDLE_LIMIT = 1000
"""Timed wake-ups in a row, with nothing else to come, after which nothing is expected to happen any more."""


@dataclass(slots=True)
class Timeline:
    """Actions by time; those of one moment in the order in which they were asked for."""

    now: float = 0.0
    """Seconds since the epoch; never decreases."""
    #: (when, serial, whether it only looks whether something is due, action)
    _heap: list[tuple[float, int, bool, Action]] = field(default_factory=list)
    _serial: int = 0
    #: actions in the heap that are more than a look
    _real: int = 0

    def at(self, when: float, action: Action, *, look: bool = False) -> None:
        """Do something at a time, or now where that is past; a `look` alone does not keep the run going."""
        self._serial += 1
        self._real += not look
        heapq.heappush(self._heap, (max(when, self.now), self._serial, look, action))

    def after(self, delay: float, action: Action) -> None:
        """Do something in so many seconds."""
        self.at(self.now + delay, action)

    def run(self, until: float = float("inf")) -> bool:
        """Go on until nothing is left to happen, or to that time; what is due then has happened.

        Returns:
            Whether it was cut off: something was still to come that is more than a look.
        """
        idle = 0
        while self._heap and self._heap[0][0] <= until:
            self.now, _, look, action = heapq.heappop(self._heap)
            self._real -= not look
            idle = idle + 1 if look and not self._real else 0
            if idle > _IDLE_LIMIT:
                return False
            action()
        if self._heap:
            self.now = max(self.now, until)
        return self._real > 0
