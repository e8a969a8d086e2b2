"""Shares of GPUs: what of each card of a node is free, for the free parts of two cards make no whole one."""

from __future__ import annotations

from atoll.fit.placement import Ints
from atoll.model import cards
from atoll.model.gang import Task

REFUSAL = "node(s) didn't have enough free on one GPU"


class Cards:
    """Of all nodes; `free` is int64[N, C], 0 where a node has no such card."""

    def __init__(self, free: Ints) -> None:
        """`free` is changed from now on."""
        self.free = free

    def room(self, task: Task, nodes: int) -> Ints | None:
        """See `Exact.room`."""
        amount, count = cards.asked(task.requests)
        if not amount:
            return None
        if count > 1 or amount == cards.CARD:
            whole: Ints = (self.free >= cards.CARD).sum(axis=1) // count
            return whole
        shares: Ints = (self.free // amount).sum(axis=1)
        return shares

    def take(self, task: Task, node: int, count: int) -> None:
        """See `Exact.take`."""
        amount, number = cards.asked(task.requests)
        for _ in range(count if amount else 0):
            for card in cards.chosen(self.free[node].tolist(), amount, number):
                self.free[node, card] -= amount

    def copy(self) -> Cards:
        """See `Exact.copy`."""
        return Cards(self.free.copy())
