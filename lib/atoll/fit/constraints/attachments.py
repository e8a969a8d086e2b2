"""How many volumes of a driver a node can attach: a pod needs room for each of its own.

Kubernetes' plugin NodeVolumeLimits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from atoll.fit.placement import UNBOUNDED, Ints
from atoll.model.gang import Task

REFUSAL = "node(s) exceed max volume count"

Left = Mapping[int, Mapping[str, int]]
"""Index of a node -> driver -> volumes that it can still attach; what is not named has no limit."""


class Attachments:
    """What nodes can still attach."""

    def __init__(self, left: Callable[[], Left]) -> None:
        """`left` is asked once, when a task with volumes comes."""
        self._ask = left
        self._left: dict[int, dict[str, int]] | None = None

    def _known(self) -> dict[int, dict[str, int]]:
        if self._left is None:
            self._left = {node: dict(each) for node, each in self._ask().items()}
        return self._left

    def room(self, task: Task, nodes: int) -> Ints | None:
        """See `Exact.room`."""
        if not task.attach:
            return None
        room: Ints = np.full(nodes, UNBOUNDED)
        for node, left in self._known().items():
            for driver, count in task.attach.items():
                if driver in left:
                    room[node] = min(int(room[node]), max(left[driver], 0) // count)
        return room

    def take(self, task: Task, node: int, count: int) -> None:
        """See `Exact.take`."""
        left = self._known().get(node, {}) if task.attach else {}
        for driver in left.keys() & task.attach.keys():
            left[driver] -= task.attach[driver] * count

    def copy(self) -> Attachments:
        """See `Exact.copy`."""
        twin = Attachments(self._ask)
        twin._left = None if self._left is None else {node: dict(each) for node, each in self._left.items()}
        return twin
