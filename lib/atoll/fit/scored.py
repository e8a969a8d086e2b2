"""Pods of a task put on the nodes that a scoring prefers, one after the other; of equal ones in the tightest gap.

A term follows from its node alone, so that only the node that got a pod is looked at again.
"""

from __future__ import annotations

import numpy as np

from atoll.fit.nodes import Nodes
from atoll.fit.placement import UNBOUNDED, Ints
from atoll.fit.scores import UNIT, of_nodes
from atoll.model.gang import Task
from atoll.model.scoring import Scoring

_LAST = -UNBOUNDED


def fill_by_score(
    nodes: Nodes, task: Task, room: Ints, count: int, scoring: Scoring, stocked: Ints | None = None
) -> tuple[Ints, Ints]:
    """(nodes, each once; pods on each) for `count` pods.

    Args:
        nodes: not changed.
        task: whose pods they are.
        room: int64[N] how many each node holds; together it is enough.
        count: pods.
        scoring: by which nodes are compared.
        stocked: int64[N] from 0 to 100, how much of its images each node has; None where that makes no difference.
    """
    where = np.flatnonzero(room > 0)
    amounts, left = nodes.amounts(where), room.take(where)
    extra = np.zeros(len(where), np.int64)
    if stocked is not None:
        extra = UNIT * scoring.weight("imageLocality") * stocked.take(where)
    value = of_nodes(task.requests, amounts, scoring) + extra
    request = nodes.column(task.requests)
    placed: dict[int, int] = {}
    while count > 0:
        best = np.flatnonzero(value == value.max())
        node = int(best[left.take(best).argmin()]) if len(best) > 1 else int(best[0])
        pods = min(count, int(left[node])) if scoring.packs else 1
        placed[node] = placed.get(node, 0) + pods
        count -= pods
        left[node] -= pods
        amounts.put(node, request, task.requests, pods)
        value[node] = _LAST
        if left[node]:
            value[node] = of_nodes(task.requests, amounts.one(node), scoring)[0] + extra[node]
    chosen = np.fromiter(placed, np.int64, len(placed))
    return where.take(chosen), np.fromiter(placed.values(), np.int64, len(placed))
