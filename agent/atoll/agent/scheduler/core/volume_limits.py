"""Volumes that each node can attach, by driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping

from atoll.fit.constraints import Attachments, Exact


class VolumeLimits:
    """Begins without limits."""

    def __init__(self) -> None:
        #: node -> driver -> volumes that it can attach; of nodes with limits
        self._limits: dict[str, dict[str, int]] = {}
        #: gives (node, driver, handle) of the volumes of pods on nodes, but for pods of some keys
        self.attached: Callable[[Collection[str]], Iterable[tuple[str, str, str]]] = lambda _: ()

    def __bool__(self) -> bool:
        return bool(self._limits)

    def change(self, node: str, limits: dict[str, int]) -> bool:
        """A node can attach so many volumes of these drivers, and any number of others. True if that is new."""
        if self._limits.get(node, {}) == limits:
            return False
        self._limits.pop(node, None)
        if limits:
            self._limits[node] = limits
        return True

    def limits(self, driver: str) -> bool:
        """True if some node has a limit for this driver."""
        return any(driver in each for each in self._limits.values())

    def exact(self, columns: Mapping[str, int], away: Collection[str]) -> tuple[Exact, ...]:
        """The constraint of arrays with these columns, without pods of the keys `away`; none without limits."""
        if not self._limits:
            return ()

        def left() -> tuple[dict[int, dict[str, int]], dict[int, set[tuple[str, str]]]]:
            there: dict[str, set[tuple[str, str]]] = {}
            for node, driver, handle in self.attached(away):
                there.setdefault(node, set()).add((driver, handle))
            found: dict[int, dict[str, int]] = {}
            for node, limits in self._limits.items():
                if node in columns:
                    used = Counter(driver for driver, _ in there.get(node, ()))
                    found[columns[node]] = {driver: most - used[driver] for driver, most in limits.items()}
            return found, {columns[node]: each for node, each in there.items() if node in columns}

        return (Attachments(left),)
