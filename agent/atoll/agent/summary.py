"""Free amounts of a member, summarised so that the host can decide whether a shape fits, and never too optimistically.

Nodes are counted by class; every simplification rounds downwards. Pure; `publisher` writes the result to the host.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from atoll.model import quantity, vector
from atoll.model.numa import Cells
from atoll.model.topology import NO_DOMAIN, Tree
from atoll.model.vector import Vector

Json = dict[str, Any]

MAX_CLASSES = 16
"""Classes in one lowest domain."""
MAX_BYTES = 200_000
"""Size of one object's spec as JSON."""
MAX_NAMES = 2000
MAX_LOST, MAX_LOST_NAMES = 256, 16
"""Nodes that one object names."""
MANY_CARRIERS = MAX_CLASSES
"""Nodes with a label above which it is left out if it differs on all of them: up to here each can be a class."""
MAX_PROBLEMS = 20
"""HyperNodes that are named as wrong."""
MAX_TREES = 16
"""Further trees in the summary."""
MAX_TREE_DOMAINS = 1024
"""Domains of one of these."""
MAX_ASKED = 1024
"""Tiers named because the summary lacks their tree."""
_LONGEST_PROBLEM = 400
_DIVISIBLE = ("cpu", "memory", "ephemeral-storage")
_STEPS = 64
_COARSER = (32, 16, 8, 4, 2, 1)
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
    others: Mapping[str, int] = field(default_factory=dict)
    """Name of a further tree -> index of its lowest domain there, of those in which it is in one."""
    numa: Cells | None = None
    """Amounts in each of its NUMA nodes; None for unknown."""


@dataclass(slots=True, eq=False)
class _Class:
    profile: int
    nodes: int
    free: Vector
    allocatable: Vector
    names: list[str]
    order: object = None
    """See `_order`; None where it was not asked yet."""

    def exact(self) -> object:
        """Equal for nodes that are equal."""
        return self.profile, tuple(sorted(self.allocatable)), tuple(sorted(self.free.items()))


class _Profile(NamedTuple):
    """What nodes have in common, free amounts aside."""

    labels: Json
    taints: list[Json]
    where: Mapping[str, int]
    """As `NodeRoom.others`, of trees in the summary."""
    numa: Json | None


@dataclass(slots=True, eq=False)
class _Group:
    """Equal nodes of one lowest domain."""

    #: by name, each as a class of its own
    nodes: dict[str, _Class] = field(default_factory=dict)
    #: all of them; None where that must be worked out anew
    joined: _Class | None = None


def left_out(nodes: Sequence[NodeRoom]) -> set[str]:
    """Label keys that would make so many classes of nodes that some would not fit into the summary.

    First keys of many nodes that differ on all of them, such as host names in a large member; then, as long as a
    lowest domain has more kinds of nodes than classes, the key with most values there. A selector on such a key is
    for the member itself to answer.
    """
    values: defaultdict[str, set[str]] = defaultdict(set)
    carriers: Counter[str] = Counter()
    for node in nodes:
        carriers.update(node.labels.keys())
        for key, value in node.labels.items():
            values[key].add(value)
    hidden = {key for key, count in carriers.items() if MANY_CARRIERS < count == len(values[key])}
    inside: defaultdict[int, list[NodeRoom]] = defaultdict(list)
    for node in nodes:
        inside[node.lowest].append(node)
    for domain in sorted(inside):
        # Equal nodes of a domain are one kind; there are few kinds, so looking again at them is cheap.
        kinds = {(tuple(sorted(each.labels.items())), repr(each.taints)) for each in inside[domain]}
        while True:
            kinds = {(tuple(item for item in labels if item[0] not in hidden), taints) for labels, taints in kinds}
            if len(kinds) <= MAX_CLASSES:
                break
            different: defaultdict[str, set[str]] = defaultdict(set)
            for labels, _ in kinds:
                for key, value in labels:
                    different[key].add(value)
            key = max(sorted(different), key=lambda each: len(different[each]), default="")
            if len(different[key]) < 2:
                # They differ in taints, or in resources that they have at all.
                break
            hidden.add(key)
    return hidden


