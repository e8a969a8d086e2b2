"""Gangs of several tasks, of which one may take what only it could do without."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from atoll.fit import Miss, Nodes, Placement, Profile, place
from atoll.fit.constraints import HostPorts
from atoll.model.gang import Gang, Task, TopologyWish
from atoll.model.ports import HostPort
from atoll.model.topology import Domain, Tree
from atoll.model.vector import Vector


def nodes_of(*free: tuple[int, int]) -> Nodes:
    """One rack of nodes with so many free GPUs and CPUs."""
    offers: list[Vector] = [{"gpu": gpu, "cpu": cpu} for gpu, cpu in free]
    names = [f"n{number}" for number in range(len(free))]
    return Nodes(Tree([Domain("rack", 1)]), [0] * len(free), names, [Profile()], [0] * len(free), offers)


def gang_of(*tasks: tuple[int, int, int], **more: list[HostPort]) -> Gang:
    """(pods, GPUs, CPUs) of each task."""
    made = [Task(f"t{n}", pods, pods, {"gpu": gpu, "cpu": cpu}, **more) for n, (pods, gpu, cpu) in enumerate(tasks)]  # type: ignore[arg-type]
    return Gang("q", made, sum(pods for pods, _, _ in tasks), network_topology=TopologyWish("hard", 1))


def test_a_task_leaves_what_only_the_other_one_needs() -> None:
    nodes, gang = nodes_of((1, 2), (1, 0)), gang_of((1, 1, 0), (1, 1, 1))
    found = place(nodes, gang)
    assert isinstance(found, Placement)
    assert sorted(found.pods) == [(0, 1, 1), (1, 0, 1)]
    assert (found.counts, found.domain, found.tier) == ([1, 1], 0, 1)


def test_what_does_not_fit_in_any_way_is_still_refused() -> None:
    found = place(nodes_of((1, 0), (2, 0), (0, 3)), gang_of((1, 1, 0), (1, 1, 1)))
    assert isinstance(found, Miss)


def test_pods_that_count_more_than_amounts_are_tried_once() -> None:
    nodes = nodes_of((1, 2), (1, 0))
    nodes.exact = (HostPorts({}),)
    assert isinstance(place(nodes, gang_of((1, 1, 0), (1, 1, 1))), Placement)
    ports = gang_of((1, 1, 0), (1, 1, 1), ports=[("", "TCP", 80)])
    assert isinstance(place(nodes, ports), Miss)


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2), st.integers(1, 3)), min_size=2, max_size=3),
)
def test_no_node_is_overfilled(free: list[tuple[int, int]], tasks: list[tuple[int, int, int]]) -> None:
    nodes, gang = nodes_of(*free), gang_of(*tasks)
    found = place(nodes, gang)
    if isinstance(found, Placement):
        assert found.counts == [pods for pods, _, _ in tasks]
        nodes.take([task.requests for task in gang.tasks], found)
        assert (nodes.free >= 0).all()
        assert np.sum([count for _, _, count in found.pods]) == gang.replicas
