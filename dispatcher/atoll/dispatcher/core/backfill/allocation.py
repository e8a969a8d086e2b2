"""Capacity of a running or starting workload, and its expected end."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from atoll.dispatcher.core.quota.queue import Queue
from atoll.dispatcher.core.settings import BackfillSettings
from atoll.fit.pods import Pods
from atoll.model.gang import Gang
from atoll.model.vector import Vector


@dataclass(slots=True)
class Allocation:
    """Something that runs, or is about to."""

    leaf: Queue
    amount: Vector
    """Charge of its queue."""
    start: float
    end: float
    """Seconds since the epoch; infinite where it is not known."""
    parts: dict[str, tuple[Gang, Pods]]
    """Member -> (gang of the part, where its pods are or are expected)."""
    settings: BackfillSettings = BackfillSettings()
    charged: Mapping[str, Vector] = field(default_factory=dict)
    """Member -> what of `amount` is charged there, where pods of a part have ended."""

    def uses_in(self, member: str) -> Vector:
        """Charge of its queue for one member."""
        if member not in self.parts:
            return {}
        if len(self.parts) == 1:
            return self.amount
        return self.charged[member] if member in self.charged else self.parts[member][0].total()

    def expected_end(self, now: float) -> float:
        """Expected end, seen from now; the same time until its member should have reported the end."""
        if self.end + self.settings.settle > now or self.end == math.inf:
            return self.end
        return now + max(1.0, self.settings.overrun * (self.end - self.start))

    def over_at(self, when: float, now: float) -> bool:
        """Whether it is expected, seen from now, to be over by then."""
        return self.end < math.inf and self.expected_end(now) + self.settings.settle <= when
