"""Groups of a gang's pods, each near together by a wish of its own."""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.fit import Miss, Nodes, Placement, place
from atoll.fit.balanced import shares
from atoll.model.gang import Gang, Partition, Task, TopologyWish
from tests.fit.builders import make_gang, make_nodes, pods_on

RACK = TopologyWish("hard", 1)


def grouped(
    replicas: int, size: int, *, minimum: int | None = None, wish: TopologyWish | None = RACK, hard: int | None = None
) -> Gang:
    floor = replicas if minimum is None else minimum
    task = Task("t", replicas, floor, {"gpu": 1, "pods": 1}, partition=Partition(size, wish))
    return Gang("q", [task], floor, network_topology=TopologyWish("hard", hard) if hard is not None else None)


def racks_of(nodes: Nodes, found: Placement, size: int, task: int = 0) -> list[set[str]]:
    """The domains of each group, in the order of the groups."""
    spots = [node for index, node, count in found.pods if index == task for _ in range(count)]
    names = [nodes.tree.domains[int(nodes.layout.lowest[node])].name for node in spots]
    return [set(names[start : start + size]) for start in range(0, len(names), size)]


def test_each_partition_is_in_one_rack_and_all_of_them_may_be_in_several() -> None:
    nodes = make_nodes([[2, 3], [2, 3], [4]])
    found = place(nodes, grouped(8, 4))
    assert isinstance(found, Placement)
    assert sorted(map(len, racks_of(nodes, found, 4))) == [1, 1]


def test_room_that_is_left_over_beside_whole_partitions_does_not_count() -> None:
    """14 GPUs are free and 12 are asked for, but racks of 7 hold one group of 4 each."""
    miss = place(make_nodes([[3, 4], [3, 4]]), grouped(12, 4))
    assert isinstance(miss, Miss)
    assert (miss.requested, miss.available) == (12, 8)


def test_partitions_of_a_gang_stay_in_its_own_domain() -> None:
    nodes = make_nodes([[4, 4], [4], [4]])
    found = place(nodes, grouped(8, 4, hard=1))
    assert isinstance(found, Placement)
    assert racks_of(nodes, found, 4) == [{"rack0"}, {"rack0"}]
    assert isinstance(place(nodes, grouped(12, 4, hard=1)), Miss)


def test_an_elastic_gang_starts_with_whole_partitions() -> None:
    nodes = make_nodes([[4, 1], [3]])
    found = place(nodes, grouped(12, 4, minimum=3))
    assert isinstance(found, Placement)
    assert found.counts == [4], "3 pods are one group, and 4 more have no rack"


def test_soft_partitions_are_near_where_there_is_room_and_run_anyhow() -> None:
    nodes = make_nodes([[4], [2], [2]])
    found = place(nodes, grouped(8, 4, wish=TopologyWish("soft")))
    assert isinstance(found, Placement)
    assert sorted(map(len, racks_of(nodes, found, 4))) == [1, 2]


def test_leaders_are_with_their_workers() -> None:
    both = Partition(1, RACK, "group"), Partition(3, RACK, "group")
    tasks = [
        Task("leader", 2, 2, {"gpu": 2, "pods": 1}, partition=both[0]),
        Task("worker", 6, 6, {"gpu": 1, "pods": 1}, partition=both[1]),
    ]
    nodes = make_nodes([[2, 3], [3, 2], [9]])
    found = place(nodes, Gang("q", tasks, 8))
    assert isinstance(found, Placement)
    assert racks_of(nodes, found, 1) == racks_of(nodes, found, 3, task=1)


def test_prefill_and_decode_have_groups_of_their_own_and_one_domain() -> None:
    tasks = [
        Task("prefill", 4, 4, {"gpu": 1, "pods": 1}, partition=Partition(2, RACK)),
        Task("decode", 4, 4, {"gpu": 2, "pods": 1}, partition=Partition(4, RACK)),
        Task("router", 1, 1, {"gpu": 1, "pods": 1}),
    ]
    nodes = make_nodes([[2, 2], [4, 4], [1]], loose=[9])
    found = place(nodes, Gang("q", tasks, 9, network_topology=TopologyWish("hard", 2)))
    assert isinstance(found, Placement)
    assert (found.counts, found.tier) == ([4, 4, 1], 2)
    assert racks_of(nodes, found, 4, task=1) == [{"rack1"}]


def test_pods_that_join_others_go_to_their_domain() -> None:
    nodes = make_nodes([[4], [2]])
    gang = Gang("q", [Task("t", 2, 2, {"gpu": 1, "pods": 1}, domain="rack0")], 2)
    found = place(nodes, gang)
    assert isinstance(found, Placement)
    assert found.pods == [(0, 0, 2)]
    assert isinstance(place(nodes, Gang("q", [Task("t", 5, 5, {"gpu": 1}, domain="rack0")], 5)), Miss)


