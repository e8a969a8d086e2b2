"""Images that a node has already: the more of them, and the larger they are, the better.

Kubernetes' plugin ImageLocality: bytes, scaled by the share of nodes that have the image, of all containers together;
0 up to 23 MiB and 100 from 1000 MiB for each container on.
"""

from __future__ import annotations

import numpy as np

from atoll.fit.constraints.beside import Beside
from atoll.fit.placement import Ints
from atoll.model.gang import Task
from atoll.model.images import LEAST

_ENOUGH = 1000 * 1024 * 1024
_MOST = 100


def score(task: Task, beside: Beside) -> Ints | None:
    """int64[M] from 0 to 100; None where no node has any of its images."""
    if not task.images:
        return None
    known = beside.peers.stocked
    if task.images not in known:
        known[task.images] = _score(task.images, beside)
    return known[task.images]


def _score(images: tuple[str, ...], beside: Beside) -> Ints | None:
    total: Ints = np.zeros(len(beside.peers), np.int64)
    for each in images:
        total += beside.peers.image(each)
    enough = _ENOUGH * len(images)
    found: Ints = _MOST * (total.clip(LEAST, enough) - LEAST) // (enough - LEAST)
    return found if found.any() else None
