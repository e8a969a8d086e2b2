"""Shares of GPUs: what of each card of a node is free, for the free parts of two cards make no whole one.

On nodes with a `Device` of Koordinator whole GPUs under their vendors' names are cards as well, and NICs and FPGAs go
with them (`atoll.fit.koordinator`); on nodes that HAMi manages, whole GPUs and parts of several under its names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from atoll.fit import koordinator
from atoll.fit.koordinator import Node, Reported, Taken
from atoll.fit.placement import UNBOUNDED, Ints
from atoll.model import cards, hami
from atoll.model.gang import DeviceWish, Task
from atoll.model.hami import Gpus
from atoll.model.koordinator import counted
from atoll.model.numa import Cells, asks_of

_MOST_KNOWN = 20_000
_MOST_PODS = 1000
"""On a node that HAMi manages, of one task."""
_ANY = DeviceWish()
_NOTHING = Reported({}, 0)
REFUSAL = "node(s) didn't have enough free on one GPU"


class Cards:
    """Of all nodes; `free` is int64[N, C], 0 where a node has no such card."""

    def __init__(
        self,
        free: Ints,
        memory: Ints | None = None,
        reported: Mapping[int, Reported] | None = None,
        taken: dict[int, Taken] | None = None,
        known: dict[object, int] | None = None,
        cells: Callable[[int], Cells | None] = lambda _: None,
        registered: Mapping[int, Gpus] | None = None,
    ) -> None:
        """The first ones are changed from now on.

        Args:
            free: of each card.
            memory: int64[N], bytes of each card of a node, 0 for unknown.
            reported: index of a node -> what Koordinator reports of it.
            taken: index of a node -> what of its devices that are no GPUs is taken.
            known: how many pods fit on nodes that are alike, kept from one use to the next.
            cells: index of a node -> its NUMA nodes; None where nothing tells of them.
            registered: index of a node -> GPUs that HAMi registers there.
        """
        self.free = free
        self._memory = np.zeros(len(free), np.int64) if memory is None else memory
        self._reported, self.taken = reported or {}, taken if taken is not None else {}
        self._known = known if known is not None else {}
        self.cells = cells
        #: node -> its NUMA nodes once pods were put there
        self._cells: dict[int, Cells] = {}
        #: nodes that give whole GPUs by partition alone, so that their number does not say which pods fit
        self.by_partition = [at for at, each in self._reported.items() if each.partitions.honoured]
        self._registered = registered or {}

    @property
    def one_by_one(self) -> bool:
        """Whether some node has whole GPUs of which the number does not say which pods fit."""
        return bool(self.by_partition or self._registered)

    def room(self, task: Task, nodes: int) -> Ints | None:
        """See `Exact.room`."""
        if task.joint is not None:
            return self._one_by_one(task, np.zeros(nodes, np.int64), self._reported)
        room = self._any_room(task, nodes)
        if room is None or cards.asked(counted(task.requests), 0)[0] != cards.CARD:
            return room
        aligned = [at for at in self._reported if self._numa(at) is not None] if task.aligned else []
        return self._one_by_one(task, room, {*self.by_partition, *aligned})

    def _any_room(self, task: Task, nodes: int) -> Ints | None:
        amount, count = cards.asked(task.requests, 0)
        if not amount:
            return self._whole_room(task, nodes)
        if count > 1:
            whole: Ints = (self.free >= cards.CARD).sum(axis=1) // count
            return whole
        memories, of_node = np.unique(self._memory, return_inverse=True)
        amounts = np.array([cards.asked(task.requests, memory)[0] for memory in memories.tolist()], np.int64)
        shares: Ints = (self.free // amounts[of_node][:, None]).sum(axis=1)
        return shares

    def take(self, task: Task, node: int, count: int) -> None:
        """See `Exact.take`."""
        if (registered := self._registered.get(node)) is not None:
            amount, number = hami.asked(task.requests, registered)
        else:
            requests = counted(task.requests) if node in self._reported else task.requests
            amount, number = cards.asked(requests, int(self._memory[node]))
        wish = task.joint
        if wish is None and amount == cards.CARD and node in self._reported:
            wish = _ANY
        asks = asks_of(task.aligned) if node in self._reported else ()
        for _ in range(count if amount or wish is not None or asks else 0):
            there = self._node(node)
            if wish is not None:
                found = koordinator.find(there, task.requests, wish, asks)
                gpus, others = ((), ()) if isinstance(found, str) else found
            else:
                gpus, others = (cards.chosen(there.free, amount, number) if amount else ()), ()
            self.free[node, list(gpus)] -= amount
            koordinator.hold(there.taken, others)
            if asks and there.cells is not None:
                self._cells[node] = there.cells.after(asks)

    def copy(self) -> Cards:
        """See `Exact.copy`."""
        taken = {node: each.copy() for node, each in self.taken.items()}
        twin = Cards(self.free.copy(), self._memory, self._reported, taken, self._known, self.cells, self._registered)
        twin._cells = dict(self._cells)
        return twin

    def _numa(self, node: int) -> Cells | None:
        return self._cells[node] if node in self._cells else self.cells(node)

    def _node(self, node: int) -> Node:
        taken = self.taken.setdefault(node, Taken())
        devices, _, partitions = self._reported.get(node, _NOTHING)
        return Node(devices, self.free[node].tolist(), taken, int(self._memory[node]), partitions, self._numa(node))

    def _one_by_one(self, task: Task, room: Ints, nodes: Iterable[int]) -> Ints:
        """The same, changed on these nodes to the pods that get devices there one after the other."""
        wish, asks = task.joint or _ANY, asks_of(task.aligned)
        asked = tuple(sorted(task.requests.items())), repr(wish), asks
        if len(self._known) > _MOST_KNOWN:
            self._known.clear()
        for node in nodes:
            there = self._node(node)
            cells = there.cells if asks else None
            kind, taken = self._reported[node].kind, frozenset((+there.taken).items())
            alike = (*asked, kind, *there.free, there.memory, taken, cells)
            if alike not in self._known:
                self._known[alike] = koordinator.count(there, task.requests, wish, asks)
            room[node] = self._known[alike]
        return room

    def _whole_room(self, task: Task, nodes: int) -> Ints | None:
        """Of whole GPUs under the name of their vendor."""
        count = cards.asked(counted(task.requests), 0)[1]
        if not count or not (self._reported or self._registered):
            return None
        room: Ints = np.full(nodes, UNBOUNDED)
        ours = list(self._reported)
        room[ours] = (self.free[ours] >= cards.CARD).sum(axis=1) // count
        known: dict[object, int] = {}
        for node, gpus in self._registered.items():
            asked, free = hami.asked(task.requests, gpus), self.free[node]
            alike = (*asked, free.tobytes())
            if alike not in known:
                known[alike] = _pods(free.tolist(), *asked)
            room[node] = known[alike]
        return room


def _pods(free: list[int], amount: int, count: int) -> int:
    """How many pods get so much of `count` cards each, one after the other as `take` gives them."""
    if not amount:
        return 0
    if count == 1:
        return sum(each // amount for each in free)
    pods = 0
    while pods < _MOST_PODS and (which := cards.chosen(free, amount, count)):
        pods += 1
        for card in which:
            free[card] -= amount
    return pods
