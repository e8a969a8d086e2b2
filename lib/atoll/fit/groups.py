"""Groups of a gang's pods, each near together by a wish of its own: partitions of a task, sub-groups of a PodGroup, a
leader with its workers.

1. The domain for the whole gang is chosen as for any other; counted in whole groups (`in_whole_groups`).
2. Inside it group by group, hard ones first, then the greediest, each as a gang by itself, perhaps one of groups; then
   pods in no group.
3. Equal groups are numbered along the tree, so that neighbours in number are neighbours in the fabric.
4. Where groups must be apart, a domain of that tier that has pods of one is closed for the others. Where they must
   be balanced, a domain is closed for groups of a kind that has its share there.

A hard group counts against the largest domain of an allowed tier: such domains do not overlap, so equal groups of one
task never block each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from atoll.fit.balanced import shares, sums
from atoll.fit.constraints import resources
from atoll.fit.nodes import Nodes
from atoll.fit.placement import Ints, Placement
from atoll.model.gang import Gang, Partition, Task, TopologyWish
from atoll.model.topology import NO_DOMAIN

Find = Callable[[Nodes, Gang, Sequence[Ints]], Placement | None]
"""Places a gang without groups, given per task the pods that each node holds; None where it does not fit."""


@dataclass(frozen=True, slots=True)
class _Group:
    """Pods placed at once."""

    key: tuple[object, ...]
    """Equal for equal groups."""
    counts: tuple[tuple[int, int], ...]
    """(task index, pods)."""
    wish: TopologyWish | None
    whose: object
    """Equal for groups that are not kept apart."""


def in_whole_groups(nodes: Nodes, gang: Gang, room: Sequence[Ints]) -> list[Ints]:
    """Pods per task and node without the rest beside whole hard groups: an upper bound on each domain.

    Args:
        nodes: not changed.
        gang: some of its tasks are in groups.
        room: per task int64[N], pods that each node holds.
    """
    found = []
    apart = _tier_apart(nodes, gang) if gang.apart is not None and gang.apart.mode == "hard" else None
    for task, here in zip(gang.tasks, room, strict=True):
        part = task.partition
        here = _whole(nodes, part, task.replicas, here, [gang.network_topology])
        if apart is not None:
            here = _cut(apart, here, most=task.replicas if part is None else part.size)
        found.append(here)
    return found


def _whole(
    nodes: Nodes, part: Partition | None, replicas: int, room: Ints, around: Sequence[TopologyWish | None]
) -> Ints:
    """Pods of one task without the rest beside its whole groups; first beside the groups inside of these.

    Args:
        nodes: not changed.
        part: the groups; None for none.
        replicas: pods of the task.
        room: int64[N].
        around: the wishes of what the groups are in.
    """
    if part is None:
        return room
    room = _whole(nodes, part.inside, replicas, room, [*around, part.wish])
    cells = _cells(nodes, part.wish, around)
    return room if cells is None else _cut(cells, room, unit=min(part.size, replicas), last=replicas % part.size)


def _tier_apart(nodes: Nodes, gang: Gang) -> Ints | None:
    """int64[N]: the domain of each node of which no two groups may be; None where that is not asked for, or nothing is
    known of it here.
    """
    wish = gang.apart
    if wish is None or (nodes.tree.is_elsewhere(wish) and nodes.seen_by(wish) is nodes):
        return None
    found = nodes.at(wish)
    return found if found is not None else np.full(len(nodes), NO_DOMAIN, np.int64)


def put_in_groups(
    nodes: Nodes,
    gang: Gang,
    want: Sequence[int],
    full: Sequence[int],
    inside: NDArray[np.bool_],
    room_of: Callable[[Nodes, Gang], list[Ints]],
    find: Find,
) -> Placement | None:
    """Place `want` pods of each task on nodes inside, then as many more whole groups of `full` as fit.

    Args:
        nodes: not changed.
        gang: some of its tasks are in groups.
        want: pods per task; None is returned where not all of them find a node.
        full: as many or more.
        inside: bool[N].
        room_of: per task int64[N], what each node holds of a gang's tasks.
        find: places one group.
    """
    tried = [(_tier_apart(nodes, gang), gang.balanced)]
    if gang.apart is not None and gang.apart.mode != "hard":
        tried.append((None, gang.balanced))
    tried += [(apart, None) for apart, balanced in tried if balanced is not None]
    for apart, balanced in tried:
        room = _Left(nodes.copy(), gang, inside, room_of, apart)
        found = _put(nodes, gang, want, full, room, find, balanced)
        if found is not None:
            return found
    return None


def _put(
    nodes: Nodes,
    gang: Gang,
    want: Sequence[int],
    full: Sequence[int],
    room: _Left,
    find: Find,
    balanced: TopologyWish | None,
) -> Placement | None:
    counts = [0] * len(gang.tasks)
    placed: list[tuple[_Group, Placement]] = []
    for target in (want, full) if list(want) != list(full) else (want,):
        more = [most - have for most, have in zip(target, counts, strict=True)]
        full_kinds: set[tuple[object, ...]] = set()
        groups = list(_ordered(nodes, gang, more, whole=target is want))
        room.share_out(balanced if target is want else None, groups)
        for group in groups:
            beyond = any(counts[index] + number > target[index] for index, number in group.counts)
            if beyond or group.key in full_kinds:
                continue
            found = room.put(group, find)
            if found is None:
                if target is want:
                    return None
                # Equal groups don't fit either.
                full_kinds.add(group.key)
                continue
            placed.append((group, found))
            for index, number in group.counts:
                counts[index] += number
    return Placement(list(_along_the_tree(nodes, placed)), counts, grouped=True)


class _Left:
    """The rest of nodes while groups are put on them, and its pods of each task."""

    def __init__(
        self,
        free: Nodes,
        gang: Gang,
        inside: NDArray[np.bool_],
        room_of: Callable[[Nodes, Gang], list[Ints]],
        apart: Ints | None,
    ) -> None:
        self._free, self._gang, self._inside, self._room_of = free, gang, inside, room_of
        self._apart = apart
        #: domain of `_apart` -> whose pods are there
        self._taken: dict[int, object] = {NO_DOMAIN: None}
        #: int64[N]: the domain of each node over which groups are balanced
        self._parts: Ints | None = None
        #: kind of groups -> domain of `_parts` -> how many more of them it may have
        self._quota: dict[tuple[object, ...], dict[int, int]] = {}
        self._plain = not free.exact and free.company is None
        self._room = self._all() if self._plain else []

    def _all(self) -> list[Ints]:
        return [np.where(self._inside, each, 0) for each in self._room_of(self._free, self._gang)]

    def share_out(self, wish: TopologyWish | None, groups: Sequence[_Group]) -> None:
        """Have equal groups shared out over the domains of a tier, if it is known and they are more than one domain
        holds; from now on, and no others.
        """
        self._parts, self._quota = self._free.at(wish) if wish is not None else None, {}
        if self._parts is None:
            return
        for kind, many in Counter(group.key for group in groups).items():
            group = next(each for each in groups if each.key == kind)
            room = in_whole_groups(self._free, self._gang, self._all())
            held = [sums(self._parts, room[index]) // count for index, count in group.counts]
            if (found := shares(np.minimum.reduce(held), many)) is not None:
                self._quota[kind] = {domain: int(found[domain]) for domain in np.flatnonzero(found).tolist()}

    def _open(self, group: _Group) -> NDArray[np.bool_] | None:
        """bool[N]: nodes that the group may have, by what others have; None for all."""
        found: NDArray[np.bool_] | None = None
        if self._apart is not None:
            closed = [domain for domain, whose in self._taken.items() if whose != group.whose]
            found = ~np.isin(self._apart, closed)
        if (quota := self._quota.get(group.key)) is not None and self._parts is not None:
            open_ = np.isin(self._parts, [domain for domain, left in quota.items() if left > 0])
            found = open_ if found is None else found & open_
        return found

    def _count(self, group: _Group, placement: Placement) -> None:
        nodes = placement.arrays()[1]
        if self._apart is not None:
            self._taken |= dict.fromkeys(self._apart[nodes].tolist(), group.whose)
        if (quota := self._quota.get(group.key)) is not None and self._parts is not None:
            for domain in set(self._parts[nodes].tolist()):
                quota[domain] = quota.get(domain, 0) - 1

    def put(self, group: _Group, find: Find) -> Placement | None:
        """Place a group; None, and nothing is done, where it does not fit. Task indices are the gang's."""
        gang = msgspec.structs.replace(
            self._gang,
            tasks=[
                msgspec.structs.replace(task, replicas=count, min_available=count, partition=_inside(task))
                for index, count in group.counts
                for task in [self._gang.tasks[index]]
            ],
            min_available=sum(count for _, count in group.counts),
            network_topology=group.wish,
            balanced=None,
            apart=None,
        )
        may = self._open(group)
        if self._plain:
            room = [self._room[index] for index, _ in group.counts]
        else:
            room = [np.where(self._inside, each, 0) for each in self._room_of(self._free, gang)]
        if may is not None:
            room = [np.where(may, each, 0) for each in room]
        found = find(self._free, gang, room)
        if found is None:
            return None
        self._count(group, found)
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
    """The groups of so many pods per task, in the order in which they are placed; pods in none come last, at once
    where they fit `whole` or not at all.
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
            group = _Group(inside, inside, wish, object())
            found.append((wish is None or not wish.hard, -greed, len(found), group))
            left = {index: left[index] - size for index, size in sizes.items()}
    yield from (group for *_, group in sorted(found, key=lambda each: each[:3]))
    weight = [float((nodes.column(task.requests) / total).max(initial=0.0)) for task in gang.tasks]
    for index in sorted((each for each in loose if counts[each] > 0), key=lambda each: (-weight[each], each)):
        pieces = [counts[index]] if whole else _pieces(counts[index])
        whose = gang.tasks[index].role or index
        yield from (_Group((index, number), ((index, number),), None, whose) for number in pieces)


def _pieces(count: int) -> Iterator[int]:
    """Powers of two, the largest first, of which some add up to any number until it: the rest is found in few
    steps.
    """
    return (1 << bit for bit in range(count.bit_length() - 1, -1, -1))


def _size(gang: Gang, index: int) -> int:
    part = gang.tasks[index].partition
    return max(part.size, 1) if part is not None else 1


def _inside(task: Task) -> Partition | None:
    return task.partition.inside if task.partition is not None else None


def _along_the_tree(nodes: Nodes, placed: Sequence[tuple[_Group, Placement]]) -> Iterator[tuple[int, int, int]]:
    """The pods group by group: equal groups, and the nodes inside each, in the order of the domains around them. One of
    groups has its nodes in that order already.
    """

    def way(node: int) -> tuple[object, ...]:
        around = [domain for domain in nodes.domain[::-1, node].tolist() if domain != NO_DOMAIN]
        return *[(0, int(nodes.layout.by_name[domain])) for domain in around], (1, nodes.names[node], node)

    ordered: list[tuple[int, str, tuple[object, ...], list[tuple[int, int, int]]]] = []
    for group, placement in placed:
        inside = placement.grouped
        pods = sorted(placement.pods, key=lambda pod: (pod[0], () if inside else way(pod[1])))
        first = min(way(node) for _, node, _ in pods)
        # Only the last group of a task may be smaller.
        ordered.append((-sum(count for _, count in group.counts), str(group.key), first, pods))
    for *_, pods in sorted(ordered, key=lambda each: each[:3]):
        yield from pods


def _cells(nodes: Nodes, wish: TopologyWish | None, around: Sequence[TopologyWish | None]) -> Ints | None:
    """int64[N]: the largest domain around each node that a hard group may span, as the groups around it may; None where
    any nodes may be.
    """
    seen = nodes.seen_by(wish)
    levels = seen.tree.levels(wish) if wish is not None and wish.hard else None
    if levels is None:
        return None
    for each in around:
        if nodes.seen_by(each).tree is seen.tree and (allowed := seen.tree.levels(each)) is not None:
            levels = [level for level in levels if level in allowed]
    cells = np.full(len(seen), NO_DOMAIN, np.int64)
    for level in levels:
        cells = np.where(seen.domain[level] != NO_DOMAIN, seen.domain[level], cells)
    return cells


def _cut(cells: Ints, room: Ints, *, unit: int = 1, last: int = 0, most: int | None = None) -> Ints:
    """Capacity of which each cell holds a multiple of a unit, perhaps with a last smaller one, and at most so much;
    none outside of cells.
    """
    left = np.where(cells != NO_DOMAIN, room, 0)
    order = np.lexsort((left, cells))
    order = order[cells[order] != NO_DOMAIN]
    if not order.size or (unit < 2 and most is None):
        return left
    ordered, of = left[order], cells[order]
    begins = np.r_[True, of[1:] != of[:-1]]
    starts = np.flatnonzero(begins)
    held = np.add.reduceat(ordered, starts)
    over = np.maximum(held % unit - last, 0)
    if most is not None:
        over = np.maximum(over, held - most)
    before = np.cumsum(ordered) - ordered
    number = np.cumsum(begins) - 1
    taken = np.clip(over[number] - (before - before[starts][number]), 0, ordered)
    cut = left.copy()
    cut[order] = ordered - taken
    return cut
