"""What is free in a member, summarised so that the host can say whether a shape fits, and never too optimistically.

Nodes are counted by class; every simplification rounds downwards. Pure; `publisher` writes the result to the host.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from atoll.model import quantity
from atoll.model.topology import NO_DOMAIN, Tree
from atoll.model.vector import Vector

Json = dict[str, Any]

MAX_CLASSES = 16
"""Classes in one lowest domain."""
MAX_BYTES = 200_000
"""Size of one object's spec as JSON."""
_DIVISIBLE = ("cpu", "memory", "ephemeral-storage")
_STEPS = 64
_COARSER = (32, 16, 8, 4, 2, 1)
_HOSTNAME = "kubernetes.io/hostname"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


@dataclass(frozen=True)
class NodeRoom:
    """One node that pods can go to."""

    name: str
    labels: Mapping[str, str]
    taints: Sequence[Mapping[str, Any]]
    allocatable: Vector
    free: Vector
    lowest: int = NO_DOMAIN
    """Index of its lowest domain."""


@dataclass
class _Class:
    profile: int
    nodes: int
    free: Vector
    allocatable: Vector


def summarise(cluster: str, nodes: Iterable[NodeRoom], tree: Tree, dropped: Iterable[str] = ()) -> dict[str, Json]:
    """The ClusterCapacity specs of a member by object name, without `generation`.

    Args:
        cluster: the member.
        nodes: that count; the result does not depend on their order.
        tree: the domains.
        dropped: label keys to leave out, besides the host name.
    """
    hidden = {_HOSTNAME, *dropped}
    profiles: dict[str, int] = {}
    described: list[tuple[Json, list[Json]]] = []
    by_domain: defaultdict[int, list[_Class]] = defaultdict(list)
    for node in sorted(nodes, key=lambda each: each.name):
        labels = {key: node.labels[key] for key in sorted(node.labels) if key not in hidden}
        taints = [{key: taint[key] for key in ("key", "value", "effect") if taint.get(key)} for taint in node.taints]
        text = f"{labels}{taints}"
        number = profiles.setdefault(text, len(profiles))
        if number == len(described):
            described.append((labels, taints))
        by_domain[node.lowest].append(_Class(number, 1, _rounded(node), dict(node.allocatable)))
    roots = {index: _root(tree, index) for index in range(len(tree.domains))}
    tops = [index for index, root in roots.items() if index == root]
    if by_domain.get(NO_DOMAIN) or not tops:
        tops.append(NO_DOMAIN)
    specs: dict[str, Json] = {}
    for top in tops:
        inside = [index for index, root in roots.items() if root == top] if top != NO_DOMAIN else [NO_DOMAIN]
        spec = _fitting(cluster, top, inside, tree, by_domain, described)
        spec["objects"] = len(tops)
        specs[object_name(spec["root"])] = spec
    return specs


def object_name(root: str) -> str:
    """Name of the object of a top domain; `nodes` for nodes outside any."""
    if not root:
        return "nodes"
    if root != "nodes" and _NAME.fullmatch(root):
        return root
    plain = re.sub(r"[^a-z0-9]+", "-", root.lower()).strip("-")[:200]
    return f"{plain or 'domain'}-{hashlib.sha256(root.encode()).hexdigest()[:8]}"


def _root(tree: Tree, index: int) -> int:
    return list(tree.ancestors(index))[-1]


def _rounded(node: NodeRoom) -> Vector:
    free: Vector = {}
    for name, amount in node.free.items():
        whole = node.allocatable.get(name, 0)
        if name in _DIVISIBLE and whole > 0:
            # In steps of whole/64 counted from the top, so that an empty node promises all that it has.
            amount = amount * _STEPS // whole * whole // _STEPS
        free[name] = max(0, amount)
    return free


def _fitting(
    cluster: str,
    top: int,
    inside: list[int],
    tree: Tree,
    by_domain: Mapping[int, list[_Class]],
    described: list[tuple[Json, list[Json]]],
) -> Json:
    limit = MAX_CLASSES
    while True:
        spec = _spec(cluster, top, inside, tree, by_domain, described, limit)
        if limit == 1 or len(orjson.dumps(spec)) <= MAX_BYTES:
            return spec
        limit //= 2


