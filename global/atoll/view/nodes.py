"""Nodes of members as their capacity tells: idle, mixed, full and lost ones, and free amounts by domain."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from atoll.dispatcher.core.quota.tree import Tree
from atoll.model import keys, quantity

Json = dict[str, Any]

HEADERS = (
    "MEMBER",
    "RESOURCE",
    "NODES",
    "IDLE",
    "MIXED",
    "FULL",
    "LOST",
    "FREE",
    "TOTAL",
    "ON ONE NODE",
    "IN ONE DOMAIN",
    "QUEUES",
)
_DEEPEST = 16
"""Domains above one another that are shown."""
_PLAIN = ("cpu", "memory", "pods", "ephemeral-storage")


def summary(member: str, capacities: Iterable[Json], resource: str = "") -> list[Json]:
    """A document for each device resource of a member, of its CPUs where it has none.

    Args:
        member: its name.
        capacities: all ClusterCapacity objects.
        resource: only this one.
    """
    home = keys.execution_namespace(member)
    specs = [each.get("spec") or {} for each in capacities if each["metadata"]["namespace"] == home]
    named = {name for spec in specs for name in spec.get("total") or {}}
    wanted = [resource] if resource else sorted(name for name in named if "/" in name) or ["cpu"]
    # A member all of whose nodes are lost has no amounts.
    vanished = not named and any(spec.get("lost") for spec in specs)
    return [_of(member, specs, name) for name in wanted if name in named or vanished]


def resources(capacities: Iterable[Json]) -> list[str]:
    """Resources that members have: devices first, then CPU and memory."""
    named = {name for each in capacities for name in (each.get("spec") or {}).get("total") or {}}
    return [*sorted(named - {*_PLAIN}), *(name for name in _PLAIN[:2] if name in named)]


def _of(member: str, specs: Sequence[Json], resource: str) -> Json:
    counts = {"idle": 0, "mixed": 0, "full": 0}
    free_in: dict[str, int] = {}
    total_in: dict[str, int] = {}
    nodes_in: dict[str, int] = {}
    lost_in: dict[str, int] = {}
    lost_names: dict[str, list[str]] = {}
    largest = 0
    domains: list[Json] = []
    for spec in specs:
        domains += spec.get("domains") or ()
        for each in spec.get("lost") or ():
            place = str(each.get("domain") or "")
            lost_in[place] = lost_in.get(place, 0) + int(each["nodes"])
            lost_names.setdefault(place, []).extend(map(str, each.get("names") or ()))
        profiles = spec.get("profiles") or ()
        for each in spec.get("classes") or ():
            profile = profiles[each["profile"]] if each["profile"] < len(profiles) else {}
            allocatable = (profile.get("allocatable") or {}).get(resource)
            if allocatable is None:
                continue
            whole, nodes = quantity.floor_units(resource, allocatable), int(each["nodes"])
            free = max(0, int((each.get("free") or {}).get(resource, 0)))
            counts["full" if not free else "idle" if free >= whole else "mixed"] += nodes
            largest = max(largest, free)
            place = str(each.get("domain") or "")
            free_in[place] = free_in.get(place, 0) + free * nodes
            total_in[place] = total_in.get(place, 0) + whole * nodes
            nodes_in[place] = nodes_in.get(place, 0) + nodes
    return {
        "member": member,
        "resource": resource,
        "nodes": sum(nodes_in.values()),
        **counts,
        "lost": sum(lost_in.values()),
        "free": _text(resource, sum(free_in.values())),
        "total": _text(resource, sum(total_in.values())),
        "largestNode": _text(resource, largest),
        "largestDomain": _text(resource, max((amount for name, amount in free_in.items() if name), default=0)),
        "domains": _domains(resource, domains, free_in, total_in, nodes_in, lost_in),
        "lostNodes": {place: names for place, names in sorted(lost_names.items())},
    }


def _domains(
    resource: str,
    domains: Sequence[Json],
    free: dict[str, int],
    total: dict[str, int],
    nodes: dict[str, int],
    lost: dict[str, int],
) -> list[Json]:
    """Domains below their parents, with the sums of all nodes inside."""
    children: dict[str, list[Json]] = {}
    names = {each["name"] for each in domains}
    for each in sorted(domains, key=lambda domain: str(domain["name"])):
        above = str(each.get("parent") or "")
        children.setdefault(above if above in names else "", []).append(each)
    found: list[Json] = []

    def add(domain: Json, depth: int) -> tuple[int, int, int, int]:
        name = domain["name"]
        line: Json = {"name": name, "tier": domain.get("tier"), "depth": depth}
        if domain.get("tierName"):
            line["tierName"] = domain["tierName"]
        found.append(line)
        sums = [(free.get(name, 0), total.get(name, 0), nodes.get(name, 0), lost.get(name, 0))]
        if depth < _DEEPEST:
            sums += [add(each, depth + 1) for each in children.pop(name, ())]
        has, whole, count, gone = (sum(part) for part in zip(*sums, strict=True))
        line |= {"free": _text(resource, has), "total": _text(resource, whole), "nodes": count, "lost": gone}
        line["used"] = round(1 - has / whole, 3) if whole else 0.0
        return has, whole, count, gone

    for each in children.pop("", ()):
        add(each, 0)
    return found


def _text(resource: str, amount: int) -> str:
    return quantity.format_units(resource, amount)


def queues_of(member: str, tree: Tree) -> list[str] | None:
    """Queues for workloads that may go to a member; None for all of them.

    Args:
        member: its name.
        tree: of the queues, with the members.
    """
    leaves = [node for node in tree.queues.values() if not node.children and node.view is not None]
    found = sorted(node.name for node in leaves if node.serving is None or member in node.serving)
    return None if len(found) == len(leaves) else found


def documents(clusters: Iterable[Json], capacities: Sequence[Json], tree: Tree, resource: str = "") -> list[Json]:
    """`summary` of each member, with its queues.

    Args:
        clusters: the members.
        capacities: all ClusterCapacity objects.
        tree: of the queues, with the members.
        resource: only this one.
    """
    return [
        {**each, "queues": queues_of(cluster["metadata"]["name"], tree)}
        for cluster in clusters
        for each in summary(cluster["metadata"]["name"], capacities, resource)
    ]


def rows(documents: Iterable[Json]) -> list[list[object]]:
    """The table's rows."""
    keyed = (
        "member",
        "resource",
        "nodes",
        "idle",
        "mixed",
        "full",
        "lost",
        "free",
        "total",
        "largestNode",
        "largestDomain",
    )
    return [
        [*(each[key] for key in keyed), "all" if each["queues"] is None else ",".join(each["queues"])]
        for each in documents
    ]
