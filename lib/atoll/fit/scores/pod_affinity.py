"""Preferred affinity and anti-affinity between pods: the weight counts for each pod that is meant, in the same domain.

Preferences of present pods about the new one count as well, and their requirements count a little.
"""

from __future__ import annotations

import numpy as np

from atoll.fit.constraints.beside import Beside
from atoll.fit.placement import Ints
from atoll.model.gang import Task


def score(task: Task, beside: Beside) -> Ints | None:
    """int64[M]; None where neither side prefers anything."""
    if (rules := task.rules) is None:
        return None
    weighted = [(term.key, term.weight, beside.count(term.pods)) for term in rules.preferred]
    weighted += beside.peers.liking(rules)
    found: Ints | None = None
    for key, weight, counts in weighted:
        values = weight * beside.in_domains(key, counts)
        found = values if found is None else np.add(found, values)
    return found
