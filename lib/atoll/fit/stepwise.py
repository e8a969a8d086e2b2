"""Pods of a gang put on nodes one by one: where one is decides where the next may be, or prefers to be.

1. Tasks in their order, tasks that must be near others after these; each pod where it may be now.
2. Of these nodes the ones that keep the most ways open: a domain that holds all pods that must be together, the
emptiest
   domain where they are spread.
3. Then where it, or a scoring, prefers it to be; then the tightest gap.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from atoll.fit.nodes import Nodes
from atoll.fit.placement import UNBOUNDED, Ints, Placement
from atoll.fit.scores import UNIT, of_nodes
from atoll.model.gang import Gang, Task
from atoll.model.scoring import Scoring


def put_in_turn(
    nodes: Nodes,
    gang: Gang,
    room: Sequence[Ints],
    want: Sequence[int],
    full: Sequence[int],
    inside: NDArray[np.bool_],
    order: Sequence[int],
) -> Placement | None:
    """Place `want` pods of each task on nodes inside, then as many more of `full` as there is room for.

    Args:
        nodes: not changed.
        gang: whose pods they are.
        room: per task int64[N], the most that each node holds, with any pods put there before.
        want: pods per task; None is returned where not all of them find a node.
        full: as many or more.
        inside: bool[N].
        order: of the tasks.
    """
    free, scoring = nodes.copy(), nodes.scoring_of(gang)
    counts = [0] * len(gang.tasks)
    pods: dict[tuple[int, int], int] = {}
    for target in (want, full) if list(want) != list(full) else (want,):
        going = True
        while going:
            going = False
            for index in order:
                while counts[index] < target[index]:
                    here = np.where(inside & (room[index] > 0), free.room_left(gang.tasks[index]), 0)
                    if not here.any():
                        break
                    node, count = _choose(free, gang.tasks[index], here, target[index] - counts[index], scoring)
                    free.free[:, node] -= free.column(gang.tasks[index].requests) * count
                    free.count_pieces(gang.tasks[index], node, count)
                    pods[index, node] = pods.get((index, node), 0) + count
                    counts[index] += count
                    # Pods that others had to wait for may be there now.
                    going = len(order) > 1
        if target is want and any(have < least for have, least in zip(counts, want, strict=True)):
            return None
    return Placement([(index, node, count) for (index, node), count in pods.items()], counts)


def _choose(nodes: Nodes, task: Task, here: Ints, missing: int, scoring: Scoring | None) -> tuple[int, int]:
    """(node, how many pods go there)."""
    company = nodes.company
    if company is not None:
        for group in company.groups(task):
            here = _in_one(here, group, missing)
        if (level := company.level(task)) is not None:
            here = np.where(level == level[here > 0].min(), here, 0)
    score = company.score(task, here > 0, nodes.scoring) if company is not None else None
    if scoring is not None:
        by_node = of_nodes(task.requests, nodes.amounts(), scoring)
        score = by_node if score is None else by_node + UNIT * score
    if score is not None:
        here = np.where(score == score[here > 0].max(), here, 0)
    node = int(np.where(here > 0, here, UNBOUNDED).argmin())
    alone = (task.rules is not None and task.rules.says) or (scoring is not None and not scoring.packs)
    return node, 1 if alone else min(missing, int(here[node]))


def _in_one(here: Ints, group: Ints, missing: int) -> Ints:
    """The capacity in the tightest group that holds the missing pods, or in the largest."""
    sums = np.zeros(int(group.max(initial=-1)) + 2, np.int64)
    np.add.at(sums, group, np.minimum(here, missing))
    sums[-1] = 0
    enough = np.where(sums >= missing, sums, UNBOUNDED)
    chosen = int(enough.argmin()) if (sums >= missing).any() else int(sums.argmax())
    return np.where(group == chosen, here, 0)
