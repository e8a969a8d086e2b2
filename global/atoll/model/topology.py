"""The tree of topology domains: which nodes are near each other, as HyperNodes say it.

A domain is one HyperNode: its tier counts upwards from the nearest (racks) to the farthest (the whole fabric). Node
members may be named exactly, by an unanchored regular expression or by labels, HyperNode members exactly, as in
Volcano. Expressions are Go's, by which Volcano matches: RE2 has the same ones, and a match takes time in proportion to
the name whatever the expression.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import re2

from atoll.model import selectors

NO_DOMAIN = -1
_LONGEST_PATTERN = 1024
_LARGEST_PROGRAM = 10_000
"""Instructions of an expression once it is compiled: a match takes at most so many steps for each letter."""


class TopologyError(ValueError):
    """The HyperNodes do not form a forest; the message names the one that is wrong."""


@dataclass(frozen=True, slots=True)
class Domain:
    """One HyperNode."""

    name: str
    tier: int
    parent: int = NO_DOMAIN
    """Index of the domain above, or NO_DOMAIN."""
    tier_name: str = ""


class Tree:
    """All domains of a member; a forest, in which every index into `domains` is stable."""

    __slots__ = ("domains", "tiers")

    def __init__(self, domains: Sequence[Domain] = ()) -> None:
        self.domains = tuple(domains)
        #: the tiers in use, nearest first
        self.tiers = tuple(sorted({domain.tier for domain in self.domains}))

    def tier_named(self, name: str) -> int | None:
        """The tier that some domain calls so, or None."""
        return next((domain.tier for domain in self.domains if domain.tier_name == name), None)

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
        return isinstance(other, Tree) and self.domains == other.domains

    def __hash__(self) -> int:
        return hash(self.domains)


def build(
    hyper_nodes: Sequence[Mapping[str, Any]], node_labels: Mapping[str, Mapping[str, str]]
) -> tuple[Tree, dict[str, int]]:
    """The tree, and for every node that is in some domain the index of its lowest one.

    Args:
        hyper_nodes: the objects, in any order.
        node_labels: name and labels of every node.

    Raises:
        TopologyError: two parents, a cycle, a child tier that is not below its parent's, or a bad regular expression.
    """
    ordered = sorted(hyper_nodes, key=lambda obj: (-int(obj["spec"]["tier"]), obj["metadata"]["name"]))
    index = {obj["metadata"]["name"]: number for number, obj in enumerate(ordered)}
    parent: dict[int, int] = {}
    nodes_of: dict[str, list[int]] = defaultdict(list)
    for number, obj in enumerate(ordered):
        name = obj["metadata"]["name"]
        for member in obj["spec"].get("members") or ():
            selector = member.get("selector") or {}
            if member.get("type") == "HyperNode":
                child = index.get((selector.get("exactMatch") or {}).get("name", ""))
                if child is not None:
                    _adopt(ordered, parent, number, child)
            else:
                for node in _matching_nodes(name, selector, node_labels):
                    nodes_of[node].append(number)
    domains = [
        Domain(
            obj["metadata"]["name"],
            int(obj["spec"]["tier"]),
            parent.get(n, NO_DOMAIN),
            obj["spec"].get("tierName") or "",
        )
        for n, obj in enumerate(ordered)
    ]
    tree = Tree(domains)
    return tree, {node: _lowest(tree, node, found) for node, found in nodes_of.items()}


def _adopt(ordered: Sequence[Mapping[str, Any]], parent: dict[int, int], number: int, child: int) -> None:
    upper, lower = ordered[number], ordered[child]
    if child in parent and parent[child] != number:
        other = ordered[parent[child]]["metadata"]["name"]
        raise TopologyError(
            f"HyperNode {lower['metadata']['name']} is a member of both {other} and "
            f"{upper['metadata']['name']}: keep one"
        )
    if int(lower["spec"]["tier"]) >= int(upper["spec"]["tier"]):
        raise TopologyError(
            f"HyperNode {lower['metadata']['name']} (tier {lower['spec']['tier']}) can't be a member of "
            f"{upper['metadata']['name']} (tier {upper['spec']['tier']}): a member's tier must be smaller"
        )
    parent[child] = number


def _matching_nodes(
    domain: str, selector: Mapping[str, Any], node_labels: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    if exact := selector.get("exactMatch"):
        if exact.get("name") in node_labels:
            yield exact["name"]
    elif pattern := (selector.get("regexMatch") or {}).get("pattern"):
        try:
            expression = _compile(pattern)
        except ValueError as error:
            shown = pattern if len(pattern) <= _LONGEST_PATTERN else f"{pattern[:60]}..."
            raise TopologyError(
                f"HyperNode {domain}: regexMatch {shown!r} is not a regular expression (RE2, as in Go): {error}"
            ) from error
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


def _lowest(tree: Tree, node: str, found: list[int]) -> int:
    lowest = min(found, key=lambda number: tree.domains[number].tier)
    above = set(tree.ancestors(lowest))
    for number in found:
        if number not in above:
            names = sorted((tree.domains[lowest].name, tree.domains[number].name))
            raise TopologyError(
                f"node {node} is in both HyperNode {names[0]} and {names[1]}, which are not nested: keep one"
            )
    return lowest
