"""Taints with PreferNoSchedule: their nodes are used by what does not tolerate them only where it does not fit else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from atoll.fit import Placement, Profile, place
from tests.fit.builders import make_gang, make_nodes

SOFT = Profile(taints=({"key": "old", "effect": "PreferNoSchedule"},))
TOLERATED = [
    {"key": "old", "operator": "Exists"},
    {"key": "old", "operator": "Exists", "effect": "PreferNoSchedule"},
]


def used(outcome: object) -> set[int]:
    assert isinstance(outcome, Placement)
    return {node for _, node, _ in outcome.pods}


def test_a_pod_goes_to_the_node_without_the_taint_though_the_other_gap_is_tighter() -> None:
    assert used(place(make_nodes([[1, 8]], profiles={0: SOFT}), make_gang(1))) == {1}


def test_a_gang_that_fits_only_with_them_uses_them() -> None:
    assert used(place(make_nodes([[4, 4]], profiles={0: SOFT}), make_gang(8))) == {0, 1}


def test_a_gang_leaves_the_near_domain_for_nodes_without_them() -> None:
    assert used(place(make_nodes([[4, 4], [2, 2, 4]], profiles={0: SOFT}), make_gang(6))) <= {2, 3, 4}


def test_what_tolerates_them_does_not_mind() -> None:
    nodes = make_nodes([[1, 8]], profiles={0: SOFT})
    for toleration in TOLERATED:
        assert used(place(nodes, make_gang(1, tolerations=[toleration]))) == {0}
    hard_only = {"key": "old", "operator": "Exists", "effect": "NoSchedule"}
    assert used(place(nodes, make_gang(1, tolerations=[hard_only]))) == {1}


@given(
    st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=3), min_size=1, max_size=3),
    st.sets(st.integers(0, 8)),
    st.integers(1, 10),
    st.sampled_from([None, 1, 2]),
)
def test_they_are_avoided_exactly_where_all_pods_fit_without(
    racks: list[list[int]], tainted: set[int], replicas: int, hard: int | None
) -> None:
    gang = make_gang(replicas, minimum=max(1, replicas // 2), hard=hard)
    without = make_nodes(racks)
    for node in tainted & set(range(len(without))):
        without.free[:, node] = 0
    clean = place(without, gang)
    outcome = place(make_nodes(racks, profiles=dict.fromkeys(tainted, SOFT)), gang)
    if isinstance(clean, Placement) and sum(clean.counts) == replicas:
        assert not used(outcome) & tainted
    else:
        assert outcome == place(make_nodes(racks), gang)
