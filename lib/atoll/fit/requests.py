"""What the pods of many shapes ask for, so that one operation says how many of each a node holds.

Shapes share amounts, for people write round numbers: each distinct amount of a resource is divided by once, and every
row picks its quotients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from atoll.fit.placement import MANY, Ints

_FEW = 64
"""Nodes that are computed in one operation, so that intermediate arrays stay small."""
_SPARE_LINES = 64


class Requests:
    """Rows of requests over these resources."""

    def __init__(self, resources: Sequence[str], height: int) -> None:
        self._index = {name: index for index, name in enumerate(resources)}
        #: (resource, amount) -> its line; line 0 belongs to resources without a request
        self._lines: dict[tuple[int, int], int] = {}
        #: int64[lines], int64[lines, 1]
        self._resource: Ints = np.zeros(1, np.int64)
        self._amount: Ints = np.ones((1, 1), np.int64)
        self._most = _SPARE_LINES
        #: int64[resources, rows]: the line of what a row asks of a resource
        self._picks: Ints = np.zeros((len(resources), height), np.int64)

    def make_higher(self, height: int) -> None:
        """Have so many rows; new ones ask for nothing."""
        more = np.zeros((len(self._picks), height - self._picks.shape[1]), np.int64)
        self._picks = np.concatenate([self._picks, more], axis=1)

    def set(self, row: int, wanted: Mapping[str, int]) -> None:
        """A row asks for these positive amounts; unknown resources don't count."""
        self._picks[:, row] = 0
        for name, amount in wanted.items():
            if name in self._index:
                self._picks[self._index[name], row] = self._line((self._index[name], amount))

    def asking(self, resources: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """bool[rows]: rows that ask for any of these bool[resources]."""
        asked: NDArray[np.bool_] = np.logical_or.reduce(self._picks[resources] > 0, axis=0)
        return asked

    def rooms(self, free: Ints) -> Ints:
        """int64[rows, K] for free int64[resources, K]: pods of every row that such nodes hold, at most MANY."""
        if free.shape[1] > _FEW:
            chunks = np.split(free, range(_FEW, free.shape[1], _FEW), axis=1)
            return np.concatenate([self.rooms(chunk) for chunk in chunks], axis=1)
        if not len(free):
            return np.full((self._picks.shape[1], free.shape[1]), MANY)
        # `take` rather than an index: this is the innermost operation of every decision.
        quotients = free.take(self._resource, axis=0)
        quotients //= self._amount
        quotients[0] = MANY
        rooms: Ints = np.minimum.reduce(quotients.take(self._picks, axis=0), initial=MANY)
        return np.maximum(rooms, 0, out=rooms)

    def _line(self, key: tuple[int, int]) -> int:
        line = self._lines.get(key)
        if line is None:
            if len(self._amount) > self._most:
                self._forget_unused()
            line = self._lines[key] = len(self._amount)
            self._resource = np.append(self._resource, key[0])
            self._amount = np.append(self._amount, [[key[1]]], axis=0)
        return line

    def _forget_unused(self) -> None:
        used = np.union1d([0], self._picks)
        self._picks = np.searchsorted(used, self._picks)
        self._resource, self._amount = self._resource[used], self._amount[used]
        keys = zip(self._resource.tolist(), self._amount[:, 0].tolist(), strict=True)
        self._lines = {key: line for line, key in enumerate(keys) if line}
        self._most = 2 * len(used) + _SPARE_LINES
