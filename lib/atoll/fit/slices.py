"""Place equal pods in slices: each slice whole in one domain, all of them as near together as possible, and
perhaps a leader beside them.

Kueue's term is slice, Volcano's partition or sub-group. The rules are those of `place`, counted in slices where a
domain is larger than one and in pods below: the nearest tier that holds all, in it the domain with the least capacity
that is enough, and inside it few parts. A leader is put where the fewest slices are lost by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from atoll.fit.nodes import Nodes
from atoll.fit.place import covering, greedy
from atoll.fit.placement import UNBOUNDED, Ints, Placement
from atoll.model.topology import NO_DOMAIN

NODE = 0
"""The level of single nodes; the levels above are the tiers of the tree, and the last is everything."""
WORKERS, LEADER = 0, 1
"""Task indices of the placement."""


@dataclass(frozen=True, slots=True)
class Slices:
    """Slices to place."""

    pods: int
    """A multiple of `size`."""
    size: int = 1
    """Pods of one slice."""
    level: int = NODE
    """The level of which one domain must hold a slice."""

    @property
    def count(self) -> int:
        """Slices."""
        return self.pods // self.size


def place_slices(
    nodes: Nodes,
    wish: Slices,
    room: Ints,
    *,
    beside_leader: Ints | None = None,
    highest: int | None = None,
) -> Placement | None:
    """Find places for all of them, or None.

    Args:
        nodes: their tree and domains.
        wish: `pods` is a multiple of `size`, and `level` is not above `highest`.
        room: int64[N], how many pods each node holds.
        beside_leader: int64[N], how many pods each node holds beside the leader, -1 where that does not fit; None where
            there is no leader.
        highest: the highest level of which one domain must hold all; None for any number of domains.

    Levels above that of everything, as where there are no nodes and so no tiers, have no domains.
    """
    tree = _Levels(nodes)
    if wish.level > tree.everything:
        return None
    top = tree.everything if highest is None else min(highest, tree.everything)
    for level in range(top + 1):
        counted = _Counted(tree, wish, room, beside_leader, level)
        for domain in counted.fitting():
            placement = counted.fill(domain)
            if placement is not None:
                placement.domain, placement.tier = covering(nodes, [node for _, node, _ in placement.pods])
                return placement
    return None


class _Levels:
    """Per level int64[N]: the domain of each node; its own number at the lowest, 0 at the highest."""

    def __init__(self, nodes: Nodes) -> None:
        size = len(nodes)
        self.of: list[Ints] = [np.arange(size), *nodes.domain, np.zeros(size, np.int64)]
        self.everything = len(self.of) - 1
        self.sizes = [size, *[len(nodes.tree.domains)] * len(nodes.tree.tiers), 1]

    def around(self, node: int | None, level: int) -> int:
        """The domain of a node at a level; NO_DOMAIN where it has none, or there is no node."""
        return NO_DOMAIN if node is None else int(self.of[level][node])

    def sums(self, level: int, amounts: Ints) -> Ints:
        """Per domain of the level the sum over its nodes."""
        inside = self.of[level]
        there = inside != NO_DOMAIN
        found: Ints = np.bincount(inside[there], amounts[there], self.sizes[level]).astype(np.int64)
        return found

    def least(self, level: int, amounts: Ints, missing: int) -> Ints:
        """Per domain of the level the least amount among its nodes; `missing` where there is none."""
        found = np.full(self.sizes[level], missing, np.int64)
        there = self.of[level] != NO_DOMAIN
        np.minimum.at(found, self.of[level][there], amounts[there])
        return found


class _Counted:
    """How many slices each domain of one level holds, with the leader if there is one."""

    def __init__(self, tree: _Levels, wish: Slices, room: Ints, beside_leader: Ints | None, level: int) -> None:
        self._tree, self._wish, self._level = tree, wish, level
        self._room, self._beside = room, beside_leader
        # Where one domain of this level holds all pods it holds all slices.
        self._size = 1 if level < wish.level else wish.size
        self.wanted = wish.pods if self._size == 1 else wish.count
        self.held = self._held(room)
        self.with_leader = self.held if beside_leader is None else self.held - self._lost()

    def fitting(self) -> Iterator[int]:
        """The domains that hold all, the tightest first."""
        enough = np.flatnonzero((self.with_leader >= self.wanted) & (self.held > 0))
        yield from enough[np.argsort(self.with_leader[enough], kind="stable")].tolist()

    def fill(self, domain: int) -> Placement | None:
        """All of it inside one of these domains."""
        inside = self._tree.of[self._level] == domain
        room = np.where(inside, self._room, 0)
        pods: list[tuple[int, int, int]] = []
        node = None
        if self._beside is not None:
            node = self._node_for_leader(inside)
            if node is None:
                return None
            pods.append((LEADER, node, 1))
            room[node] = self._beside[node]
        placed = _fill(self._tree, room, self._wish, self._level, node)
        if placed is None:
            return None
        pods += [(WORKERS, each, int(placed[each])) for each in np.flatnonzero(placed).tolist()]
        return Placement(pods, [self._wish.pods] if self._beside is None else [self._wish.pods, 1])

    def _held(self, room: Ints) -> Ints:
        """Per domain of the level, in slices of `_size`."""
        if self._size == 1:
            return self._tree.sums(self._level, room)
        return _above(self._tree, self._wish.level, self._level, self._tree.sums(self._wish.level, room) // self._size)

    def _loss(self) -> Ints:
        """Per node how many slices its domain of the slices' level loses if the leader is there."""
        assert self._beside is not None, "there is a leader"
        less = np.where(self._beside >= 0, self._room - self._beside, 0)
        if self._size == 1:
            return np.where(self._beside >= 0, less, UNBOUNDED)
        inside = self._tree.of[self._wish.level]
        pods = self._tree.sums(self._wish.level, self._room)[inside]
        loss = pods // self._size - (pods - less) // self._size
        return np.where((self._beside >= 0) & (inside != NO_DOMAIN), loss, UNBOUNDED)

    def _lost(self) -> Ints:
        return self._tree.least(self._level, self._loss(), int(UNBOUNDED))

    def _node_for_leader(self, inside: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> int | None:
        """Among nodes with the fewest lost slices, the one with the most capacity beside it, which is used as well."""
        assert self._beside is not None, "there is a leader"
        loss = np.where(inside, self._loss(), UNBOUNDED)
        node = int(np.lexsort((-self._beside, loss))[0])
        return node if loss[node] < UNBOUNDED else None


def _above(tree: _Levels, lower: int, upper: int, amounts: Ints) -> Ints:
    """Amounts of the domains of a lower level, summed over domains of an upper one."""
    if lower == upper:
        return amounts
    parent = _parents(tree, lower, upper)
    known = parent != NO_DOMAIN
    summed: Ints = np.bincount(parent[known], amounts[known], tree.sizes[upper]).astype(np.int64)
    return summed


def _fill(tree: _Levels, room: Ints, wish: Slices, top: int, leader: int | None) -> Ints | None:
    """int64[N]: pods on each node, by few domains at every level below `top`; None where they don't fit.

    Args:
        tree: levels of the nodes.
        room: int64[N], zero outside of the domain.
        wish: the slices to place.
        top: level of the domain.
        leader: its node: the domains around it are used anyhow, and first.
    """
    level = wish.level
    share = np.zeros(tree.sizes[level], np.int64)
    if not wish.count:
        return np.zeros(len(room), np.int64)
    if top < level:
        share[tree.of[level][np.flatnonzero(room)[0]]] = wish.count
    else:
        slices = tree.sums(level, room) // wish.size
        if not _share_out(tree, slices, wish.count, level, range(top, level - 1, -1), share, leader):
            return None
    placed = np.zeros(len(room), np.int64)
    below = range(min(level, top), NODE - 1, -1)
    for domain in np.flatnonzero(share).tolist():
        here = np.where(tree.of[level] == domain, room, 0)
        if not _share_out(tree, here, int(share[domain]) * wish.size, NODE, below, placed, leader):
            return None
    return placed


def _share_out(
    tree: _Levels, held: Ints, count: int, lowest: int, levels: Sequence[int], into: Ints, leader: int | None
) -> bool:
    """Share a number out over the domains of the lowest level by what each holds, with few of each level: below the
    ones chosen at one level few of the next are. False where they don't hold as much.
    """
    left = held
    for level in levels:
        whole, last, rest = _few(_above(tree, lowest, level, left), count, tree.around(leader, level))
        if level == lowest:
            into[whole] += left[whole]
            if last is not None:
                into[last] += rest
            return last is not None or rest <= 0
        chosen = np.zeros(tree.sizes[level] + 1, np.bool_)
        chosen[whole] = True
        if last is not None:
            chosen[last] = True
        left = np.where(chosen[_parents(tree, lowest, level)], left, 0)
    return count <= 0


def _few(amounts: Ints, count: int, used: int) -> tuple[Ints, int | None, int]:
    """As `greedy`, beginning with the domain that is used already."""
    if used == NO_DOMAIN:
        return greedy(amounts, count)
    if amounts[used] >= count:
        return np.zeros(0, np.int64), used, count
    whole, last, rest = greedy(np.where(np.arange(len(amounts)) == used, 0, amounts), count - int(amounts[used]))
    return np.concatenate(([used], whole)), last, rest


def _parents(tree: _Levels, lower: int, upper: int) -> Ints:
    parent = np.full(tree.sizes[lower], NO_DOMAIN, np.int64)
    there = tree.of[lower] != NO_DOMAIN
    parent[tree.of[lower][there]] = tree.of[upper][there]
    return parent
