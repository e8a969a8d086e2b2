"""Shares of GPUs: what of each card of a node is free, for the free parts of two cards make no whole one."""

from __future__ import annotations

import numpy as np

from atoll.fit.placement import Ints
from atoll.model import cards
from atoll.model.gang import Task

REFUSAL = "node(s) didn't have enough free on one GPU"


class Cards:
    """Of all nodes; `free` is int64[N, C], 0 where a node has no such card."""

    def __init__(self, free: Ints, memory: Ints | None = None) -> None:
        """`free` is changed from now on; `memory` is int64[N], bytes of each card of a node, 0 for unknown."""
        self.free = free
        self._memory = np.zeros(len(free), np.int64) if memory is None else memory

    def room(self, task: Task, nodes: int) -> Ints | None:
        """See `Exact.room`."""
        amount, count = cards.asked(task.requests, 0)
        if not amount:
            return None
        if count > 1:
            whole: Ints = (self.free >= cards.CARD).sum(axis=1) // count
            return whole
        memories, of_node = np.unique(self._memory, return_inverse=True)
        amounts = np.array([cards.asked(task.requests, memory)[0] for memory in memories.tolist()], np.int64)
        shares: Ints = (self.free // amounts[of_node][:, None]).sum(axis=1)
        return shares

    def take(self, task: Task, node: int, count: int) -> None:
        """See `Exact.take`."""
        amount, number = cards.asked(task.requests, int(self._memory[node]))
        for _ in range(count if amount else 0):
            for card in cards.chosen(self.free[node].tolist(), amount, number):
                self.free[node, card] -= amount

    def copy(self) -> Cards:
        """See `Exact.copy`."""
        return Cards(self.free.copy(), self._memory)
