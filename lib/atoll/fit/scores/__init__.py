"""What pods prefer of the nodes that they may be on, one preference a file.

Each gives a number per node, more for what is preferred, None where the task prefers nothing of the kind. `sum_up`
makes one of them, each between 0 and 100 over the nodes in question, with the weights that kube-scheduler has.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from atoll.fit.constraints.beside import Beside
from atoll.fit.placement import Ints
from atoll.fit.scores import images, node_affinity, pod_affinity, taints, topology_spread
from atoll.model.gang import Task

_MOST = 100
_SCORES: tuple[tuple[int, Callable[[Task, Beside], Ints | None]], ...] = (
    (2, node_affinity.score),
    (2, pod_affinity.score),
    (2, topology_spread.score),
    (3, taints.score),
)


def sum_up(task: Task, beside: Beside, among: NDArray[np.bool_]) -> Ints | None:
    """int64[M]: how much a pod of the task prefers each node, of bool[M] `among`; None where all are alike."""
    found: Ints | None = None
    for weight, score in _SCORES:
        values = score(task, beside)
        if values is None or not among.any():
            continue
        least, most = int(values[among].min()), int(values[among].max())
        if least < most:
            scaled = (values.clip(least, most) - least) * _MOST // (most - least) * weight
            found = scaled if found is None else found + scaled
    # What images say is between 0 and 100 already, and has the weight 1.
    if (there := images.score(task, beside)) is not None:
        found = there if found is None else found + there
    return found


__all__ = ["sum_up"]
