"""The shortest prefix of capacity freed on nodes, one piece after the other, with which a gang fits."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from atoll.fit.nodes import Nodes
from atoll.fit.placement import UNBOUNDED, Ints
from atoll.fit.pods import Pods
from atoll.model.gang import Gang

Held = tuple[Ints, Ints]
"""(int64[K] nodes, int64[K, R] held amounts on each)."""
_FIRST_ENDS = 16
"""So many ends are looked at one by one, then four times as many together, and so on."""


def is_loose(gang: Gang) -> bool:
    """Whether its pods are equal and may be anywhere: a sum over nodes says whether it fits."""
    wish = gang.network_topology
    return len(gang.tasks) == 1 and (wish is None or not wish.limited)


def ends_needed(nodes: Nodes, gang: Gang, held: Iterator[Held], there: int) -> int | None:
    """How many of these must be free, the first ones first, before the nodes hold a loose gang, `there` pods of which
    they hold by now; None where all of them are not enough.
    """
    [task], [floor] = gang.tasks, gang.floor()
    missing, done = floor - there, 0
    if missing <= 0:
        return 0
    asked = {name: amount for name, amount in task.requests.items() if amount > 0}
    if not asked.keys() <= set(nodes.resources) or max(asked.values(), default=0) > UNBOUNDED:
        return None
    rows = [(nodes.resources.index(name), amount) for name, amount in asked.items()]
    accepts = nodes.accepting(task)
    # Most gangs are small, and wait for few.
    known: dict[int, list[int]] = {}
    for where, amounts in itertools.islice(held, _FIRST_ENDS):
        done += 1
        for node, freed in zip(where.tolist(), amounts.tolist(), strict=True):
            if accepts[node]:
                before = known.get(node) or nodes.free[:, node].tolist()
                after = known[node] = [has + more for has, more in zip(before, freed, strict=True)]
                missing -= _times(after, rows) - _times(before, rows)
        if missing <= 0:
            return done
    nodes = nodes.copy()
    for node, after in known.items():
        nodes.free[:, node] = after
    size = 4 * _FIRST_ENDS
    while cells := list(itertools.islice(held, size)):
        where, amounts = together(cells)
        gained = _gained(nodes, rows, where, amounts)
        gained *= accepts.take(where)
        if gained.sum() >= missing:
            last = int(gained.cumsum().searchsorted(missing))
            return done + 1 + bisect.bisect_right([*itertools.accumulate(len(each) for each, _ in cells)], last)
        missing -= int(gained.sum())
        free(nodes, where, amounts.T)
        done, size = done + len(cells), 4 * size
    return None


def _times(amounts: Sequence[int], rows: Sequence[tuple[int, int]]) -> int:
    """How many pods that ask for so much of each row such amounts hold."""
    return max(0, min([amounts[row] // amount for row, amount in rows], default=0))


def _gained(nodes: Nodes, rows: Sequence[tuple[int, int]], where: Ints, amounts: Ints) -> Ints:
    """int64[K]: how many more pods, with these requests by row, fit with each of int64[K, R]
    amounts that are freed on int64[K] nodes, one after the other.
    """
    # Node by node, and on each in their order.
    order = where.argsort(kind="stable")
    node = where.take(order)
    first = np.flatnonzero(np.diff(node, prepend=-1))
    freed = amounts.take(order, axis=0)
    total = freed.cumsum(axis=0)
    total -= np.repeat(total[first] - freed[first], np.diff(first, append=len(node)), axis=0)
    before, after = np.full(len(node), UNBOUNDED), np.full(len(node), UNBOUNDED)
    for row, amount in rows:
        has = nodes.free[row].take(node)
        np.minimum(before, has // amount, out=before)
        np.minimum(after, (has + total[:, row]) // amount, out=after)
    np.maximum(after, 0, out=after)
    change = np.diff(after, prepend=0)
    change[first] = after[first] - np.maximum(before[first], 0)
    gained = np.empty_like(change)
    gained[order] = change
    return gained


def together(cells: Sequence[Held]) -> Held:
    """All of these as one."""
    return np.concatenate([where for where, _ in cells]), np.concatenate([amounts for _, amounts in cells])


def free(nodes: Nodes, where: Ints, amounts: Ints) -> None:
    """Free int64[R, K] amounts on int64[K] nodes, which may repeat."""
    for free, row in zip(nodes.free, amounts, strict=True):
        np.add.at(free, where, row)


def held_by(nodes: Nodes, gang: Gang, pods: Pods) -> Held:
    """What the pods of a gang hold on nodes; those on nodes that are no more hold nothing."""
    columns = [nodes.column(task.requests) for task in gang.tasks]
    there = [each for each in pods if each[1] < len(nodes)]
    where = np.array([node for _, node, _ in there], np.int64)
    amounts = np.array([columns[task] * count for task, _, count in there], np.int64)
    return where, amounts.reshape(len(there), len(nodes.resources))
