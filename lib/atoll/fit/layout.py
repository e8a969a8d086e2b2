"""How the nodes and domains of all members lie side by side in arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atoll.fit.nodes import Nodes
from atoll.fit.placement import Ints
from atoll.model.topology import NO_DOMAIN


def domains_of(published: Sequence[Nodes]) -> tuple[Ints, Ints, Ints]:
    """(per rank of tiers, 0 = the nearest of each member, the domain number of every node; per domain the column of its
    member, and the rank of its tier).
    """
    depth = max((len(nodes.tree.tiers) for nodes in published), default=0)
    none = sum(len(nodes.tree.domains) for nodes in published)
    inside: list[Ints] = [np.zeros((depth, 0), np.int64)]
    owner: list[int] = []
    rank: list[int] = []
    for column, nodes in enumerate(published):
        inside.append(numbered(nodes, depth, len(owner), none))
        owner.extend([column] * len(nodes.tree.domains))
        rank.extend(nodes.tree.tiers.index(domain.tier) for domain in nodes.tree.domains)
    return np.concatenate(inside, axis=1), np.array(owner, np.int64), np.array(rank, np.int64)


def numbered(nodes: Nodes, depth: int, first: int, none: int) -> Ints:
    """int64[depth, N]: the domain of each node per rank of its tier, counted from `first` on, or `none`."""
    padded: Ints = np.full((depth, len(nodes)), none)
    padded[: len(nodes.domain)] = np.where(nodes.domain == NO_DOMAIN, none, nodes.domain + first)
    return padded


def distinct(states: Ints) -> tuple[Ints, Ints]:
    """(int64[S, U], int64[K]): the distinct ones of int64[S, K] columns, and which of them each column is."""
    columns = np.ascontiguousarray(states.T).view(f"V{states.itemsize * len(states)}").ravel().tolist()
    numbers: dict[bytes, int] = {}
    kinds = [numbers.setdefault(column, len(numbers)) for column in columns]
    found = np.frombuffer(b"".join(numbers), np.int64).reshape(len(numbers), len(states)).T
    return found, np.array(kinds, np.int64)


def sums(room: Ints, bounds: Sequence[int]) -> Ints:
    """int64[members] of int64[nodes]; `bounds` says where each member begins, and where the last ends."""
    totals = np.concatenate([[0], np.cumsum(room)])
    found: Ints = np.diff(totals[bounds])
    return found


def higher(array: NDArray[Any], height: int) -> NDArray[Any]:
    """With so many rows, or elements; the new ones are zero."""
    taller = np.zeros((height, *array.shape[1:]), array.dtype)
    taller[: len(array)] = array
    return taller
