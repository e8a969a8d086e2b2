"""How many ends a gang waits for: said at once for all of them, as freeing one after the other would say."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.fit import Nodes, Profile, place
from atoll.fit.freed import Held, ends_needed, free
from atoll.model.gang import Gang, Task
from atoll.model.topology import NO_DOMAIN, Tree

_NODES = 3
CELLS = st.lists(st.tuples(st.integers(0, _NODES - 1), st.integers(0, 4), st.integers(0, 4)), max_size=3)


def nodes_of(free: list[tuple[int, int]], tainted: int) -> Nodes:
    profiles = [Profile(), Profile(taints=({"key": "k", "effect": "NoSchedule"},))]
    return Nodes(
        Tree([]),
        [NO_DOMAIN] * _NODES,
        [""] * _NODES,
        profiles,
        [int(node == tainted) for node in range(_NODES)],
        [{"cpu": cpu, "gpu": gpu} for cpu, gpu in free],
    )


def one_by_one(nodes: Nodes, gang: Gang, held: list[Held]) -> int | None:
    for ended in range(len(held) + 1):
        if place(nodes, gang, explain=False) is not None:
            return ended
        if ended < len(held):
            where, amounts = held[ended]
            free(nodes, where, amounts.T)
    return None


@given(
    free=st.lists(st.tuples(st.integers(-2, 3), st.integers(-2, 3)), min_size=_NODES, max_size=_NODES),
    tainted=st.integers(0, _NODES),
    ends=st.lists(CELLS, max_size=40),
    requests=st.dictionaries(st.sampled_from(["cpu", "gpu", "tpu"]), st.integers(1, 4), min_size=1),
    pods=st.integers(1, 12),
)
def test_as_many_ends_are_needed_as_if_one_were_freed_after_the_other(
    free: list[tuple[int, int]],
    tainted: int,
    ends: list[list[tuple[int, int, int]]],
    requests: dict[str, int],
    pods: int,
) -> None:
    gang = Gang(queue="q", tasks=[Task("t", pods, pods, requests)], min_available=pods)
    held: list[Held] = [
        (
            np.array([node for node, _, _ in cells], np.int64),
            np.array([amounts for _, *amounts in cells], np.int64).reshape(-1, 2),
        )
        for cells in ends
    ]
    nodes, [task] = nodes_of(free, tainted), gang.tasks
    there = int(nodes.room(task.requests)[nodes.accepting(task)].sum())
    assert ends_needed(nodes, gang, iter(held), there) == one_by_one(nodes_of(free, tainted), gang, held)


@pytest.mark.parametrize("seed", range(12))
def test_so_it_is_where_more_than_the_first_ends_are_needed(seed: int) -> None:
    """Each end gives a little of a node back, more than one is needed for a pod, and a node may be short of more."""
    random = Random(seed)
    held: list[Held] = []
    for _ in range(100):
        where = [random.randrange(_NODES) for _ in range(random.randint(1, 3))]
        amounts = [[random.randint(0, 2), random.randint(0, 1)] for _ in where]
        held.append((np.array(where, np.int64), np.array(amounts, np.int64)))
    short = [(random.randint(-9, 0), random.randint(-9, 0)) for _ in range(_NODES)]
    for pods in range(1, 16):
        gang = Gang(queue="q", tasks=[Task("t", pods, pods, {"cpu": 3, "gpu": 2})], min_available=pods)
        needed = ends_needed(nodes_of(short, _NODES), gang, iter(held), 0)
        assert needed == one_by_one(nodes_of(short, _NODES), gang, held)
    assert needed is None or needed > 16
