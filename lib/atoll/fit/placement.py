"""Where the pods of a gang go."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

UNBOUNDED = np.int64(2**62)
"""More than any amount; a sum of two still is one of 64 bits."""
MANY = 1 << 40
"""Pods that a node holds which are not limited by anything: large, and its sums still fit an int64."""


@dataclass(slots=True)
class Placement:
    """Where the pods of a gang go."""

    pods: list[tuple[int, int, int]] = field(default_factory=list)
    """(task index, node index, how many)."""
    counts: list[int] = field(default_factory=list)
    """Pods placed per task."""
    domain: int | None = None
    """The smallest domain that holds all of them; None when no domain does."""
    tier: int | None = None
    """Its tier."""
    grouped: bool = False
    """Whether `pods` come group by group (`atoll.model.gang.Partition`), in the order of the groups of each task."""

    def arrays(self) -> tuple[Ints, Ints, Ints]:
        """(task indices, node indices, how many) of `pods`."""
        flat = np.fromiter(chain.from_iterable(self.pods), np.int64, 3 * len(self.pods))
        return flat[::3], flat[1::3], flat[2::3]
