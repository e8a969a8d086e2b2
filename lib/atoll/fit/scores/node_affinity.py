"""Preferred node affinity: the weights of the terms that match are added up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from atoll.fit.constraints.beside import Beside
from atoll.fit.placement import Ints
from atoll.model import selectors
from atoll.model.gang import Task


def score(task: Task, beside: Beside) -> Ints | None:
    """int64[M]; None without such terms."""
    if not task.preferences:
        return None
    return np.array([weight(task.preferences, site.labels, name) for name, site in beside.peers.sites()], np.int64)


def weight(preferences: Sequence[Mapping[str, Any]], labels: Mapping[str, str], name: str) -> int:
    """The sum of the weights of preferred terms that match a node."""
    return sum(
        each["weight"]
        for each in preferences
        if isinstance(each.get("weight"), int)
        and selectors.node_affinity_matches([each.get("preference") or {}], labels, name)
    )
