"""Which clusters are chosen under Karmada's spread constraints, exactly as its scheduler chooses.

By cluster: the best by rank, exchanged for larger ones where they lack capacity. By region: the set of regions with the
highest score that has clusters enough, then the best cluster of each, then the largest of the rest. Pinned by the
conformance suite `karmada-select`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from atoll.dispatcher.split.karmada import Candidate, Strategy, TooSmall, Unsupported, Wanted, strategy_of

_UNIT = 1000


@dataclass(frozen=True, slots=True)
class Region:
    """A region and its score."""

    name: str
    clusters: Sequence[Candidate]
    """In order of rank."""
    score: int


def ranked(candidates: Sequence[Candidate]) -> list[Candidate]:
    """By overflow tier, then score, then capacity, then name."""
    return sorted(candidates, key=lambda each: (each.tier, -each.score, -each.available, each.name))


def select(candidates: Sequence[Candidate], wanted: Wanted) -> list[Candidate]:
    """Choose clusters, in the order of choice.

    Raises:
        Unsupported: the constraints can't be kept, or are of a kind that Karmada refuses.
    """
    order = ranked(candidates)
    constraints = constraints_of(wanted.placement)
    if not constraints or strategy_of(wanted.placement) is Strategy.STATIC_WEIGHT:
        return order
    if "region" in constraints:
        return _by_region(regions(candidates, wanted), constraints["region"], constraints.get("cluster"))
    if "cluster" in constraints:
        return _by_cluster(order, constraints["cluster"], wanted)
    raise Unsupported("only spread constraints by cluster and by region are supported")


def grouped(candidates: Sequence[Candidate], placement: Mapping[str, Any]) -> tuple[list[Candidate], dict[str, Any]]:
    """Candidates and placement with whatever the clusters are spread by as their region, which is all that Karmada
    knows: zone, provider or a label. A cluster with several zones is in the first.

    Raises:
        Unsupported: it must be spread by two of these at once.
    """
    constraints = placement.get("spreadConstraints") or ()
    groups = [each for each in constraints if each.get("spreadByLabel") or each.get("spreadByField") != "cluster"]
    if len(groups) > 1:
        names = " and by ".join(each.get("spreadByLabel") or each["spreadByField"] for each in groups)
        raise Unsupported(f"its policy spreads it by {names}, and only one of these is served at a time")
    if not groups or groups[0].get("spreadByField") == "region":
        return list(candidates), dict(placement)
    [group] = groups
    label, field = group.get("spreadByLabel"), group.get("spreadByField") or ""

    def value(each: Candidate) -> str:
        return each.labels.get(label, "") if label else next(iter(each.fields.get(field) or ()), "")

    found = [
        replace(each, fields={**each.fields, "region": [value(each)] if value(each) else []}) for each in candidates
    ]
    others = [each for each in constraints if each is not group]
    by_region = {"spreadByField": "region", "minGroups": group.get("minGroups"), "maxGroups": group.get("maxGroups")}
    return found, {**placement, "spreadConstraints": [*others, by_region]}


def constraints_of(placement: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Field -> (least, most) groups."""
    return {
        each.get("spreadByField") or "": (int(each.get("minGroups") or 0), int(each.get("maxGroups") or 0))
        for each in placement.get("spreadConstraints") or ()
    }