@settings(max_examples=150, deadline=None)
@given(
    racks=st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=3), min_size=1, max_size=4),
    size=st.integers(1, 5),
    groups=st.integers(1, 4),
    ceiling=st.sampled_from([1, 2]),
    hard=st.sampled_from([None, 1, 2]),
)
def test_equal_groups_of_one_task_are_placed_exactly_if_there_is_a_way(
    racks: list[list[int]], size: int, groups: int, ceiling: int, hard: int | None
) -> None:
    nodes = make_nodes(racks)
    found = place(nodes, grouped(size * groups, size, wish=TopologyWish("hard", ceiling), hard=hard))
    whole = [sum(rack) // size if ceiling == 1 else sum(rack) / size for rack in racks]
    possible = max(whole) >= groups if hard == 1 else int(sum(whole) + 1e-9) >= groups
    assert isinstance(found, Placement) == possible
    if isinstance(found, Placement):
        used = Counter({node: 0 for node in range(len(nodes))})
        for _, node, count in found.pods:
            used[node] += count
        assert all(count <= nodes.free[0, node] for node, count in used.items())
        assert used.total() == size * groups
        if ceiling == 1:
            assert all(len(each) == 1 for each in racks_of(nodes, found, size))


@pytest.mark.parametrize(("replicas", "size", "sets"), [(8, 4, [4, 4]), (6, 2, [2, 4])])
def test_whole_groups_go_to_each_part(replicas: int, size: int, sets: list[int]) -> None:
    from atoll.dispatcher.split.native import Division, divide_natively

    room = {"a": make_nodes([[size, size - 1]]), "b": make_nodes([[sets[1] + size - 1]])}
    division = divide_natively(grouped(replicas, size), room)
    assert isinstance(division, Division)
    assert sorted(part.replicas for part in division.gangs) == sets


def test_groups_that_may_span_more_than_their_gang_are_counted_within_it() -> None:
    """Of the 11 GPUs of the spine 9 are whole groups, and all of these are in one rack."""
    found = place(make_nodes([[2], [1, 3, 5]]), grouped(9, 3, wish=TopologyWish("hard", 2), hard=1))
    assert isinstance(found, Placement)


# -- apart -------------------------------------------------------------------------------------------------------------


def apart(gang: Gang, *, mode: str = "hard", tier: str = "rack") -> Gang:
    return msgspec.structs.replace(gang, apart=TopologyWish(mode, None, tier))


def test_groups_that_are_apart_share_no_rack() -> None:
    """Two groups go to the first rack otherwise, which holds both."""
    nodes = make_nodes([[8], [9]])
    together = place(nodes, grouped(8, 4))
    assert isinstance(together, Placement)
    assert racks_of(nodes, together, 4) == [{"rack0"}, {"rack0"}]
    found = place(nodes, apart(grouped(8, 4)))
    assert isinstance(found, Placement)
    assert racks_of(nodes, found, 4) == [{"rack0"}, {"rack1"}]


def test_groups_that_must_be_apart_wait_and_say_so_where_there_are_too_few_domains() -> None:
    nodes = make_nodes([[8, 8], [3]])
    miss = place(nodes, apart(grouped(8, 4)))
    assert isinstance(miss, Miss)
    assert miss.sentence() == "there would be room, but not for each of its groups in domains of tier rack of its own"
    assert isinstance(place(nodes, apart(grouped(8, 4), mode="soft")), Placement)
    assert isinstance(place(nodes, apart(grouped(8, 4), tier="row")), Miss), "no domain is of that tier"


def test_groups_without_a_wish_of_their_own_are_apart_as_well() -> None:
    nodes = make_nodes([[8], [2, 2], [4]], loose=[9])
    found = place(nodes, apart(grouped(12, 4, wish=None)))
    assert isinstance(found, Placement)
    assert sorted(map(sorted, racks_of(nodes, found, 4))) == [["rack0"], ["rack1"], ["rack2"]]


def test_tasks_without_groups_are_apart_and_grow_where_they_are() -> None:
    tasks = [Task(name, 4, 2, {"gpu": 1, "pods": 1}) for name in ("a", "b")]
    nodes = make_nodes([[8], [3]])
    found = place(nodes, apart(Gang("q", tasks, 4)))
    assert isinstance(found, Placement)
    assert sorted(found.counts) == [3, 4]
    racks = [{nodes.names[node] for task, node, _ in found.pods if task == index} for index in range(2)]
    assert racks[0].isdisjoint(racks[1])


# -- balanced ----------------------------------------------------------------------------------------------------------


def balanced(gang: Gang, tier: str = "rack") -> Gang:
    return msgspec.structs.replace(gang, balanced=TopologyWish("soft", None, tier))


def per_rack(nodes: Nodes, found: Placement | Miss) -> dict[str, int]:
    assert isinstance(found, Placement), found
    count = Counter[str]()
    for _, node, pods in found.pods:
        count[nodes.tree.domains[int(nodes.layout.lowest[node])].name] += pods
    return dict(count)


@pytest.mark.parametrize(
    ("racks", "pods", "expected"),
    [
        pytest.param([[19], [10], [10]], 20, {"rack1": 10, "rack2": 10}, id="as even as can be"),
        pytest.param([[19], [10], [10]], 15, {"rack0": 15}, id="one domain is enough"),
        pytest.param([[19], [10], [12]], 21, {"rack1": 10, "rack2": 11}, id="the larger one has what is over"),
        pytest.param([[19], [5], [4]], 22, {"rack0": 17, "rack1": 5}, id="the least share is as large as it can be"),
        pytest.param([[6], [6], [6], [6]], 13, {"rack0": 4, "rack1": 4, "rack2": 5}, id="three"),
        pytest.param([[9], [9]], 18, {"rack0": 9, "rack1": 9}, id="full"),
    ],
)
def test_pods_are_shared_out_evenly_over_few_racks(racks: list[list[int]], pods: int, expected: dict[str, int]) -> None:
    nodes = make_nodes(racks)
    wide = make_nodes(racks)
    wide.free[wide.resources.index("pods")] = 99
    assert per_rack(nodes, place(wide, balanced(make_gang(pods)))) == expected


def test_groups_are_shared_out_evenly_whole() -> None:
    nodes = make_nodes([[8, 8, 8], [8, 4], [8, 4]])
    assert per_rack(nodes, place(nodes, grouped(28, 4))) == {"rack0": 4, "rack1": 12, "rack2": 12}
    assert sorted(per_rack(nodes, place(nodes, balanced(grouped(28, 4)))).values()) == [12, 16]


def test_where_there_is_no_such_tier_it_runs_all_the_same() -> None:
    assert isinstance(place(make_nodes([[2], [2]]), balanced(make_gang(4), "row")), Placement)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=7), st.integers(1, 40))
