"""Members: their resources, their workloads, the time of their reports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from atoll.model.ages import age
from atoll.model.conditions import condition, is_true
from atoll.model.keys import CORDONED

Json = dict[str, Any]

Amounts = dict[str, int]
HEADERS = ("NAME", "READY", "VERSION", "PLACER", "NODES", "GPUS", "CPU", "WORKS", "REPORT", "AGE")
WIDE = ("MEMORY", "REGION", "TAINTS", "LABELS")
_AGENT = "atoll-agent"


def summary(cluster: Json, capacities: Iterable[Json], works: Iterable[Json], leases: Iterable[Json]) -> Json:
    """A member as data.

    Args:
        cluster: the Cluster.
        capacities: all ClusterCapacity objects.
        works: all Works.
        leases: all Leases.
    """
    from atoll.model import keys, quantity

    meta, spec, status = cluster["metadata"], cluster.get("spec") or {}, cluster.get("status") or {}
    home = keys.execution_namespace(meta["name"])
    total, free, nodes = _capacity(each for each in capacities if each["metadata"]["namespace"] == home)
    sent = [each for each in works if each["metadata"]["namespace"] == home]
    ready = condition(cluster, "Ready")
    report = next((each for each in leases if _is_agents(each, home)), {})
    return {
        "name": meta["name"],
        "created": meta.get("creationTimestamp", ""),
        "ready": str(ready.get("status") or "Unknown"),
        "readyMessage": str(ready.get("message") or ""),
        "readySince": str(ready.get("lastTransitionTime") or ""),
        "version": str(status.get("kubernetesVersion") or ""),
        "agent": str((status.get("agent") or {}).get("version") or ""),
        "placer": str(condition(cluster, "Placer").get("reason") or ""),
        "region": str(spec.get("region") or ""),
        "labels": meta.get("labels") or {},
        "taints": spec.get("taints") or [],
        "nodes": nodes,
        "resources": [
            {
                "resource": name,
                "free": quantity.format_units(name, max(free.get(name, 0), 0)),
                "total": quantity.format_units(name, total[name]),
                "used": round(1 - max(free.get(name, 0), 0) / total[name], 3) if total[name] else 0.0,
            }
            for name in sorted(total)
        ],
        "works": len(sent),
        "worksNotApplied": sum(not is_true(condition(each, "Applied")) for each in sent),
        "reported": str((report.get("spec") or {}).get("renewTime") or ""),
        "ceiling": str((meta.get("annotations") or {}).get(keys.CEILING) or ""),
        "problems": {
            type_: {"since": str(said.get("lastTransitionTime") or ""), "message": str(said.get("message") or "")}
            for type_ in _TRUST
            if (said := condition(cluster, type_)).get("status") in ("False", "Unknown")
        },
    }


_TRUST = ("TakesWork", "CapacityAccepted", "CeilingValid", "CredentialsValid")
"""Conditions of a member that says or does something else than it should."""


def _is_agents(lease: Json, home: str) -> bool:
    return bool(lease["metadata"].get("namespace") == home and lease["metadata"]["name"] == _AGENT)


def _capacity(capacities: Iterable[Json]) -> tuple[Amounts, Amounts, int]:
    """Allocatable of all nodes, its free part, and the number of nodes, of one member."""
    total: Amounts = {}
    free: Amounts = {}
    nodes = 0
    for capacity in capacities:
        spec = capacity.get("spec") or {}
        for name, amount in (spec.get("total") or {}).items():
            total[name] = total.get(name, 0) + int(amount)
        for each in spec.get("classes") or ():
            count = int(each.get("nodes") or 0)
            nodes += count
            for name, amount in (each.get("free") or {}).items():
                free[name] = free.get(name, 0) + int(amount) * count
    return total, free, nodes


def rows(members: Sequence[Json], now: float, *, wide: bool) -> list[list[object]]:
    """The table's rows.

    Args:
        members: as `gather` gives them.
        now: seconds since the epoch.
        wide: with the columns of `-o wide`.
    """
    result = []
    for each in members:
        gpus = [line for line in each["resources"] if line["resource"].endswith("gpu")]
        row: list[object] = [
            each["name"],
            _readiness(each),
            each["version"],
            each["placer"],
            each["nodes"],
            ",".join(f"{line['free']}/{line['total']}" for line in gpus),
            _of(each, "cpu"),
            f"{each['worksNotApplied']}/{each['works']}",
            f"{age(each['reported'], now)} ago" if each["reported"] else "",
            age(each["created"], now),
        ]
        if wide:
            labels = ",".join(f"{key}={value}" for key, value in sorted(each["labels"].items()))
            row += [_of(each, "memory"), each["region"], ",".join(map(_taint_text, each["taints"])), labels]
        result.append(row)
    return result


def _readiness(member: Json) -> str:
    cordoned = any(each["key"] == CORDONED for each in member["taints"])
    failing = "TakesWork" in member["problems"]
    return f"{member['ready']}{',Failing' if failing else ''}{',Cordoned' if cordoned else ''}"


def _of(member: Json, resource: str) -> str:
    line = next((each for each in member["resources"] if each["resource"] == resource), None)
    return f"{line['free']}/{line['total']}" if line is not None else ""


def _taint_text(taint: Json) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint['key']}{value}:{taint.get('effect', '')}"


def text(member: Json, now: float) -> str:
    """A member as a person reads it.

    Args:
        member: as `gather` gives it.
        now: seconds since the epoch.
    """
    since = f" since {member['readySince']}" if member["readySince"] else ""
    why = f": {member['readyMessage']}" if member["readyMessage"] else ""
    reported = f"{age(member['reported'], now)} ago" if member["reported"] else "never, or not shown to you"
    lines = [
        f"Member {member['name']}: ready {_readiness(member)}{since}{why}",
        f"  version     {member['version'] or 'unknown'}, agent {member['agent'] or 'unknown'}",
        f"  placer      {member['placer'] or 'unknown'}",
        f"  region      {member['region'] or 'none'}",
        f"  labels      {', '.join(f'{key}={value}' for key, value in sorted(member['labels'].items())) or 'none'}",
        f"  taints      {', '.join(map(_taint_text, member['taints'])) or 'none'}",
        f"  ceiling     {member['ceiling'] or 'none'}",
        f"  report      {reported}",
        f"  works       {member['works']}, of which {member['worksNotApplied']} are not applied yet",
        *(
            f"  {type_}: no, since {said['since'] or 'unknown'}: {said['message']}"
            for type_, said in member["problems"].items()
        ),
        "",
        f"Resources of {member['nodes']} nodes (free of all)",
    ]
    lines += [
        f"  {each['resource']:<24} {each['free']} of {each['total']} ({each['used']:.0%} used)"
        for each in member["resources"]
    ]
    return "\n".join(lines)
