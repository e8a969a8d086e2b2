"""Who sleeps until when: the shapes and classes that wait for room, and what wakes them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from atoll.dispatcher.core.backlog.backlog import ShapeClass, Waiting
from atoll.dispatcher.core.capacity.members import Members
from atoll.dispatcher.core.capacity.shape import Shape
from atoll.dispatcher.core.quota.queue import Queue, path
from atoll.dispatcher.core.quota.tree import Tree
from atoll.model.vector import Vector
from atoll.model.verdict import Reason


class Hungry:
    """Running workloads that want more pods: those that may get some now, and what keeps the others from it."""

    def __init__(self) -> None:
        #: UIDs that are worth a look
        self.awake: dict[str, None] = {}
        #: what stops them (a queue, the name of a member, None for all else) -> UIDs
        self._parked: dict[Queue | str | None, dict[str, None]] = {}
        self._where: dict[str, Queue | str | None] = {}

    def add(self, uid: str) -> None:
        """It wants more, and may get it."""
        self.remove(uid)
        self.awake[uid] = None

    def remove(self, uid: str) -> None:
        """It wants no more, or can't be given any before it is seen again."""
        self.awake.pop(uid, None)
        if uid in self._where:
            place = self._where.pop(uid)
            del self._parked[place][uid]
            if not self._parked[place]:
                del self._parked[place]

    def park(self, uid: str, place: Queue | str | None) -> None:
        """Nothing for it until there is more of this."""
        self.remove(uid)
        self._where[uid] = place
        self._parked.setdefault(place, {})[uid] = None

    def wake(self, place: Queue | str | None) -> None:
        """There is more of this."""
        for uid in list(self._parked.get(place, ())):
            self.add(uid)

    def released(self, leaf: Queue) -> None:
        """A queue was given something back."""
        if self._parked:
            for queue in path(leaf):
                self.wake(queue)
            self.wake(None)

    def wake_all(self) -> None:
        """Anything may have changed."""
        for place in list(self._parked):
            self.wake(place)


class Wakeups:
    """What sleeps until there is more room, or another limit; whoever takes events in says what changed."""

    def __init__(self, tree: Tree, waiting: Waiting, world: Members, hungry: Hungry) -> None:
        self.tree, self.waiting, self.world = tree, waiting, world
        #: row of the world -> shapes that wait for room and use it; outermost queue with ceilings in members -> those
        #: that such ceilings stop
        self._blocked: dict[int | Queue, dict[Shape, None]] = {}
        #: shapes that were woken in this pass and not looked at yet -> column of a member that holds them, None where
        #: that is not known or takes several
        self.woken: dict[Shape, int | None] = {}
        #: classes that wait for a change of a Queue or of a namespace, or for room that is kept for others
        self.idle: dict[ShapeClass, None] = {}
        #: what runs with fewer pods than it asks for
        self.hungry = hungry

    def wake(self, shape: bytes) -> None:
        self.waiting.wake_shape(shape)

    def wake_grown(self) -> None:
        """Look again at the shapes for which members have more room, where that may be enough."""
        for name, rows in self.world.take_grown():
            self.hungry.wake(name)
            held = self.world.counts[:, self.world.column(name)].tolist()
            nodes = self.world.members[name].nodes
            free = dict(zip(nodes.resources, np.maximum(nodes.free, 0).sum(axis=1).tolist(), strict=True))

            def enough(shape: Shape, held: list[int] = held, free: Vector = free) -> bool:
                """Each task by itself, and of everything as much as all of them ask for."""
                if shape.divided or any(enough(other) for other in shape.others):
                    return True
                if any(held[row] < least for row, least in zip(shape.rows, shape.floor, strict=True)):
                    return False
                return len(shape.rows) == 1 or not any(
                    amount > free.get(each, 0) for each, amount in shape.request.items()
                )

            for row in sorted(rows & self._blocked.keys()):
                # A shape of several rows leaves all of them when the first is looked at.
                for shape in [shape for shape in self._blocked.get(row, ()) if enough(shape)]:
                    self.unblock(shape)
                    if not shape.others:
                        self.woken[shape] = None
                    self.wake(shape.key)
            # What would delay others elsewhere may not delay them there.
            for group in [group for group in self.idle if not rows.isdisjoint(group.shape.rows)]:
                if group.parked is not None and group.parked.reason is Reason.WOULD_DELAY and enough(group.shape):
                    del self.idle[group]
                    if group.members and group.lot is None:
                        self.waiting.refresh(group)

    def sleep_again(self, touched: Iterable[str]) -> None:
        """Of what was woken, that for which a dispatch to these members took the room sleeps again without being looked
        at.
        """
        gone = {None, *(self.world.column(name) for name in touched)}
        shapes = [shape for shape, column in self.woken.items() if column in gone]
        if not shapes:
            return
        for shape, fits, column in zip(shapes, *self.world.may_fit(shapes), strict=True):
            if fits:
                self.woken[shape] = column if column >= 0 else None
            else:
                self.waiting.sleep_shape(shape.key)
                self.block(shape)

    def wake_all(self) -> None:
        """Look at everything again that was blocked by members."""
        for shape in {shape: None for shapes in self._blocked.values() for shape in shapes}:
            self.wake(shape.key)
        self._blocked.clear()
        self.refresh_idle()

    def ceilings_eased(self, leaf: Queue) -> None:
        """The queue uses less: look again at what ceilings of the queues above it stopped, itself included."""
        for above in (capping(leaf), self.tree.root):
            for shape in list(self._blocked.get(above, ())) if above is not None else ():
                self.unblock(shape)
                self.wake(shape.key)

    def block(self, shape: Shape, capped: Queue | None = None) -> None:
        """It waits for more room in members, and with a queue for less use below that one; where it leaves its flavor
        open for either, anywhere.
        """
        capped = self.tree.root if shape.others else capped
        if shape.capped is not capped:
            self.unblock(shape)
            shape.capped = capped
        self.woken.pop(shape, None)
        for place in _lacking(shape):
            self._blocked.setdefault(place, {})[shape] = None

    def unblock(self, shape: Shape) -> None:
        self.woken.pop(shape, None)
        for place in _lacking(shape):
            shapes = self._blocked.get(place)
            if shapes is not None:
                shapes.pop(shape, None)
                if not shapes:
                    del self._blocked[place]

    def refresh_idle(self) -> None:
        self.hungry.wake(None)
        idle, self.idle = self.idle, {}
        for group in idle:
            if group.members and group.lot is None:
                self.waiting.refresh(group)


def capping(leaf: Queue) -> Queue | None:
    """The outermost queue on the path that has ceilings in members; None without one."""
    above = None
    for queue in path(leaf):
        if queue.tracks:
            above = queue
    return above


def _lacking(shape: Shape) -> tuple[int | Queue, ...]:
    rows = shape.rows + tuple(row for other in shape.others for row in other.rows)
    return rows if shape.capped is None else (*rows, shape.capped)
