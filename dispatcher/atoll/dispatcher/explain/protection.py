"""Until when running workloads are protected from eviction for one that waits."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence

from atoll.dispatcher.core.capacity.members import Members
from atoll.dispatcher.core.placement.rules import Rules
from atoll.dispatcher.core.preemption.candidates import Victim, candidates
from atoll.dispatcher.core.preemption.search import may_help, somewhere
from atoll.dispatcher.core.preemption.trial import Claimant, Trial
from atoll.dispatcher.core.quota.tree import Tree
from atoll.dispatcher.core.settings import PreemptionSettings


def protected(
    claimant: Claimant,
    running: Sequence[Victim],
    tree: Tree,
    members: Members,
    *,
    now: float,
    rules: Rules,
    settings: PreemptionSettings,
) -> list[Victim]:
    """Victims whose protection ends before evictions may let a workload start, the last one last; empty where
    evictions may do so now, or never.

    By the necessary condition of `plan`, so no eviction helps before the last end: the search for a plan is left out,
    and the cost is a few looks at all that runs.
    """
    found: list[list[Victim]] = []

    def look(trial: Trial) -> None:
        free = candidates(trial, running, now)
        if may_help(trial, free):
            found.append([])
            return
        young = [each for each in candidates(trial, running, math.inf) if not each.firm and _end(each) > now]
        young.sort(key=lambda each: (_end(each), each.uid))

        def helps(count: int) -> bool:
            gone = {each.uid for each in young[:count]}
            return may_help(trial, [*(each for each in free if each.uid not in gone), *young[:count]])

        least = bisect.bisect_left(range(1, len(young) + 1), True, key=helps) + 1
        if least <= len(young):
            found.append(young[:least])

    somewhere(claimant, tree, members, rules, look, settings)
    return min(found, key=lambda several: _end(several[-1]) if several else now, default=[])


def _end(victim: Victim) -> float:
    return victim.started + victim.protection
