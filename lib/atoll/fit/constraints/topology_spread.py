"""topologySpreadConstraints that insist (DoNotSchedule): Kubernetes' plugin PodTopologySpread.

No domain may hold more pods than the emptiest one by more than `maxSkew`. Domains of nodes that count: with
the labels of all such constraints, and as the policies for affinity and taints say.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from atoll.fit.constraints.beside import Beside
from atoll.fit.placement import UNBOUNDED, Ints
from atoll.model.gang import Task
from atoll.model.pod_rules import Spread

REFUSAL = "node(s) didn't match pod topology spread constraints"


def allowed(task: Task, company: Beside) -> NDArray[np.bool_]:
    """bool[M]: nodes that a pod of the task may be on."""
    found = np.ones(len(company.peers), np.bool_)
    rules = task.rules
    if rules is None:
        return found
    for spread in rules.spread:
        if not spread.hard:
            continue
        ids, _ = company.peers.domains(spread.key)
        sums, least = counts(spread, task, company)
        itself = int(company.is_meant(spread.pods, rules))
        found &= (ids >= 0) & (sums + itself - least <= spread.max_skew)
    return found


def level(task: Task, company: Beside) -> Ints | None:
    """int64[M]: pods in the domains of each node, added up over constraints; None without any."""
    found: Ints | None = None
    for spread in task.rules.spread if task.rules is not None else ():
        if spread.hard:
            sums, _ = counts(spread, task, company)
            found = sums if found is None else found + sums
    return found


def counts(spread: Spread, task: Task, company: Beside) -> tuple[Ints, int]:
    """(int64[M] pods that count in the domain of each node, how many are in the emptiest domain)."""
    ids, number = company.peers.domains(spread.key)
    counted = company.eligible(task, by_affinity=spread.by_affinity, by_taints=spread.by_taints).copy()
    assert task.rules is not None
    for each in task.rules.spread:
        if each.hard == spread.hard:
            counted &= company.peers.domains(each.key)[0] >= 0
    sums = np.zeros(number + 1, np.int64)
    np.add.at(sums, ids, np.where(counted, company.count(spread.pods), 0))
    there = np.unique(ids[counted])
    least = int(sums[there].min()) if there.size else int(UNBOUNDED)
    if there.size and there.size < spread.min_domains:
        least = 0
    sums[-1] = 0
    return sums.take(ids), least
