"""The native division: whole task sets, as few clusters as hold them, each part whole in one allowed domain.

A *set* is the smallest bundle of tasks that keeps their proportions: 2 servers and 8 workers are two sets of 1 and 4.
A gang whose replicas have no common divisor is one set and is never torn.

Taking the largest clusters first gives the fewest. Then, one at a time, a chosen cluster is exchanged for the smallest
other one that still does, so that the rest is small and large empty clusters stay whole. What a cluster holds
is first known from above (each task by itself); the exact number costs placements and is asked only where it decides.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import gcd

import msgspec
import numpy as np

from atoll.dispatcher.split.distance import Place, groups
from atoll.fit import Miss, Nodes, Placement, place
from atoll.fit.placement import Ints
from atoll.model.gang import Gang, Task, divide


@dataclass(frozen=True, slots=True)
class Division:
    """A gang over clusters, in order of their names."""

    clusters: tuple[str, ...]
    gangs: tuple[Gang, ...]
    """Per cluster: the gang of its part."""
    placements: tuple[Placement, ...]


@dataclass(frozen=True, slots=True)
class Short:
    """All clusters together do not hold the gang."""

    requested: int
    """Pods wanted."""
    available: int
    """Pods that the clusters hold in whole sets."""


def divide_natively(
    gang: Gang,
    nodes: Mapping[str, Nodes],
    *,
    at_least: int = 1,
    at_most: int | None = None,
    room: Callable[[str], Sequence[Ints]] | None = None,
    held: Mapping[str, Sequence[int]] | None = None,
    ceilings: Mapping[str, int] | None = None,
    places: Mapping[str, Place] | None = None,
) -> Division | Short:
    """Divide all replicas over at most `at_most` and at least `at_least` clusters.

    Args:
        gang: the whole.
        nodes: free nodes of every cluster that may take a part.
        at_least: clusters that must take one.
        at_most: clusters that may; None for any number.
        room: of a cluster, per task int64[N], how many pods each node holds, where the caller knows that already.
        held: cluster -> the sums of these, where the caller knows them: then `room` is asked for few clusters only.
        ceilings: cluster -> the most sets (`sets_of`) that it may take; any number where it is not named.
        places: where each cluster is; equally few clusters are chosen nearest to each other. None for all alike.
    """
    sets = sets_of(gang)
    unit = [task.replicas // sets for task in gang.tasks]
    ceiling = sets - max(at_least - 1, 0)
    limits = {name: min(ceiling, (ceilings or {}).get(name, ceiling)) for name in sorted(nodes)}
    held_by = _Held(gang, unit, nodes, room, held, limits)
    chosen = _largest(held_by, sets, at_least, at_most)
    whole = sum(held_by.exact(name) for name in chosen)
    if whole < sets or len(chosen) < at_least:
        return Short(gang.replicas, min(whole, sets) * sum(unit))
    chosen, among = _nearest(chosen, held_by, sets, at_least, places) if places else (chosen, None)
    _tighten(chosen, held_by, sets, among)
    taken = _deal(sets, chosen, held_by, at_least)
    clusters = tuple(sorted(taken))
    gangs = divide(gang, [[count * taken[name] for count in unit] for name in clusters])
    placements = []
    for name, part in zip(clusters, gangs, strict=True):
        placement = place(nodes[name], _whole(part), room=None if room is None else room(name))
        assert isinstance(placement, Placement), f"{name} held {taken[name]} sets and now does not"
        placements.append(placement)
    return Division(clusters, tuple(gangs), tuple(placements))


def divide_as(gang: Gang, shares: Mapping[str, int], nodes: Mapping[str, Nodes]) -> Division | None:
    """The gang over these clusters with so many sets (`sets_of`) each; None where one does not hold its part.

    Args:
        gang: the whole.
        shares: cluster -> sets, at least one; all of the gang's in sum.
        nodes: free nodes of these clusters.
    """
    sets, clusters = sets_of(gang), tuple(sorted(shares))
    gangs = divide(gang, [[task.replicas // sets * shares[name] for task in gang.tasks] for name in clusters])
    placements = []
    for name, part in zip(clusters, gangs, strict=True):
        placement = place(nodes[name], _whole(part))
        if isinstance(placement, Miss):
            return None
        placements.append(placement)
    return Division(clusters, tuple(gangs), tuple(placements))


def sets_of(gang: Gang) -> int:
    """Into how many equal bundles of tasks, and of groups of their pods, the gang can be taken apart."""
    return reduce(gcd, (_units(task) for task in gang.tasks), 0) or 1


def _units(task: Task) -> int:
    """Pods of a task, or groups of its pods where there are whole ones alone."""
    if task.partition is None:
        return task.replicas
    groups, over = divmod(task.replicas, task.partition.size)
    return 1 if over else groups


class _Held:
    """How many sets each cluster holds: from above at once, exactly when asked."""

    def __init__(
        self,
        gang: Gang,
        unit: Sequence[int],
        nodes: Mapping[str, Nodes],
        room: Callable[[str], Sequence[Ints]] | None,
        held: Mapping[str, Sequence[int]] | None,
        limits: Mapping[str, int],
    ) -> None:
        self._gang, self._unit, self._nodes, self._known_room = gang, unit, nodes, room
        #: the upper bound is the truth for one task: it may be anywhere, or in any one domain
        self._certain = len(unit) == 1
        self._known: set[str] = set()
        #: cluster -> sets that it holds at most, in order of their names
        self.upper: dict[str, int] = {}
        for name, limit in limits.items():
            pods = self._most_in_a_domain(name, held[name] if held else None)
            for there, count in zip(pods, unit, strict=True):
                if count and there // count < limit:
                    limit = there // count
            self.upper[name] = limit if unit else 0

    def _most_in_a_domain(self, name: str, known: Sequence[int] | None) -> Sequence[int]:
        """Per task, the most pods that the cluster holds in one of the domains that the gang may have. `known`: what it
        holds anywhere, where the caller knows that.
        """
        wish = self._gang.network_topology
        if known is not None and (wish is None or not wish.limited):
            return known
        seen = self._nodes[name].seen_by(wish)
        levels = seen.tree.levels(wish)
        if levels is None:
            return known if known is not None else [int(each.sum()) for each in self._room(name)]
        if known is not None and not all(known):
            return known
        inside = [seen.domain[level] for level in levels]
        return [max((_most_inside(each, room) for each in inside), default=0) for room in self._room(name)]

    def exact(self, name: str) -> int:
        certain = self._certain and not self._nodes[name].in_turn(self._gang)
        if not certain and self.upper[name] and name not in self._known:
            self._known.add(name)
            self.upper[name] = most_sets(self._gang, self._unit, self._nodes[name], self._room(name), self.upper[name])
        return self.upper[name]

    def _room(self, name: str) -> Sequence[Ints]:
        """Per task, how many pods each node of the cluster holds."""
        if self._known_room is not None:
            return self._known_room(name)
        nodes = self._nodes[name]
        return [np.where(nodes.accepting(task), nodes.room(task.requests), 0) for task in self._gang.tasks]


def _nearest(
    chosen: list[str], held_by: _Held, sets: int, at_least: int, places: Mapping[str, Place]
) -> tuple[list[str], Collection[str] | None]:
    """As many clusters as were chosen that hold the sets and are nearest to each other; and among which these may be
    exchanged, None for all.
    """
    few = len(chosen)
    if few < 2:
        return chosen, None
    for level in groups({name: places[name] for name, upper in held_by.upper.items() if upper and name in places}):
        best: tuple[int, list[str], list[str]] | None = None
        for group in level:
            if len(group) < few:
                continue
            near = _largest(held_by, sets, at_least, few, group)
            held = sum(held_by.exact(name) for name in near)
            # Of places that are equally near the one with the least capacity, so that large ones stay whole.
            if len(near) == few and held >= sets and (best is None or held < best[0]):
                best = held, near, group
        if best is not None:
            return best[1], best[2]
    return chosen, None


def _largest(
    held_by: _Held, sets: int, at_least: int, at_most: int | None, among: Iterable[str] | None = None
) -> list[str]:
    """As few clusters as hold the sets, the largest first; fewer sets when all together hold less."""
    known = held_by.upper if among is None else {name: held_by.upper[name] for name in among}
    heap = [(-upper, name) for name, upper in known.items() if upper]
    heapq.heapify(heap)
    limit = len(heap) if at_most is None else min(at_most, len(heap))
    if sum(-upper for upper, _ in (heap if limit == len(heap) else heapq.nsmallest(limit, heap))) < sets:
        return [name for _, name in heapq.nsmallest(limit, heap)]
    chosen: list[str] = []
    held = 0
    while heap and len(chosen) < limit and (held < sets or len(chosen) < at_least):
        upper, name = heapq.heappop(heap)
        exact = held_by.exact(name)
        if exact < -upper:
            if exact:
                heapq.heappush(heap, (-exact, name))
            continue
        chosen.append(name)
        held += exact
    return chosen


def _tighten(chosen: list[str], held_by: _Held, sets: int, among: Collection[str] | None = None) -> None:
    """Exchange chosen clusters, the largest first, for the smallest others (of these) with which all sets still fit."""
    held = sum(held_by.exact(name) for name in chosen)
    others = sorted(
        (upper, name)
        for name, upper in held_by.upper.items()
        if name not in chosen and (among is None or name in among)
    )
    for index in range(len(chosen)):
        present = held_by.exact(chosen[index])
        least = sets - held + present
        # Whoever held too little from above holds no more by now.
        for position in range(bisect.bisect_left(others, (least, "")), len(others)):
            name = others[position][1]
            if held_by.upper[name] < least:
                continue
            if held_by.upper[name] >= present:
                break
            exact = held_by.exact(name)
            if exact and exact >= least:
                del others[position]
                held += exact - present
                chosen[index] = name
                break
    chosen.sort(key=lambda name: (-held_by.exact(name), name))


def _deal(sets: int, chosen: Sequence[str], held_by: _Held, at_least: int) -> dict[str, int]:
    """Cluster to sets: fill the largest, keep one for each that must take part."""
    taken: dict[str, int] = {}
    rest = sets
    for name in chosen:
        owed = max(at_least - len(taken) - 1, 0)
        taken[name] = min(held_by.exact(name), rest - owed)
        rest -= taken[name]
        if not rest:
            break
    return taken


def _most_inside(domains: Ints, room: Ints) -> int:
    """The most that any of these domains (one for each node) holds."""
    there = domains >= 0
    return int(np.bincount(domains[there], room[there]).max(initial=0))


def most_sets(gang: Gang, unit: Sequence[int], nodes: Nodes, room: Sequence[Ints], ceiling: int) -> int:
    """How many sets the nodes hold as one part, by bisection: what holds n sets holds fewer."""
    low, high = 0, ceiling
    while low < high:
        middle = (low + high + 1) // 2
        part = _sets(gang, unit, middle)
        if isinstance(place(nodes, part, room=room), Miss):
            high = middle - 1
        else:
            low = middle
    return low


def _sets(gang: Gang, unit: Sequence[int], number: int) -> Gang:
    """So many sets of a gang, all of which are its minimum."""
    tasks = [
        msgspec.structs.replace(task, replicas=count * number, min_available=count * number)
        for task, count in zip(gang.tasks, unit, strict=True)
    ]
    return msgspec.structs.replace(gang, tasks=tasks, min_available=sum(unit) * number)


def _whole(part: Gang) -> Gang:
    """The part with all of its pods as its minimum."""
    tasks = [msgspec.structs.replace(task, min_available=task.replicas) for task in part.tasks]
    return msgspec.structs.replace(part, tasks=tasks, min_available=part.replicas)
