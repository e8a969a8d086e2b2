"""What a workload itself says of where it may go, added to its policy's placement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from atoll.model import keys
from atoll.model.divided import is_most

Json = dict[str, Any]


def placement_of(policy: Mapping[str, Any], annotations: Mapping[str, str]) -> Json:
    """The policy's placement, for the members that the workload names alone, and divided if it asks for that."""
    found = dict(policy)
    if names := clusters(annotations.get(keys.ONLY_CLUSTERS, "")):
        if groups := found.get("clusterAffinities"):
            found["clusterAffinities"] = [_only(each, names) for each in groups]
        else:
            found["clusterAffinity"] = _only(found.get("clusterAffinity") or {}, names)
    if is_most(most := annotations.get(keys.DIVIDED, "")):
        found["replicaScheduling"] = {"replicaSchedulingType": "Divided"}
        others = [each for each in found.get("spreadConstraints") or () if each.get("spreadByField") != "cluster"]
        mine = [each for each in found.get("spreadConstraints") or () if each.get("spreadByField") == "cluster"]
        limits = [int(each["maxGroups"]) for each in mine if each.get("maxGroups")]
        limits += [] if most == "any" else [int(most)]
        least = max((int(each.get("minGroups") or 1) for each in mine), default=1)
        constraint: Json = {"spreadByField": "cluster", "minGroups": least}
        if limits:
            constraint["maxGroups"] = max(min(limits), least)
        found["spreadConstraints"] = [*others, constraint]
    return found


def duplicated(placement: Mapping[str, Any]) -> bool:
    """Whether each member is to run all of a workload."""
    return (placement.get("replicaScheduling") or {}).get("replicaSchedulingType") == "Duplicated"


def groups_of(placement: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, str]:
    """Fields of the gang: the groups of workloads to whose members it keeps, and to whose it does not go."""
    wish = placement.get("workloadAffinity") or {}
    found = {}
    for field, term in (("follows", "affinity"), ("avoids", "antiAffinity")):
        key = (wish.get(term) or {}).get("groupByLabelKey") or ""
        if value := labels.get(key):
            found[field] = f"{key}={value}"
    return found


def clusters(text: str) -> list[str]:
    """Names with commas between."""
    return [name for each in text.split(",") if (name := each.strip())]


def _only(affinity: Mapping[str, Any], names: list[str]) -> Json:
    allowed = affinity.get("clusterNames") or names
    both = [name for name in names if name in allowed]
    if both:
        return {**affinity, "clusterNames": both}
    # No member is in both; an empty list of names would be all.
    return {**affinity, "clusterNames": names, "exclude": names}
