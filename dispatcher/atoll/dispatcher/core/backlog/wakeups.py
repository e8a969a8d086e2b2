"""Shapes that wait for more capacity in members, and which of them to look at when a member has more."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

import numpy as np

from atoll.dispatcher.core.backlog.backlog import ShapeClass, Waiting
from atoll.dispatcher.core.backlog.wake_index import MEMBERS, Cause, Trigger, WakeIndex, rows_of
from atoll.dispatcher.core.capacity.members import Members
from atoll.dispatcher.core.capacity.shape import Shape
from atoll.dispatcher.core.quota.queue import Queue
from atoll.dispatcher.core.quota.tree import Tree
from atoll.fit import Nodes
from atoll.model.vector import Vector


class Wakeups:
    """What was looked for in members in vain."""

    def __init__(self, index: WakeIndex, tree: Tree, waiting: Waiting, members: Members) -> None:
        self._index, self._tree, self._waiting, self._members = index, tree, waiting, members
        #: shapes that a member's growth woke in this pass and that were not looked at yet -> column of a member that
        #: holds them, None where that is not known or takes several
        self.woken: dict[Shape, int | None] = {}

    def block(self, shape: Shape, capped: Queue | None = None) -> None:
        """It waits for more room in members, and with a queue for less use below that one; where it leaves its flavor
        open for either, anywhere.
        """
        self.woken.pop(shape, None)
        capped = self._tree.root if shape.others else capped
        ceiling = () if capped is None else (Trigger(Cause.CEILING, capped),)
        self._index.park(shape, self._wake, (*rows_of(shape), *ceiling, MEMBERS))

    def unblock(self, shape: Shape) -> None:
        """No workload waits for it any more."""
        self.woken.pop(shape, None)
        self._index.drop(shape)

    def _wake(self, shapes: list[Shape], trigger: Trigger) -> None:
        for shape in shapes:
            self.unblock(shape)
            if trigger.cause is Cause.ROW and not shape.others:
                self.woken[shape] = None
            self._waiting.wake_shape(shape.key)

    def members_grew(self) -> None:
        """Look again at the shapes for which members have more room, where that may be enough."""
        for name, rows in self._members.table.take_grown():
            held = self._members.table.counts[:, self._members.table.column(name)].tolist()
            self._index.member_grew(name, rows, _holder(held, self._members.by_name[name].nodes))

    def sleep_again(self, touched: Iterable[str]) -> None:
        """Of what was woken, that for which a dispatch to these members took the room sleeps again without being looked
        at.
        """
        gone = {None, *(self._members.table.column(name) for name in touched)}
        shapes = [shape for shape, column in self.woken.items() if column in gone]
        if not shapes:
            return
        for shape, fits, column in zip(shapes, *self._members.table.may_fit(shapes), strict=True):
            if fits:
                self.woken[shape] = column if column >= 0 else None
            else:
                self._waiting.sleep_shape(shape.key)
                self.block(shape)


def _holder(held: list[int], nodes: Nodes) -> Callable[[Shape | ShapeClass], bool]:
    """Whether a member may hold something: each task by itself, and of everything as much as all of them ask for.

    `held`: pods of each row's task that it holds.
    """

    @cache
    def free() -> Vector:
        return dict(zip(nodes.resources, np.maximum(nodes.free, 0).sum(axis=1).tolist(), strict=True))

    def holds(item: Shape | ShapeClass) -> bool:
        shape = item if isinstance(item, Shape) else item.shape
        if shape.divided or any(holds(other) for other in shape.others):
            return True
        if any(held[row] < least for row, least in zip(shape.rows, shape.floor, strict=True)):
            return False
        return len(shape.rows) == 1 or all(amount <= free().get(each, 0) for each, amount in shape.request.items())

    return holds
