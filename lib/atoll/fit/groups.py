"""Groups of a gang's pods, each near together by a wish of its own: partitions of a task, sub-groups of a PodGroup, a
leader with its workers.

1. The domain for the whole gang is chosen as for any other; what is counted is whole groups (`in_whole_groups`).
2. Inside it group by group, hard ones first, then the greediest, each as a gang by itself; then what is in no group.
3. Equal groups are numbered along the tree, so that neighbours in number are neighbours in the fabric.

A hard group counts against the largest domain of an allowed tier: such domains do not overlap, so equal groups of one
task never block each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from atoll.fit.constraints import resources
from atoll.fit.nodes import Nodes
from atoll.fit.placement import Ints, Placement
from atoll.model.gang import Gang, TopologyWish
from atoll.model.topology import NO_DOMAIN

Find = Callable[[Nodes, Gang, Sequence[Ints]], Placement | None]
"""Places a gang without groups, given per task the pods that each node holds; None where it does not fit."""


@dataclass(frozen=True, slots=True)
class _Group:
    """What is placed at once."""

    key: tuple[object, ...]
    """Equal for equal groups."""
    counts: tuple[tuple[int, int], ...]
    """(task index, pods)."""
    wish: TopologyWish | None


def in_whole_groups(nodes: Nodes, gang: Gang, room: Sequence[Ints]) -> list[Ints]:
    """Room per task and node without what is left over beside whole hard groups: an upper bound on each domain.

    Args:
        nodes: not changed.
        gang: some of its tasks are in groups.
        room: per task int64[N], pods that each node holds.
    """
    found = []
    for task, here in zip(gang.tasks, room, strict=True):
        part = task.partition
        cells = None if part is None else _cells(nodes, part.wish)
        found.append(here if part is None or cells is None else _trimmed(cells, here, min(part.size, task.replicas)))
    return found


def put_in_groups(
    nodes: Nodes,
    gang: Gang,
    want: Sequence[int],
    full: Sequence[int],
    inside: NDArray[np.bool_],
    room_of: Callable[[Nodes, Gang], list[Ints]],
    find: Find,
) -> Placement | None:
    """Place `want` pods of each task on nodes inside, then as many more whole groups of `full` as there is room for.

    Args:
        nodes: not changed.
        gang: some of its tasks are in groups.
        want: pods per task; None is returned where not all of them find a node.
        full: as many or more.
        inside: bool[N].
        room_of: per task int64[N], what each node holds of a gang's tasks.
        find: places one group.
    """
    room = _Left(nodes.copy(), gang, inside, room_of)
    counts = [0] * len(gang.tasks)
    placed: list[tuple[_Group, Placement]] = []
    for target in (want, full) if list(want) != list(full) else (want,):
        more = [most - have for most, have in zip(target, counts, strict=True)]
        full_kinds: set[tuple[object, ...]] = set()
        for group in _ordered(nodes, gang, more, whole=target is want):
            if group.key in full_kinds:
                continue
            found = room.put(group, find)
            if found is None:
                if target is want:
                    return None
                # Equal groups have no room either.
                full_kinds.add(group.key)
                continue
            placed.append((group, found))
            for index, number in group.counts:
                counts[index] += number
    return Placement(list(_along_the_tree(nodes, placed)), counts, grouped=True)


class _Left:
    """What is left of nodes while groups are put on them, and what that holds of each task."""

    def __init__(
        self,
        free: Nodes,
        gang: Gang,
        inside: NDArray[np.bool_],
        room_of: Callable[[Nodes, Gang], list[Ints]],
    ) -> None:
        self._free, self._gang, self._inside, self._room_of = free, gang, inside, room_of
        self._plain = not free.exact and free.company is None
        self._room = self._all() if self._plain else []

    def _all(self) -> list[Ints]:
        return [np.where(self._inside, each, 0) for each in self._room_of(self._free, self._gang)]

    def put(self, group: _Group, find: Find) -> Placement | None:
        """Place a group; None, and nothing is done, where it does not fit. Task indices are those of the gang."""
        gang = msgspec.structs.replace(
            self._gang,
            tasks=[
                msgspec.structs.replace(self._gang.tasks[index], replicas=count, min_available=count, partition=None)
                for index, count in group.counts
            ],
            min_available=sum(count for _, count in group.counts),
            network_topology=group.wish,
        )
        if self._plain:
            room = [self._room[index] for index, _ in group.counts]
        else:
            room = [np.where(self._inside, each, 0) for each in self._room_of(self._free, gang)]
        found = find(self._free, gang, room)
        if found is None:
            return None
        self._free.put(gang.tasks, found)
        if self._plain:
            changed = np.unique(found.arrays()[1])
            row = {name: number for number, name in enumerate(self._free.resources)}
            for task, here in zip(self._gang.tasks, self._room, strict=True):
                left = resources.room(task.requests, self._free.free[:, changed], row)
                here[changed] = np.where(here[changed] > 0, left, 0)
        found.pods = [(group.counts[number][0], node, count) for number, node, count in found.pods]
        return found


def _ordered(nodes: Nodes, gang: Gang, counts: Sequence[int], *, whole: bool) -> Iterator[_Group]:
    """The groups of so many pods per task, in the order in which they are placed; what is in none comes last, at once
    where it fits `whole` or not at all.
    """
    together: dict[object, list[int]] = {}
    loose = []
    for index, task in enumerate(gang.tasks):
        if task.partition is None:
            loose.append(index)
        else:
            together.setdefault(task.partition.name or index, []).append(index)
    total = np.maximum(nodes.free.sum(axis=1), 1)
    found: list[tuple[bool, float, int, _Group]] = []
    for indices in together.values():
        left = {index: counts[index] for index in indices}
        while any(left.values()):
            sizes = {index: min(_size(gang, index), left[index]) for index in indices}
            part = gang.tasks[indices[0]].partition
            wish = part.wish if part is not None else None
            greed = max(
                float((nodes.column(gang.tasks[i].requests) * n / total).max(initial=0.0)) for i, n in sizes.items()
            )
            inside = tuple((index, size) for index, size in sizes.items() if size)
            found.append((wish is None or not wish.hard, -greed, len(found), _Group(inside, inside, wish)))
            left = {index: left[index] - size for index, size in sizes.items()}
    yield from (group for *_, group in sorted(found, key=lambda each: each[:3]))
    weight = [float((nodes.column(task.requests) / total).max(initial=0.0)) for task in gang.tasks]
    for index in sorted((each for each in loose if counts[each] > 0), key=lambda each: (-weight[each], each)):
        pieces = [counts[index]] if whole else _pieces(counts[index])
        yield from (_Group((index, number), ((index, number),), None) for number in pieces)


def _pieces(count: int) -> Iterator[int]:
    """Powers of two that add up to it, the largest first: what is left over is found in few steps."""
    for bit in range(count.bit_length() - 1, -1, -1):
        if count >> bit & 1:
            yield 1 << bit


def _size(gang: Gang, index: int) -> int:
    part = gang.tasks[index].partition
    return max(part.size, 1) if part is not None else 1


def _along_the_tree(nodes: Nodes, placed: Sequence[tuple[_Group, Placement]]) -> Iterator[tuple[int, int, int]]:
    """The pods group by group: equal groups, and the nodes inside each, in the order of the domains around them."""

    def way(node: int) -> tuple[object, ...]:
        around = [domain for domain in nodes.domain[::-1, node].tolist() if domain != NO_DOMAIN]
        return *[(0, int(nodes.by_name[domain])) for domain in around], (1, nodes.names[node], node)

    ordered: list[tuple[int, str, tuple[object, ...], list[tuple[int, int, int]]]] = []
    for group, placement in placed:
        pods = sorted(placement.pods, key=lambda pod: (pod[0], way(pod[1])))
        first = min(way(node) for _, node, _ in pods)
        # Only the last group of a task may be smaller.
        ordered.append((-sum(count for _, count in group.counts), str(group.key), first, pods))
    for *_, pods in sorted(ordered, key=lambda each: each[:3]):
        yield from pods


def _cells(nodes: Nodes, wish: TopologyWish | None) -> Ints | None:
    """int64[N]: the largest domain around each node that a hard group may span; None where any nodes may be."""
    nodes = nodes.seen_by(wish)
    levels = nodes.tree.levels(wish) if wish is not None and wish.hard else None
    if levels is None:
        return None
    cells = np.full(len(nodes), NO_DOMAIN, np.int64)
    for level in levels:
        cells = np.where(nodes.domain[level] != NO_DOMAIN, nodes.domain[level], cells)
    return cells


def _trimmed(cells: Ints, room: Ints, size: int) -> Ints:
    """Room of which each cell holds whole groups alone; none outside of cells."""
    left = np.where(cells != NO_DOMAIN, room, 0)
    order = np.lexsort((left, cells))
    order = order[cells[order] != NO_DOMAIN]
    if not order.size or size < 2:
        return left
    ordered, of = left[order], cells[order]
    starts = np.flatnonzero(np.r_[True, of[1:] != of[:-1]])
    over = np.add.reduceat(ordered, starts) % size
    before = np.cumsum(ordered) - ordered
    number = np.cumsum(np.r_[True, of[1:] != of[:-1]]) - 1
    taken = np.clip(over[number] - (before - before[starts][number]), 0, ordered)
    trimmed = left.copy()
    trimmed[order] = ordered - taken
    return trimmed
