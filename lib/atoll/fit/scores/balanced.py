"""The less the resources of a node differ in how much of them is taken, the better.

`balanced = 10000 - deviation`, the standard deviation of the parts that are taken of cpu and memory, or of the
resources that the scoring names (their weights don't matter): Kubernetes' NodeResourcesBalancedAllocation.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from atoll.fit.placement import Ints
from atoll.fit.scores.amounts import WHOLE, Amounts
from atoll.fit.scores.most import USUAL


def score(requests: Mapping[str, int], amounts: Amounts, weights: Mapping[str, int]) -> Ints:
    """int64[K] from 0 to `WHOLE`."""
    found = [amounts.taken(name, requests) for name in weights or USUAL]
    parts, there = np.array([part for part, _ in found]), np.array([has for _, has in found])
    number = np.maximum(there.sum(axis=0), 1)
    mean = (parts * there).sum(axis=0) // number
    squares = ((parts - mean) ** 2 * there).sum(axis=0) // number
    deviation: Ints = np.sqrt(squares).astype(np.int64)
    return WHOLE - deviation
