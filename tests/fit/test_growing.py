"""What a gang gets beyond its minimum: all that its topology allows, in ever wider domains."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.fit import Miss, Nodes, Placement, Profile, grow, place
from atoll.fit.constraints import HostPorts
from atoll.fit.pods import first_pods
from atoll.model.gang import Gang, Partition, Task, TopologyWish
from atoll.model.topology import NO_DOMAIN, Domain, Tree
from tests.calls import calls
from tests.fit.builders import make_gang, make_nodes, pods_on

CPU = {"cpu": 3, "pods": 1}


def two_spines(free: list[list[int]], loose: int) -> Nodes:
    """Two spines of racks with one node each, by free CPUs, and a node in no domain."""
    domains = [Domain(f"spine{s}", 2, tier_name="spine") for s in range(2)]
    domains += [Domain(f"s{s}r{r}", 1, s, "rack") for s in range(2) for r in range(len(free[s]))]
    lowest = [2 + n for n in range(sum(map(len, free)))] + [NO_DOMAIN]
    names = [f"n{n}" for n in range(len(lowest))]
    amounts = [{"cpu": each, "pods": 99} for each in [*free[0], *free[1], loose]]
    return Nodes(Tree(domains), lowest, names, [Profile()], [0] * len(names), amounts)


def gang(replicas: int, minimum: int, wish: TopologyWish | None, *more: Task) -> Gang:
    return Gang("q", [Task("t", replicas, minimum, CPU), *more], minimum, network_topology=wish)


def test_a_soft_gang_takes_what_is_far_once_its_minimum_is_near() -> None:
    nodes = two_spines([[9, 8, 7], [9, 9, 6]], 9)
    found = place(nodes, gang(19, 7, TopologyWish("soft")))
    assert isinstance(found, Placement)
    assert found.counts == [18]
    near = {nodes.domain[1, node] for _, node, _ in first_pods(found.pods, [7])}
    assert len(near) == 1, "the minimum is in one spine"


def test_a_hard_gang_takes_what_the_domain_holds_that_it_may_span() -> None:
    nodes = two_spines([[12, 9, 0], [6, 6, 6]], 12)
    found = place(nodes, gang(8, 1, TopologyWish("hard", 2)))
    assert isinstance(found, Placement)
    assert (found.counts, found.tier) == ([7], 2)


def test_a_gang_stays_within_the_domain_where_it_must_be() -> None:
    nodes = two_spines([[12, 9, 0], [6, 6, 6]], 12)
    found = place(nodes, gang(8, 1, TopologyWish("hard", 2)), within=1)
    assert isinstance(found, Placement)
    assert found.counts == [6]


def test_tasks_share_what_is_there_in_proportion() -> None:
    found = place(make_nodes([[9], [8]], loose=[4]), gpu_gang((10, 1), (20, 1)))
    assert isinstance(found, Placement)
    assert (sum(found.counts), found.counts[0] in (6, 7, 8)) == (21, True)


def gpu_gang(*tasks: tuple[int, int], minimum: int | None = None, **more: Any) -> Gang:
    made = [Task(f"t{n}", many, few, {"gpu": 1, "pods": 1}) for n, (many, few) in enumerate(tasks)]
    return Gang("q", made, sum(few for _, few in tasks) if minimum is None else minimum, **more)


def test_groups_that_are_apart_stay_so_in_wider_domains() -> None:
    part = Partition(2, TopologyWish("hard", 1))
    tasks = [Task("t", 8, 2, {"gpu": 1, "pods": 1}, partition=part)]
    one = Gang("q", tasks, 2, network_topology=TopologyWish("hard", 2), apart=TopologyWish("hard", 1))
    found = place(make_nodes([[5], [2], [3]]), one)
    assert pods_on(found) == {0: 2, 1: 2, 2: 2}


@pytest.mark.parametrize("partition", [None, Partition(2, TopologyWish("hard", 1))], ids=["pods", "groups"])
def test_what_can_not_be_placed_costs_nothing(partition: Partition | None) -> None:
    def cost(replicas: int) -> int:
        tasks = [Task("t", replicas, 2, {"gpu": 1, "pods": 1}, partition=partition)]
        one = Gang("q", tasks, 2, network_topology=TopologyWish("hard", 2))
        nodes = make_nodes([[4, 4], [4, 4]])
        return calls(lambda: place(nodes, one))

    assert cost(100_000) < 2 * cost(100)


def test_ports_are_taken_once_however_wide_it_gets() -> None:
    nodes = make_nodes([[3], [3]], loose=[3])
    nodes.exact = (HostPorts({}),)
    found = place(nodes, make_gang(9, minimum=1, ports=[("TCP", "0.0.0.0", 80)]))
    assert pods_on(found) == {0: 1, 1: 1, 2: 1}


def test_what_runs_gets_the_pods_that_have_room_whichever_come_first() -> None:
    nodes = make_nodes([[3], [2]])
    more = Gang("q", [Task("big", 2, 0, {"gpu": 8, "pods": 1}), Task("small", 9, 0, {"gpu": 1, "pods": 1})], 0)
    found = grow(nodes, more)
    assert isinstance(found, Placement)
    assert found.counts == [0, 5]
    assert isinstance(place(nodes, more), Miss)
    assert isinstance(grow(make_nodes([[0], [0]]), more), Miss)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=3), min_size=1, max_size=3),
    st.lists(st.integers(0, 4), max_size=2),
    st.lists(st.tuples(st.integers(1, 6), st.integers(0, 2), st.integers(1, 3)), min_size=1, max_size=3),
    st.sampled_from([None, TopologyWish("soft"), TopologyWish("hard", 2), TopologyWish("hard", 1)]),
)
def test_no_pod_is_left_for_which_there_is_room(
    racks: list[list[int]], loose: list[int], of_tasks: list[tuple[int, int, int]], wish: TopologyWish | None
) -> None:
    nodes = make_nodes(racks, loose=loose)
    tasks = [
        Task(f"t{n}", many, min(few, many), {"gpu": gpu, "pods": 1}) for n, (many, few, gpu) in enumerate(of_tasks)
    ]
    one = Gang("q", tasks, sum(task.min_available for task in tasks), network_topology=wish)
    found = place(nodes, one)
    if not isinstance(found, Placement):
        return
    left = nodes.copy()
    left.put(tasks, found)
    assert (left.free >= 0).all()
    used = [node for _, node, _ in found.pods]
    highest = wish.highest_tier_allowed if wish is not None else None
    inside = np.ones(len(nodes), bool)
    if highest is not None:
        inside = nodes.domain[nodes.tree.tiers.index(highest)] == nodes.domain[nodes.tree.tiers.index(highest), used[0]]
        assert inside[used].all()
    for task, has in zip(tasks, found.counts, strict=True):
        assert has == task.replicas or not left.room_for(task)[inside].any()
