"""A member's nodes as they would be if some pods went: changed node by node, and their pods of a gang with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import ge

import numpy as np

from atoll.fit.nodes import Nodes
from atoll.fit.placement import MANY, Ints
from atoll.model.gang import Gang
from atoll.model.topology import NO_DOMAIN
from atoll.model.vector import Vector

Pods = Sequence[tuple[int, Vector, int]]
"""(node index, requests of one pod, pods)."""


class Site:
    """One member that may take a gang, and the pods of each task that its nodes hold; only amounts of resources are
    looked at.

    A *cell* is a part of the member that may take the whole gang: all of it, or with a hard topology each domain of an
    allowed tier.
    """

    def __init__(self, nodes: Nodes, gang: Gang, room: Sequence[Ints], wanted: Sequence[int]) -> None:
        """Both are changed from now on.

        Args:
            nodes: a copy.
            gang: the gang to place.
            room: copies, per task int64[N] pods that each node holds.
            wanted: pods of each task that a cell is to hold; see `enough`.
        """
        self.nodes = nodes
        tasks = gang.tasks
        self.room = list(room)
        self.accepts = [nodes.accepting(task) for task in tasks]
        row = {name: index for index, name in enumerate(nodes.resources)}
        #: per task: (row, amount) of its requests; None where no node has it
        self.asks: list[list[tuple[int, int]] | None] = []
        for task in tasks:
            asked = [(name, amount) for name, amount in task.requests.items() if amount > 0]
            known = all(name in row for name, _ in asked)
            self.asks.append([(row[name], amount) for name, amount in asked] if known else None)
        #: per node, the cells that it is in
        self.cells_of, self.cells = _cells(nodes, gang)
        #: [cell][task] -> pods
        self.held: list[list[int]] = [[0] * len(tasks) for _ in range(self.cells)]
        self._wanted = tuple(wanted)
        #: cells that hold the wanted pods, each task by itself
        self.enough: set[int] = set()
        self.recount()

    def recount(self) -> None:
        """Sum up again what each cell holds."""
        sums = [cell_sums(self.cells_of, self.cells, each) for each in self.room]
        self.held = [[int(each[cell]) for each in sums] for cell in range(self.cells)]
        self.enough = {cell for cell in range(self.cells) if self._holds(cell)}

    def refill(self) -> None:
        """Count what all nodes hold again, after their free amounts were changed in bulk."""
        for task, (asks, accepts) in enumerate(zip(self.asks, self.accepts, strict=True)):
            if asks is not None:
                room = np.full(len(self.nodes), MANY)
                for row, amount in asks:
                    np.minimum(room, self.nodes.free[row] // amount, out=room)
                self.room[task] = np.where(accepts, np.maximum(room, 0), 0)
        self.recount()

    def room_of(self, task: int, free: Sequence[int]) -> int:
        """How many pods of a task such amounts hold."""
        asks = self.asks[task]
        if asks is None:
            return 0
        room = MANY
        for row, amount in asks:
            room = min(room, free[row] // amount)
        return max(room, 0)

    def change(self, node: int, request: Vector, pods: int) -> None:
        """Give capacity for so many pods of these requests back; a negative number takes it again."""
        self.nodes.free[:, node] += self.nodes.column(request) * pods
        free = self.nodes.free[:, node].tolist()
        for task, accepts in enumerate(self.accepts):
            if accepts[node]:
                room = self.room[task]
                now = self.room_of(task, free)
                if more := now - int(room[node]):
                    room[node] = now
                    for row in self.cells_of:
                        if (cell := int(row[node])) >= 0:
                            self.held[cell][task] += more
                            if self._holds(cell):
                                self.enough.add(cell)
                            else:
                                self.enough.discard(cell)

    def _holds(self, cell: int) -> bool:
        return all(map(ge, self.held[cell], self._wanted))


@contextmanager
def without(sites: Mapping[str, Site], parts: Iterable[Mapping[str, Pods]]) -> Iterator[None]:
    """Inside, all of these pods (member -> pods) have gone: quicker than one by one where they are many."""
    #: member -> requests of one pod -> (nodes, pods there)
    freed: dict[str, dict[tuple[tuple[str, int], ...], tuple[list[int], list[int]]]] = {}
    for part in parts:
        for member, pods in part.items():
            if member in sites:
                here = freed.setdefault(member, {})
                for node, request, count in pods:
                    nodes, counts = here.setdefault(tuple(request.items()), ([], []))
                    nodes.append(node)
                    counts.append(count)
    before = {name: (sites[name].nodes.free, list(sites[name].room)) for name in freed}
    for member, groups in freed.items():
        site = sites[member]
        site.nodes.free = site.nodes.free.copy()
        for items, (indices, counts) in groups.items():
            more = np.bincount(indices, counts, len(site.nodes)).astype(np.int64)[: len(site.nodes)]
            site.nodes.free += site.nodes.column(dict(items))[:, None] * more
        site.refill()
    try:
        yield
    finally:
        for name, (free, room) in before.items():
            site = sites[name]
            site.nodes.free, site.room = free, room
            site.recount()


def _cells(nodes: Nodes, gang: Gang) -> tuple[list[Ints], int]:
    """(per allowed tier int64[nodes] the cell of each node or -1, number of cells)."""
    nodes = nodes.seen_by(gang.network_topology)
    tree = nodes.tree
    levels = tree.levels(gang.network_topology)
    if levels is None:
        return [np.zeros(len(nodes), np.int64)], 1
    rows = [np.where(nodes.domain[level] == NO_DOMAIN, -1, nodes.domain[level]) for level in levels]
    return rows, len(tree.domains) if rows else 0


def cell_sums(rows: Sequence[Ints], cells: int, room: Ints) -> Ints:
    """int64[cells]: the sum of a figure per node over each cell."""
    sums = np.zeros(cells, np.int64)
    for row in rows:
        inside = row >= 0
        np.add.at(sums, row[inside], room[inside])
    return sums


def less(pods: Pods, gone: Pods) -> list[tuple[int, Vector, int]]:
    """Pods without the ones that went, which are among them."""
    left = []
    rest = list(gone)
    for node, request, count in pods:
        for index, (other, wanted, number) in enumerate(rest):
            if other == node and wanted == request and number and count:
                went = min(number, count)
                count -= went
                rest[index] = (other, wanted, number - went)
        if count:
            left.append((node, request, count))
    return left
