"""Devices of claims: a node holds as many pods as get all the devices that their claims ask for.

Kubernetes' plugin DynamicResources. Devices that several nodes reach count for each of them: who binds makes sure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from atoll.fit.placement import Ints
from atoll.model.devices import Taken
from atoll.model.gang import Task

REFUSAL = "cannot allocate all claims"
Json = dict[str, Any]


class Known(Protocol):
    """Devices of nodes, by name of the node."""

    def count(self, claims: Sequence[Json], node: str, taken: Taken) -> int:
        """Pods with these claims that get devices there."""

    def take(self, claims: Sequence[Json], node: str, taken: Taken, count: int) -> None:
        """Add the devices of so many pods to `taken`."""


class Devices:
    """Of all nodes."""

    def __init__(self, known: Known, names: Sequence[str], taken: Callable[[], Taken]) -> None:
        """`taken` gives held devices; it is asked each time, until pods are put on nodes here."""
        self._known, self._names, self._taken = known, names, taken
        #: with the devices of pods that were put on nodes here; None before
        self._own: Taken | None = None

    def room(self, task: Task, nodes: int) -> Ints | None:
        """See `Exact.room`."""
        if not task.claims:
            return None
        taken = self._own if self._own is not None else self._taken()
        return np.array([self._known.count(task.claims, name, taken) for name in self._names], np.int64)

    def take(self, task: Task, node: int, count: int) -> None:
        """See `Exact.take`."""
        if task.claims and count:
            if self._own is None:
                self._own = self._taken().copy()
            self._known.take(task.claims, self._names[node], self._own, count)

    def copy(self) -> Devices:
        """See `Exact.copy`."""
        twin = Devices(self._known, self._names, self._taken)
        twin._own = self._own.copy() if self._own is not None else None
        return twin
