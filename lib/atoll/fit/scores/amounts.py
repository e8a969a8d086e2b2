"""What the terms of a scoring look at: amounts on some nodes, as they are before a pod is put there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from atoll.fit.placement import Ints
from atoll.fit.scores.fragmentation import Typical
from atoll.model import cards

WHOLE: Final = 10_000
"""The most that a term gives, and what 100 % is: hundredths of a percent, so that large nodes are not all alike."""
_NEVER_COUNTED = frozenset({"pods"})


@dataclass(frozen=True, slots=True)
class OfCards:
    """The GPUs of K nodes of which pods take shares."""

    typical: Typical
    free: Ints
    """int64[K, C]."""
    profile: Ints
    """int64[K]."""

    def at(self, columns: Ints | slice) -> OfCards:
        """Of these of the nodes."""
        return OfCards(self.typical, self.free[columns], self.profile[columns])

    def put(self, node: int, requests: Mapping[str, int], cpu: int) -> None:
        """A pod is put on one of the nodes, of which so much cpu is free then."""
        amount, _ = cards.asked(requests)
        if amount:
            taken = self.typical.chosen(
                requests, cpu + requests.get("cpu", 0), self.free[node], int(self.profile[node])
            )
            self.free[node, list(taken)] -= amount


@dataclass(frozen=True, slots=True)
class Amounts:
    """Of K nodes; arrays are int64[R, K], with the resources in their rows."""

    row: Mapping[str, int]
    free: Ints
    capacity: Ints
    """What the nodes offer; 0 where one has nothing of a resource."""
    measured: Ints | None = None
    """int64[2, K]: of cpu and memory the use when measured, and free amounts then, so that the
    difference to free amounts now is the use now; -1 for unknown. None without measurements.
    """

    cards: OfCards | None = None
    """None where no pod takes shares of GPUs, or it is not known what pods typically ask for."""

    @property
    def width(self) -> int:
        """K."""
        return int(self.free.shape[1])

    def one(self, node: int) -> Amounts:
        """Of one of the nodes."""
        at = slice(node, node + 1)
        measured = self.measured[:, at] if self.measured is not None else None
        cards = self.cards.at(at) if self.cards is not None else None
        return Amounts(self.row, self.free[:, at], self.capacity[:, at], measured, cards)

    def put(self, node: int, column: Ints, requests: Mapping[str, int], pods: int) -> None:
        """So many pods of these requests, int64[R] as a column, are put on one of the nodes; its arrays are changed."""
        self.free[:, node] -= column * pods
        if self.cards is not None:
            for _ in range(pods):
                self.cards.put(node, requests, int(self.free[self.row["cpu"], node]) if "cpu" in self.row else 0)

    @staticmethod
    def asked(requests: Mapping[str, int], weights: Mapping[str, int]) -> dict[str, int]:
        """Weights of the resources that a pod asks for: the configured ones, or each of them 1 where none has."""
        names = sorted(name for name, amount in requests.items() if amount > 0 and name not in _NEVER_COUNTED)
        return {name: weights.get(name, 0) if weights else 1 for name in names}

    def taken(self, name: str, requests: Mapping[str, int]) -> tuple[Ints, Ints]:
        """(part of what each node offers that is taken once a pod is there, 0 to `WHOLE`; 1 where it offers any)."""
        index = self.row.get(name)
        if index is None:
            none = np.zeros(self.width, np.int64)
            return none, none
        have = self.capacity[index]
        used = (have - self.free[index] + requests.get(name, 0)).clip(0, have)
        return used * WHOLE // np.maximum(have, 1), (have > 0).astype(np.int64)

    def mean(self, weights: Mapping[str, int], requests: Mapping[str, int]) -> Ints:
        """The weighted mean of `taken` over resources, among resources that a node offers; half where it has none."""
        total, of_all = np.zeros(self.width, np.int64), np.zeros(self.width, np.int64)
        for name, weight in weights.items():
            part, there = self.taken(name, requests)
            total += weight * there * part
            of_all += weight * there
        return np.where(of_all > 0, total // np.maximum(of_all, 1), WHOLE // 2)
