"""The sizes that a workload may have while it runs, and which workloads want another one.

A gang starts with its minimum, gets more while no other workload can use the free amounts, and gives that up again
before any whole gang is evicted. Between its minimum and all of its pods it may have any size of whole units
(`Gang.units`), which are single pods but for kinds whose controllers make several at once. Sizes are counted, never
listed: there may be a hundred thousand pods, of which few ever run. A gang divided over members keeps the size of its
  dispatch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from atoll.fit.pods import Counts, Pods
from atoll.model.gang import Gang
from atoll.model.vector import Vector, add

_FINE = 8
"""A step of shrinking is at most this part of the pods gone before: a hundred steps for any number of pods."""

Several = Sequence[tuple[int, int]]
"""(task index, pods) of some tasks."""


@dataclass(frozen=True, slots=True)
class Spare:
    """One step by which an elastic workload can shrink."""

    amount: Vector
    """Amount that its queue gets back."""
    pods: Mapping[str, Sequence[tuple[int, Vector, int]]]
    """Member -> (node index, requests of one pod, pods that go)."""
    stays: Counts = ()
    """Pods per task after it."""


def full(gang: Gang) -> Counts:
    """All of its pods."""
    return tuple(task.replicas for task in gang.tasks)


def can_grow(gang: Gang, counts: Counts) -> bool:
    """Whether some task has fewer pods than it asks for, and none has more."""
    return counts != full(gang) and _within(counts, full(gang))


def can_shrink(gang: Gang, counts: Counts) -> bool:
    """Whether some task has more pods than its minimum, and none has fewer."""
    floor = tuple(gang.floor())
    return counts != floor and _within(floor, counts)


def _within(counts: Counts, others: Counts) -> bool:
    return all(count <= other for count, other in zip(counts, others, strict=True))


def fill(gang: Gang, now: Sequence[int], most: Sequence[int], take: Callable[[Several], bool]) -> Counts:
    """Add as many units as are taken: in proportion to missing pods while that goes, then of each task as far as
    possible.

    Args:
        gang: its units.
        now: pods per task.
        most: pods per task, as many or more.
        take: takes so many more pods and returns True, or takes none. It is called a few times for each task, and for
            each halving of the missing pods.

    Returns:
        Pods per task, with taken ones.
    """
    counts, units = list(now), gang.units()

    def missing(number: int) -> int:
        return max(-(-(most[index] - counts[index]) // size) for index, size in units[number])

    def add_units(numbers: Mapping[int, int]) -> bool:
        pods = [
            (index, min(size * many, most[index] - counts[index]))
            for number, many in numbers.items()
            if many
            for index, size in units[number]
        ]
        pods = [each for each in pods if each[1] > 0]
        if not pods or not take(pods):
            return False
        for index, many in pods:
            counts[index] += many
        return True

    grew = len(units) > 1
    while grew:
        left = {number: missing(number) for number in range(len(units))}
        halvings = range(max(left.values()).bit_length())
        grew = any([add_units({number: many >> halved for number, many in left.items()}) for halved in halvings])
    for number in range(len(units)):
        if (many := missing(number)) and not add_units({number: many}) and add_units({number: 1}):
            for bit in reversed(range(many.bit_length())):
                if 1 << bit <= missing(number):
                    add_units({number: 1 << bit})
    return tuple(counts)


def with_room(gang: Gang, base: Sequence[int], held: Sequence[int]) -> Counts:
    """Pods per task with as many more whole units as fit, each task by itself.

    Args:
        gang: its units.
        base: pods per task.
        held: per task, how many more of its pods fit.
    """
    found = list(base)
    for alike in gang.units():
        missing = {index: gang.tasks[index].replicas - base[index] for index, _ in alike}
        most = min(-(-missing[i] // size) if held[i] >= missing[i] else held[i] // size for i, size in alike)
        for index, size in alike:
            found[index] += min(most * size, missing[index])
    return tuple(found)


def smaller(gang: Gang, counts: Counts) -> Iterator[Counts]:
    """Sizes below one down to the minimum, the nearest first: one unit less at a time, once much has gone several. The
    rest keeps the tasks' proportions; of equal ones the last task shrinks first.
    """
    floor = gang.floor()
    if not _within(tuple(floor), counts):
        return
    units = gang.units()
    spare = [max(-(-(counts[index] - floor[index]) // size) for index, size in alike) for alike in units]
    whose = np.repeat(np.arange(len(units)), spare)
    left = np.concatenate([(np.arange(many) + 1) / many for many in spare if many] or [np.zeros(0)])
    order = whose[np.lexsort((-whose, -left))]
    size, gone = list(counts), 0
    while gone < len(order):
        step = max(1, gone // _FINE)
        for number, many in Counter(order[gone : gone + step].tolist()).items():
            for index, pods in units[number]:
                size[index] = max(size[index] - pods * many, floor[index])
        gone += step
        yield tuple(size)


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
            if now > then:
                add(amount, gang.tasks[task].requests, now - then)
                gone.update((node, task) for node in where[task][then:now])
        there = [(node, gang.tasks[task].requests, count) for (node, task), count in sorted(gone.items())]
        steps.append(Spare(amount, {member: there} if there else {}, size))
        counts = size
    return steps


def addition(gang: Gang, least: Sequence[int], most: Sequence[int]) -> Gang:
    """A gang of the pods that are added: at least so many, at most so many."""
    tasks = [
        msgspec.structs.replace(task, replicas=many, min_available=few)
        for task, few, many in zip(gang.tasks, least, most, strict=True)
    ]
    return msgspec.structs.replace(gang, tasks=tasks, min_available=sum(least))
