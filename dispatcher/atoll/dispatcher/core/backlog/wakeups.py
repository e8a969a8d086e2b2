"""Shapes that wait for more capacity in members, and which of them to look at when a member has more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from atoll.dispatcher.core.backlog.backlog import ShapeClass, Waiting
from atoll.dispatcher.core.backlog.blocked_shapes import BlockedShapes
from atoll.dispatcher.core.backlog.wake_index import MEMBERS, Cause, Trigger, WakeIndex, rows_of
from atoll.dispatcher.core.capacity.members import Members
from atoll.dispatcher.core.capacity.shape import Shape
from atoll.dispatcher.core.quota.queue import Queue
from atoll.dispatcher.core.quota.tree import Tree
from atoll.model.vector import Vector
from atoll.model.verdict import Verdict

_FEW = 16
"""Shapes that are woken at once; of more, each queue's first."""
_GREW = Trigger(Cause.ROW)


class Wakeups:
    """Shapes that no member could take."""

    def __init__(self, index: WakeIndex, tree: Tree, waiting: Waiting, members: Members) -> None:
        self._index, self._tree, self._waiting, self._members = index, tree, waiting, members
        #: shapes that a member's growth woke in this pass and that were not looked at yet -> column of a member that
        #: holds them, None where that is not known or takes several
        self.woken: dict[Shape, int | None] = {}
        #: shapes of one flavor that a single member must hold; the others sleep on their rows in the index
        self._blocked = BlockedShapes(members.table)
        #: member that grew -> whether it may hold a shape for which it grew; until all that this woke was looked at
        self._grown: dict[str, Callable[[Shape], bool]] = {}
        #: awake shape -> queues that have more such shapes after it
        self._turns: dict[Shape, list[Queue]] = {}

    def block(self, shape: Shape, capped: Queue | None = None) -> None:
        """It waits for more capacity in members, and with a queue for less use below that one; where it leaves its
        flavor open for either, anywhere.
        """
        self.woken.pop(shape, None)
        capped = self._tree.root if shape.others else capped
        ceiling = () if capped is None else (Trigger(Cause.CEILING, capped),)
        whole = not (shape.others or shape.divided)
        self._index.park(shape, self._wake, (*(() if whole else rows_of(shape)), *ceiling, MEMBERS))
        if whole:
            self._blocked.add(shape)

    def unblock(self, shape: Shape) -> None:
        """No workload waits for it any more."""
        self.woken.pop(shape, None)
        self._index.drop(shape)
        self._blocked.drop(shape)

    def _wake(self, shapes: list[Shape], trigger: Trigger) -> None:
        for shape in shapes:
            self.unblock(shape)
            if trigger.cause is Cause.ROW and not shape.others:
                self.woken[shape] = None
            self._waiting.wake_shape(shape.key)

    def members_grew(self) -> None:
        """Look again at the shapes for which members have more capacity, where that may be enough."""
        table = self._members.table
        # Of a pass that ended early some were not woken yet.
        grown = {name: np.ones(len(table.counts), np.bool_) for name in self._grown if table.knows(name)}
        grown |= table.take_grown()
        if not grown:
            return
        self._turns.clear()
        self._grown = {name: self._holder(name, rows) for name, rows in grown.items()}
        for name, rows in grown.items():
            self._index.member_grew(name, rows, self._grown[name])
        self._blocked.find(grown)
        if len(self._blocked.found) <= _FEW:
            self._wake([shape for shape in self._blocked.found.values() if self._may_be_held(shape)], _GREW)
            return
        # Capacity for one of them may be capacity for thousands: each has its turn once the one before was looked at.
        for line in self._waiting.short.values():
            line.at = None
        for leaf in self._waiting.short:
            self._wake_next(leaf)

    def looked_at(self, group: ShapeClass, touched: Sequence[str]) -> None:
        """A class was parked, or its first workload and others were dispatched to these members."""
        if touched:
            self._sleep_again(touched)
        turns = self._turns
        for shape in [*turns] if touched else [group.shape] if group.shape in turns else ():
            over = [leaf for leaf in turns[shape] if not self._waiting.may_go(leaf, shape.key)]
            turns[shape] = [leaf for leaf in turns[shape] if leaf not in over]
            if not turns[shape]:
                del turns[shape]
            for leaf in over:
                self._wake_next(leaf)

    def all_looked_at(self) -> None:
        """Nothing is awake any more."""
        self.woken.clear()
        self._grown.clear()
        self._turns.clear()
        self._blocked.forget_found()

    def asleep(self, shape: Shape) -> Verdict | None:
        """Why no member can take this shape, where others wait for that and nothing has changed since."""
        return None if shape.key in self._blocked.found else self._waiting.asleep(shape.key)

    def _wake_next(self, leaf: Queue) -> None:
        """Wake the next shape of the queue that a member may hold."""
        line, blocked = self._waiting.short.get(leaf), self._blocked
        narrowed = False
        while line is not None and (key := line.next(blocked.found)) is not None:
            shape = blocked.found[key]
            if self._may_be_held(shape):
                self._wake([shape], _GREW)
                self._turns.setdefault(shape, []).append(leaf)
                return
            if not narrowed:
                blocked.narrow(self._grown)
                narrowed = True

    def _may_be_held(self, shape: Shape) -> bool:
        return any(holds(shape) for holds in self._grown.values())

    def _sleep_again(self, touched: Iterable[str]) -> None:
        """Woken shapes whose capacity a dispatch to these members has used sleep again without another look
        at them.
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

    def _holder(self, name: str, grown: NDArray[np.bool_]) -> Callable[[Shape | ShapeClass], bool]:
        """Whether a member that has more capacity for these rows may hold something that asks for one of them: each
        task by itself, and of everything as much as all of them ask for.
        """
        table, nodes = self._members.table, self._members.by_name[name].nodes
        column = table.column(name)

        @cache
        def free() -> Vector:
            return dict(zip(nodes.resources, np.maximum(nodes.free, 0).sum(axis=1).tolist(), strict=True))

        def holds(item: Shape | ShapeClass) -> bool:
            shape = item if isinstance(item, Shape) else item.shape
            if shape.divided or any(holds(other) for other in shape.others):
                return True
            if not any(grown[row] for row in shape.rows):
                return False
            if any(table.counts[row, column] < least for row, least in zip(shape.rows, shape.floor, strict=True)):
                return False
            return len(shape.rows) == 1 or all(amount <= free().get(each, 0) for each, amount in shape.request.items())

        return holds
