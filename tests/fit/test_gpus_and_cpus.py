"""GPUs of Koordinator and CPUs of the kubelet are of the same NUMA nodes: its topology manager as a plain search."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.fit import koordinator as fitting
from atoll.fit.constraints import Cards
from atoll.fit.koordinator import Found, Node, Reported, Taken
from atoll.model import cards, koordinator
from atoll.model.gang import DeviceWish, Task
from atoll.model.numa import Amounts, Asks, Cells, Policy, asks_of
from tests.fit.koordinator_devices import TOTAL, fixture, gpu

VENDOR = "nvidia.com/gpu"


def merged(free: Amounts, total: Amounts, asked: Sequence[int]) -> tuple[frozenset[int], bool]:
    """The best hint as the kubelet merges all permutations of hints: preferred (all are, and they are equal), narrow, of
    a low bit mask.
    """
    everything = range(1, 1 << len(free))

    def holds(mask: int, amounts: Amounts, row: int) -> bool:
        return sum(cell[row] for at, cell in enumerate(amounts) if mask >> at & 1) >= asked[row]

    hints = []
    for row in range(len(asked)):
        least = min((mask.bit_count() for mask in everything if holds(mask, total, row)), default=0)
        hints.append([(mask, mask.bit_count() == least) for mask in everything if holds(mask, free, row)])
    best = (False, -len(free), -everything[-1])
    for permutation in itertools.product(*hints):
        mask = everything[-1]
        for each, _ in permutation:
            mask &= each
        if mask:
            preferred = all(liked and each == mask for each, liked in permutation)
            best = max(best, (preferred, -mask.bit_count(), -mask))
    return frozenset(at for at in range(len(free)) if -best[2] >> at & 1), best[0]


_CELLS = st.integers(2, 4).flatmap(
    lambda count: st.lists(
        st.tuples(*(st.tuples(st.integers(0, 4), st.integers(0, 4)) for _ in range(2))), min_size=count, max_size=count
    )
)


@given(cells=_CELLS, cpu=st.integers(1, 6), number=st.integers(1, 6), policy=st.sampled_from(Policy))
def test_the_kubelet_leads_to_the_preferred_hint(
    cells: list[tuple[tuple[int, int], tuple[int, int]]], cpu: int, number: int, policy: Policy
) -> None:
    free = tuple((min(one), min(two)) for one, two in cells)
    total = tuple((max(one), max(two)) for one, two in cells)
    there = Cells(policy, ("cpu", VENDOR), free, total)
    expected, preferred = merged(free, total, (cpu, number))
    found, strict = there.leads(asks_of([{"cpu": cpu, VENDOR: number}]))
    assert strict == policy.strict
    if policy is Policy.NONE:
        assert not found
    elif preferred:
        assert found == expected
    admitted = there.room(asks_of([{"cpu": cpu, VENDOR: number}])) > 0
    if policy.strict:
        assert admitted == (preferred and (policy is not Policy.SINGLE or len(expected) == 1))


def node(cells: Cells | None, used: Sequence[int] = ()) -> Node:
    free = [0 if at in used else cards.CARD for at in range(8)]
    return Node(koordinator.devices({"devices": fixture()}), free, Taken(), TOTAL, cells=cells)


def cells(policy: Policy, *free: tuple[int, int], known: bool = True) -> Cells:
    """8 CPUs and 4 GPUs in each NUMA node; whether the kubelet knows the GPUs."""
    found = Cells(policy, ("cpu", VENDOR), free, ((8, 4),) * len(free))
    if known:
        return found
    return Cells(policy, ("cpu",), tuple(each[:1] for each in free), ((8,),) * len(free))


def ask(cpu: int, number: int) -> Asks:
    return asks_of([{"cpu": cpu, VENDOR: number}])


def find(at: Node, cpu: int, number: int) -> list[int] | str:
    found = fitting.find(at, {VENDOR: number, "cpu": cpu * 1000}, DeviceWish(), ask(cpu, number))
    return list(found.gpus) if isinstance(found, Found) else found


@pytest.mark.parametrize("known", [True, False], ids=["GPUs of a device plug-in", "GPUs of Koordinator alone"])
@pytest.mark.parametrize("policy", [Policy.SINGLE, Policy.RESTRICTED, Policy.BEST_EFFORT])
def test_gpus_follow_the_cpus(policy: Policy, known: bool) -> None:
    """The first NUMA node has two CPUs left."""
    there = node(cells(policy, (2, 4), (8, 4), known=known))
    assert find(there, 4, 2) == [4, 5]
    assert find(there, 2, 2) == [0, 1]


def test_without_alignment_gpus_are_packed() -> None:
    assert find(node(cells(Policy.NONE, (2, 4), (8, 4))), 4, 2) == [0, 1]
    assert find(node(None), 4, 2) == [0, 1]


def test_cpus_follow_gpus_where_the_kubelet_knows_them() -> None:
    """Its first choice for CPUs alone would be NUMA node 0, which has no GPU left."""
    there = node(cells(Policy.SINGLE, (8, 0), (8, 4)), used=[0, 1, 2, 3])
    assert find(there, 4, 2) == [4, 5]


def test_a_kubelet_that_knows_no_gpus_rejects_no_pod_for_them() -> None:
    """Its CPUs come from NUMA node 0, whatever GPUs are free."""
    assert find(node(cells(Policy.SINGLE, (8, 0), (8, 0), known=False), used=[0, 1, 2]), 4, 2) == [4, 5]


def test_of_sets_of_one_size_the_lowest_mask_comes_first() -> None:
    free = ((2, 1), (2, 1), (2, 1), (2, 1))
    there = Cells(Policy.RESTRICTED, ("cpu", VENDOR), ((2, 0), (2, 1), (2, 1), (2, 2)), free)
    assert there.leads(ask(4, 2))[0] == {1, 2}
    assert there._replace(free=((2, 1), (2, 1), (2, 1), (2, 1))).leads(ask(4, 2))[0] == {0, 1}
    assert there._replace(free=((2, 2), (0, 1), (2, 0), (4, 0))).leads(ask(4, 2))[0] == {0, 2}


def test_a_pod_wider_than_a_numa_node_gets_both() -> None:
    assert find(node(cells(Policy.RESTRICTED, (8, 4), (8, 4)), used=[0]), 12, 6) == [1, 2, 3, 4, 5, 6]


def test_a_gpu_in_parts_refuses_a_strict_node_and_leaves_others_to_another_choice() -> None:
    """The kubelet does not know that GPU 5 has a share of a pod; its CPUs come from NUMA node 1."""
    for policy, expected in ((Policy.BEST_EFFORT, [0, 1, 2, 3]), (Policy.SINGLE, "no GPUs of one scope are free")):
        there = node(cells(policy, (2, 4), (8, 4)), used=[5])
        found = find(there, 4, 4)
        assert found == expected if isinstance(expected, list) else isinstance(found, str)


_NUMA = st.lists(st.integers(-1, 2), min_size=3, max_size=7)


@given(
    where=_NUMA, used=st.sets(st.integers(0, 6)), cpus=st.tuples(*[st.integers(0, 4)] * 3),
    cpu=st.integers(1, 6), number=st.integers(1, 4), policy=st.sampled_from(Policy),
)  # fmt: skip
def test_gpus_are_of_the_numa_nodes_wherever_they_can_be(
    where: list[int], used: set[int], cpus: tuple[int, int, int], cpu: int, number: int, policy: Policy
) -> None:
    """Beside all sets of free GPUs."""
    made = [gpu(at, "", numa=numa) for at, numa in enumerate(where)]
    free = [0 if at in used else cards.CARD for at in range(len(where))]
    idle = [at for at, each in enumerate(free) if each]

    def by_cell(some: Sequence[int]) -> list[int]:
        return [sum(where[at] == cell for at in some) for cell in range(3)]

    amounts = zip(cpus, by_cell(idle), strict=True)
    there = Cells(
        policy, ("cpu", VENDOR), tuple(amounts), tuple(zip((4, 4, 4), by_cell(range(len(where))), strict=True))
    )
    found = find(Node(koordinator.devices({"devices": made}), free, Taken(), TOTAL, cells=there), cpu, number)
    inside, strict = there.leads(ask(cpu, number))
    near = [at for at in idle if not inside or where[at] in (*inside, -1)]
    assert isinstance(found, list) == (len(near if strict else idle) >= number)
    if isinstance(found, list):
        assert set(found) <= set(near if len(near) >= number else idle)
        assert len(set(found)) == number


TASK = Task("t", 1, 1, {VENDOR: 2, "cpu": 2000}, aligned=[{"cpu": 2, VENDOR: 2}])


def constraint(there: Cells, used: Sequence[int] = ()) -> Cards:
    free = np.array([[0 if at in used else cards.CARD for at in range(8)]], np.int64)
    return Cards(free, None, {0: Reported(node(None).devices, 0)}, cells=lambda _: there)


@pytest.mark.parametrize(("policy", "expected"), [(Policy.SINGLE, 1), (Policy.BEST_EFFORT, 3)])
def test_nodes_count_pods_with_their_cpus(policy: Policy, expected: int) -> None:
    """The kubelet has four GPUs of NUMA node 0 to give, one of which has a share of a pod."""
    room = constraint(cells(policy, (8, 4), (8, 4)), used=[1]).room(TASK, 1)
    assert room is not None
    assert room.tolist() == [expected]


def test_each_counted_pod_moves_the_numa_node_of_the_next_one() -> None:
    room = constraint(cells(Policy.SINGLE, (2, 4), (8, 4))).room(TASK, 1)
    assert room is not None
    assert room.tolist() == [4], "the last one gets CPUs that the constraint of NUMA nodes does not give it"
    room = constraint(cells(Policy.SINGLE, (2, 4), (4, 4)), used=[2, 3]).room(TASK, 1)
    assert room is not None
    assert room.tolist() == [3]


def test_gpus_are_taken_where_cpus_are_left() -> None:
    """CPUs for one pod are free in NUMA node 0, for others in node 1; copies go on by themselves."""
    free = constraint(cells(Policy.SINGLE, (3, 4), (2, 4)))
    free.take(TASK, 0, 1)
    assert free.free[0].tolist() == [0, 0] + [1000] * 6
    twin = free.copy()
    twin.take(TASK, 0, 1)
    assert twin.free[0].tolist() == [0, 0, 1000, 1000, 0, 0, 1000, 1000]
    assert free.free[0].tolist() == [0, 0] + [1000] * 6
    free.take(TASK, 0, 1)
    assert free.free[0].tolist() == [0, 0, 1000, 1000, 0, 0, 1000, 1000]


def test_pods_with_cpus_alone_move_the_gpus_of_later_ones() -> None:
    free = constraint(cells(Policy.SINGLE, (4, 4), (8, 4)))
    free.take(Task("cpu", 1, 1, {"cpu": 4000}, aligned=[{"cpu": 4}]), 0, 1)
    free.take(TASK, 0, 1)
    assert free.free[0].tolist() == [1000] * 4 + [0, 0, 1000, 1000]
