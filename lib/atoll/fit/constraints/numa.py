"""NUMA nodes: a node whose kubelet aligns CPUs and devices rejects pods for which no set of NUMA nodes will do.

As the kubelet's topology manager decides (`atoll.model.numa`). A task that asks for a policy goes to nodes with that
policy alone, as in Volcano; one whose devices must be together where a NUMA node, or an island, has as many free.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from atoll.fit.placement import UNBOUNDED, Ints
from atoll.model.gang import Task
from atoll.model.numa import CPU, Asks, Cells, Together, asks_of

REFUSAL = "node(s) cannot align the resources of the pod with NUMA nodes"


class Numa:
    """The NUMA nodes of nodes, and free amounts in each."""

    def __init__(
        self, known: Callable[[], Mapping[int, Cells]], islands: Callable[[], Mapping[int, Cells]] = dict
    ) -> None:
        """Each is asked once, when a task comes that it matters to.

        Args:
            known: index of a node -> its NUMA nodes.
            islands: index of a node -> its islands of devices.
        """
        self._ask = known, islands
        self._cells: list[dict[int, Cells] | None] = [None, None]

    def _known(self, *, islands: bool = False) -> dict[int, Cells]:
        found = self._cells[islands]
        if found is None:
            found = self._cells[islands] = dict(self._ask[islands]())
        return found

    def room(self, task: Task, nodes: int) -> Ints | None:
        """See `Exact.room`."""
        if not task.aligned and not task.numa:
            return None
        room = self._by_policy(task, nodes)
        if task.devices_in:
            asks, together = asks_of(task.aligned), np.zeros(nodes, np.int64)
            for node, cells in self._known(islands=task.devices_in == Together.ISLAND).items():
                together[node] = cells.room_together(asks)
            room = np.minimum(room, together)
        return room

    def _by_policy(self, task: Task, nodes: int) -> Ints:
        asks = asks_of(task.aligned)
        room: Ints = np.zeros(nodes, np.int64) if task.numa else np.full(nodes, UNBOUNDED)
        for node, cells in self._known().items():
            if task.numa and (cells.policy != task.numa or CPU not in cells.resources):
                continue
            room[node] = cells.room(asks) if cells.policy.strict else UNBOUNDED
        return room

    def narrow(self, task: Task, nodes: int) -> Ints | None:
        """int64[N]: how many pods of the task get the fewest NUMA nodes that could ever hold their requests; None
        where it makes no difference.
        """
        if not task.aligned:
            return None
        asks = asks_of(task.aligned)
        found = {node: cells.room(asks, narrow=True) for node, cells in self._known().items() if cells.wants(asks)}
        if not found:
            return None
        room: Ints = np.full(nodes, UNBOUNDED)
        for node, count in found.items():
            room[node] = count
        return room

    def take(self, task: Task, node: int, count: int) -> None:
        """See `Exact.take`."""
        if task.aligned and (cells := self._known().get(node)) is not None:
            asks: Asks = asks_of(task.aligned)
            for _ in range(count):
                cells = cells.after(asks)
            self._known()[node] = cells
        if task.aligned and (cells := self._known(islands=True).get(node)) is not None:
            for _ in range(count):
                cells = cells.after(asks_of(task.aligned))
            self._known(islands=True)[node] = cells

    def copy(self) -> Numa:
        """See `Exact.copy`."""
        twin = Numa(*self._ask)
        twin._cells = [None if each is None else dict(each) for each in self._cells]
        return twin
