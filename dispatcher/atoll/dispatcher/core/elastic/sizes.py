"""The sizes that a workload may have while it runs, and who wants another one.

A gang starts with its minimum, gets more while nobody else can use what is free, and gives that up again before any
whole gang must go. Between the minimum and all replicas it moves in steps of whole sets: the smallest bundles of what
lies between that keep the tasks' proportions. What is divided over members keeps the size that it was dispatched with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import gcd

from atoll.dispatcher.core.quota.queue import Queue, path
from atoll.fit import Placement
from atoll.model.gang import Gang
from atoll.model.vector import Vector, add

Counts = tuple[int, ...]
"""Pods per task."""
Pods = Sequence[tuple[int, int, int]]
"""(task index, node index, pods)."""


@dataclass(frozen=True, slots=True)
class Spare:
    """One step by which an elastic workload can shrink."""

    amount: Vector
    """What its queue gets back."""
    pods: Mapping[str, Sequence[tuple[int, Vector, int]]]
    """Member -> (node index, requests of one pod, pods that go)."""


def full(gang: Gang) -> Counts:
    """All of its pods."""
    return tuple(task.replicas for task in gang.tasks)


def sizes(gang: Gang) -> list[Counts]:
    """What a gang may run with, the minimum first and all of its pods last."""
    floor, most = gang.floor(), full(gang)
    steps = reduce(gcd, (many - least for least, many in zip(floor, most, strict=True)), 0)
    return [
        tuple(least + (many - least) * step // (steps or 1) for least, many in zip(floor, most, strict=True))
        for step in range(steps + 1)
    ]


def larger(gang: Gang, counts: Counts) -> list[Counts]:
    """The sizes above one, the nearest first."""
    return [size for size in sizes(gang) if size != counts and _within(counts, size)]


def smaller(gang: Gang, counts: Counts) -> list[Counts]:
    """The sizes below one, the nearest first."""
    return [size for size in reversed(sizes(gang)) if size != counts and _within(size, counts)]


def can_grow(gang: Gang, counts: Counts) -> bool:
    """Whether there are sizes above one, of which there may be a million."""
    return counts != full(gang) and _within(counts, full(gang))


def can_shrink(gang: Gang, counts: Counts) -> bool:
    """Whether there are sizes below one."""
    floor = tuple(gang.floor())
    return counts != floor and _within(floor, counts)


def _within(counts: Counts, others: Counts) -> bool:
    return all(count <= other for count, other in zip(counts, others, strict=True))


def difference(counts: Counts, others: Counts) -> Counts:
    """Pods per task that the first has beyond the second."""
    return tuple(count - other for count, other in zip(counts, others, strict=True))


def first_pods(pods: Pods, counts: Iterable[int]) -> list[tuple[int, int, int]]:
    """So many of these pods of each task, the first ones."""
    left, found = list(counts), []
    for task, node, count in pods:
        taken = min(count, left[task])
        left[task] -= taken
        if taken:
            found.append((task, node, taken))
    return found


def last_pods(gang: Gang, pods: int) -> Counts:
    """Pods per task of so many of a gang, the last ones."""
    counts: list[int] = []
    for task in reversed(gang.tasks):
        counts.append(min(pods, task.replicas))
        pods -= counts[-1]
    return tuple(reversed(counts))


def as_before(pods: Pods, before: Pods) -> list[tuple[int, int, int]]:
    """Pods in the order that they had; new ones, which have higher indices, come last."""
    left = Counter[tuple[int, int]]()
    for task, node, count in pods:
        left[task, node] += count
    found = []
    for task, node, count in before:
        if kept := min(count, left[task, node]):
            left[task, node] -= kept
            found.append((task, node, kept))
    return [*found, *((task, node, count) for (task, node), count in left.items() if count)]


def cut(placement: Placement, counts: Sequence[int]) -> Placement:
    """So much of a placement."""
    return Placement(first_pods(placement.pods, counts), list(counts), placement.domain, placement.tier)


def joined(one: Placement, more: Placement) -> Placement:
    """A placement and what comes beside it."""
    counts = [count + other for count, other in zip(one.counts, more.counts, strict=True)]
    return Placement([*one.pods, *more.pods], counts, one.domain, one.tier)


def spares(gang: Gang, counts: Counts, member: str, pods: Pods) -> list[Spare]:
    """The steps by which a workload of this size can shrink; the pods of the highest indices go first.

    Args:
        gang: as its user wishes it.
        counts: pods per task that run or are about to.
        member: where.
        pods: as far as it is known where they are, in order of their indices.
    """
    where: list[list[int]] = [[] for _ in gang.tasks]
    for task, node, count in pods:
        where[task] += [node] * count
    steps = []
    for size in smaller(gang, counts):
        amount: Vector = {}
        gone: Counter[tuple[int, int]] = Counter()
        for task, (now, then) in enumerate(zip(counts, size, strict=True)):
            add(amount, gang.tasks[task].requests, now - then)
            gone.update((node, task) for node in where[task][then:now])
        there = [(node, gang.tasks[task].requests, count) for (node, task), count in sorted(gone.items())]
        steps.append(Spare(amount, {member: there} if there else {}))
        counts = size
    return steps


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
