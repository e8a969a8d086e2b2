"""How many volumes of a driver a node can attach: a pod needs one attachment for each that the node has not attached
already.

Kubernetes' plugin NodeVolumeLimits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np

from atoll.fit.placement import UNBOUNDED, Ints
from atoll.model.gang import Task

REFUSAL = "node(s) exceed max volume count"

Left = Mapping[int, Mapping[str, int]]
"""Index of a node -> driver -> volumes that it can still attach; a driver without an entry has no limit."""
There = Mapping[int, Collection[tuple[str, str]]]
"""Index of a node -> (driver, handle) of the volumes that it has attached, of nodes with limits."""


class Attachments:
    """What nodes can still attach."""

    def __init__(self, ask: Callable[[], tuple[Left, There]]) -> None:
        """`ask` is called once, when a task with volumes comes."""
        self._ask = ask
        self._left: dict[int, dict[str, int]] | None = None
        self._there: dict[int, set[tuple[str, str]]] = {}

    def _known(self) -> dict[int, dict[str, int]]:
        if self._left is None:
            left, there = self._ask()
            self._left = {node: dict(each) for node, each in left.items()}
            self._there = {node: set(each) for node, each in there.items()}
        return self._left

    def room(self, task: Task, nodes: int) -> Ints | None:
        """See `Exact.room`."""
        if not task.attach:
            return None
        room: Ints = np.full(nodes, UNBOUNDED)
        for node, left in self._known().items():
            for driver, count in task.attach.items():
                if driver not in left:
                    continue
                own, more = count - len(task.shared.get(driver, ())), len(self._new(task, node, driver))
                if own:
                    room[node] = min(int(room[node]), max(left[driver] - more, 0) // own)
                elif more > max(left[driver], 0):
                    room[node] = 0
        return room

    def take(self, task: Task, node: int, count: int) -> None:
        """See `Exact.take`."""
        left = self._known().get(node, {}) if task.attach and count else {}
        for driver in left.keys() & task.attach.keys():
            new = self._new(task, node, driver)
            left[driver] -= (task.attach[driver] - len(task.shared.get(driver, ()))) * count + len(new)
            self._there.setdefault(node, set()).update(new)

    def copy(self) -> Attachments:
        """See `Exact.copy`."""
        twin = Attachments(self._ask)
        twin._left = None if self._left is None else {node: dict(each) for node, each in self._left.items()}
        twin._there = {node: set(each) for node, each in self._there.items()}
        return twin

    def _new(self, task: Task, node: int, driver: str) -> set[tuple[str, str]]:
        """Volumes that other pods use as well, and that the node has not attached yet."""
        shared = task.shared.get(driver, ())
        return {(driver, handle) for handle in shared} - self._there.get(node, set()) if shared else set()
