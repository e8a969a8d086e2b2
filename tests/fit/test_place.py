"""Whole or not at all, near together, in the tightest gap."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.fit import Miss, Nodes, Placement, Profile, place
from atoll.fit.place import covering
from atoll.fit.pods import first_pods
from atoll.model.gang import Gang, Task, TopologyWish
from atoll.model.topology import NO_DOMAIN, Domain, Tree
from atoll.model.verdict import Reason
from tests.fit.builders import make_gang, make_nodes, pods_on

RACKS = st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=3), min_size=1, max_size=3)
LOOSE = st.lists(st.integers(0, 5), max_size=2)


def missed(outcome: Placement | Miss) -> Miss:
    assert isinstance(outcome, Miss), outcome
    return outcome


def domains_within(racks: list[list[int]], loose: list[int], hard: int | None) -> dict[str, tuple[int, list[int]]]:
    """Name -> (tier, nodes) of what a gang may stay inside, by hand."""
    result: dict[str, tuple[int, list[int]]] = {}
    start = 0
    for number, rack in enumerate(racks):
        result[f"rack{number}"] = (1, list(range(start, start + len(rack))))
        start += len(rack)
    result["spine"] = (2, list(range(start)))
    if hard is None:
        result[""] = (3, list(range(start + len(loose))))
    return {name: entry for name, entry in result.items() if hard is None or entry[0] <= hard}


@settings(max_examples=300, deadline=None)
@given(RACKS, LOOSE, st.integers(1, 8), st.integers(1, 3), st.sampled_from([None, 0, 1, 2]), st.data())
def test_a_gang_of_equal_pods_is_placed_exactly_if_some_allowed_domain_holds_it(
    racks: list[list[int]], loose: list[int], replicas: int, gpu: int, hard: int | None, data: st.DataObject
) -> None:
    minimum = data.draw(st.integers(1, replicas))
    nodes, gang = make_nodes(racks, loose=loose), make_gang(replicas, minimum=minimum, gpu=gpu, hard=hard)
    free = [g for rack in racks for g in rack] + loose
    held = {
        name: (tier, sum(free[n] // gpu for n in inside))
        for name, (tier, inside) in domains_within(racks, loose, hard).items()
    }
    before = nodes.free.copy()
    outcome = place(nodes, gang)
    found = place(nodes, gang, explain=False)
    assert found == (outcome if isinstance(outcome, Placement) else None)
    assert (nodes.free == before).all()
    best = max((room for _, room in held.values()), default=0)
    if best < minimum:
        miss = missed(outcome)
        assert (miss.requested, miss.available) == (minimum, best)
        return
    placed = pods_on(outcome)
    assert isinstance(outcome, Placement)
    assert all(count * gpu <= free[node] for node, count in placed.items())
    assert sum(placed.values()) == outcome.counts[0] >= minimum
    within = domains_within(racks, loose, hard).items()
    if best >= replicas:
        assert outcome.counts[0] == replicas
    else:
        # Some widest domain around what is placed is full.
        assert any(set(placed) <= set(nodes_) and outcome.counts[0] == held[name][1] for name, (_, nodes_) in within)
    want = replicas if best >= replicas else minimum
    nearest = min(tier for tier, room in held.values() if room >= want)
    start = {node for _, node, _ in first_pods(outcome.pods, [want])}
    assert any(start <= set(nodes_) for _, (tier, nodes_) in within if tier <= nearest)
    _, tier = covering(nodes, sorted(start))
    rooms = [room for level, room in held.values() if level == nearest and room >= want]
    # One that is to grow in a domain begins where most of it fits.
    chosen = max(rooms) if hard is not None and best < replicas else min(rooms)
    assert chosen in [
        held[n][1] for n, (t, each) in domains_within(racks, loose, hard).items() if t <= nearest and start <= set(each)
    ] or (tier is not None and tier < nearest)
    again = place(make_nodes(racks, loose=loose), gang)
    assert again == outcome


@settings(max_examples=150, deadline=None)
@given(RACKS, LOOSE, st.sampled_from([None, 1, 2]))
def test_one_pod_goes_where_many_domains_would_have_it_too(
    racks: list[list[int]], loose: list[int], hard: int | None
) -> None:
    """Few domains are compared one by one, many as arrays."""
    nodes, gang = make_nodes(racks, loose=loose), make_gang(1, hard=hard)
    one_by_one = place(nodes, gang)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[place.__module__], "_FEW", 0)
        assert place(nodes, gang) == one_by_one


@given(RACKS, st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=3))
def test_gangs_of_several_tasks_never_overfill_a_node_and_take_and_give_are_inverse(
    racks: list[list[int]], tasks: list[tuple[int, int]]
) -> None:
    nodes = make_nodes(racks)
    gang = Gang(
        "q", [Task(f"t{n}", r, r, {"gpu": g, "pods": 1}) for n, (r, g) in enumerate(tasks)], sum(r for r, _ in tasks)
    )
    outcome = place(nodes, gang)
    found = place(nodes, gang, explain=False)
    assert found == (outcome if isinstance(outcome, Placement) else None)
    if isinstance(outcome, Miss):
        assert outcome.available < outcome.requested
        return
    assert outcome.counts == [r for r, _ in tasks]
    before = nodes.free.copy()
    requests = [task.requests for task in gang.tasks]
    nodes.take(requests, outcome)
    assert (nodes.free >= 0).all()
    assert int((before - nodes.free).sum()) == sum(r * (g + 1) for r, g in tasks)
    nodes.take(requests, outcome, -1)
    assert (nodes.free == before).all()


@pytest.mark.parametrize(
    ("racks", "gang", "expected"),
    [
        pytest.param([[4], [2]], make_gang(2), {1: 2}, id="the tightest rack that holds it"),
        pytest.param([[2, 2], [1, 1, 2]], make_gang(4), {0: 2, 1: 2}, id="equally tight racks go by name"),
        pytest.param([[4, 1]], make_gang(1), {1: 1}, id="inside a rack the tightest node"),
        pytest.param(
            [[2, 3, 2]], make_gang(4), {1: 3, 0: 1}, id="few nodes: the largest, then the tightest that holds the rest"
        ),
        pytest.param(
            [[2, 2], [4], [1, 1]],
            make_gang(5),
            {0: 2, 1: 2, 3: 1},
            id="few racks: the largest whole, the rest in the tightest",
        ),
        pytest.param(
            [[2], [3]], make_gang(5, minimum=2), {0: 2, 1: 3}, id="all replicas farther rather than the minimum near"
        ),
        pytest.param(
            [[2], [3]], make_gang(6, minimum=2, hard=1), {1: 3}, id="the minimum in a rack that it may not leave"
        ),
        pytest.param(
            [[2], [4], [3]],
            make_gang(10, minimum=2, hard=2),
            {0: 2, 1: 4, 2: 3},
            id="the minimum in a rack, more in the spine that it may span",
        ),
    ],
)
def test_where_a_gang_goes(racks: list[list[int]], gang: Gang, expected: dict[int, int]) -> None:
    assert pods_on(place(make_nodes(racks), gang)) == expected


@pytest.mark.parametrize(
    ("task", "profile", "fits"),
    [
        pytest.param({}, Profile(taints=({"key": "k", "effect": "NoSchedule"},)), False, id="a taint keeps pods away"),
        pytest.param(
            {}, Profile(taints=({"key": "k", "effect": "PreferNoSchedule"},)), True, id="a soft taint does not"
        ),
        pytest.param(
            {"tolerations": [{"operator": "Exists"}]},
            Profile(taints=({"key": "k", "effect": "NoExecute"},)),
            True,
            id="tolerated",
        ),
        pytest.param({"node_selector": {"disk": "ssd"}}, Profile(), False, id="a selector without the label"),
        pytest.param(
            {"node_selector": {"disk": "ssd"}}, Profile({"disk": "ssd"}), True, id="a selector with the label"
        ),
        pytest.param(
            {"node_terms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]},
            Profile({"zone": "b"}),
            False,
            id="affinity to another zone",
        ),
        pytest.param(
            {"node_terms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]}]},
            Profile(),
            True,
            id="by name",
        ),
        pytest.param(
            {"node_terms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]},
            Profile(),
            False,
            id="by another's name",
        ),
    ],
)
def test_what_a_node_accepts(task: dict[str, Any], profile: Profile, fits: bool) -> None:
    outcome = place(make_nodes([[1]], profiles={0: profile}), make_gang(1, **task))
    if fits:
        assert pods_on(outcome) == {0: 1}
    else:
        assert missed(outcome).reason is Reason.NO_NODE_MATCHES
        assert missed(outcome).sentence() == "no node accepts the selectors and tolerations of its pods"


def test_nodes_that_do_not_accept_are_left_out_of_the_room() -> None:
    tainted = Profile(taints=({"key": "k", "effect": "NoSchedule"},))
    miss = missed(place(make_nodes([[4, 4]], profiles={1: tainted}), make_gang(5)))
    assert (miss.reason, miss.requested, miss.available) == (Reason.INSUFFICIENT_RESOURCES, 5, 4)


@pytest.mark.parametrize(
    ("racks", "gang", "miss"),
    [
        pytest.param(
            [[4, 2], [5]],
            make_gang(7, hard=1),
            Miss(Reason.NO_DOMAIN_FITS, 7, 6, "rack0", "gpu", 1),
            id="the rack that came nearest",
        ),
        pytest.param(
            [[1, 1]],
            make_gang(2, gpu=2),
            Miss(Reason.INSUFFICIENT_RESOURCES, 2, 0, "", "gpu", 2),
            id="what is short in total",
        ),
        pytest.param(
            [[3, 3]],
            make_gang(3, gpu=2),
            Miss(Reason.INSUFFICIENT_RESOURCES, 3, 2),
            id="enough in total, but in pieces",
        ),
        pytest.param([[9]], make_gang(1, hard=0), Miss(Reason.NO_TOPOLOGY, 1, 0), id="no domain of an allowed tier"),
        pytest.param(
            [[0]],
            make_gang(4, minimum=2),
            Miss(Reason.INSUFFICIENT_RESOURCES, 2, 0, "", "gpu", 2),
            id="counted against the minimum",
        ),
    ],
)
def test_a_miss_has_numbers(racks: list[list[int]], gang: Gang, miss: Miss) -> None:
    outcome = missed(place(make_nodes(racks), gang))
    assert (outcome.reason, outcome.requested, outcome.available) == (miss.reason, miss.requested, miss.available)
    assert outcome.domain == miss.domain
    assert (outcome.resource, outcome.needed) == (miss.resource, miss.needed)


def test_a_miss_reads_well() -> None:
    outcome = missed(place(make_nodes([[4, 2], [5]]), make_gang(7, hard=1)))
    assert outcome.sentence() == "domain rack0 holds 6 of the 7 pods that must start together; gpu is short by 1"


@pytest.mark.parametrize(
    ("wish", "fits"),
    [
        pytest.param(TopologyWish("hard", None, "rack"), False, id="the tier by its name"),
        pytest.param(TopologyWish("hard", None, "spine"), True, id="a farther tier by its name"),
        pytest.param(TopologyWish("hard", None, "unheard-of"), False, id="a tier name that nothing bears fits nowhere"),
        pytest.param(TopologyWish("hard"), True, id="hard without a tier constrains nothing"),
        pytest.param(TopologyWish("soft", 1), False, id="soft has its ceiling as well"),
        pytest.param(TopologyWish("soft", 2), True, id="within the ceiling soft takes what is nearest"),
        pytest.param(TopologyWish("soft"), True, id="soft without a tier constrains nothing"),
        pytest.param(TopologyWish("soft", None, "unheard-of"), True, id="a ceiling that nothing bears limits nothing"),
    ],
)
def test_topology_wishes(wish: TopologyWish, fits: bool) -> None:
    gang = make_gang(4)
    gang = Gang(gang.queue, gang.tasks, 4, network_topology=wish)
    assert isinstance(place(make_nodes([[2], [2]]), gang), Placement) is fits


def test_within_a_domain_only_its_nodes_count() -> None:
    nodes = make_nodes([[4], [4]])
    assert pods_on(place(nodes, make_gang(3), within=2)) == {1: 3}
    assert missed(place(nodes, make_gang(5), within=2)).available == 4


def test_an_empty_member_holds_nothing() -> None:
    nodes = make_nodes([])
    assert missed(place(nodes, make_gang(1))).requested == 1


def test_a_resource_that_no_node_has_is_short() -> None:
    gang = Gang("q", [Task("t", 1, 1, {"pods": 1, "fpga": 2})], 1)
    miss = missed(place(make_nodes([[1]]), gang))
    assert (miss.resource, miss.needed) == ("fpga", 2)


def test_a_request_beyond_64_bits_fits_nowhere() -> None:
    gang = Gang("q", [Task("t", 1, 1, {"pods": 1, "gpu": 2**64})], 1)
    assert missed(place(make_nodes([[1]]), gang)).available == 0


def test_setting_what_is_free_asks_for_new_arrays_when_a_resource_is_new() -> None:
    nodes: Nodes = make_nodes([[1, 1]])
    assert nodes.set_free(0, {"gpu": 3})
    assert nodes.room({"gpu": 1}).tolist() == [3, 1]
    assert not nodes.set_free(0, {"fpga": 1})


def test_a_copy_is_independent() -> None:
    nodes = make_nodes([[4]])
    twin = nodes.copy()
    twin.free[:] = 0
    assert nodes.room({"gpu": 1}).tolist() == [4]


def test_the_miss_of_a_single_pod_speaks_of_one() -> None:
    outcome = missed(place(make_nodes([[0]]), make_gang(1)))
    assert outcome.sentence().startswith("there is no room for its pod")
    outcome = missed(place(make_nodes([[0]]), make_gang(1, hard=1)))
    assert outcome.sentence().startswith("domain rack0 has no room for its pod")


def test_nodes_without_domains_hold_a_soft_gang_and_no_hard_one() -> None:
    gang = make_gang(4)
    nodes = Nodes(Tree(), [NO_DOMAIN] * 2, ["a", "b"], [Profile()], [0, 0], [{"gpu": 2, "pods": 9}] * 2)
    for mode, right in (("soft", True), ("hard", False)):
        wish = TopologyWish(mode, 1)
        assert isinstance(place(nodes, Gang(gang.queue, gang.tasks, 4, network_topology=wish)), Placement) is right


# -- room to grow ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("racks", "sizes", "rack"),
    [
        pytest.param([[2], [3], [4]], None, "rack2", id="the most room now"),
        pytest.param([[2], [3], [4]], [8, 8, 4], "rack1", id="where all of it may be once others have ended"),
        pytest.param([[2], [3], [4]], [4, 4, 4], "rack2", id="where none ever holds all"),
        pytest.param([[6], [9], [4]], [6, 9, 9], "rack0", id="all fit now"),
    ],
)
def test_an_elastic_gang_that_must_stay_in_a_rack_starts_where_it_can_grow(
    racks: list[list[int]], sizes: list[int] | None, rack: str
) -> None:
    nodes = make_nodes(racks)
    if sizes is not None:
        nodes.capacity = nodes.matrix([{"gpu": size, "pods": 9} for size in sizes])
    found = place(nodes, make_gang(6, minimum=2, hard=1))
    assert isinstance(found, Placement)
    assert found.domain is not None
    assert nodes.tree.domains[found.domain].name == rack


def test_a_gang_that_may_span_racks_starts_in_the_spine_that_it_can_grow_in() -> None:
    """Racks of spine 0 are tighter, but all of it is full; spine 1 has room in another rack."""
    domains = [Domain(f"spine{s}", 2) for s in range(2)]
    domains += [Domain(f"rack{r}", 1, r // 2) for r in range(4)]
    free = [{"gpu": gpu, "pods": 9} for gpu in (2, 0, 3, 2)]
    nodes = Nodes(Tree(domains), [2, 3, 4, 5], [f"n{n}" for n in range(4)], [Profile()] * 4, range(4), free)
    found = place(nodes, make_gang(6, minimum=2, hard=2))
    assert isinstance(found, Placement)
    assert pods_on(found) == {2: 3, 3: 2}
