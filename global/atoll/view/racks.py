"""The nodes of a workload inside the domains of a member's topology, from its capacity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from atoll.model import keys

Json = dict[str, Any]

_DEEPEST = 16
"""Domains above one another that are named."""


def drawn(member: str, pods: Mapping[str, int], capacities: Iterable[Json]) -> list[Json]:
    """Lowest domains with pods of a workload.

    Args:
        member: its name.
        pods: node -> how many pods of the workload it has.
        capacities: all ClusterCapacity objects that may be seen.

    Returns:
        For each domain its `path` from the top, `tier`, its `nodes` (`name`, `pods`, `lost`) and `others`: how many
        nodes there have no pod of it. The last one has an empty path: nodes in no domain, or in none that is known.
    """
    home = keys.execution_namespace(member)
    domains: dict[str, Json] = {}
    place_of: dict[str, str] = {}
    lost: set[str] = set()
    count: dict[str, int] = {}
    for spec in (each.get("spec") or {} for each in capacities if each["metadata"]["namespace"] == home):
        domains |= {str(each["name"]): each for each in spec.get("domains") or ()}
        for key in ("classes", "lost"):
            for each in spec.get(key) or ():
                place, names = str(each.get("domain") or ""), each.get("names") or ()
                place_of |= dict.fromkeys(names, place)
                lost |= {*names} if key == "lost" else set()
                count[place] = count.get(place, 0) + int(each["nodes"])
    inside: dict[str, list[Json]] = {}
    for name in sorted(pods):
        node = {"name": name, "pods": pods[name], "lost": name in lost}
        inside.setdefault(place_of.get(name, ""), []).append(node)
    found = [
        {
            "path": _path(place, domains),
            "tier": str(domains.get(place, {}).get("tierName") or ""),
            "nodes": nodes,
            "others": max(count.get(place, 0) - len(nodes), 0) if place else 0,
        }
        for place, nodes in inside.items()
    ]
    return sorted(found, key=lambda each: (not each["path"], each["path"]))


def _path(place: str, domains: Mapping[str, Json]) -> list[str]:
    path: list[str] = []
    while place and len(path) < _DEEPEST:
        path.insert(0, place)
        place = str(domains.get(place, {}).get("parent") or "")
    return path
