"""Karmada's ways to share replicas out over clusters that were selected, exactly as its scheduler does.

Duplicated, static weights, dynamic weights and aggregated; steady scaling up and down from what runs already, a fresh
assignment on request, and overflow tiers. Pinned by the conformance suite `karmada-division`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any

from atoll.dispatcher.split import webster
from atoll.model import affinity

Json = Mapping[str, Any]


class Unschedulable(Exception):
    """The clusters can't take all replicas now."""


class Unsupported(Exception):
    """The placement, or the set of clusters, can't be served with any capacity."""


class TooSmall(Unsupported):
    """No set of clusters that the placement allows is large enough; Karmada does not tell it from the others."""


class Strategy(Enum):
    """How replicas are shared out."""

    DUPLICATED = auto()
    STATIC_WEIGHT = auto()
    DYNAMIC_WEIGHT = auto()
    AGGREGATED = auto()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A cluster that may take replicas."""

    name: str
    allocatable: int
    """Further replicas that fit."""
    available: int
    """Replicas that fit in all: `allocatable` and replicas that the workload has there."""
    tier: int = 0
    """Of overflow: 0 is filled first."""
    score: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Its provider, region and zones, by these names."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The workload to divide."""

    replicas: int
    placement: Json
    last_first: bool = False
    """Whether ties go to the last name, see `webster.descending`."""
    previous: Mapping[str, int] = field(default_factory=dict)
    """Cluster -> replicas that it has."""
    fresh: bool = False
    """Whether the previous assignment is not to be kept."""
    pods: bool = True
    """Whether it has pods; a workload without pods goes to every cluster."""


def strategy_of(placement: Json) -> Strategy:
    """How a placement shares replicas out.

    Raises:
        Unsupported: Divided without a preference, or with one that does not exist.
    """
    scheduling = placement.get("replicaScheduling") or {}
    kind = scheduling.get("replicaSchedulingType") or "Duplicated"
    preference = scheduling.get("replicaDivisionPreference") or ""
    if kind == "Duplicated":
        return Strategy.DUPLICATED
    if kind == "Divided" and preference == "Aggregated":
        return Strategy.AGGREGATED
    if kind == "Divided" and preference == "Weighted":
        dynamic = (scheduling.get("weightPreference") or {}).get("dynamicWeight")
        return Strategy.DYNAMIC_WEIGHT if dynamic else Strategy.STATIC_WEIGHT
    raise Unsupported(f"replicaSchedulingType {kind!r} with replicaDivisionPreference {preference!r} is not supported")


def overflow(placement: Json, group: str) -> Sequence[Json]:
    """The cluster affinities of the group in use, tier by tier: its own, then its overflow; none where it has none."""
    for each in placement.get("clusterAffinities") or ():
        if each.get("affinityName") == group and each.get("overflowAffinities"):
            return affinity.tiers(each)
    return ()


def tier_of(candidate: Candidate, tiers: Sequence[Json]) -> int:
    """The first tier (see `overflow`) that names a cluster; 0 where none does."""
    matching = (
        tier
        for tier, each in enumerate(tiers)
        if affinity.matches(each, candidate.name, candidate.labels, candidate.fields)
    )
    return next(matching, 0)


def assign(candidates: Sequence[Candidate], wanted: Wanted) -> dict[str, int]:
    """Share replicas out; clusters that get none are left out, unless the workload has no pods.

    Raises:
        Unschedulable: there is not enough capacity.
        Unsupported: no candidates, or a strategy that does not exist.
    """
    if not candidates:
        raise Unsupported("no clusters available to schedule")
    if not wanted.pods:
        return {each.name: 0 for each in candidates}
    share = _SHARES[strategy_of(wanted.placement)]
    tiers = sorted({each.tier for each in candidates})
    if len(tiers) == 1:
        found = share(candidates, wanted)
    else:
        found, left = {}, wanted.replicas
        for tier in tiers:
            inside = [each for each in candidates if each.tier == tier]
            replicas = min(left, sum(each.available for each in inside))
            if replicas > 0:
                found |= share(inside, replace(wanted, replicas=replicas))
                left -= replicas
        if left > 0:
            raise Unschedulable(f"{left} of {wanted.replicas} replicas are left over once all tiers are full")
    return {name: count for name, count in found.items() if count > 0}