def described_trees(nodes: Sequence[NodeRoom], trees: Mapping[str, Tree], hidden: Set[str]) -> dict[str, Tree]:
    """The further trees that fit into the summary without more kinds of nodes in a lowest domain than classes.

    Args:
        nodes: all that count.
        trees: by name.
        hidden: label keys that are left out.
    """
    inside: defaultdict[int, list[tuple[object, Mapping[str, int]]]] = defaultdict(list)
    for node in nodes:
        labels = tuple(sorted((key, value) for key, value in node.labels.items() if key not in hidden))
        inside[node.lowest].append(((labels, repr(node.taints)), node.others))
    found: dict[str, Tree] = {}
    for name in sorted(trees)[:MAX_TREES]:
        wanted = [*found, name]
        most = max(
            (
                len({(kind, *(others.get(each) for each in wanted)) for kind, others in here})
                for here in inside.values()
            ),
            default=0,
        )
        if most <= MAX_CLASSES and len(trees[name].domains) <= MAX_TREE_DOMAINS:
            found[name] = trees[name]
    return found


class Summary:
    """The ClusterCapacity specs of a member; what a change does not touch is not worked out again."""

    def __init__(
        self,
        cluster: str,
        nodes: Iterable[NodeRoom],
        tree: Tree,
        problems: Mapping[str, str] | None = None,
        others: Mapping[str, Tree] | None = None,
        *,
        aligns: bool = False,
        lost: Iterable[tuple[str, int]] = (),
    ) -> None:
        """Sort the nodes by what does not change while they stay as they are.

        Args:
            cluster: the member.
            nodes: that count; the result does not depend on their order.
            tree: the domains.
            problems: HyperNode -> what of it is left out of the tree, and why.
            others: the further trees, by name.
            aligns: whether some of the nodes reject pods that they can't align to their NUMA nodes.
            lost: name and lowest domain of nodes that do not count.
        """
        nodes = list(nodes)
        others = others or {}
        self._cluster, self._tree = cluster, tree
        hidden = left_out(nodes)
        #: what every object of the member says
        self._said: Json = {"leftOut": sorted(hidden)} if hidden else {}
        if aligns:
            self._said["aligns"] = True
        if problems:
            self._said["problems"] = [
                {"hyperNode": name, "message": problems[name][:_LONGEST_PROBLEM]}
                for name in sorted(problems)[:MAX_PROBLEMS]
            ]
        self._others = described_trees(nodes, others, hidden)
        asked = {each.tier_name for name in others.keys() - self._others.keys() for each in others[name].domains}
        if asked - {""}:
            self._said["askedTiers"] = sorted(asked - {""})[:MAX_ASKED]
        profiles: dict[str, int] = {}
        self._described: list[_Profile] = []
        #: node -> (lowest domain, its properties in common with others there, itself as a class)
        self._nodes: dict[str, tuple[int, object, _Class]] = {}
        #: lowest domain -> common properties of its nodes -> the nodes
        self._groups: defaultdict[int, dict[object, _Group]] = defaultdict(dict)
        #: equal amounts -> amounts that stand for all
        offered: dict[object, Vector] = {}
        for node in sorted(nodes, key=lambda each: each.name):
            labels = {key: node.labels[key] for key in sorted(node.labels) if key not in hidden}
            taints = [
                {key: taint[key] for key in ("key", "value", "effect") if taint.get(key)} for taint in node.taints
            ]
            where = {name: node.others[name] for name in self._others if name in node.others}
            numa = _numa(node.numa)
            text = f"{labels}{taints}{where}{numa}"
            number = profiles.setdefault(text, len(profiles))
            if number == len(self._described):
                self._described.append(_Profile(labels, taints, where, numa))
            allocatable = offered.setdefault(tuple(node.allocatable.items()), dict(node.allocatable))
            self._file(node.lowest, _Class(number, 1, _rounded(node.free, allocatable), allocatable, [node.name]))
        self._root = {index: _root(tree, index) for index in range(len(tree.domains))}
        self._tops = [index for index, root in self._root.items() if index == root]
        #: lowest domain -> names of its lost nodes
        self._lost: defaultdict[int, list[str]] = defaultdict(list)
        for name, index in sorted(lost):
            self._lost[index].append(name)
        if NO_DOMAIN in self._groups or NO_DOMAIN in self._lost or not self._tops:
            self._tops.append(NO_DOMAIN)
        #: top domain -> its spec; without those to work out anew
        self._known: dict[int, Json] = {}
        #: top domain -> allocatable of all nodes below it
        self._totals: dict[int, Vector] = {top: {} for top in self._tops}
        for index, _, each in self._nodes.values():
            vector.add(self._totals[self._root.get(index, NO_DOMAIN)], each.allocatable)

    def set_free(self, name: str, free: Vector) -> None:
        """Set the free amounts of one node."""
        domain, alike, old = self._nodes[name]
        rounded = _rounded(free, old.allocatable)
        if rounded != old.free:
            groups = self._groups[domain]
            group = groups[alike]
            del group.nodes[name]
            group.joined = None
            if not group.nodes:
                del groups[alike]
            # The old one is part of specs that were handed out.
            self._file(domain, _Class(old.profile, 1, rounded, old.allocatable, old.names))
            self._known.pop(self._root.get(domain, NO_DOMAIN), None)

    def _file(self, domain: int, node: _Class) -> None:
        [name], alike = node.names, node.exact()
        self._nodes[name] = (domain, alike, node)
        group = self._groups[domain].setdefault(alike, _Group())
        group.nodes[name] = node
        group.joined = None

    def specs(self) -> dict[str, Json]:
        """By object name, without `generation`; never changed later."""
        specs: dict[str, Json] = {}
        for top in self._tops:
            spec = self._known.get(top)
            if spec is None:
                inside = [index for index, root in self._root.items() if root == top] or [NO_DOMAIN]
                equal = {index: self._equal(index) for index in inside}
                spec = _fitting(
                    self._cluster, top, inside, self._tree, equal, self._described, self._totals[top], self._others
                )
                spec |= {"objects": len(self._tops), **self._lost_in(inside), **self._said}
                self._known[top] = spec
            specs[object_name(spec["root"])] = spec
        return specs

    def _lost_in(self, inside: Iterable[int]) -> Json:
        found = sorted((index for index in inside if index in self._lost), key=lambda i: (-len(self._lost[i]), i))
        if not found:
            return {}
        return {
            "lost": [
                {
                    "domain": self._tree.domains[index].name if index != NO_DOMAIN else "",
                    "nodes": len(self._lost[index]),
                    "names": self._lost[index][:MAX_LOST_NAMES],
                }
                for index in found[:MAX_LOST]
            ]
        }

    def _equal(self, index: int) -> list[_Class]:
        """One class for those nodes of a lowest domain that are equal; in order of the first node of each."""
        joined = []
        for group in self._groups.get(index, {}).values():
            if group.joined is None:
                group.joined = _joined(list(group.nodes.values()))
            joined.append(group.joined)
        return sorted(joined, key=lambda each: each.names[0])


