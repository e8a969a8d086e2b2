"""Which card of which node each pod has a share of.

A pod that Atoll's placer binds gets the cards as annotation `atoll.sh/gpu-cards` with its binding, for the device
plug-in and for the next agent; of others that ask for shares they are guessed, as the same rule would have chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from atoll.fit.placement import Ints
from atoll.model import cards
from atoll.model.hami import Gpus

Choose = Callable[[str, Sequence[int]], tuple[int, ...]]
"""(node, free thousandths of each of its cards) -> the cards that are taken; empty where they don't fit."""
_Taken = tuple[str, int, tuple[int, ...]]
"""(node, thousandths of each card, cards)."""


@dataclass
class CardBook:
    """Of all nodes that have such cards."""

    #: node -> cards
    _numbers: dict[str, int] = field(default_factory=dict)
    #: node -> bytes of each card, where they are known
    _memory: dict[str, int] = field(default_factory=dict)
    #: node -> cards that pods may take, where not all of them may be
    _usable: dict[str, frozenset[int]] = field(default_factory=dict)
    #: node -> thousandths that are taken of each card; of nodes of which some are
    _taken: dict[str, list[int]] = field(default_factory=dict)
    #: node -> GPUs that HAMi registers there and pods may have; its cards have their numbers
    hami: dict[str, Gpus] = field(default_factory=dict)
    #: pod key -> its cards
    _of_pods: dict[str, _Taken] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self._numbers)

    def offers(self, node: str, offered: Mapping[str, int] | None, usable: Collection[int] = ()) -> None:
        """A node offers this; None for one that is gone.

        Args:
            node: its name.
            offered: there.
            usable: cards that pods may take; empty for all.
        """
        self._forget(node)
        if offered is not None and (number := cards.number(offered)):
            self._numbers[node] = max(usable, default=number - 1) + 1
            self._memory[node] = cards.memory(offered)
            if usable:
                self._usable[node] = frozenset(usable)

    def _forget(self, node: str) -> None:
        for known in (self._numbers, self._memory, self._usable):
            known.pop(node, None)

    def free(self, node: str) -> list[int]:
        """Thousandths of each card."""
        taken, count = self._taken.get(node, []), self._numbers.get(node, 0)
        usable = self._usable.get(node, range(count))
        return [
            max(0, cards.CARD - (taken[card] if card < len(taken) else 0)) if card in usable else 0
            for card in range(count)
        ]

    def memory(self, node: str) -> int:
        """Bytes of each card; 0 where they are not known."""
        return self._memory.get(node, 0)

    def matrix(self, nodes: Sequence[str]) -> Ints:
        """int64[N, C], 0 where a node has no such card."""
        width = max(self._numbers.values(), default=0)
        found: Ints = np.zeros((len(nodes), width), np.int64)
        for row, node in enumerate(nodes):
            if number := self._numbers.get(node, 0):
                found[row, :number] = self.free(node)
        return found

    def put(self, key: str, node: str, asked: tuple[int, int], told: tuple[int, ...], choose: Choose) -> None:
        """A pod that asks for (thousandths of each card, cards) is on a node, on the reported or on chosen ones."""
        amount, count = asked
        if not amount:
            return
        found = told if len(told) == count else choose(node, self.free(node))
        self._of_pods[key] = node, amount, found
        self._take(node, found, amount)

    def drop(self, key: str) -> None:
        """The pod has gone."""
        if (found := self._of_pods.pop(key, None)) is not None:
            self._take(found[0], found[2], -found[1])

    def of(self, key: str) -> tuple[int, tuple[int, ...]]:
        """(thousandths of each card, cards) of a pod; no cards for none."""
        _, amount, found = self._of_pods.get(key, ("", 0, ()))
        return amount, found

    def _take(self, node: str, which: Sequence[int], amount: int) -> None:
        taken = self._taken.setdefault(node, [])
        taken += [0] * (max(which, default=-1) + 1 - len(taken))
        for card in which:
            taken[card] += amount
        if not any(taken):
            del self._taken[node]
