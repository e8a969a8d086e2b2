"""Pods of a gang, by task and by node: parts of a placement, and how they add up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from atoll.fit.placement import Placement
from atoll.model.decision import Spots
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


def where_seen(
    gang: Gang, nodes: Mapping[str, int], index: Mapping[str, int], likely: Sequence[Pods] = ()
) -> list[tuple[int, int, int]]:
    """Pods by task and node from a report that only counts pods per node: the first likely placement that has as many
    on each; else tasks in order, nodes by name.
    """
    if len(gang.tasks) > 1:
        seen = {index[name]: count for name, count in nodes.items() if name in index and count}
        for each in likely:
            counts: dict[int, int] = {}
            for _, node, count in each:
                counts[node] = counts.get(node, 0) + count
            if counts == seen:
                return list(each)
    pods: list[tuple[int, int, int]] = []
    wanted, task = gang.full(), 0
    for name in sorted(nodes):
        left = nodes[name]
        while left and task < len(wanted):
            count = min(left, wanted[task])
            if count and name in index:
                pods.append((task, index[name], count))
            wanted[task] -= count
            left -= count
            task += not wanted[task]
    return pods


def placed_as_told(gang: Gang, spots: Spots, index: Mapping[str, int]) -> Pods:
    """Where a decision expects the pods of a part, by the indices of tasks and nodes; of nodes that are there."""
    tasks = {task.name: number for number, task in enumerate(gang.tasks)}
    return [(tasks[task], index[node], count) for task, node, count in spots if task in tasks and node in index]
