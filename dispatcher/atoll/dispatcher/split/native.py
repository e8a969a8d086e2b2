"""The native division: whole task sets, as few clusters as hold them, each part whole in one allowed domain.

A *set* is the smallest bundle of tasks that keeps their proportions: 2 servers and 8 workers are two sets of 1 and 4.
A gang whose replicas have no common divisor is one set and is never torn. Greedy: the largest parts first, the last
part where it leaves least.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import gcd

import msgspec

from atoll.fit import Miss, Nodes, Placement, place
from atoll.model.gang import Gang, divide


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
    gang: Gang, nodes: Mapping[str, Nodes], *, at_least: int = 1, at_most: int | None = None
) -> Division | Short:
    """Divide all replicas over at most `at_most` and at least `at_least` clusters.

    Args:
        gang: the whole.
        nodes: free nodes of every cluster that may take a part.
        at_least: clusters that must take one.
        at_most: clusters that may; None for any number.
    """
    sets = reduce(gcd, (task.replicas for task in gang.tasks), 0) or 1
    unit = [task.replicas // sets for task in gang.tasks]
    ceiling = sets - max(at_least - 1, 0)
    room = {name: _most_sets(gang, unit, nodes[name], ceiling) for name in sorted(nodes)}
    largest = sorted((name for name in room if room[name]), key=lambda name: (-room[name], name))[:at_most]
    if sum(room[name] for name in largest) < sets or len(largest) < at_least:
        return Short(gang.replicas, min(sum(room[name] for name in largest), sets) * sum(unit))
    taken = _deal(sets, largest, room, at_least)
    clusters = tuple(sorted(taken))
    parts = [[count * taken[name] for count in unit] for name in clusters]
    gangs = divide(gang, parts)
    placements = []
    for name, part in zip(clusters, gangs, strict=True):
        placement = place(nodes[name], _whole(part))
        assert isinstance(placement, Placement), f"{name} held {taken[name]} sets and now does not"
        placements.append(placement)
    return Division(clusters, tuple(gangs), tuple(placements))


def _deal(sets: int, largest: Sequence[str], room: Mapping[str, int], at_least: int) -> dict[str, int]:
    """Cluster to sets: fill the largest, keep one for each that must take part, end where it leaves the least room."""
    taken: dict[str, int] = {}
    rest = sets
    waiting = list(largest)
    while rest:
        owed = max(at_least - len(taken) - 1, 0)
        holds_rest = [name for name in waiting if room[name] >= rest]
        if not owed and holds_rest:
            taken[min(holds_rest, key=lambda name: (room[name], name))] = rest
            break
        name = waiting.pop(0)
        taken[name] = min(room[name], rest - owed)
        rest -= taken[name]
    return taken


def _most_sets(gang: Gang, unit: Sequence[int], nodes: Nodes, ceiling: int) -> int:
    """How many sets the nodes hold as one part, by bisection: what holds n sets holds fewer."""
    low, high = 0, ceiling
    while low < high:
        middle = (low + high + 1) // 2
        part = _whole(_sets(gang, unit, middle))
        if isinstance(place(nodes, part), Miss):
            high = middle - 1
        else:
            low = middle
    return low


def _sets(gang: Gang, unit: Sequence[int], number: int) -> Gang:
    tasks = [
        msgspec.structs.replace(task, replicas=count * number, min_available=count * number)
        for task, count in zip(gang.tasks, unit, strict=True)
    ]
    return msgspec.structs.replace(gang, tasks=tasks, min_available=sum(unit) * number)


def _whole(part: Gang) -> Gang:
    """The part with all of its pods as its minimum."""
    tasks = [msgspec.structs.replace(task, min_available=task.replicas) for task in part.tasks]
    return msgspec.structs.replace(part, tasks=tasks, min_available=part.replicas)
