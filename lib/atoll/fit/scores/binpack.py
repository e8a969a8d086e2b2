"""The fuller a node is of what the pod asks for, the better: large gaps stay for large pods.

`binpack = 10000 * sum(w[r] * (used[r] + request[r]) / offered[r]) / sum(w[r])` over the resources that the pod asks
for, of resources that the scoring names if it names any; the formula of Volcano's plugin of that name.
"""

from __future__ import annotations

from collections.abc import Mapping

from atoll.fit.placement import Ints
from atoll.fit.scores.amounts import Amounts


def score(requests: Mapping[str, int], amounts: Amounts, weights: Mapping[str, int]) -> Ints:
    """int64[K] from 0 to `WHOLE`."""
    return amounts.mean(amounts.asked(requests, weights), requests)