def _spec(
    cluster: str,
    top: int,
    inside: list[int],
    tree: Tree,
    by_domain: Mapping[int, list[_Class]],
    described: list[tuple[Json, list[Json]]],
    limit: int,
) -> Json:
    numbers: dict[str, int] = {}
    profiles: list[Json] = []
    classes: list[Json] = []
    inside = sorted(
        inside,
        key=lambda i: (-tree.domains[i].tier, tree.domains[i].name) if i != NO_DOMAIN else (0, ""),
    )
    for index in inside:
        for each in _merged(by_domain.get(index, []), limit):
            labels, taints = described[each.profile]
            allocatable = {n: quantity.format_units(n, amount) for n, amount in sorted(each.allocatable.items())}
            profile = {"labels": labels, "taints": taints, "allocatable": allocatable}
            text = str(profile)
            if text not in numbers:
                numbers[text] = len(profiles)
                profiles.append(profile)
            classes.append(
                {
                    "domain": tree.domains[index].name if index != NO_DOMAIN else "",
                    "profile": numbers[text],
                    "nodes": each.nodes,
                    "free": each.free,
                }
            )
    return {
        "cluster": cluster,
        "root": tree.domains[top].name if top != NO_DOMAIN else "",
        "domains": [_domain(tree, index) for index in inside if index != NO_DOMAIN],
        "profiles": profiles,
        "classes": classes,
    }


def _domain(tree: Tree, index: int) -> Json:
    domain = tree.domains[index]
    body: Json = {"name": domain.name, "tier": domain.tier}
    if domain.tier_name:
        body["tierName"] = domain.tier_name
    if domain.parent != NO_DOMAIN:
        body["parent"] = tree.domains[domain.parent].name
    return body


def _merged(classes: list[_Class], limit: int) -> list[_Class]:
    """At most `limit` classes that promise no more than these; a total order makes the result stable."""
    found = _grouped(classes, lambda each: tuple(sorted(each.free.items())))
    for steps in _COARSER:
        if len(found) <= limit:
            break

        def coarse(each: _Class, steps: int = steps) -> object:
            return tuple(
                (
                    name,
                    amount * steps // max(1, each.allocatable.get(name, 0))
                    if name in (*_DIVISIBLE, "pods")
                    else amount,
                )
                for name, amount in sorted(each.free.items())
            )

        found = _grouped(found, coarse)
    if len(found) > limit:
        # Devices differ too much as well: neighbours in order of their devices become one.
        found = _neighbours(found, limit)
    # More kinds of labels than classes are allowed: those with fewest nodes are not promised at all.
    found.sort(key=lambda each: (-each.nodes, _order(each)))
    return sorted(found[:limit], key=_order)


def _grouped(classes: list[_Class], key: Callable[[_Class], object]) -> list[_Class]:
    groups: dict[tuple[int, object, object], list[_Class]] = {}
    for each in classes:
        alike = (each.profile, tuple(sorted(each.allocatable)), key(each))
        groups.setdefault(alike, []).append(each)
    return [_joined(group) for group in groups.values()]


def _neighbours(classes: list[_Class], limit: int) -> list[_Class]:
    by_profile: dict[int, list[_Class]] = {}
    for each in sorted(classes, key=_order):
        by_profile.setdefault(each.profile, []).append(each)
    room = max(1, limit // len(by_profile))
    joined = []
    for group in by_profile.values():
        size = -(-len(group) // room)
        joined += [_joined(group[at : at + size]) for at in range(0, len(group), size)]
    return joined


def _order(each: _Class) -> tuple[int, list[tuple[str, int]]]:
    devices_first = sorted(each.free.items(), key=lambda item: (item[0] in (*_DIVISIBLE, "pods"), item[0]))
    return each.profile, devices_first


def _joined(group: list[_Class]) -> _Class:
    first = group[0]
    if len(group) == 1:
        return first
    free = {name: min(each.free.get(name, 0) for each in group) for name in first.free}
    allocatable = {name: min(each.allocatable.get(name, 0) for each in group) for name in first.allocatable}
    return _Class(first.profile, sum(each.nodes for each in group), free, allocatable)
