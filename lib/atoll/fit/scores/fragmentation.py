"""GPUs that no pod can use are lost: the less of a node becomes that by a pod, the better.

Fragmentation gradient descent (Weng et al., USENIX ATC 2023). Of the pods that the member typically gets, `F(node)` is
the part of its free GPUs that a pod can't use, averaged over these pods: all of them where the pod does not fit
there, or asks for no GPU; else free parts of cards that have less than its request for one. With
`d = F(before) - F(after)` in thousandths of a card, of the best card for a share,

`fragmentation = 5000 + 5000 * d / (1000 + |d|)`

rounded down to steps of 200, so that a node that loses nothing gives 5000.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from atoll.fit.constraints.profile import Profile
from atoll.fit.placement import Ints
from atoll.model import cards
from atoll.model.gang import Task

_POPULAR: Final = 95
"""Percent of pods whose shapes are looked at, the most frequent first."""
_MOST_SHAPES: Final = 512
_GREW: Final = 8
"""Shapes are weighed anew once an eighth more pods have been seen."""
_MOST_KNOWN: Final = 200_000
_CHUNK: Final = 256
_HALF: Final = 5000
_STEP: Final = 200
"""Finer differences say less than the gap that is left: openb ends with 93.4 % instead of 94.3 % without the steps."""
_NEVER: Final = -(2**62)


@dataclass(slots=True)
class Typical:
    """Typical requests of a member's pods with their frequencies, and results computed from them."""

    #: request -> (a task that asks for it, pods)
    _shapes: dict[tuple[object, ...], tuple[Task, int]] = field(default_factory=dict)
    _seen: int = 0
    #: pods that had been seen when the weights were made; 0 for never
    _weighed: int = 0
    _tasks: list[Task] = field(default_factory=list)
    _counts: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    #: (shape of the pod, state of a node) -> (score, card); emptied with the weights
    _known: dict[tuple[object, ...], tuple[int, int]] = field(default_factory=dict)
    #: names the profiles that `_allowed` was made for
    _profiles: Sequence[Profile] = ()
    _allowed: NDArray[np.bool_] = field(default_factory=lambda: np.zeros((0, 0), np.bool_))

    def see(self, task: Task, pods: int = 1) -> None:
        """So many more pods of a task came."""
        key = (
            task.requests.get("cpu", 0),
            task.requests.get(cards.SHARE, 0),
            repr((task.node_selector, task.node_terms)),
        )
        known = self._shapes.get(key)
        if known is None and len(self._shapes) >= _MOST_SHAPES:
            rarest = min(self._shapes, key=lambda each: self._shapes[each][1])
            self._seen -= self._shapes.pop(rarest)[1]
        self._shapes[key] = (task, pods) if known is None else (known[0], known[1] + pods)
        self._seen += pods

    def weigh(self, profiles: Sequence[Profile]) -> None:
        """Before scores are asked for: take in what came, and which nodes there are."""
        grew = not self._weighed or self._seen >= self._weighed + max(1, self._weighed // _GREW)
        if grew and self._seen:
            self._weighed = self._seen
            ranked = sorted(self._shapes.items(), key=lambda each: (-each[1][1], repr(each[0])))
            self._tasks, counts, total = [], [], 0
            for _, (task, pods) in ranked:
                if total * 100 >= self._seen * _POPULAR:
                    break
                self._tasks.append(task)
                counts.append(pods)
                total += pods
            self._counts = np.array(counts, np.int64)
        if grew or profiles is not self._profiles or len(self._known) > _MOST_KNOWN:
            self._known.clear()
            self._profiles = profiles
            verdicts = [[profile.accepts(task, "") for task in self._tasks] for profile in profiles]
            self._allowed = np.array(verdicts, np.bool_).reshape(len(profiles), len(self._tasks))

    def scores(self, requests: Mapping[str, int], cpu: Ints, free: Ints, profile: Ints) -> tuple[Ints, Ints]:
        """(score, the best card or -1) of each of K nodes.

        Args:
            requests: of the pod to place.
            cpu: int64[K], free.
            free: int64[K, C], of each card.
            profile: int64[K], of the nodes, among weighed ones.
        """
        shape = (requests.get("cpu", 0), *cards.asked(requests))
        states = np.ascontiguousarray(np.concatenate([cpu[:, None], profile[:, None], free], axis=1))
        names = states.view(f"V{states.itemsize * states.shape[1]}").ravel().tolist()
        missing = [number for number, name in enumerate(names) if (shape, name) not in self._known]
        for start in range(0, len(missing), _CHUNK):
            some = missing[start : start + _CHUNK]
            found = self._work_out(shape, cpu[some], free[some], profile[some])
            for number, score, card in zip(some, *(each.tolist() for each in found), strict=True):
                self._known[shape, names[number]] = score, card
        both = np.array([self._known[shape, name] for name in names], np.int64).reshape(-1, 2)
        return both[:, 0], both[:, 1]

    def chosen(self, requests: Mapping[str, int], cpu: int, free: Ints, profile: int) -> tuple[int, ...]:
        """The cards of a node that a pod gets; empty where it has none for it.

        Args:
            requests: of the pod.
            cpu: that is free on the node, before.
            free: int64[C], of each card.
            profile: of the node.
        """
        amount, count = cards.asked(requests)
        if count == 1 and amount < cards.CARD and self._weighed:
            state = np.array([cpu]), free[None, :], np.array([profile])
            [card] = self.scores(requests, *state)[1].tolist()
            return (card,) if card >= 0 else ()
        return cards.chosen(free.tolist(), amount, count)

    def _work_out(self, shape: tuple[int, int, int], cpu: Ints, free: Ints, profile: Ints) -> tuple[Ints, Ints]:
        taken, amount, count = shape
        before = self._lost(cpu, free, profile)
        if amount and count == 1 and amount < cards.CARD:
            best, card = np.full(len(cpu), _NEVER), np.full(len(cpu), -1)
            for number in range(free.shape[1]):
                after = free.copy()
                after[:, number] -= amount
                gain = np.where(after[:, number] < 0, _NEVER, before - self._lost(cpu - taken, after, profile))
                better = gain > best
                best, card = np.where(better, gain, best), np.where(better, number, card)
            gain = np.where(card < 0, 0, best)
        else:
            after, card = free.copy(), np.full(len(cpu), -1)
            if amount:
                whole = free >= cards.CARD
                after[whole & (whole.cumsum(axis=1) <= count)] = 0
            gain = before - self._lost(cpu - taken, after, profile)
        # Without a pod seen so far all are equal.
        scale = np.maximum(cards.CARD * int(self._counts.sum()) + np.abs(gain), 1)
        score = _HALF + _HALF * gain // scale
        return score // _STEP * _STEP, card

    def _lost(self, cpu: Ints, free: Ints, profile: Ints) -> Ints:
        """int64[K]: `F` of each node, times all pods."""
        asked = [(task.requests.get("cpu", 0), *cards.asked(task.requests)) for task in self._tasks]
        wanted = np.array(asked, np.int64).reshape(-1, 3)
        enough = free[:, None, :] >= wanted[None, :, 1, None]
        fits = (enough.sum(axis=2) >= wanted[:, 2]) & (cpu[:, None] >= wanted[:, 0]) & self._allowed[profile]
        small = np.where(enough, 0, free[:, None, :]).sum(axis=2)
        lost = np.where(fits & (wanted[:, 1] > 0), small, free.sum(axis=1)[:, None])
        found: Ints = (lost * self._counts).sum(axis=1)
        return found
