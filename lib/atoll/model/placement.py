"""Placement of a policy, in Karmada's words: which members take a workload, whole, divided natively, or shared out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from atoll.model import affinity, keys
from atoll.model.gang import Gang
from atoll.model.policies import ALL_MEMBERS

Json = dict[str, Any]
MOST_SCATTERED: Final = 8
"""Members of a scattered gang at once."""
_BY_DEFAULT: Final = "Aggregated"


@dataclass(frozen=True, slots=True)
class Mode:
    """Numbers of members that a policy allows."""

    least: int
    most: int | None
    """None for any number."""


class Whole(Mode):
    """One member takes all of it."""


class Divided(Mode):
    """The native division: fewest members, nearest domains."""


class Scattered(Mode):
    """One member at first, and more as it grows."""


@dataclass(frozen=True, slots=True)
class Shared(Mode):
    """One of Karmada's own ways."""

    scheduling: Json
    """replicaScheduling, with type and preference."""


class Placement(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """spec.placement of a binding."""

    cluster_affinity: dict[str, Any] = {}
    cluster_affinities: list[dict[str, Any]] = []
    cluster_tolerations: list[dict[str, Any]] = []
    replica_scheduling: dict[str, Any] | None = None
    spread_constraints: list[dict[str, Any]] = []

    def mode(self, gang: Gang | None) -> Whole | Divided | Shared | Scattered:
        """How a gang is placed; None for an unreadable one."""
        least, most = self._bounds()
        if gang is not None and gang.scattered and not gang.copies:
            return Scattered(1, min(most or MOST_SCATTERED, MOST_SCATTERED))
        if gang is not None and not gang.copies:
            # The rest of a workload may be fewer pods than the clusters that its policy wants it spread over.
            least, most = (1, 1) if gang.whole else (max(min(least, gang.replicas), 1), most)
        if (scheduling := self._shared(gang)) is not None:
            return Shared(least, most, scheduling)
        return Divided(least, most) if divides(self.replica_scheduling) and most != 1 else Whole(least, most)

    def _bounds(self) -> tuple[int, int | None]:
        for constraint in self.spread_constraints:
            if by(constraint) == "cluster" and not constraint.get("spreadByLabel"):
                most = constraint.get("maxGroups") or None
                least = max(int(constraint.get("minGroups") or 1), 1)
                return least, None if most is None else max(int(most), least)
        return 1, None

    def _shared(self, gang: Gang | None) -> Json | None:
        scheduling = self.replica_scheduling
        if gang is None or scheduling is None:
            return None
        preference = scheduling.get("replicaDivisionPreference") or _BY_DEFAULT
        if duplicates(scheduling):
            if not gang.copies:
                return None
        else:
            groups = any(each.get("spreadByLabel") or by(each) != "cluster" for each in self.spread_constraints)
            overflow = any(each.get("overflowAffinities") for each in self.cluster_affinities)
            if gang.whole or not (groups or overflow or preference == "Weighted"):
                return None
        return {"replicaSchedulingType": "Divided", **scheduling, "replicaDivisionPreference": preference}

    def affinities(self, excluded: Sequence[str], *, together: bool) -> tuple[Json, ...]:
        """Cluster affinities without members that get nothing now.

        `together`: overflow tiers are filled at once; else they are tried one after the other.
        """
        found = tuple(self.cluster_affinities) or (self.cluster_affinity,)
        if not together:
            found = tuple(dict(tier) for each in found for tier in affinity.tiers(each))
        if not excluded or ALL_MEMBERS in excluded:
            return found
        return tuple(_without(each, excluded) for each in found)


def _without(group: Json, excluded: Sequence[str]) -> Json:
    """A cluster affinity, with its overflow tiers, that takes none of these members."""
    less = {**group, "exclude": sorted({*(group.get("exclude") or ()), *excluded})}
    if tiers := group.get("overflowAffinities"):
        less["overflowAffinities"] = [_without(tier, excluded) for tier in tiers]
    return less


def by(constraint: Mapping[str, Any]) -> str:
    """Field of a spread constraint."""
    return constraint.get("spreadByField") or "cluster"


def divides(scheduling: object) -> bool:
    """Whether replicaScheduling is `Divided`, as an empty one is in Karmada; a wrong type counts as none."""
    return isinstance(scheduling, dict) and scheduling.get("replicaSchedulingType", "Divided") == "Divided"


def duplicates(scheduling: Mapping[str, Any] | None) -> bool:
    """Whether each member runs all of a workload."""
    return (scheduling or {}).get("replicaSchedulingType") == "Duplicated"


def is_most(text: str) -> bool:
    """Whether this is a number of members, or `any`."""
    return text == "any" or (text.isascii() and text.isdigit() and 0 < len(text) < 6 and int(text) > 0)


def may_divide(placement: Mapping[str, Any], annotations: Mapping[str, str]) -> bool:
    """Whether a workload may have pods in several members at once, as far as that is known before it is placed.

    A field with the wrong type counts as missing.

    Args:
        placement: of its policy.
        annotations: its own.
    """
    most, constraints = annotations.get(keys.DIVIDED, ""), placement.get("spreadConstraints")
    spread = [each for each in constraints if isinstance(each, dict)] if isinstance(constraints, list) else []
    limits = [each.get("maxGroups") for each in spread if by(each) == "cluster"]
    return (is_most(most) or divides(placement.get("replicaScheduling"))) and most != "1" and 1 not in limits


def with_annotations(policy: Mapping[str, Any], annotations: Mapping[str, str]) -> Json:
    """The policy's placement, for the members that the workload names alone, and divided if it asks for that."""
    found = dict(policy)
    if names := [name for each in annotations.get(keys.ONLY_CLUSTERS, "").split(",") if (name := each.strip())]:
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


def _only(group: Mapping[str, Any], names: list[str]) -> Json:
    allowed = group.get("clusterNames") or names
    both = [name for name in names if name in allowed]
    if both:
        return {**group, "clusterNames": both}
    # No member is in both; an empty list of names would be all.
    return {**group, "clusterNames": names, "exclude": names}


def groups_of(placement: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, str]:
    """Fields of the gang: the groups of workloads to whose members it keeps, and to whose it does not go."""
    wish = placement.get("workloadAffinity") or {}
    found = {}
    for field, term in (("follows", "affinity"), ("avoids", "antiAffinity")):
        key = (wish.get(term) or {}).get("groupByLabelKey") or ""
        if value := labels.get(key):
            found[field] = f"{key}={value}"
    return found
