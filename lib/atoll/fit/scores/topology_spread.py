"""topologySpreadConstraints that only wish (ScheduleAnyway): the fewer pods in a domain the better.

A constraint over more domains weighs more, by the logarithm of their number, as in kube-scheduler.
"""

from __future__ import annotations

import math

import numpy as np

from atoll.fit.constraints import topology_spread
from atoll.fit.constraints.beside import Beside
from atoll.fit.placement import Ints
from atoll.model.gang import Task

_UNIT = 1000


def score(task: Task, beside: Beside) -> Ints | None:
    """int64[M]; None without such constraints. Nodes without a label of one come last."""
    if task.rules is None or not any(not each.hard for each in task.rules.spread):
        return None
    crowded: Ints = np.zeros(len(beside.peers), np.int64)
    lacking = np.zeros(len(beside.peers), np.bool_)
    for spread in task.rules.spread:
        if spread.hard:
            continue
        ids, number = beside.peers.domains(spread.key)
        sums, _ = topology_spread.counts(spread, task, beside)
        crowded += sums * int(_UNIT * math.log(number + 2)) + spread.max_skew - 1
        lacking |= ids < 0
    return np.where(lacking, -crowded.max(initial=0) - 1, -crowded)
