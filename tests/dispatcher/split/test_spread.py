"""Which regions Karmada's spread constraints choose: the best set of each size is enough to follow."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.dispatcher.split import spread
from atoll.dispatcher.split.karmada import Candidate, Unsupported, Wanted, assign
from atoll.dispatcher.split.spread import Region, bounded, choose, constraints_of, grouped

AGGREGATED = {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}


def every_set(found: list[Region], least: int, most: int, clusters: int) -> list[str]:
    """The definition, over all sets."""
    order = sorted(found, key=lambda each: (len(each.clusters), -each.score, each.name))

    def size(chosen) -> int:
        return sum(len(order[index].clusters) for index in chosen)

    ended = [
        chosen
        for count in range(1, most + 1)
        for chosen in combinations(range(len(order)), count)
        if count >= least
        and size(chosen) >= clusters
        and not any(end >= least and size(chosen[:end]) >= clusters for end in range(1, count))
    ]
    if not ended:
        return []
    best = min(ended, key=lambda chosen: (-sum(order[index].score for index in chosen), -size(chosen), chosen))

    def names(chosen) -> list[str]:
        return [r.name for r in sorted((order[i] for i in chosen), key=lambda each: (-each.score, each.name))]

    sets = [names(chosen) for chosen in ended]
    return next(names(best)[:end] for end in range(1, len(best) + 1) if names(best)[:end] in sets)


regions = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 4)), min_size=1, max_size=7).map(
    lambda drawn: [
        Region(f"r{number}", [Candidate(f"c{number}-{index}", 1, 1) for index in range(size)], score)
        for number, (size, score) in enumerate(drawn)
    ]
)


@given(regions, st.integers(1, 4), st.integers(0, 4), st.integers(0, 12))
def test_the_chosen_regions_are_those_of_looking_at_every_set(found, least, more, clusters):
    chosen = choose(found, least, least + more, clusters)
    assert [region.name for region in chosen] == every_set(found, least, least + more, clusters)


def test_sixty_regions_are_chosen_from_at_once():
    found = [
        Region(f"r{number:03}", [Candidate(f"c{number}", 1, 1)] * (1 + number % 3), number) for number in range(60)
    ]
    assert len(choose(found, 5, 20, 30)) >= 5


@pytest.mark.parametrize(
    ("constraint", "expected"),
    [
        pytest.param({"spreadByField": "zone"}, ["z1", "z1", ""], id="by the first zone"),
        pytest.param({"spreadByField": "provider"}, ["p", "", "q"], id="by provider"),
        pytest.param({"spreadByLabel": "rack"}, ["", "r", "r"], id="by a label"),
        pytest.param({"spreadByField": "region"}, ["eu", "eu", "us"], id="by region as it is"),
    ],
)
def test_clusters_are_grouped_by_what_they_are_spread_by(constraint: dict[str, str], expected: list[str]) -> None:
    candidates = [
        Candidate("a", 1, 1, fields={"zone": ["z1", "z2"], "provider": ["p"], "region": ["eu"]}),
        Candidate("b", 1, 1, labels={"rack": "r"}, fields={"zone": ["z1"], "region": ["eu"]}),
        Candidate("c", 1, 1, labels={"rack": "r"}, fields={"provider": ["q"], "region": ["us"]}),
    ]
    limits = {"minGroups": 1, "maxGroups": 2}
    cluster = {"spreadByField": "cluster", **limits}
    found, placement = grouped(candidates, {"spreadConstraints": [{**constraint, **limits}, cluster]})
    assert [next(iter(each.fields["region"]), "") for each in found] == expected
    assert constraints_of(placement) == {"region": (1, 2), "cluster": (1, 2)}


def test_clusters_are_spread_by_one_thing_at_a_time() -> None:
    both = [{"spreadByField": "region"}, {"spreadByLabel": "rack"}, {"spreadByField": "cluster"}]
    with pytest.raises(Unsupported, match="by region and by rack"):
        grouped([], {"spreadConstraints": both})


@pytest.mark.parametrize(
    ("replicas", "score"),
    [
        pytest.param(8, 4007, id="4 of 8 replicas in its first two clusters, of score 9 and 6"),
        pytest.param(14, 7005, id="7 of 14 replicas in all three, whose mean score is 5"),
        pytest.param(40, 9005, id="the 9 of 20 replicas that it has room for"),
    ],
)
def test_a_region_is_worth_its_part_of_the_replicas_then_the_score_of_the_clusters_that_take_it(
    replicas: int, score: int
) -> None:
    eu = {"region": ["eu"]}
    found = [Candidate(name, 3, 3, score=each, fields=eu) for name, each in (("a", 9), ("b", 6), ("c", 0))]
    placement = {
        "replicaScheduling": AGGREGATED,
        "spreadConstraints": [{"spreadByField": "region", "minGroups": 2, "maxGroups": 2}],
    }
    [region] = spread.regions(found, Wanted(replicas, placement))
    assert (region.name, region.score) == ("eu", score)


def test_one_region_is_worth_all_of_the_replicas_that_it_has_room_for() -> None:
    found = [Candidate(name, 3, 3, score=5, fields={"region": ["eu"]}) for name in "ab"]
    placement = {
        "replicaScheduling": AGGREGATED,
        "spreadConstraints": [{"spreadByField": "region", "minGroups": 1, "maxGroups": 1}],
    }
    scores = [spread.regions(found, Wanted(replicas, placement))[0].score for replicas in (4, 5, 6, 7)]
    assert scores[0] < scores[1] < scores[2] == scores[3]


def test_clusters_that_get_none_are_left_out() -> None:
    divided = {"replicaSchedulingType": "Divided"}
    aggregated = {"replicaScheduling": AGGREGATED}
    assert assign([Candidate("a", 4, 4), Candidate("b", 1, 1)], Wanted(4, aggregated)) == {"a": 4}
    lists = [{"targetCluster": {"clusterNames": [name]}, "weight": weight} for name, weight in (("a", 9), ("b", 1))]
    by_weight = {"replicaDivisionPreference": "Weighted", "weightPreference": {"staticWeightList": lists}}
    weighted = {"replicaScheduling": {**divided, **by_weight}}
    assert assign([Candidate("a", 4, 4), Candidate("b", 4, 4)], Wanted(1, weighted)) == {"a": 1}


def test_a_cluster_without_room_for_all_gives_way_to_the_largest_of_the_others() -> None:
    found = [Candidate(name, pods, pods, score=score) for name, pods, score in (("a", 1, 9), ("b", 2, 5), ("c", 8, 1))]
    placement = {
        "replicaScheduling": AGGREGATED,
        "spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}],
    }
    assert [each.name for each in spread.select(found, Wanted(5, placement))] == ["c"]


@pytest.mark.parametrize(("members", "most"), [(0, 1), (1, 1), (5, 5)])
def test_what_a_constraint_leaves_open_is_one_group_at_least_and_all_members_at_most(members: int, most: int) -> None:
    said = bounded(
        {"replicaScheduling": {}, "spreadConstraints": [{}, {"spreadByLabel": "ring", "maxGroups": 3}]}, members
    )
    assert said["spreadConstraints"] == [
        {"spreadByField": "cluster", "minGroups": 1, "maxGroups": most},
        {"spreadByLabel": "ring", "spreadByField": "", "minGroups": 1, "maxGroups": 3},
    ]
