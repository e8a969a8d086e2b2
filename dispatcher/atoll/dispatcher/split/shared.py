"""A gang shared out over clusters in one of Karmada's ways, in sets of pods; messages where that is impossible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from atoll.dispatcher.split import karmada, spread
from atoll.dispatcher.split.native import sets_of
from atoll.model import affinity as affinities
from atoll.model.gang import Gang
from atoll.model.verdict import Blocker, Reason, Verdict

Json = Mapping[str, Any]


def shares(
    gang: Gang,
    sharing: Json,
    able: Sequence[karmada.Candidate],
    affinity: Json,
    previous: Mapping[str, int] | None = None,
) -> dict[str, int] | Verdict:
    """Member -> sets of the gang, or why it can't be shared out.

    Args:
        gang: all of it.
        sharing: as `BindingView.sharing`.
        able: clusters, with the further sets that they can take.
        affinity: by which these may take it, with its overflow tiers.
        previous: member -> sets that it has; kept as far as possible.
    """
    sets, has = sets_of(gang), previous or {}
    tiers = affinities.tiers(affinity) if affinity.get("overflowAffinities") else ()
    candidates = [
        replace(
            each,
            available=each.allocatable + has.get(each.name, 0),
            tier=karmada.tier_of(each, tiers),
            score=100 if has.get(each.name) else 0,
        )
        for each in able
    ]
    if _takes_the_full(sharing):
        candidates = [each for each in candidates if each.available >= sets or each.name in has]
    try:
        candidates, placement = spread.grouped(candidates, spread.bounded(sharing, len(candidates)))
        wanted = karmada.Wanted(sets, placement, bool(sharing.get("lastFirst")), has)
        return karmada.assign(spread.select(candidates, wanted), wanted)
    except (karmada.Unschedulable, karmada.Unsupported) as error:
        room = [each.allocatable for each in able]
        names, total = ", ".join(each.name for each in able), sum(room) + sum(has.values())
        pods = gang.replicas // sets
        if _takes_the_full(sharing):
            total = max(room, default=0)
        if total < sets:
            block = Blocker("Clusters", names, "pods", str(gang.replicas), str(total * pods))
            return Verdict(Reason.INSUFFICIENT_RESOURCES, block)
        small = isinstance(error, karmada.Unschedulable | karmada.TooSmall)
        reason = Reason.INSUFFICIENT_RESOURCES if small else Reason.NO_CLUSTER
        return Verdict(reason, Blocker("Clusters", names, message=str(error)))


def _takes_the_full(sharing: Json) -> bool:
    """Whether each member takes all of the workload."""
    return karmada.strategy_of(sharing) is karmada.Strategy.DUPLICATED