def object_name(root: str) -> str:
    """Name of the object of a top domain; `nodes` for nodes outside any."""
    if not root:
        return "nodes"
    if root != "nodes" and _NAME.fullmatch(root):
        return root
    plain = re.sub(r"[^a-z0-9]+", "-", root.lower()).strip("-")[:200]
    return f"{plain or 'domain'}-{hashlib.sha256(root.encode()).hexdigest()[:8]}"


def _numa(cells: Cells | None) -> Json | None:
    """What a profile says of them; None where the kubelet aligns nothing."""
    if cells is None or not cells.resources:
        return None
    amounts = [dict(zip(cells.resources, each, strict=True)) for each in cells.total]
    return {"policy": cells.policy, "byPod": cells.by_pod, "nodes": amounts}


def _root(tree: Tree, index: int) -> int:
    return list(tree.ancestors(index))[-1]


def _rounded(amounts: Vector, allocatable: Vector) -> Vector:
    free: Vector = {}
    for name, amount in amounts.items():
        whole = allocatable.get(name, 0)
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
    equal: Mapping[int, list[_Class]],
    described: list[_Profile],
    total: Vector,
    others: Mapping[str, Tree],
) -> Json:
    limit = MAX_CLASSES
    while True:
        # The total is of the nodes as they are, not of the classes, which may leave some of it out.
        spec = {**_spec(cluster, top, inside, tree, equal, described, limit, others), "total": total}
        size = len(orjson.dumps(spec))
        if size > MAX_BYTES or sum(len(each["names"]) for each in spec["classes"]) > MAX_NAMES:
            # Names are the least loss: exact figures decide who may run at all.
            for each in spec["classes"]:
                del each["names"]
            size = len(orjson.dumps(spec))
        if limit == 1 or size <= MAX_BYTES:
            return spec
        limit //= 2