def regions(candidates: Sequence[Candidate], wanted: Wanted) -> list[Region]:
    """The regions of the candidates with their scores; clusters without a region are in none."""
    constraints = constraints_of(wanted.placement)
    inside: dict[str, list[Candidate]] = {}
    for each in ranked(candidates):
        for name in each.fields.get("region") or ():
            inside.setdefault(name, []).append(each)
    duplicated = strategy_of(wanted.placement) is Strategy.DUPLICATED
    least, of_clusters = constraints["region"][0], constraints.get("cluster", (0, 0))[0]
    return [
        Region(
            name,
            clusters,
            _score_of_copies(clusters, wanted.replicas)
            if duplicated
            else _score(clusters, -(-wanted.replicas // max(least, 1)), max(of_clusters, least)),
        )
        for name, clusters in inside.items()
    ]


def _score(clusters: Sequence[Candidate], target: int, least: int) -> int:
    """What a region can do for its part of the replicas, then the mean score of the clusters that it takes."""
    room = score = count = 0
    for each in clusters:
        room, score, count = room + each.available, score + each.score, count + 1
        if count >= least and room >= target:
            break
    return min(room, target) * _UNIT + score // (count if room >= target else len(clusters))


def _score_of_copies(clusters: Sequence[Candidate], replicas: int) -> int:
    """How many clusters hold a copy of all, then their mean score."""
    holding = [each.score for each in clusters if each.available >= replicas]
    return len(holding) * _UNIT + (sum(holding) // len(holding) if holding else 0)


def _by_cluster(order: list[Candidate], constraint: tuple[int, int], wanted: Wanted) -> list[Candidate]:
    least, most = constraint
    if len(order) < least:
        raise Unsupported(f"{len(order)} clusters are feasible, the spread constraint wants at least {least}")
    chosen, rest = order[:most], order[most:]
    if strategy_of(wanted.placement) is Strategy.DUPLICATED:
        return chosen
    for index in reversed(range(len(chosen))):
        if sum(each.available for each in chosen) >= wanted.replicas:
            break
        largest = max(range(len(rest)), key=lambda at: rest[at].available, default=-1)
        if largest >= 0 and rest[largest].available > chosen[index].available:
            chosen[index], rest[largest] = rest[largest], chosen[index]
    if sum(each.available for each in chosen) < wanted.replicas:
        raise TooSmall(f"no {len(chosen)} clusters have room for {wanted.replicas} replicas")
    return chosen


def _by_region(
    found: Sequence[Region], constraint: tuple[int, int], of_clusters: tuple[int, int] | None
) -> list[Candidate]:
    least, most = constraint
    if len(found) < least:
        raise Unsupported(f"{len(found)} regions are feasible, the spread constraint wants at least {least}")
    chosen = choose(found, least, most, of_clusters[0] if of_clusters else 0)
    if not chosen:
        raise Unsupported("no set of regions has as many clusters as the spread constraint wants")
    first = [region.clusters[0] for region in chosen]
    rest = ranked([each for region in chosen for each in region.clusters[1:]])
    more = (of_clusters[1] if of_clusters else 0) - len(first)
    return [*first, *rest[: max(more, 0)]]


def choose(found: Sequence[Region], least: int, most: int, clusters: int) -> list[Region]:
    """The set of `least` to `most` regions of the highest score that has so many clusters; empty where none has.

    A set grows by regions of rising size and ends once it is large enough. Of equal scores the set with more clusters,
    then the first in depth-first order; of that one the shortest beginning, in order of rank, that is a set as well.
    Karmada looks at every set; here only the best one of each (regions, clusters) grows on.
    """
    order = sorted(found, key=lambda each: (len(each.clusters), -each.score, each.name))

    def enough(count: int, held: int) -> bool:
        return count >= least and held >= clusters

    #: (regions, clusters) -> (-score, indices) of the best set that is still too small, and of those large enough
    growing: dict[tuple[int, int], tuple[int, tuple[int, ...]]] = {(0, 0): (0, ())}
    ended: list[tuple[int, int, tuple[int, ...]]] = []
    for index, region in enumerate(order):
        for (count, held), (score, chosen) in list(growing.items()):
            if count < most:
                key, value = (count + 1, held + len(region.clusters)), (score - region.score, (*chosen, index))
                if enough(*key):
                    ended.append((value[0], -key[1], value[1]))
                else:
                    growing[key] = min(value, growing.get(key, value))
    if not ended:
        return []
    best = sorted((order[index] for index in min(ended)[2]), key=lambda each: (-each.score, each.name))
    for end in range(1, len(best)):
        sizes = [len(each.clusters) for each in best[:end]]
        if enough(end, sum(sizes)) and not enough(end - 1, sum(sizes) - max(sizes)):
            return best[:end]
    return best


def bounded(sharing: Mapping[str, Any], most: int) -> dict[str, Any]:
    """The placement with the omitted parts of its spread constraints: by cluster, one group at least, any number at
    most.
    """
    constraints = [
        {
            **each,
            "spreadByField": each.get("spreadByField") or ("" if each.get("spreadByLabel") else "cluster"),
            "minGroups": each.get("minGroups") or 1,
            "maxGroups": each.get("maxGroups") or max(most, 1),
        }
        for each in sharing.get("spreadConstraints") or ()
    ]
    return {"replicaScheduling": sharing["replicaScheduling"], "spreadConstraints": constraints}
