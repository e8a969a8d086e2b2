"""A second try for gangs of several tasks: pod by pod, each where it costs the other tasks the least.

Task by task in the tightest gaps is quick and leaves large gaps whole, but a task may take what only it could have done
without. This is asked only where that failed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from atoll.fit.nodes import Nodes
from atoll.fit.placement import UNBOUNDED, Ints, Placement
from atoll.model.gang import Task

MOST_PODS = 512
"""Of larger gangs a refusal is final: each pod is a step."""
_MOST_ROOM = 1 << 20


def put_sparingly(
    nodes: Nodes,
    tasks: Sequence[Task],
    room: Sequence[Ints],
    want: Sequence[int],
    inside: NDArray[np.bool_],
    order: Sequence[int],
) -> Placement | None:
    """Place `want` of each task on nodes of bool[N]; None where that was not found.

    Args:
        nodes: not changed.
        tasks: at least two.
        room: per task int64[N], how many of its pods a node holds by itself; of others than these bounds only amounts
            of resources are looked at, so None where a task has any.
        want: pods of each task.
        inside: where they may be.
        order: of the tasks; the other way round is tried as well.
    """
    if sum(want) > MOST_PODS or any(each.room(task, len(nodes)) is not None for each in nodes.exact for task in tasks):
        return None
    columns = inside.nonzero()[0]
    asks = np.array([nodes.column(task.requests) for task in tasks])
    free = nodes.free[:, columns]
    if (free.clip(min=0).sum(axis=1) < np.array(want) @ asks).any():
        return None
    held = np.array([each.take(columns) for each in room])
    for turn in (order, order[::-1]):
        counts = _counts(free, asks, held, want, turn)
        if counts is not None:
            spots = [
                (task, int(columns[at]), int(counts[task, at]))
                for task in range(len(tasks))
                for at in counts[task].nonzero()[0]
            ]
            return Placement(spots, list(want))
    return None


def _counts(free: Ints, asks: Ints, held: Ints, want: Sequence[int], order: Sequence[int]) -> Ints | None:
    """int64[T, K] pods of each task on each node; None where some don't fit."""
    left, found = free.copy(), np.zeros(held.shape, np.int64)
    waiting = list(order)
    for task in order:
        waiting.remove(task)
        cost = _costs(left, asks, held, task, waiting)
        for _ in range(want[task]):
            at = int(cost.argmin())
            if cost[at] == UNBOUNDED:
                return None
            left[:, at] -= asks[task]
            found[task, at] += 1
            here = slice(at, at + 1)
            cost[here] = _costs(left[:, here], asks, held[:, here], task, waiting)
    return found


def _costs(left: Ints, asks: Ints, held: Ints, task: int, waiting: Sequence[int]) -> Ints:
    """int64[K]: how many pods of the other tasks one of this task displaces, then the rest for its own;
    UNBOUNDED where it does not fit.
    """
    here = _room(left, asks[task], held[task])
    after = left - asks[task][:, None]
    cost = np.zeros(len(here), np.int64)
    for other in waiting:
        cost += _room(left, asks[other], held[other]) - _room(after, asks[other], held[other])
    # Of equal costs the tightest gap.
    return np.where(here > 0, cost * _MOST_ROOM + np.minimum(here, _MOST_ROOM - 1), UNBOUNDED)


def _room(free: Ints, ask: Ints, held: Ints) -> Ints:
    """How many such pods fit on each node."""
    rows = ask > 0
    most: Ints = (free[rows] // ask[rows][:, None]).min(axis=0, initial=UNBOUNDED)
    return np.where(held > 0, most.clip(min=0), 0)
