"""Shapes that wait for more capacity in members, and which of them to look at when a member has more."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

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
        for name, rows in self._members.take_grown():
            held = self._members.counts[:, self._members.column(name)].tolist()
            self._index.member_grew(name, rows, _Grown(held, self._members.by_name[name].nodes).enough)

    def sleep_again(self, touched: Iterable[str]) -> None:
        """Of what was woken, that for which a dispatch to these members took the room sleeps again without being looked
        at.
        """
        gone = {None, *(self._members.column(name) for name in touched)}
        shapes = [shape for shape, column in self.woken.items() if column in gone]
        if not shapes:
            return
        for shape, fits, column in zip(shapes, *self._members.may_fit(shapes), strict=True):
            if fits:
                self.woken[shape] = column if column >= 0 else None
            else:
                self._waiting.sleep_shape(shape.key)
                self.block(shape)


@dataclass(slots=True)
class _Grown:
    """A member that has more room than before."""

    held: list[int]
    """Pods of each row's task that it holds."""
    nodes: Nodes
    _free: Vector | None = None

    def enough(self, item: Shape | ShapeClass) -> bool:
        """Whether it may hold this: each task by itself, and of everything as much as all of them ask for."""
        return self._holds(item if isinstance(item, Shape) else item.shape)

    def _holds(self, shape: Shape) -> bool:
        if shape.divided or any(self._holds(other) for other in shape.others):
            return True
        if any(self.held[row] < least for row, least in zip(shape.rows, shape.floor, strict=True)):
            return False
        if len(shape.rows) == 1:
            return True
        if self._free is None:
            sums = np.maximum(self.nodes.free, 0).sum(axis=1).tolist()
            self._free = dict(zip(self.nodes.resources, sums, strict=True))
        return not any(amount > self._free.get(each, 0) for each, amount in shape.request.items())
