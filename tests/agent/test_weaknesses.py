"""Fifteen known weaknesses of Volcano's topology scheduling, W1 to W15, each with a test that Atoll does not have it."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from typing import Any

import orjson
import pytest

from atoll.agent.objects import HyperNode, Node, Pod, decode_pod
from atoll.agent.scheduler.core import Bind, Evict, MemberCore, Pass
from atoll.agent.scheduler.core.events import HyperNodeSet, NodeSet, PodGroupSet, PodSet, Whose
from atoll.agent.scheduler.status import group_status
from atoll.fit import Nodes, Placement, Profile, place
from atoll.model import keys
from atoll.model.topology import Domain, Tree
from tests.agent.builders import make_domain, make_group, make_node, make_pod
from tests.agent.telling import of, settle
from tests.fit.builders import make_gang, make_nodes

HARD = {"mode": "hard", "highestTierAllowed": 1}


def domains(racks: int, size: int) -> list[HyperNode]:
    """Racks of nodes `r0n0` and on, below one spine."""
    made = [make_domain(f"rack{r}", 1, [f"r{r}n{n}" for n in range(size)]) for r in range(racks)]
    return [*made, make_domain("spine", 2, [f"rack{r}" for r in range(racks)], of="HyperNode")]


def member(racks: int, size: int, *, labels: dict[str, dict[str, str]] | None = None) -> MemberCore:
    """Nodes of 8 GPUs in such racks."""
    names = [f"r{r}n{n}" for r in range(racks) for n in range(size)]
    nodes = [make_node(name, labels={"rack": name[:2], **(labels or {}).get(name, {})}) for name in names]
    return told(nodes, domains(racks, size))


def told(nodes: list[Node], hyper_nodes: list[HyperNode]) -> MemberCore:
    core = MemberCore()
    for each in nodes:
        core.handle(NodeSet(each))
    for domain in hyper_nodes:
        core.handle(HyperNodeSet(domain))
    return core


def pods(name: str, count: int, *, start: int = 0, **more: Any) -> list[Pod]:
    wanted: dict[str, Any] = {"gpu": 8, "group": name, **more}
    return [make_pod(f"{name}-{i}", index=i, **wanted) for i in range(start, start + count)]


def submit(core: MemberCore, name: str, made: list[Pod], *, minimum: int | None = None, **more: Any) -> None:
    core.handle(PodGroupSet(make_group(name, len(made) if minimum is None else minimum, **more)))
    for pod in made:
        core.handle(PodSet(pod, Whose.OURS))


def bound(commands: list[Any]) -> dict[str, str]:
    return {key.removeprefix("default/"): node for each in of(Bind, commands) for key, _, node in each.pods}


def racks_of(places: dict[str, str]) -> Counter[str]:
    return Counter(node[:2] for node in places.values())


def used(outcome: object) -> set[int]:
    assert isinstance(outcome, Placement)
    return {node for _, node, _ in outcome.pods}


def test_w01_the_domain_is_chosen_for_all_replicas_not_for_the_minimum() -> None:
    """The rack that just holds the minimum would be tighter."""
    outcome = place(make_nodes([[2], [8]]), make_gang(6, minimum=2))
    assert used(outcome) == {1}


def test_w02_small_gangs_go_where_it_is_broken_up_and_leave_large_empty_domains_whole() -> None:
    nodes = make_nodes([[8, 8], [4, 3]])
    for _ in range(2):
        outcome = place(nodes, make_gang(3))
        assert isinstance(outcome, Placement)
        nodes.take([{"gpu": 1, "pods": 1}], outcome)
    assert nodes.free[nodes.resources.index("gpu")].tolist()[:2] == [8, 8]
    assert isinstance(place(nodes, make_gang(16, hard=1)), Placement)


@pytest.mark.parametrize(
    ("free", "profiles"),
    [
        pytest.param([1, 1, 1, 1], {}, id="its sum is in fragments"),
        pytest.param([2, 2, 0, 0], {1: Profile(taints=({"key": "t", "effect": "NoSchedule"},))}, id="a part is tainted"),
    ],
)  # fmt: skip
def test_w03_what_a_domain_holds_is_counted_node_by_node(free: list[int], profiles: dict[int, Profile]) -> None:
    """Two pods of two GPUs each. The first rack has four free in all, and holds one pod at most."""
    outcome = place(make_nodes([free, [2, 2, 2]], profiles=profiles), make_gang(2, gpu=2, hard=1))
    assert used(outcome) <= {4, 5, 6}


def test_w04_six_thousand_nodes_in_nearly_as_many_domains_take_no_time() -> None:
    """Volcano took minutes for one gang on such a tree; here it is a second of processor time on any machine."""
    tree = Tree(
        [
            Domain("all", 3),
            *(Domain(f"spine{s}", 2, 0) for s in range(600)),
            *(Domain(f"leaf{n}", 1, 1 + n // 10) for n in range(6000)),
        ]
    )
    free = [{"gpu": 8, "pods": 100} for _ in range(6000)]
    nodes = Nodes(tree, [601 + n for n in range(6000)], [f"n{n}" for n in range(6000)], [Profile()], [0] * 6000, free)
    began = time.process_time()
    for gang in (make_gang(4, gpu=8), make_gang(10, gpu=8, hard=2), make_gang(500, gpu=8, hard=3)):
        assert isinstance(place(nodes, gang), Placement)
    place(nodes, make_gang(11, gpu=8, hard=2))
    assert time.process_time() - began < 1


def test_w05_gangs_of_one_pass_see_what_those_before_them_took() -> None:
    core = member(2, 2)
    for name in ("a", "b", "c"):
        submit(core, name, pods(name, 2), topology=HARD)
    plans = of(Bind, core.handle(Pass(0.0)))
    racks = [{node[:2] for _, _, node in each.pods} for each in plans]
    assert sorted(racks, key=sorted) == [{"r0"}, {"r1"}]
    settle(core)
    assert "rack" in core.waits["default/c"].message


def test_w06_nodes_at_a_higher_tier_and_uneven_trees_count() -> None:
    """Three nodes hang directly below the spine, two racks are of different depth."""
    tree = Tree([Domain("spine", 3), Domain("row", 2, 0), Domain("rack", 1, 1)])
    lowest = [2, 1, 1, 0, 0, 0]
    free = [{"gpu": each, "pods": 9} for each in (1, 2, 2, 4, 4, 4)]
    nodes = Nodes(tree, lowest, [f"n{n}" for n in range(6)], [Profile()], [0] * 6, free)
    assert used(place(nodes, make_gang(1, hard=1))) == {0}
    assert used(place(nodes, make_gang(5, hard=2))) == {0, 1, 2}
    assert used(place(nodes, make_gang(12, hard=3))) >= {3, 4}
    assert used(place(nodes, make_gang(1, gpu=4, hard=3))) <= {3, 4, 5}


def test_w07_the_order_in_which_things_are_told_decides_nothing() -> None:
    found = []
    for seed in range(5):
        rng = random.Random(seed)
        nodes, tree = [make_node(f"r{r}n{n}") for r in range(3) for n in range(3)], domains(3, 3)
        rng.shuffle(nodes)
        rng.shuffle(tree)
        core = told(nodes, tree)
        made = [*pods("a", 2), *pods("b", 3), *pods("c", 2, gpu=4)]
        for name, count in (("a", 2), ("b", 3), ("c", 2)):
            core.handle(PodGroupSet(make_group(name, count)))
        rng.shuffle(made)
        for pod in made:
            core.handle(PodSet(pod, Whose.OURS))
        found.append(bound(settle(core)))
    assert len(found[0]) == 7
    assert all(each == found[0] for each in found)


def test_w08_a_node_is_in_several_trees_and_tiers_are_chosen_by_name() -> None:
    """Racks by fabric, and power feeds across them: node n of each rack hangs on feed n."""
    core = member(3, 3)
    for feed in range(3):
        domain = make_domain(f"feed{feed}", 1, [f"r{rack}n{feed}" for rack in range(3)], tree="power", tier_name="feed")
        core.handle(HyperNodeSet(domain))
    assert not core.room.fleet.problems
    by_feed = {"mode": "hard", "highestTierName": "feed"}
    submit(core, "powered", pods("powered", 3), topology=by_feed)
    [plan] = of(Bind, core.handle(Pass(0.0)))
    nodes = {node for _, _, node in plan.pods}
    assert (len({node[2:] for node in nodes}), len({node[:2] for node in nodes})) == (1, 3), nodes
    submit(core, "fabric", pods("fabric", 2), topology=HARD)
    [plan] = of(Bind, core.handle(Pass(1.0)))
    assert len({node[:2] for _, _, node in plan.pods}) == 1, "a number is of the tree without a name"
    submit(core, "wide", pods("wide", 4), topology=by_feed)
    settle(core)
    assert "domain feed" in core.waits["default/wide"].message


def test_w08_groups_of_one_gang_may_be_near_by_another_tree_than_the_gang_is() -> None:
    """A gang in one spine, its pairs each on one NVLink island: neither the nodes of a rack nor those of any two."""
    core = member(2, 4)
    for island, names in enumerate((["r0n0", "r0n2"], ["r0n1", "r1n1"], ["r1n0", "r1n2"], ["r0n3", "r1n3"])):
        core.handle(HyperNodeSet(make_domain(f"nv{island}", 1, names, tree="nvlink", tier_name="island")))
    pair = {"name": "pair", "subGroupSize": 2, "networkTopology": {"mode": "hard", "highestTierName": "island"}}
    submit(core, "g", pods("g", 8), topology={"mode": "hard", "highestTierAllowed": 2}, sub_groups=[pair])
    places = bound(core.handle(Pass(0.0)))
    assert len(places) == 8
    pairs = {frozenset((places[f"g-{i}"], places[f"g-{i + 1}"])) for i in range(0, 8, 2)}
    assert pairs == {
        frozenset(each) for each in (("r0n0", "r0n2"), ("r0n1", "r1n1"), ("r1n0", "r1n2"), ("r0n3", "r1n3"))
    }


def test_w09_ranks_follow_the_domains() -> None:
    """Eight ranks on two racks of four nodes: neighbours share a rack, whatever pods and nodes come first."""
    core = member(2, 4)
    made = pods("g", 8)
    random.Random(1).shuffle(made)
    submit(core, "g", made)
    places = bound(settle(core))
    order = [places[f"g-{rank}"][:2] for rank in range(8)]
    assert [len(list(run)) for _, run in itertools.groupby(order)] == [4, 4]


def test_w10_preemption_frees_one_domain_not_scattered_nodes() -> None:
    """Each rack has victims; those of rack r1 are enough, and those of one rack are needed."""
    core = member(3, 3)
    for node, priority in {"r0n0": 0, "r0n1": 50, "r0n2": 0, "r1n0": 0, "r1n1": 0, "r1n2": 0, "r2n0": 0}.items():
        core.handle(PodSet(make_pod(f"on-{node}", gpu=8, node=node, priority=priority), Whose.OURS))
    for node in ("r2n1", "r2n2"):
        core.handle(PodSet(make_pod(f"on-{node}", gpu=8, node=node, priority=50), Whose.OURS))
    submit(core, "g", pods("g", 3, priority=10), topology=HARD)
    victims = {key.removeprefix("default/on-") for each in of(Evict, settle(core)) for key, _ in each.pods}
    assert victims == {"r1n0", "r1n1", "r1n2"}


def test_w11_groups_keep_away_from_each_others_domains() -> None:
    """Both replicas of a service, each a gang, say so by anti-affinity over racks; there is room in one for both."""

    def apart(name: str) -> list[Pod]:
        term = {"topologyKey": "rack", "labelSelector": {"matchExpressions": [
            {"key": "app", "operator": "In", "values": ["serve"]}, {"key": "replica", "operator": "NotIn", "values": [name]},
        ]}}  # fmt: skip
        affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        made = []
        for index in range(2):
            body = {
                "metadata": {
                    "name": f"{name}-{index}", "namespace": "default", "uid": f"{name}-{index}",
                    "labels": {"app": "serve", "replica": name}, "annotations": {"scheduling.k8s.io/group-name": name},
                },
                "spec": {"schedulerName": "atoll", "affinity": affinity,
                         "containers": [{"resources": {"requests": {"nvidia.com/gpu": "8"}}}]},
            }  # fmt: skip
            made.append(decode_pod(orjson.dumps(body)))
        return made

    core = member(2, 4)
    submit(core, "a", apart("a"))
    submit(core, "b", apart("b"))
    places = bound(settle(core))
    assert len(places) == 4
    assert {places[f"a-{i}"][:2] for i in range(2)}.isdisjoint(places[f"b-{i}"][:2] for i in range(2))


def test_w11_groups_of_one_gang_keep_away_from_each_others_domains() -> None:
    """Two tasks of two pods each, for which one rack has room."""
    core = member(2, 4)
    made = [*pods("g", 2, task="a"), *pods("g", 2, task="b", start=2)]
    for pod in made:
        pod.metadata.annotations[keys.APART] = "1"
    submit(core, "g", made)
    places = bound(settle(core))
    racks = [{places[f"g-{index}"][:2] for index in task} for task in ((0, 1), (2, 3))]
    assert sorted(map(sorted, racks)) == [["r0"], ["r1"]]


def test_w12_an_elastic_gang_starts_with_whole_partitions() -> None:
    """Three partitions of two, two of them at least: five nodes are free, and hold two partitions, not two and a half."""
    core = member(1, 5)
    made = pods("g", 6)
    for number, pod in enumerate(made):
        pod.metadata.labels[keys.PARTITION] = str(number // 2)
    groups = {"name": "w", "subGroupSize": 2, "minSubGroups": 2, "matchLabelKeys": [keys.PARTITION]}
    submit(core, "g", made, minimum=4, sub_groups=[{**groups, "networkTopology": HARD}])
    assert sorted(bound(settle(core))) == ["g-0", "g-1", "g-2", "g-3"]


def test_w13_a_gangs_status_says_its_domain_and_why_it_has_none() -> None:
    core = member(2, 2)
    submit(core, "fits", pods("fits", 2), topology=HARD)
    submit(core, "large", pods("large", 3), topology=HARD)
    settle(core)

    def said(name: str) -> dict[str, str]:
        there = [core.roster.pod(f"default/{name}-{i}") for i in range(3)]
        known = [pod for pod in there if pod is not None]
        group = make_group(name, len(known), topology=HARD)
        status = group_status(group, known, core.room, core.waits.get(f"default/{name}"), 0.0)
        return {each["type"]: each["message"] for each in status["conditions"]}

    assert said("fits")["Scheduled"] == "the gang has nodes for its minimum, all in HyperNode rack0 (tier 1)"
    assert "domain rack1 holds 2 of the 3 pods" in said("large")["Unschedulable"]


def test_w14_a_domain_that_is_lost_gets_no_gang_until_it_is_back() -> None:
    core = member(2, 2)

    def health(available: bool) -> None:
        status = {"conditions": [{"type": "Available", "status": str(available)}]}
        rack = make_domain("rack0", 1, ["r0n0", "r0n1"])
        core.handle(HyperNodeSet(HyperNode(metadata=rack.metadata, spec=rack.spec, status=status)))

    health(available=False)
    submit(core, "a", pods("a", 2), topology=HARD)
    submit(core, "b", pods("b", 2), topology=HARD)
    assert racks_of(bound(settle(core))) == {"r1": 2}
    health(available=True)
    assert racks_of(bound(settle(core))) == {"r0": 2}


@pytest.mark.parametrize("topology", [None, {"mode": "soft"}, {"mode": "hard", "highestTierAllowed": 2}])
def test_w15_the_rest_of_a_gang_goes_where_its_pods_are(topology: dict[str, Any] | None) -> None:
    """One pod is in rack r0; rack r1 is the tighter gap, and rack r2 is as good as r0 by room."""
    core = member(3, 3)
    core.handle(PodSet(make_pod("other", gpu=8, node="r1n0"), Whose.OURS))
    core.handle(PodSet(make_pod("third", gpu=8, node="r2n0"), Whose.OURS))
    running = make_pod("g-0", group="g", gpu=8, node="r0n1")
    submit(core, "g", [running, *pods("g", 2, start=1)], topology=topology)
    assert racks_of(bound(settle(core))) == {"r0": 2}