@settings(deadline=None)
def test_shares_add_up_and_take_as_few_domains_as_hold_them(held: list[int], count: int) -> None:
    found = shares(np.array(held, np.int64), count)
    ranked = sorted(held, reverse=True)
    fewest = next((number for number in range(1, len(held) + 1) if sum(ranked[:number]) >= count), None)
    if fewest is None or fewest == 1:
        assert found is None
        return
    assert found is not None
    assert (int(found.sum()), int((found > 0).sum())) == (count, fewest)
    assert all(share <= most for share, most in zip(found.tolist(), held, strict=True))
    assert int(found[found > 0].min()) == min(count // fewest, ranked[fewest - 1])


# -- nodes as domains --------------------------------------------------------------------------------------------------

NODE = TopologyWish("hard", None, "kubernetes.io/hostname")


def test_each_node_is_a_domain_of_the_tier_of_hosts() -> None:
    nodes = make_nodes([[3, 2], [5]], loose=[4])
    found = place(nodes, grouped(4, 2, wish=NODE))
    assert isinstance(found, Placement)
    assert all(count % 2 == 0 for count in pods_on(found).values())
    whole = make_gang(4)
    found = place(nodes, msgspec.structs.replace(whole, network_topology=NODE))
    assert pods_on(found) == {3: 4}, "the tightest gap is on the node outside of any HyperNode"
    miss = place(nodes, msgspec.structs.replace(make_gang(6), network_topology=NODE))
    assert isinstance(miss, Miss)
    assert miss.domain == "node/n2"
    split = place(nodes, apart(grouped(8, 2, wish=None), tier="kubernetes.io/hostname"))
    assert sorted(pods_on(split)) == [0, 1, 2, 3]
    even = place(make_nodes([[5, 3, 3]]), balanced(make_gang(6), "kubernetes.io/hostname"))
    assert sorted(pods_on(even).values()) == [3, 3]
    joining = msgspec.structs.replace(whole.tasks[0], domain="node/n2")
    assert nodes.accepting(joining).tolist() == [False, False, True, False]


@settings(max_examples=150, deadline=None)
@given(
    racks=st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=3), min_size=1, max_size=5),
    size=st.integers(1, 4),
    groups=st.integers(1, 4),
    near=st.booleans(),
    even=st.booleans(),
)
def test_groups_are_apart_if_there_are_racks_enough_and_never_share_one(
    racks: list[list[int]], size: int, groups: int, near: bool, even: bool
) -> None:
    nodes = make_nodes(racks)
    gang = apart(grouped(size * groups, size, wish=RACK if near else None))
    found = place(nodes, balanced(gang, "spine") if even else gang)
    if near:
        assert isinstance(found, Placement) == (sum(sum(rack) >= size for rack in racks) >= groups)
    if isinstance(found, Placement):
        assert found.counts == [size * groups]
        assert all(count <= nodes.free[nodes.resources.index("gpu"), node] for node, count in pods_on(found).items())
        of = racks_of(nodes, found, size)
        assert sum(map(len, of)) == len(set().union(*of))
