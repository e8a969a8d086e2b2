"""Amounts of resources: number of pods of the same requests that free amounts hold."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from atoll.fit.placement import UNBOUNDED, Ints


def room(requests: Mapping[str, int], free: Ints, row: Mapping[str, int]) -> Ints:
    """int64[N] for `free` int64[R, N]; `row` says which resource is where, and a resource without a row is nowhere."""
    found = np.full(free.shape[1], UNBOUNDED)
    for name, amount in requests.items():
        if amount > 0:
            index = row.get(name)
            if index is None or amount > UNBOUNDED:
                return np.zeros(free.shape[1], np.int64)
            np.minimum(found, free[index] // amount, out=found)
    return np.maximum(found, 0, out=found)
