"""The sizes that a workload may have while it runs, and which workloads want another one.

A gang starts with its minimum, gets more while no other workload can use what is free, and gives that up again before
any whole gang is evicted. Between the minimum and all replicas it moves in steps of whole sets: the smallest bundles of
what lies between that keep the tasks' proportions. What is divided over members keeps the size that it was dispatched
with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import gcd

import msgspec

from atoll.fit.pods import Counts, Pods
from atoll.model.gang import Gang
from atoll.model.vector import Vector, add


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


def addition(gang: Gang, least: Counts, most: Counts) -> Gang:
    """A gang of the pods that are added: at least so many, at most so many."""
    tasks = [
        msgspec.structs.replace(task, replicas=many, min_available=few)
        for task, few, many in zip(gang.tasks, least, most, strict=True)
    ]
    return msgspec.structs.replace(gang, tasks=tasks, min_available=sum(least))
