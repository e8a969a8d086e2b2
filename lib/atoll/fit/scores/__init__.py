"""Which of the nodes that may take a pod are preferred, one preference a file.

Preferences of pods themselves: each file gives a number per node, more for preferred nodes, None where the task prefers
nothing of the kind. `sum_up` makes one of them, each between 0 and 100 over the nodes in question, with the weights
that kube-scheduler has or a configuration gives.

What a scoring says (`atoll.model.scoring`), of workload, queue or member: each file gives a number between 0 and
`WHOLE` per node, which follows from that node alone. `of_nodes` adds them up with their weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from atoll.fit.constraints.beside import Beside
from atoll.fit.placement import Ints
from atoll.fit.scores import (
    balanced,
    binpack,
    images,
    least,
    most,
    node_affinity,
    pod_affinity,
    spread,
    taints,
    topology_spread,
    usage,
)
from atoll.fit.scores.amounts import WHOLE, Amounts, OfCards
from atoll.fit.scores.fragmentation import Typical
from atoll.model.gang import Task
from atoll.model.scoring import Scoring

_MOST = 100
UNIT = WHOLE // _MOST
"""Of `of_nodes`, for one of `sum_up`."""
_USUAL = Scoring()
_SCORES: tuple[tuple[str, Callable[[Task, Beside], Ints | None]], ...] = (
    ("nodeAffinity", node_affinity.score),
    ("podAffinity", pod_affinity.score),
    ("podTopologySpread", topology_spread.score),
    ("taintToleration", taints.score),
)
_TERMS: dict[str, Callable[[Mapping[str, int], Amounts, Mapping[str, int]], Ints]] = {
    "binpack": binpack.score,
    "spread": spread.score,
    "most": most.score,
    "least": least.score,
    "balanced": balanced.score,
}


def of_nodes(requests: Mapping[str, int], amounts: Amounts, scoring: Scoring) -> Ints:
    """int64[K]: how much each of these nodes is preferred for one pod of these requests."""
    found: Ints = np.zeros(amounts.width, np.int64)
    for term, weight in scoring.terms.items():
        if term == "usage":
            found += weight * usage.score(requests, amounts, scoring.thresholds)
        elif term == "fragmentation":
            found += weight * _of_cards(requests, amounts)
        else:
            found += weight * _TERMS[term](requests, amounts, scoring.resources.get(term, {}))
    return found


def _of_cards(requests: Mapping[str, int], amounts: Amounts) -> Ints:
    if amounts.cards is None or "cpu" not in amounts.row:
        return np.full(amounts.width, WHOLE // 2)
    there = amounts.cards
    return there.typical.scores(requests, amounts.free[amounts.row["cpu"]], there.free, there.profile)[0]


def sum_up(task: Task, beside: Beside, among: NDArray[np.bool_], scoring: Scoring | None = None) -> Ints | None:
    """int64[M]: how much a pod of the task prefers each node, of bool[M] `among`; None where all are alike."""
    weights = scoring or _USUAL
    found: Ints | None = None
    for preference, score in _SCORES:
        weight = weights.weight(preference)
        values = score(task, beside) if weight else None
        if values is None or not among.any():
            continue
        least, most = int(values[among].min()), int(values[among].max())
        if least < most:
            scaled = (values.clip(least, most) - least) * _MOST // (most - least) * weight
            found = scaled if found is None else found + scaled
    # What images say is between 0 and 100 already.
    weight = weights.weight("imageLocality")
    if weight and (there := images.score(task, beside)) is not None:
        found = weight * there if found is None else found + weight * there
    return found


__all__ = ["UNIT", "Amounts", "OfCards", "Typical", "of_nodes", "sum_up"]
