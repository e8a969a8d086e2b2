"""Shapes that wait for capacity of members, as arrays: one comparison finds all that a member may hold by now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from atoll.dispatcher.core.capacity.fit_table import FitTable
from atoll.dispatcher.core.capacity.shape import Shape

_FIRST = 64
_NEVER = np.iinfo(np.int64).max
"""More pods than any member holds: the floor of a vacant slot."""


class BlockedShapes:
    """Enrolled shapes, each in a slot of the arrays."""

    def __init__(self, table: FitTable) -> None:
        self._table = table
        self._slots: dict[bytes, int] = {}
        self._shapes: list[Shape | None] = [None] * _FIRST
        self._vacant = [*range(_FIRST)]
        #: int64[slots]: the row of a task that no member holds, else of the first, and the task's minimum
        self._rows, self._floors = np.zeros(_FIRST, np.int64), np.full(_FIRST, _NEVER)
        #: bool[slots]: shapes of several tasks
        self._several = np.zeros(_FIRST, np.bool_)
        #: bool[slots]: in `found`
        self._in_found = np.zeros(_FIRST, np.bool_)
        #: key -> shape, blocked before a member grew that may hold it now
        self.found: dict[bytes, Shape] = {}

    def add(self, shape: Shape) -> None:
        """It waits from now on."""
        slot = self._slots.get(shape.key)
        if slot is None:
            if not self._vacant:
                self._widen()
            slot = self._slots[shape.key] = self._vacant.pop()
            self._shapes[slot] = shape
        task = 0
        if several := len(shape.rows) > 1:
            counts = self._table.counts[list(shape.rows)] * self._table.ready
            task = int((counts >= np.array(shape.floor)[:, None]).any(axis=1).argmin())
        self._rows[slot], self._floors[slot], self._several[slot] = shape.rows[task], shape.floor[task], several
        self._forget(slot, shape)

    def drop(self, shape: Shape) -> None:
        """It waits no longer, if it did."""
        slot = self._slots.pop(shape.key, None)
        if slot is not None:
            self._shapes[slot], self._floors[slot] = None, _NEVER
            self._vacant.append(slot)
            self._forget(slot, shape)

    def find(self, grown: Mapping[str, NDArray[np.bool_]]) -> None:
        """Fill `found` with shapes for which these members have more capacity, as far as one row tells.

        grown: member -> bool[rows]
        """
        self._in_found[:] = False
        for rows in grown.values():
            self._in_found |= self._several | rows[self._rows]
        self.narrow(grown)

    def narrow(self, members: Iterable[str]) -> None:
        """Keep in `found` the shapes that one of these members may still hold."""
        fits = np.zeros_like(self._in_found)
        for name in members:
            fits |= self._table.counts[self._rows, self._table.column(name)] >= self._floors
        self._in_found &= fits
        shapes = [self._shapes[slot] for slot in np.flatnonzero(self._in_found).tolist()]
        self.found = {shape.key: shape for shape in shapes if shape is not None}

    def forget_found(self) -> None:
        """All that was found was looked at."""
        if self.found:
            self._in_found[:], self.found = False, {}

    def _forget(self, slot: int, shape: Shape) -> None:
        self._in_found[slot] = False
        self.found.pop(shape.key, None)

    def _widen(self) -> None:
        size = len(self._shapes)
        self._vacant += range(size, 2 * size)
        self._shapes += [None] * size
        self._floors = np.concatenate((self._floors, np.full(size, _NEVER)))
        self._rows = np.concatenate((self._rows, np.zeros(size, np.int64)))
        self._several, self._in_found = (
            np.concatenate((each, np.zeros(size, np.bool_))) for each in (self._several, self._in_found)
        )
