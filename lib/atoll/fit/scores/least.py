"""The emptier a node is, whatever the pod asks for, the better: `least = 10000 - most`, Kubernetes' LeastAllocated."""

from __future__ import annotations

from collections.abc import Mapping

from atoll.fit.placement import Ints
from atoll.fit.scores import most
from atoll.fit.scores.amounts import WHOLE, Amounts


def score(requests: Mapping[str, int], amounts: Amounts, weights: Mapping[str, int]) -> Ints:
    """int64[K] from 0 to `WHOLE`."""
    return WHOLE - most.score(requests, amounts, weights)
