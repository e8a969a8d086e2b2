"""Index of sleeping owners by wake cause: the one place in which anything of the core waits for a change.

The author of a change reports it (`fire`) and needs not know the sleepers; sleeping costs nothing
until then. An entry stays until its owner, called by a trigger, parks it elsewhere or drops it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from atoll.dispatcher.core.capacity.shape import Shape
from atoll.dispatcher.core.quota.queue import Queue, path


class Cause(IntEnum):
    """Causes of waking; in brackets the name in a trigger."""

    FELL = 1
    """The use of a queue fell, or its limits rose (the queue)."""
    LEFT = 2
    """What a queue has left is more or less than before (the queue)."""
    CEILING = 3
    """A queue uses less in members, as far as its ceilings and those below it go (the outermost queue with one)."""
    ROW = 4
    """A member has more capacity for a kind of pod (its row of the fit table)."""
    MEMBER = 5
    """A member has more capacity (its name)."""
    MEMBERS = 6
    """A member came, went, is another one, or may be tried again."""
    KEPT = 7
    """Other capacity is reserved than before, or a queue was given something back."""
    SETTINGS = 8
    """A queue or a namespace was changed, or what members accept."""
    NAMESPACE = 9
    """What a namespace has left of its quotas is more than before, or its quotas are others (its name)."""
    TIME = 10
    """A time has come (seconds since the epoch)."""


class Trigger(NamedTuple):
    """What something sleeps on."""

    cause: Cause
    what: Queue | str | float | None = None


MEMBERS, KEPT, SETTINGS = Trigger(Cause.MEMBERS), Trigger(Cause.KEPT), Trigger(Cause.SETTINGS)

Owner = Callable[[list[Any], Trigger], None]
"""Called with its entries that may be awake now, in the order of parking."""
_SLACK = 64
"""Times at which nothing sleeps any more, beside as many as there are: a core that follows lets none pass."""


class WakeIndex:
    """Who sleeps on what."""

    def __init__(self) -> None:
        #: cause -> name in a trigger -> owner -> its entries there; most changes wake nothing, which shows
        #: here
        self._at: dict[Cause, dict[Any, dict[Owner, dict[Hashable, None]]]] = {cause: {} for cause in Cause}
        #: what sleeps -> its owner, and all that it sleeps on
        self._of: dict[Hashable, tuple[Owner, tuple[Trigger, ...]]] = {}
        #: times that something slept on once
        self._times: list[float] = []

    def __contains__(self, item: Hashable) -> bool:
        return item in self._of

    def __len__(self) -> int:
        return len(self._of)

    def park(self, item: Hashable, owner: Owner, triggers: tuple[Trigger, ...]) -> None:
        """It sleeps on these, and on nothing else, until it is dropped."""
        entry, known = (owner, triggers), self._of.get(item)
        if known is not None:
            if known == entry:
                return
            self.drop(item)
        self._of[item] = entry
        for trigger in triggers:
            self._at[trigger.cause].setdefault(trigger.what, {}).setdefault(owner, {})[item] = None
            if isinstance(trigger.what, float):
                heapq.heappush(self._times, trigger.what)
                if len(self._times) > 2 * len(self._at[Cause.TIME]) + _SLACK:
                    self._times = sorted(self._at[Cause.TIME])

    def drop(self, item: Hashable) -> None:
        """It sleeps no more, if it did."""
        if item not in self._of:
            return
        owner, triggers = self._of.pop(item)
        for cause, what in triggers:
            owners = self._at[cause][what]
            del owners[owner][item]
            if not owners[owner]:
                del owners[owner]
                if not owners:
                    del self._at[cause][what]

    def fire(self, trigger: Trigger, enough: Callable[[Any], bool] | None = None) -> None:
        """Tell the owners of what sleeps on this, where it is enough for it."""
        for owner, items in list(self._at[trigger.cause].get(trigger.what, {}).items()):
            woken = list(items) if enough is None else [item for item in items if enough(item)]
            if woken:
                owner(woken, trigger)

    def _fire_each(self, cause: Cause, each: Iterable[Queue]) -> None:
        if known := self._at[cause]:
            for what in each:
                if what in known:
                    self.fire(Trigger(cause, what))

    # -- what changed ------------------------------------------------------------------------------------------------

    def use_changed(self, leaf: Queue) -> None:
        """A queue was charged, or given something back: it and those above it have other amounts left."""
        known = self._at[Cause.LEFT]
        # Each decision comes by here, and most wake nothing.
        queue: Queue | None = leaf if known else None
        while queue is not None:
            if queue in known:
                self.fire(Trigger(Cause.LEFT, queue))
            queue = queue.parent

    def use_fell(self, leaf: Queue) -> None:
        """A queue was given something back."""
        self._ceilings_eased(leaf)
        self.fire(KEPT)
        self._fire_each(Cause.FELL, path(leaf))

    def limits_changed(self, queue: Queue) -> None:
        """The limits of a queue are others."""
        # Its guarantee is not available to its siblings.
        self._fire_each(Cause.LEFT, (queue,) if queue.parent is None else (queue, queue.parent))
        self._ceilings_eased(queue)
        self._fire_each(Cause.FELL, (queue,))

    def _ceilings_eased(self, leaf: Queue) -> None:
        if self._at[Cause.CEILING]:
            *_, root = path(leaf)
            self._fire_each(Cause.CEILING, [queue for queue in (capping(leaf), root) if queue is not None])

    def member_grew(self, name: str, rows: NDArray[np.bool_], enough: Callable[[Any], bool]) -> None:
        """A member has more capacity, for pods of these rows perhaps: bool[rows]."""
        self.fire(Trigger(Cause.MEMBER, name))
        for row in sorted(row for row in self._at[Cause.ROW] if rows[row]):
            self.fire(Trigger(Cause.ROW, row), enough)

    def time_passed(self, now: float) -> None:
        """Those times have come that are not after this one."""
        while (when := self.next_time) is not None and when <= now:
            heapq.heappop(self._times)
            self.fire(Trigger(Cause.TIME, when))

    @property
    def next_time(self) -> float | None:
        """The earliest time that something sleeps on."""
        while self._times and self._times[0] not in self._at[Cause.TIME]:
            heapq.heappop(self._times)
        return self._times[0] if self._times else None


def rows_of(shape: Shape) -> tuple[Trigger, ...]:
    """More capacity for any of its tasks, in any flavor; the shape is enrolled."""
    if not shape.wakers:
        rows = [row for each in (shape, *shape.others) for row in each.rows]
        shape.wakers = tuple(Trigger(Cause.ROW, row) for row in dict.fromkeys(rows))
    return shape.wakers


def capping(leaf: Queue) -> Queue | None:
    """The outermost queue on the path that has ceilings in members; None without one."""
    above: Queue | None = None
    queue: Queue | None = leaf
    while queue is not None:
        above, queue = queue if queue.tracks else above, queue.parent
    return above
