"""Slices in slices: each outer one whole in a domain of its level, each inner one in a domain of its own in that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.fit import Miss, Nodes, Placement, Profile, place
from atoll.model.gang import HOST, BadGang, Gang, Partition, Task, TopologyWish, check
from atoll.model.topology import NO_DOMAIN, Domain, Tree
from tests.fit.builders import pods_on

Layers = Sequence[tuple[str, int]]
"""(level, pods of a slice), the outermost first."""
TIERS = {"rack": 1, "block": 2, "hall": 3}


def hall(blocks: Sequence[Sequence[Sequence[int]]], *, bare: Sequence[int] = (), loose: Sequence[int] = ()) -> Nodes:
    """Nodes by their free GPUs in racks of blocks of one hall; bare ones are in the first block, and in no rack."""
    domains = [Domain("hall", 3, NO_DOMAIN, "hall")]
    free: list[int] = []
    lowest: list[int] = []
    for number, racks in enumerate(blocks):
        block = len(domains)
        domains.append(Domain(f"block{number}", 2, 0, "block"))
        for rack in racks:
            free += rack
            lowest += [len(domains)] * len(rack)
            domains.append(Domain(f"rack{len(domains)}", 1, block, "rack"))
    free += [*bare, *loose]
    lowest += [1] * len(bare) + [NO_DOMAIN] * len(loose)
    rows = [{"gpu": gpu, "pods": 99} for gpu in free]
    names = [f"n{number}" for number in range(len(free))]
    return Nodes(Tree(domains), lowest, names, [Profile()], [0] * len(free), rows)


def partition(layers: Layers) -> Partition | None:
    found = None
    for level, size in reversed(layers):
        found = Partition(size, TopologyWish("hard", None, level), inside=found)
    return found


def sliced(pods: int, layers: Layers, *, within: str = "", gpu: int = 1, minimum: int | None = None) -> Gang:
    least = pods if minimum is None else minimum
    task = Task("t", pods, least, {"gpu": gpu, "pods": 1}, partition=partition(layers))
    return Gang("q", [task], least, network_topology=TopologyWish("hard", None, within) if within else None)


def cells(nodes: Nodes, level: str) -> list[object]:
    """Per node the largest domain that a slice of this level may span; None where there is none."""
    if level == HOST:
        return list(range(len(nodes)))
    around = [nodes.tree.ancestors(int(lowest)) for lowest in nodes.layout.lowest]
    allowed = [[each for each in above if nodes.tree.domains[each].tier <= TIERS[level]] for above in around]
    return [each[-1] if each else None for each in allowed]


def order_of(found: Placement, task: int = 0) -> list[int]:
    """The node of each pod, in the order of the pods."""
    return [node for index, node, count in found.pods if index == task for _ in range(count)]


def torn(nodes: Nodes, found: Placement, layers: Layers) -> list[tuple[str, list[int]]]:
    """(level, nodes) of the slices that are in no single domain of their level."""
    order, wrong = order_of(found), []
    for level, size in layers:
        of = cells(nodes, level)
        for start in range(0, len(order), size):
            there = order[start : start + size]
            if len({of[node] for node in there}) != 1 or of[there[0]] is None:
                wrong.append((level, there))
    return wrong


def test_slices_of_racks_are_in_slices_of_blocks() -> None:
    """Each block has room for 8 pods, and each rack for 5: of the second one only one slice of 4."""
    nodes = hall([[[5], [3]], [[2, 2], [4]], [[3, 2], [3]]])
    layers = [("block", 8), ("rack", 4)]
    found = place(nodes, sliced(8, layers))
    assert isinstance(found, Placement)
    assert torn(nodes, found, layers) == []
    assert set(order_of(found)) == {2, 3, 4}, "no other block has two racks of 4"
    miss = place(nodes, sliced(16, layers))
    assert isinstance(miss, Miss)
    assert (miss.requested, miss.available) == (16, 8)


def test_three_layers_down_to_single_nodes() -> None:
    layers = [("block", 8), ("rack", 4), (HOST, 2)]
    nodes = hall([[[3, 3], [3, 1]], [[2, 2], [1, 1, 1, 1]], [[2, 3], [5]]])
    found = place(nodes, sliced(8, layers))
    assert isinstance(found, Placement)
    assert torn(nodes, found, layers) == []
    assert pods_on(found) == {10: 2, 11: 2, 12: 4}


def test_neighbours_in_number_are_neighbours_in_the_tree() -> None:
    nodes = hall([[[2, 2], [4]], [[4], [2, 2]]])
    found = place(nodes, sliced(16, [("block", 8), ("rack", 4)]))
    assert isinstance(found, Placement)
    racks = [int(nodes.layout.lowest[node]) for node in order_of(found)]
    assert sum(a != b for a, b in pairwise(racks)) == 3, racks


def test_an_elastic_workload_starts_with_whole_outer_slices() -> None:
    nodes = hall([[[4], [4]], [[7]]])
    found = place(nodes, sliced(24, [("block", 8), ("rack", 4)], minimum=1))
    assert isinstance(found, Placement)
    assert found.counts == [8]


def test_a_last_outer_slice_may_be_smaller_as_after_pods_that_have_ended() -> None:
    """The 6 pods that are left are one of 4 in a rack and two in another one."""
    nodes = hall([[[4], [2]], [[5]]])
    found = place(nodes, sliced(6, [("block", 8), ("rack", 4)]))
    assert isinstance(found, Placement)
    assert pods_on(found) == {0: 4, 1: 2}
    found = place(hall([[[2], [4]]]), sliced(6, [("block", 8), ("rack", 4)]))
    assert isinstance(found, Placement)
    assert order_of(found) == [1, 1, 1, 1, 0, 0]
    single = place(hall([[[4]], [[2]]]), sliced(6, [("block", 4)]))
    assert isinstance(single, Placement)


def test_outer_slices_are_apart() -> None:
    nodes = hall([[[4, 4], [4, 4]], [[4], [4]]])
    gang = sliced(16, [("block", 8), ("rack", 4)])
    gang = Gang("q", gang.tasks, 16, apart=TopologyWish("hard", None, "block"))
    found = place(nodes, gang)
    assert isinstance(found, Placement)
    of, order = cells(nodes, "block"), order_of(found)
    assert {of[node] for node in order[:8]}.isdisjoint({of[node] for node in order[8:]})


def test_inner_slices_without_pods_are_no_gang() -> None:
    gang = sliced(4, [("block", 4), ("rack", 0)])
    with pytest.raises(BadGang, match="groups of 0 pods"):
        check(gang)


SIZES = [(6, 3, 1), (4, 2, 1), (4, 2, 2), (4, 4, 2), (3, 3, 1), (2, 2, 2), (6, 2, 2)]


@st.composite
def wishes(draw: st.DrawFn) -> Layers:
    levels = draw(st.permutations(["hall", "block", "rack"]).map(lambda each: each[:2]) | st.just(["block", "rack"]))
    levels = [*levels, *draw(st.sampled_from([[], [HOST]]))]
    return list(zip(levels, draw(st.sampled_from(SIZES)), strict=False))


def trees(most: int) -> st.SearchStrategy[list[list[list[int]]]]:
    racks = st.lists(st.integers(0, most), min_size=1, max_size=2)
    return st.lists(st.lists(racks, min_size=1, max_size=2), min_size=1, max_size=2)


def possible(nodes: Nodes, pods: int, layers: Layers) -> bool:
    """Whether there is a way, by trying all of them."""
    of = [cells(nodes, level) for level, _ in layers]
    sizes = [size for _, size in layers]

    def ways(room: tuple[int, ...], inside: tuple[int, ...], layer: int) -> Iterator[tuple[int, ...]]:
        """What is left of the room after one slice of a layer on these nodes; one pod below all layers."""
        if layer == len(layers):
            for node in inside:
                if room[node]:
                    yield tuple(left - (number == node) for number, left in enumerate(room))
            return
        for cell in {of[layer][node] for node in inside} - {None}:
            there = tuple(node for node in inside if of[layer][node] == cell)
            inner = sizes[layer + 1] if layer + 1 < len(layers) else 1
            yield from several(room, there, layer + 1, sizes[layer] // inner)

    @cache
    def several(room: tuple[int, ...], inside: tuple[int, ...], layer: int, count: int) -> frozenset[tuple[int, ...]]:
        if not count:
            return frozenset([room])
        return frozenset(
            last for left in set(ways(room, inside, layer)) for last in several(left, inside, layer, count - 1)
        )

    everywhere = tuple(range(len(nodes)))
    return bool(several(tuple(nodes.free[0].tolist()), everywhere, 0, pods // sizes[0]))


@settings(max_examples=200, deadline=None)
@given(blocks=trees(5), bare=st.lists(st.integers(0, 4), max_size=1), layers=wishes(), slices=st.integers(1, 3))
def test_they_are_placed_whenever_there_is_a_way_and_then_so_that_no_slice_is_torn(
    blocks: list[list[list[int]]], bare: list[int], layers: Layers, slices: int
) -> None:
    nodes, pods = hall(blocks, bare=bare, loose=[3]), slices * layers[0][1]
    found = place(nodes, sliced(pods, layers))
    assert isinstance(found, Placement) == possible(nodes, pods, layers)
    if isinstance(found, Placement):
        assert len(order_of(found)) == pods
        assert all(count <= nodes.free[0, node] for node, count in pods_on(found).items())
        assert torn(nodes, found, layers) == []


@settings(max_examples=100, deadline=None)
@given(
    blocks=trees(40),
    layers=wishes(),
    slices=st.integers(1, 4),
    within=st.sampled_from(["", "hall", "block"]),
    left=st.integers(0, 5),
    minimum=st.integers(1, 6),
)
def test_no_slice_is_torn_in_a_workload_with_a_domain_of_its_own_pods_of_other_tasks_and_a_minimum(
    blocks: list[list[list[int]]], layers: Layers, slices: int, within: str, left: int, minimum: int
) -> None:
    nodes = hall(blocks)
    gang = sliced(slices * layers[0][1] + left, layers, within=within, gpu=3, minimum=minimum)
    gang.tasks.append(Task("other", 3, 1, {"gpu": 2, "pods": 1}))
    found = place(nodes, Gang("q", gang.tasks, minimum + 1, network_topology=gang.network_topology))
    if isinstance(found, Placement):
        assert torn(nodes, found, layers) == []
        used = {node: 0 for node in range(len(nodes))}
        for task, node, count in found.pods:
            used[node] += count * gang.tasks[task].requests["gpu"]
        assert all(amount <= nodes.free[0, node] for node, amount in used.items())
