"""Where the nodes of a member are in each of its trees of domains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from atoll.fit.placement import Ints
from atoll.model.gang import HOST, TopologyWish
from atoll.model.topology import NO_DOMAIN, NODE_DOMAIN, Domain, Tree


class Layout:
    """Where nodes are in one tree."""

    def __init__(self, tree: Tree, lowest: Ints) -> None:
        self.tree = tree
        #: int64[N]: the lowest domain of each node, NO_DOMAIN where it is in none
        self.lowest = lowest
        domains = tree.domains
        rows = np.array([tree.at_tiers(index) for index in (*range(len(domains)), NO_DOMAIN)], np.int64)
        #: int64[L, N]: the domain of each node at each tier of the tree
        self.domain: Ints = rows.reshape(len(domains) + 1, len(tree.tiers))[lowest].T
        #: per tier of the tree, nearest first: the indices of its domains
        self.at_tier: list[Ints] = [
            np.array([i for i, domain in enumerate(domains) if domain.tier == tier], np.int64) for tier in tree.tiers
        ]
        #: index of the domain above each domain; NO_DOMAIN, the last entry included, leads to itself
        self.parent: Ints = np.array([*(domain.parent for domain in domains), NO_DOMAIN], np.int64)
        #: rank of each domain among all names
        self.by_name: Ints = np.argsort(np.argsort(np.array([*(domain.name for domain in domains), ""])))
        #: what `ways` and `inside` found
        self._ways: list[tuple[list[int], int, int]] = []
        self._inside: dict[int, Ints] = {}

    def at_tier_of(self, domain: int) -> Ints:
        """int64[N]: the domain of each node at the tier of this one."""
        at: Ints = self.domain[self.tree.tiers.index(self.tree.domains[domain].tier)]
        return at

    def within(self, name: str) -> NDArray[np.bool_]:
        """bool[N]: nodes in the domain of that name; none where the tree has no such domain."""
        found = np.zeros(len(self.lowest), np.bool_)
        for index, domain in enumerate(self.tree.domains):
            if domain.name == name:
                found |= self.at_tier_of(index) == index
        return found

    def ways(self) -> list[tuple[list[int], int, int]]:
        """Per domain (its index and the indices of domains above it, in as many steps as there are tiers; its rank
        among all names; its index).
        """
        if len(self._ways) < len(self.tree.domains):
            above, ranks, steps = self.parent.tolist(), self.by_name.tolist(), range(len(self.tree.tiers) - 1)
            self._ways += (
                (list(accumulate(steps, lambda at, _: above[at], initial=domain)), ranks[domain], domain)
                for domain in range(len(self.tree.domains))
            )
        return self._ways

    def inside(self, domain: int) -> Ints:
        """The indices of the nodes in a domain, rising; NO_DOMAIN stands for all."""
        found = self._inside.get(domain)
        if found is None:
            found = np.arange(len(self.lowest))
            if domain != NO_DOMAIN:
                found = np.flatnonzero(self.at_tier_of(domain) == domain)
            self._inside[domain] = found
        return found


class Trees:
    """All trees of some nodes: one without a name, which is always there, and further ones."""

    def __init__(self, names: Sequence[str], tree: Tree, lowest: Ints) -> None:
        """`names` of the nodes; `lowest` as in `Layout`."""
        self._names = names
        self.unnamed = Layout(tree, lowest)
        #: by name of the tree
        self._layouts = {"": self.unnamed}
        #: of single nodes, once a wish was about them
        self._nodes: Layout | None = None

    def add(self, name: str, tree: Tree, lowest: Ints) -> None:
        """The nodes are in one more tree as well."""
        self._layouts[name] = Layout(tree, lowest)

    def match(self, other: Trees) -> bool:
        """Whether as many nodes are in the same domains of the same trees."""
        return self.are({name: (each.tree, each.lowest) for name, each in other._layouts.items()})

    def are(self, trees: Mapping[str, tuple[Tree, Ints]]) -> bool:
        """Whether these are all of them, each with the lowest domains of the nodes; the one without a name is `""`."""
        return self._layouts.keys() == trees.keys() and all(
            each.tree == trees[name][0] and np.array_equal(each.lowest, trees[name][1])
            for name, each in self._layouts.items()
        )

    def about(self, wish: TopologyWish) -> Layout | None:
        """Where nodes are in the tree that a limited wish is about: a tier's name may be of any, and is of the one
        without a name where that has it; a number is of that one. None where there is no other.
        """
        name = wish.highest_tier_name
        if len(self._layouts) == 1 and name != HOST:
            return None
        if wish.highest_tier_allowed is not None or not name:
            return self.unnamed
        named = (each for each in self._layouts.values() if each.tree.tier_named(name) is not None)
        return next(named, None) or (self._by_node() if name == HOST else self.unnamed)

    def _by_node(self) -> Layout:
        """Each node as a domain."""
        if self._nodes is None:
            names = enumerate(self._names)
            tree = Tree([Domain(f"{NODE_DOMAIN}{name or node}", 0, NO_DOMAIN, HOST) for node, name in names])
            self._nodes = Layout(tree, np.arange(len(self._names)))
        return self._nodes

    @property
    def tier_names(self) -> list[str]:
        """Names of the tiers of all trees, the nearest first."""
        named = {(each.tier, each.tier_name) for layout in self._layouts.values() for each in layout.tree.domains}
        return [*dict.fromkeys(name for _, name in sorted(named) if name)]

    def within(self, name: str) -> NDArray[np.bool_]:
        """bool[N]: nodes in the domain of that name, of any tree."""
        if name.startswith(NODE_DOMAIN):
            return np.array([NODE_DOMAIN + each == name for each in self._names], np.bool_)
        found: NDArray[np.bool_] = np.logical_or.reduce([each.within(name) for each in self._layouts.values()])
        return found
