"""Preferred node affinity: the weights of the terms that match are added up."""

from __future__ import annotations

import numpy as np

from atoll.fit.constraints.beside import Beside
from atoll.fit.placement import Ints
from atoll.model import selectors
from atoll.model.gang import Task


def score(task: Task, beside: Beside) -> Ints | None:
    """int64[M]; None without such terms."""
    if not task.preferences:
        return None
    wanted = [(each.get("weight"), each.get("preference") or {}) for each in task.preferences]
    weighted = [(weight, term) for weight, term in wanted if isinstance(weight, int)]
    found = [
        # An empty term matches every node, here.
        sum(
            weight
            for weight, term in weighted
            if not term or selectors.node_affinity_matches([term], site.labels, name)
        )
        for name, site in beside.peers.sites()
    ]
    return np.array(found, np.int64)
