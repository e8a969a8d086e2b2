"""The emptier a node is of what the pod asks for, the better: `spread = 10000 - binpack`."""

from __future__ import annotations

from collections.abc import Mapping

from atoll.fit.placement import Ints
from atoll.fit.scores import binpack
from atoll.fit.scores.amounts import WHOLE, Amounts


def score(requests: Mapping[str, int], amounts: Amounts, weights: Mapping[str, int]) -> Ints:
    """int64[K] from 0 to `WHOLE`."""
    return WHOLE - binpack.score(requests, amounts, weights)
