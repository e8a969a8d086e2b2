"""Cases of Karmada's scheduler: division, seats and selection."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from atoll.dispatcher.split import karmada, spread, webster
from atoll.dispatcher.split.karmada import Candidate, Unschedulable, Unsupported, Wanted

Json = dict[str, Any]


def division(case: Json) -> list[str]:
    """Cases of `karmada-division`, both operations; what differs, nothing where all is equal."""
    return webster_seats(case) if case["op"] == "webster" else _compare(_assigned(case), case["expect"])


def webster_seats(case: Json) -> list[str]:
    """Cases of operation `webster`; those of `assign` are left out."""
    if case["op"] != "webster":
        return []
    tie = case.get("tieBreaker") or {}
    last_first = webster.descending(tie.get("uid") or "") if tie.get("type") == "uid" else False
    seats = webster.seats(case["newSeats"], case["partyVotes"], case.get("initialAssignments"), last_first=last_first)
    return _compare({"seats": seats}, case["expect"])


def select(case: Json) -> list[str]:
    """Cases of `karmada-select`: order, scores of regions, selection, and the division over it."""
    candidates, wanted = _candidates(case), _wanted(case)
    found: Json = {"sorted": [each.name for each in spread.ranked(candidates)]}
    if "regionScores" in case["expect"]:
        found["regionScores"] = {region.name: region.score for region in spread.regions(candidates, wanted)}
    try:
        selected = spread.select(candidates, wanted)
    except Unsupported as error:
        found["error"] = {"class": "Error", "message": str(error)}
    else:
        found["selected"] = [each.name for each in selected]
        assigned = _assigned(case, selected)
        found |= {"assignError": assigned["error"]} if "error" in assigned else assigned
    return _compare(found, case["expect"])


def _assigned(case: Json, selected: list[Candidate] | None = None) -> Json:
    try:
        counts = karmada.assign(_candidates(case) if selected is None else selected, _wanted(case))
    except Unschedulable as error:
        return {"error": {"class": "Unschedulable", "message": str(error)}}
    except Unsupported as error:
        return {"error": {"class": "Error", "message": str(error)}}
    return {"clusters": [{"name": name, "replicas": counts[name]} for name in sorted(counts)]}


def _candidates(case: Json) -> list[Candidate]:
    spec, found = case["spec"], []
    tiers = karmada.overflow(spec["placement"], case["status"].get("schedulerObservingAffinityName") or "")
    previous = {each["name"]: each.get("replicas") or 0 for each in spec.get("clusters") or ()}
    for each in case["candidates"]:
        allocatable = each["allocatableReplicas"]
        fields = {"provider": _listed(each.get("provider")), "region": _listed(each.get("region"))}
        candidate = Candidate(
            each["name"],
            allocatable,
            allocatable + previous.get(each["name"], 0),
            score=each.get("score", 0),
            labels=each.get("labels") or {},
            fields={**fields, "zone": each.get("zones") or []},
        )
        tier = each.get("overflowOrder") if tiers else 0
        found.append(replace(candidate, tier=karmada.tier_of(candidate, tiers) if tier is None else tier))
    return found


def _listed(value: str | None) -> list[str]:
    return [value] if value else []


def _wanted(case: Json) -> Wanted:
    spec, status = case["spec"], case["status"]
    triggered, scheduled = spec.get("rescheduleTriggeredAt"), status.get("lastScheduledTime")
    replicas = spec.get("replicas") or 0
    has_pods = (replicas > 0 or spec.get("replicaRequirements") is not None) and len(spec.get("components") or ()) <= 1
    return Wanted(
        replicas,
        spec["placement"],
        webster.descending(spec["resource"].get("uid") or ""),
        {each["name"]: each.get("replicas") or 0 for each in spec.get("clusters") or ()},
        bool(triggered and scheduled and triggered > scheduled),
        has_pods,
    )


def _compare(found: Json, expect: Json) -> list[str]:
    """Fields that differ; of errors the class counts."""
    differing = []
    for name in sorted({*found, *expect}):
        ours, theirs = found.get(name), expect.get(name)
        if name.lower().endswith("error"):
            ours, theirs = (ours or {}).get("class"), (theirs or {}).get("class")
        if ours != theirs:
            differing.append(f"{name}: {ours}, expected {theirs}")
    return differing
