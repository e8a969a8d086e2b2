"""Ports of a node: whoever has one keeps everybody else from it, so a node holds one pod of a task that wants some.

Kubernetes' plugin NodePorts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from atoll.fit.placement import Ints
from atoll.model import ports
from atoll.model.gang import Task
from atoll.model.ports import HostPort

REFUSAL = "node(s) didn't have free ports for the requested pod ports"


class HostPorts:
    """Which ports of which node are taken."""

    def __init__(self, taken: Mapping[int, Collection[HostPort]] | None = None) -> None:
        """`taken`: by index of the node."""
        #: index of a node -> its ports that are taken; without empty ones
        self._taken = {node: frozenset(each) for node, each in (taken or {}).items() if each}

    def room(self, task: Task, nodes: int) -> Ints | None:
        """See `Exact.room`."""
        if not task.ports:
            return None
        room: Ints = np.ones(nodes, np.int64)
        for node, taken in self._taken.items():
            if ports.conflict(task.ports, taken):
                room[node] = 0
        return room

    def take(self, task: Task, node: int, count: int) -> None:
        """See `Exact.take`."""
        if task.ports and count:
            self.set(node, self._taken.get(node, frozenset()) | frozenset(task.ports))

    def set(self, node: int, taken: Collection[HostPort]) -> None:
        """These ports of the node are taken, and no others."""
        if taken:
            self._taken[node] = frozenset(taken)
        else:
            self._taken.pop(node, None)

    def copy(self) -> HostPorts:
        """See `Exact.copy`."""
        return HostPorts(self._taken)
