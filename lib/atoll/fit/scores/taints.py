"""Taints with PreferNoSchedule: the fewer of them that a pod does not tolerate the better."""

from __future__ import annotations

import numpy as np

from atoll.fit.constraints.beside import Beside
from atoll.fit.placement import Ints
from atoll.model import selectors
from atoll.model.gang import Task


def score(task: Task, beside: Beside) -> Ints | None:
    """int64[M]; None where no node has such a taint."""
    if not any(selectors.is_soft(taint) for _, site in beside.peers.sites() for taint in site.taints):
        return None
    counts = [selectors.disliked(site.taints, task.tolerations) for _, site in beside.peers.sites()]
    return -np.array(counts, np.int64)
