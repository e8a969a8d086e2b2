"""The fuller a node is, whatever the pod asks for, the better.

As `binpack`, over cpu and memory, or over the resources that the scoring names: Kubernetes' MostAllocated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from atoll.fit.placement import Ints
from atoll.fit.scores.amounts import Amounts

USUAL: Final = {"cpu": 1, "memory": 1}


def score(requests: Mapping[str, int], amounts: Amounts, weights: Mapping[str, int]) -> Ints:
    """int64[K] from 0 to `WHOLE`."""
    return amounts.mean(weights or USUAL, requests)