def _spec(
    cluster: str,
    top: int,
    inside: list[int],
    tree: Tree,
    equal: Mapping[int, list[_Class]],
    described: list[_Profile],
    limit: int,
    others: Mapping[str, Tree],
) -> Json:
    #: what a profile says -> its number, and the same for amounts that are one object
    numbers: dict[object, int] = {}
    known: dict[tuple[int, int], int] = {}
    profiles: list[Json] = []
    classes: list[Json] = []
    #: name of a further tree -> indices of its domains around these nodes
    around: dict[str, set[int]] = {}
    inside = sorted(
        inside,
        key=lambda i: (-tree.domains[i].tier, tree.domains[i].name) if i != NO_DOMAIN else (0, ""),
    )
    # A list, for an amount is known by the object that it is as long as that lives.
    found = [(domain, each) for domain in inside for each in _merged(equal[domain], limit)]
    for index, each in found:
        number = known.get((each.profile, id(each.allocatable)))
        if number is None:
            amounts = sorted(each.allocatable.items())
            number = numbers.setdefault((each.profile, *amounts), len(profiles))
            known[each.profile, id(each.allocatable)] = number
            if number == len(profiles):
                alike = described[each.profile]
                allocatable = {name: quantity.format_units(name, amount) for name, amount in amounts}
                numa = {"numa": alike.numa} if alike.numa is not None else {}
                profiles.append({"labels": alike.labels, "taints": alike.taints, "allocatable": allocatable, **numa})
        classes.append(
            {
                "domain": tree.domains[index].name if index != NO_DOMAIN else "",
                "profile": number,
                "nodes": each.nodes,
                "free": each.free,
                "names": each.names,
            }
        )
        if where := described[each.profile].where:
            classes[-1]["inTrees"] = {name: others[name].domains[there].name for name, there in where.items()}
            for name, there in where.items():
                around.setdefault(name, set()).update(others[name].ancestors(there))
    trees = [
        {"name": name, "domains": [_domain(others[name], index) for index in sorted(around[name])]}
        for name in sorted(around)
    ]
    return {
        **({"trees": trees} if trees else {}),
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
    """At most `limit` classes that promise no more than these different ones; a total order makes the result stable."""
    found = list(classes)
    for steps in _COARSER:
        if len(found) <= limit:
            break

        def coarse(each: _Class, steps: int = steps) -> object:
            amounts = tuple(
                (
                    name,
                    amount * steps // max(1, each.allocatable.get(name, 0))
                    if name in (*_DIVISIBLE, "pods")
                    else amount,
                )
                for name, amount in sorted(each.free.items())
            )
            return each.profile, tuple(sorted(each.allocatable)), amounts

        found = [_joined(group) for group in _groups(found, coarse).values()]
    if len(found) > limit:
        # Devices differ too much as well: neighbours in order of their devices become one.
        found = _neighbours(found, limit)
    # More kinds of labels than classes are allowed: those with fewest nodes are not promised at all.
    found.sort(key=lambda each: (-each.nodes, _order(each)))
    return sorted(found[:limit], key=_order)


def _groups(classes: Iterable[_Class], key: Callable[[_Class], object]) -> dict[object, list[_Class]]:
    """Classes with equal keys."""
    groups: dict[object, list[_Class]] = {}
    for each in classes:
        groups.setdefault(key(each), []).append(each)
    return groups


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


def _order(each: _Class) -> Any:
    """Sort key: by profile, then by free amounts, devices first."""
    if each.order is None:
        devices_first = sorted(each.free.items(), key=lambda item: (item[0] in (*_DIVISIBLE, "pods"), item[0]))
        each.order = (each.profile, devices_first)
    return each.order


def _joined(group: list[_Class]) -> _Class:
    first = group[0]
    if len(group) == 1:
        return first
    free = _least([each.free for each in group])
    allocatable = _least([each.allocatable for each in group])
    names = sorted(itertools.chain.from_iterable([each.names for each in group]))
    return _Class(first.profile, sum(each.nodes for each in group), free, allocatable, names)


def _least(vectors: Sequence[Vector]) -> Vector:
    """Of every resource that the first names, the least that any has."""
    first = vectors[0]
    if vectors.count(first) == len(vectors):
        return first
    return {name: min(each.get(name, 0) for each in vectors) for name in first}
