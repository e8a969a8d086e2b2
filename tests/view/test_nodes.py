"""Nodes and domains of a member, from its capacity."""

from __future__ import annotations

from typing import Any

from atoll.view import nodes, queue_tree
from tests.view.capacities import GPU, capacity, three_racks
from tests.view.made import T0, queue

Json = dict[str, Any]


def test_nodes_count_by_state_and_domains_hold_the_sums_of_their_nodes() -> None:
    [found] = nodes.summary("east", [three_racks()])
    assert {key: found[key] for key in ("nodes", "idle", "mixed", "full")} == {
        "nodes": 4,
        "idle": 2,
        "mixed": 1,
        "full": 1,
    }
    assert (found["free"], found["total"], found["largestNode"], found["largestDomain"]) == ("19", "32", "8", "16")
    assert [(each["name"], each["depth"], each["nodes"], each["free"], each["total"]) for each in found["domains"]] == [
        ("block", 0, 4, "19", "32"),
        ("rack-a", 1, 2, "16", "16"),
        ("rack-b", 1, 2, "3", "16"),
    ]


def test_member_without_devices_shows_its_cpus() -> None:
    plain = capacity(
        total={"cpu": 4000}, profiles=[{"allocatable": {"cpu": "4"}}],
        classes=[{"domain": "", "profile": 0, "nodes": 1, "free": {"cpu": 1500}}],
    )  # fmt: skip
    [found] = nodes.summary("east", [plain])
    assert (found["resource"], found["free"], found["mixed"]) == ("cpu", "1500m", 1)


def test_domains_in_a_ring_or_a_long_chain_and_unknown_profiles_do_no_harm() -> None:
    chain = [{"name": f"d{at}", "tier": 1, **({"parent": f"d{at - 1}"} if at else {})} for at in range(3000)]
    ring = [{"name": "x", "tier": 1, "parent": "y"}, {"name": "y", "tier": 1, "parent": "x"}]
    odd = capacity(domains=[*chain, *ring], profiles=[], classes=[{"domain": "d1", "profile": 7, "nodes": 1}])
    [found] = nodes.summary("east", [odd])
    assert found["nodes"] == 0
    assert len(found["domains"]) < 20


def test_queues_that_may_use_a_member_are_named_unless_all_may() -> None:
    east = {"metadata": {"name": "east", "labels": {"gpu": "h100"}, "creationTimestamp": T0}}
    west = {"metadata": {"name": "west", "labels": {}, "creationTimestamp": T0}}
    chooses = queue("chooses")
    chooses["metadata"]["annotations"] = {}
    chooses["spec"] = {"extendClusters": [{"name": "west"}]}
    queues = [queue("any"), chooses]
    tree = queue_tree.build(queues, (), [east, west], [])
    found = nodes.documents([east, west], [three_racks()], tree)
    [row] = nodes.rows(found)
    assert row[0] == "east"
    assert row[-1] == "any"
    assert nodes.queues_of("west", tree) is None


def test_lost_nodes_count_in_their_domain_and_above_it() -> None:
    made = three_racks()
    made["spec"]["lost"] = [{"domain": "rack-b", "nodes": 2, "names": ["b3", "b4"]}]
    [found] = nodes.summary("east", [made])
    assert (found["nodes"], found["lost"], found["lostNodes"]) == (4, 2, {"rack-b": ["b3", "b4"]})
    assert [(each["name"], each["lost"]) for each in found["domains"]] == [("block", 2), ("rack-a", 0), ("rack-b", 2)]
    assert dict(zip(nodes.HEADERS, nodes.rows([{**found, "queues": None}])[0], strict=True))["LOST"] == 2


def test_a_member_all_of_whose_nodes_are_lost_is_shown() -> None:
    gone = capacity(total={}, lost=[{"domain": "", "nodes": 3, "names": ["a", "b", "c"]}])
    [found] = nodes.summary("east", [gone])
    assert (found["nodes"], found["lost"]) == (0, 3)
    [found] = nodes.summary("east", [gone], GPU)
    assert found["lost"] == 3
