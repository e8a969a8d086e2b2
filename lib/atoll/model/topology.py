"""The trees of topology domains: which nodes are near each other, as HyperNodes say it.

A node may be in several trees at once, such as fabric, NVLink and power: a HyperNode names its tree by a label, and
those without one make the tree without a name.

A domain is one HyperNode: its tier counts upwards from the nearest (racks) to the farthest (the whole fabric). Node
members may be named exactly, by an unanchored regular expression or by labels, HyperNode members exactly, as in
Volcano. Expressions are Go's, by which Volcano matches: RE2 has the same ones, and a match takes time in proportion to
the name whatever the expression.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import re2

from atoll.model import keys, selectors
from atoll.model.gang import TopologyWish

NO_DOMAIN = -1
VALID: Final = "Valid"
"""Condition of a HyperNode: whether all of it is part of the tree."""
AVAILABLE: Final = "Available"
"""Condition of a HyperNode, of `atoll-topology`: False where the domain is lost and nothing new goes there."""
MAX_TIER = 10**6
NODE_DOMAIN: Final = "node/"
"""What the names of these domains begin with."""
_LONGEST_PATTERN = 1024
_LARGEST_PROGRAM = 10_000
"""Instructions of an expression once it is compiled: a match takes at most so many steps for each letter."""


@dataclass(frozen=True, slots=True)
class Domain:
    """One HyperNode."""

    name: str
    tier: int
    parent: int = NO_DOMAIN
    """Index of the domain above, or NO_DOMAIN."""
    tier_name: str = ""


class Tree:
    """The domains of one tree of a member; a forest, in which every index into `domains` is stable."""

    __slots__ = ("domains", "elsewhere", "tiers")

    def __init__(self, domains: Sequence[Domain] = (), elsewhere: Iterable[str] = ()) -> None:
        """`elsewhere`: names of tiers that are in other trees, of which nothing else is known here."""
        self.domains = tuple(domains)
        #: the tiers in use, nearest first
        self.tiers = tuple(sorted({domain.tier for domain in self.domains}))
        self.elsewhere = frozenset(elsewhere) - {domain.tier_name for domain in self.domains}

    def is_elsewhere(self, wish: TopologyWish | None) -> bool:
        """Whether the tier of a wish is in another tree, so that nothing of it can be said here."""
        return wish is not None and wish.highest_tier_allowed is None and wish.highest_tier_name in self.elsewhere

    def tier_named(self, name: str) -> int | None:
        """The tier that some domain calls so, or None."""
        return next((domain.tier for domain in self.domains if domain.tier_name == name), None)

    def ceiling(self, wish: TopologyWish | None) -> int | None:
        """The highest tier that a gang of this wish may span here; None for any, -1 where there is none.

        A hard wish is one for a domain: where there are none it fits nowhere. A soft one has its ceiling wherever
        there are domains, and none where there are none. Above all tiers is the member as a whole, as in Volcano.
        One for a tier that is elsewhere says nothing here.
        """
        if wish is None or not wish.limited or (not wish.hard and not self.domains) or self.is_elsewhere(wish):
            return None
        if wish.highest_tier_allowed is not None:
            above_all = bool(self.tiers) and wish.highest_tier_allowed > self.tiers[-1]
            return None if above_all else wish.highest_tier_allowed
        named = self.tier_named(wish.highest_tier_name or "")
        return named if named is not None else -1 if wish.hard else None

    def level_of(self, wish: TopologyWish) -> int | None:
        """The number, of `tiers`, of the tier that a wish names; None where there is none."""
        tier = wish.highest_tier_allowed
        if tier is None:
            tier = self.tier_named(wish.highest_tier_name or "")
        return self.tiers.index(tier) if tier in self.tiers else None

    def levels(self, wish: TopologyWish | None) -> Sequence[int] | None:
        """Numbers of the `tiers` that a gang of this wish may span, nearest first; None where it may be anywhere."""
        highest = self.ceiling(wish)
        return None if highest is None else [level for level, tier in enumerate(self.tiers) if tier <= highest]

    def ancestors(self, index: int) -> Iterator[int]:
        """The domain itself and those above it, nearest first."""
        while index != NO_DOMAIN:
            yield index
            index = self.domains[index].parent

    def at_tiers(self, lowest: int) -> list[int]:
        """For a node in this lowest domain: its domain at each tier of `tiers`, NO_DOMAIN where it has none."""
        row = [NO_DOMAIN] * len(self.tiers)
        for index in self.ancestors(lowest):
            row[self.tiers.index(self.domains[index].tier)] = index
        return row

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tree) and (self.domains, self.elsewhere) == (other.domains, other.elsewhere)

    def __hash__(self) -> int:
        return hash((self.domains, self.elsewhere))


@dataclass(frozen=True, slots=True)
class Grown:
    """One tree, and where the nodes are in it."""

    tree: Tree
    lowest: Mapping[str, int]
    """Node -> index of its lowest domain, of those that are in one."""


@dataclass(frozen=True, slots=True)
class Built:
    """What HyperNodes say together, as far as it makes sense."""

    trees: Mapping[str, Grown]
    """By name, sorted; the one without a name is always there."""
    problems: dict[str, str]
    """HyperNode -> what of it is left out, and why; empty when they form forests."""

    @property
    def tree(self) -> Tree:
        """The one without a name."""
        return self.trees[""].tree

    @property
    def lowest(self) -> Mapping[str, int]:
        """Node -> index of its lowest domain in the tree without a name, of those that are in one."""
        return self.trees[""].lowest

    def others(self) -> dict[str, Grown]:
        """The trees that have a name."""
        return {name: grown for name, grown in self.trees.items() if name}


def tree_name(obj: Mapping[str, Any]) -> str:
    """Which tree a HyperNode is in; empty for the one without a name."""
    return str((obj["metadata"].get("labels") or {}).get(keys.TOPOLOGY_TREE) or "")


def build(hyper_nodes: Sequence[Mapping[str, Any]], node_labels: Mapping[str, Mapping[str, str]]) -> Built:
    """The trees of all right HyperNodes; wrong ones are left out and named.

    Where two HyperNodes of a tree claim the same child or node, the older one has it: a later one breaks
    nothing that was right before. A domain never gets nodes that it does not have, so every part of a tree is true.

    Args:
        hyper_nodes: the objects, in any order.
        node_labels: name and labels of every node.
    """
    problems: dict[str, str] = {}
    by_tree: dict[str, list[Mapping[str, Any]]] = {"": []}
    for obj in hyper_nodes:
        if not _bad_tier(obj, problems):
            by_tree.setdefault(tree_name(obj), []).append(obj)
    tree_of = {obj["metadata"]["name"]: name for name, objects in by_tree.items() for obj in objects}
    trees = {name: _grow(by_tree[name], node_labels, tree_of, problems) for name in sorted(by_tree)}
    return Built(trees, problems)


def _grow(
    good: Sequence[Mapping[str, Any]],
    node_labels: Mapping[str, Mapping[str, str]],
    tree_of: Mapping[str, str],
    problems: dict[str, str],
) -> Grown:
    """One tree. `tree_of`: HyperNode -> the name of its tree."""
    ordered = sorted(good, key=lambda obj: (-int(obj["spec"]["tier"]), obj["metadata"]["name"]))
    index = {obj["metadata"]["name"]: number for number, obj in enumerate(ordered)}
    parent: dict[int, int] = {}
    nodes_of: dict[str, list[int]] = defaultdict(list)
    for obj in sorted(good, key=_age):
        name = obj["metadata"]["name"]
        for member in obj["spec"].get("members") or ():
            selector = member.get("selector") or {}
            if member.get("type") == "HyperNode":
                below = (selector.get("exactMatch") or {}).get("name", "")
                if below in index:
                    _adopt(ordered, parent, index[name], index[below], problems)
                elif below in tree_of:
                    own, other = (tree_of[each] or "that has no name" for each in (name, below))
                    message = f"HyperNode {below} is in tree {other} and {name} in tree {own}: it is no member of it"
                    _add(problems, name, f"{message}, give both the same label {keys.TOPOLOGY_TREE}")
                continue
            try:
                for node in _matching_nodes(selector, node_labels):
                    nodes_of[node].append(index[name])
            except ValueError as error:
                _add(problems, name, str(error))
    tree = Tree(
        [
            Domain(
                obj["metadata"]["name"],
                int(obj["spec"]["tier"]),
                parent.get(number, NO_DOMAIN),
                obj["spec"].get("tierName") or "",
            )
            for number, obj in enumerate(ordered)
        ]
    )
    return Grown(tree, {node: _lowest(tree, node, found, problems) for node, found in nodes_of.items()})


def _age(obj: Mapping[str, Any]) -> tuple[str, str]:
    return obj["metadata"].get("creationTimestamp") or "", obj["metadata"]["name"]


def _add(problems: dict[str, str], name: str, message: str) -> None:
    if message not in problems.get(name, ""):
        problems[name] = f"{problems[name]}; {message}" if name in problems else message


def _bad_tier(obj: Mapping[str, Any], problems: dict[str, str]) -> bool:
    tier = obj["spec"].get("tier")
    if type(tier) is int and 0 <= tier <= MAX_TIER:
        return False
    _add(problems, obj["metadata"]["name"], f"spec.tier: {tier} is not between 0 and {MAX_TIER}; it is left out")
    return True


def _adopt(
    ordered: Sequence[Mapping[str, Any]], parent: dict[int, int], number: int, child: int, problems: dict[str, str]
) -> None:
    upper, lower = ordered[number], ordered[child]
    name, below = upper["metadata"]["name"], lower["metadata"]["name"]
    if int(lower["spec"]["tier"]) >= int(upper["spec"]["tier"]):
        message = (
            f"HyperNode {below} (tier {lower['spec']['tier']}) can't be a member of {name} (tier"
            f" {upper['spec']['tier']}): a member's tier must be smaller"
        )
        _add(problems, name, message)
    elif parent.setdefault(child, number) != number:
        other = ordered[parent[child]]["metadata"]["name"]
        message = f"HyperNode {below} is a member of both {other} and {name}: it counts for {other} alone, keep one"
        _add(problems, name, message)
        _add(problems, below, message)


def _matching_nodes(selector: Mapping[str, Any], node_labels: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    if exact := selector.get("exactMatch"):
        if exact.get("name") in node_labels:
            yield exact["name"]
    elif pattern := (selector.get("regexMatch") or {}).get("pattern"):
        try:
            expression = _compile(pattern)
        except ValueError as error:
            shown = pattern if len(pattern) <= _LONGEST_PATTERN else f"{pattern[:60]}..."
            raise ValueError(f"regexMatch {shown!r} is not a regular expression (RE2, as in Go): {error}") from error
        yield from (name for name in node_labels if expression.search(name))
    elif wanted := selector.get("labelMatch"):
        yield from (name for name, labels in node_labels.items() if selectors.label_selector_matches(wanted, labels))


def _compile(pattern: str) -> Any:
    """The expression.

    Raises:
        ValueError: it is none, or beyond all measure.
    """
    if len(pattern) > _LONGEST_PATTERN:
        raise ValueError(f"it has {len(pattern)} characters; the most is {_LONGEST_PATTERN}")
    options = re2.Options()
    options.log_errors = False
    try:
        expression = re2.compile(pattern, options)
    except re2.error as error:
        raise ValueError(error.args[0].decode(errors="replace")) from error
    if expression.programsize > _LARGEST_PROGRAM:
        raise ValueError(f"it is too complex: {expression.programsize} steps; the most is {_LARGEST_PROGRAM}")
    return expression


def _lowest(tree: Tree, node: str, found: list[int], problems: dict[str, str]) -> int:
    """Of the domains that claim a node, the oldest first: the lowest of those that are nested."""
    lowest = found[0]
    for number in found[1:]:
        if lowest in tree.ancestors(number):
            lowest = number
        elif number not in tree.ancestors(lowest):
            name, other = tree.domains[number].name, tree.domains[lowest].name
            message = f"node {node} is in both HyperNode {other} and {name}, which are not nested"
            _add(problems, name, f"{message}: it counts for {other} alone, keep one")
    return lowest
