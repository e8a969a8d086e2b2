"""The less of a node's cpu and memory is in use, as it was measured, the better.

`usage = 10000 - mean(use[cpu], use[memory])`, where pods put on a node after its measurement, and the pod itself,
count with all that they ask for. A node above a threshold gives 0, so that it comes last; one that was not measured
gives half.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from atoll.fit.placement import Ints
from atoll.fit.scores.amounts import WHOLE, Amounts

MEASURED: Final = ("cpu", "memory")
"""The rows of `Amounts.measured`."""
_UNKNOWN = WHOLE // 2


def score(requests: Mapping[str, int], amounts: Amounts, thresholds: Mapping[str, int]) -> Ints:
    """int64[K] from 0 to `WHOLE`; `thresholds` is resource -> percent."""
    if amounts.measured is None:
        return np.full(amounts.width, _UNKNOWN)
    total, over = np.zeros(amounts.width, np.int64), np.zeros(amounts.width, np.bool_)
    known = (amounts.measured >= 0).all(axis=0)
    for index, name in enumerate(MEASURED):
        if (row := amounts.row.get(name)) is None:
            return np.full(amounts.width, _UNKNOWN)
        have = np.maximum(amounts.capacity[row], 1)
        used = (amounts.measured[index] - amounts.free[row]).clip(0, have)
        if name in thresholds:
            over |= used * 100 > thresholds[name] * have
        total += (used + requests.get(name, 0)).clip(0, have) * WHOLE // have
    return np.where(known, np.where(over, 0, WHOLE - total // len(MEASURED)), _UNKNOWN)
