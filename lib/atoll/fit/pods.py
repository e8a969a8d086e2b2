"""Pods of a gang, by task and by node: parts of a placement, and how they add up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from atoll.fit.placement import Placement
from atoll.model.gang import Gang

Counts = tuple[int, ...]
"""Pods per task."""
Pods = Sequence[tuple[int, int, int]]
"""(task index, node index, pods)."""


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