def _duplicated(candidates: Sequence[Candidate], wanted: Wanted) -> dict[str, int]:
    return {each.name: wanted.replicas for each in candidates}


def _by_static_weight(candidates: Sequence[Candidate], wanted: Wanted) -> dict[str, int]:
    preference = wanted.placement["replicaScheduling"].get("weightPreference")
    rules = preference.get("staticWeightList") or () if preference is not None else ()
    by_name, others = _weights_by_name(rules)
    weights = {each.name: max(by_name.get(each.name, 0), _static_weight(each, others)) for each in candidates}
    weights = {name: weight for name, weight in weights.items() if weight > 0} or {each.name: 1 for each in candidates}
    return _divided(wanted.replicas, weights, wanted.last_first)


def _weights_by_name(rules: Sequence[Json]) -> tuple[dict[str, int], Sequence[Json]]:
    """What rules say that name clusters and nothing else, as most do; and the other rules."""
    by_name: dict[str, int] = {}
    others = []
    for rule in rules:
        target = rule.get("targetCluster") or {}
        if target.get("clusterNames") and not any(target[key] for key in target if key != "clusterNames"):
            for name in target["clusterNames"]:
                by_name[name] = max(by_name.get(name, 0), int(rule.get("weight") or 0))
        else:
            others.append(rule)
    return by_name, others


def _static_weight(candidate: Candidate, rules: Sequence[Json]) -> int:
    matching = (
        int(rule.get("weight") or 0)
        for rule in rules
        if affinity.matches(rule.get("targetCluster") or {}, candidate.name, candidate.labels, candidate.fields)
    )
    return max(matching, default=0)


def _by_room(candidates: Sequence[Candidate], wanted: Wanted) -> dict[str, int]:
    """Dynamic weights and aggregated: running replicas stay, missing ones go where they fit."""
    names = {each.name for each in candidates}
    previous = {name: count for name, count in wanted.previous.items() if name in names}
    assigned = sum(previous.values())
    if wanted.fresh:
        weights = {each.name: each.allocatable + previous.get(each.name, 0) for each in candidates}
        return _shared(wanted.replicas, weights, wanted, {})
    if assigned == wanted.replicas:
        return previous
    if assigned > wanted.replicas:
        return _shared(wanted.replicas, previous, wanted, {})
    more = _shared(wanted.replicas - assigned, {each.name: each.allocatable for each in candidates}, wanted, previous)
    return {name: previous.get(name, 0) + more.get(name, 0) for name in [*previous, *more]}


def _shared(replicas: int, weights: Mapping[str, int], wanted: Wanted, previous: Mapping[str, int]) -> dict[str, int]:
    room = sum(weights.values())
    if room < replicas:
        raise Unschedulable(f"the clusters have room for {room} replicas, {replicas} are to be placed")
    if strategy_of(wanted.placement) is Strategy.AGGREGATED:
        weights = _shortest(replicas, weights, previous)
    return _divided(replicas, weights, wanted.last_first)


def _shortest(replicas: int, weights: Mapping[str, int], previous: Mapping[str, int]) -> dict[str, int]:
    """The fewest clusters that hold the replicas: first the ones that have some already, then the largest."""
    order = sorted(weights, key=lambda name: (previous.get(name, 0) <= 0, -weights[name]))
    chosen: dict[str, int] = {}
    for name in order:
        chosen[name] = weights[name]
        replicas -= weights[name]
        if replicas <= 0:
            break
    return chosen


def _divided(replicas: int, weights: Mapping[str, int], last_first: bool) -> dict[str, int]:
    return webster.seats(replicas, weights, last_first=last_first)


_SHARES: Mapping[Strategy, Callable[[Sequence[Candidate], Wanted], dict[str, int]]] = {
    Strategy.DUPLICATED: _duplicated,
    Strategy.STATIC_WEIGHT: _by_static_weight,
    Strategy.DYNAMIC_WEIGHT: _by_room,
    Strategy.AGGREGATED: _by_room,
}
