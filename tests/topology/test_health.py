"""Lost nodes, damped recovery, lost domains, and the status that follows."""

from __future__ import annotations

from collections import Counter

import pytest

from atoll.topology.findings import look
from atoll.topology.health import Health, lost_domains, members
from atoll.topology.observed import MOST_GANGS, Cluster, Gang, statuses
from tests.topology.builders import hyper_node, nodes

HOUR = 3600.0


def test_a_node_counts_again_when_it_was_ready_for_long_enough_without_a_break() -> None:
    """1. up 2. down at 10 3. up at 20 4. down at 50 5. up at 60: it counts at 120, not at 80."""
    health = Health(60)
    for now, ready in ((0, True), (10, False), (20, True), (50, False), (60, True)):
        health.observe("n1", ready=ready, since=now, created=-HOUR, now=now)
    assert not health.recover(119)
    assert health.lost == {"n1": 60}
    assert health.deadline == 120
    assert health.recover(120)
    assert health.lost == {}
    assert health.deadline is None


def test_a_process_that_begins_goes_on_with_a_recovery_and_a_node_that_joins_is_none() -> None:
    health = Health(60)
    health.observe("back", ready=True, since=HOUR - 10, created=0, now=HOUR)
    health.observe("joins", ready=True, since=HOUR - 10, created=HOUR - 30, now=HOUR)
    health.observe("old", ready=True, since=HOUR - 90, created=0, now=HOUR)
    assert health.lost == {"back": HOUR - 10}


TREE = [
    hyper_node("r1", 1, nodes="a1 a2 a3 a4"),
    hyper_node("r2", 1, nodes="b1 b2"),
    hyper_node("r3", 1, nodes="c1"),
    hyper_node("top", 2, below="r1 r2 r3"),
]
NODES = nodes("a1", "a2", "a3", "a4", "b1", "b2", "c1")


@pytest.mark.parametrize(
    ("lost", "domains"),
    [
        pytest.param("a1", "", id="one node is no switch"),
        pytest.param("a1 a2", "r1", id="half of them is the switch"),
        pytest.param("b1", "", id="one node of two is no switch"),
        pytest.param("c1", "r3", id="all of one"),
        pytest.param("a1 a2 b1 b2", "r1 r2", id="the domain above is not lost while one below is not"),
        pytest.param("a1 a2 a3 b1 b2 c1", "r1 r2 r3 top", id="the domain above is lost with all below"),
    ],
)
def test_a_domain_is_lost_with_its_switch(lost: str, domains: str) -> None:
    built = look(TREE, NODES).built
    found = lost_domains(built.tree, members(built.tree, built.lowest), dict.fromkeys(lost.split()), 0.5)
    assert {built.tree.domains[index].name for index in found} == set(domains.split())


def _status(lost: dict[str, float | None], gangs: int = 1) -> dict[str, dict]:
    slots = dict.fromkeys(NODES, (3, 8))
    held = {"a1": Counter({Gang("ns", "PodGroup", f"g{number:02}"): number + 1 for number in range(gangs)})}
    cluster = Cluster(lost, slots, held)
    return statuses(TREE, look(TREE, NODES), cluster, share=0.5, recovery=60, now=HOUR)


def test_counts_are_of_all_below() -> None:
    top = _status({"a1": None})["top"]
    figures = {key: top[key] for key in ("nodeCount", "readyNodes", "freeSlots", "slots")}
    assert figures == {"nodeCount": 7, "readyNodes": 6, "freeSlots": 18, "slots": 56}


def test_gangs_on_lost_nodes_are_listed_those_with_most_pods_first_and_bounded() -> None:
    rack = _status({"a1": None}, gangs=40)["r1"]
    assert len(rack["affectedGangs"]) == MOST_GANGS
    assert rack["affectedGangs"][0] == {"namespace": "ns", "kind": "PodGroup", "name": "g39", "pods": 40}
    assert _status({})["r1"]["affectedGangs"] == []


@pytest.mark.parametrize(
    ("lost", "status", "reason"),
    [
        ({}, "True", "NodesReady"),
        ({"a1": None}, "True", "NodesLost"),
        ({"a1": None, "a2": None}, "False", "DomainLost"),
        ({"a1": 3590.0, "a2": None}, "False", "Recovering"),
    ],
)
def test_the_condition_says_whether_new_pods_go_there(lost: dict, status: str, reason: str) -> None:
    found = {each["type"]: each for each in _status(lost)["r1"]["conditions"]}
    assert (found["Available"]["status"], found["Available"]["reason"]) == (status, reason)
    assert ("No new pods" in found["Available"]["message"]) == (status == "False")


def test_domains_of_every_tree_have_counts_and_health() -> None:
    feeds = [hyper_node("feed", 1, nodes="a1 b1 c1", tree="power"), hyper_node("all", 2, below="feed", tree="power")]
    cluster = Cluster({"a1": None, "b1": None}, dict.fromkeys(NODES, (3, 8)), {})
    found = statuses([*TREE, *feeds], look([*TREE, *feeds], NODES), cluster, share=0.5, recovery=60, now=HOUR)
    told = {
        name: (each["nodeCount"], each["readyNodes"], each["conditions"][1]["status"]) for name, each in found.items()
    }
    assert told["feed"] == told["all"] == (3, 1, "False")
    assert (told["r1"], told["top"]) == ((4, 3, "True"), (7, 5, "True"))
