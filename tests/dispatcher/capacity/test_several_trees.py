"""Nodes that are in several trees of domains: what a member publishes of them, and what the host decides by it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest

from atoll.agent.capacity import MemberCapacity
from atoll.dispatcher.capacity import capacity_view
from atoll.dispatcher.core import CapacitySet, Dispatch
from atoll.dispatcher.objects import CapacityObject, CapacitySpec
from atoll.model.decision import Phase
from atoll.model.gang import Partition, TopologyWish
from atoll.model.objects import Meta
from atoll.model.verdict import Reason
from tests.agent.builders import make_domain, make_node, make_room
from tests.dispatcher.builders import Scene, dispatched, make_binding, make_cluster, scene

FEED = {"network_topology": TopologyWish("hard", highest_tier_name="feed")}


def published(size: int, feeds: Iterable[Iterable[str]]) -> list[CapacitySet]:
    """A member of two racks with so many nodes of 8 GPUs, and power feeds across them, as the host reads it."""
    names = [f"r{rack}n{node}" for rack in range(2) for node in range(size)]
    domains = [make_domain(f"rack{rack}", 1, [n for n in names if n.startswith(f"r{rack}")]) for rack in range(2)]
    domains += [
        make_domain(f"feed{number:02}", 1, list(members), tree="power", tier_name="feed")
        for number, members in enumerate(feeds)
    ]
    room = make_room(*map(make_node, names), domains=domains)
    assert not room.fleet.problems
    specs = MemberCapacity("m", room).specs()
    return [
        CapacitySet(
            capacity_view(
                CapacityObject(Meta(namespace="karmada-es-m"), msgspec.convert({**spec, "generation": 1}, CapacitySpec))
            )
        )
        for spec in specs.values()
    ]


def a_scene(size: int = 2, feeds: Iterable[Iterable[str]] = (("r0n0", "r1n0"), ("r0n1", "r1n1"))) -> Scene:
    return scene(room=(make_cluster("m"), *published(size, feeds)))


def test_a_gang_is_placed_in_a_domain_of_the_tree_that_has_its_tier() -> None:
    s = a_scene()
    s.submit(make_binding("a").tasks(2, gpu=8).gang(**FEED))
    [command] = s.run()
    assert isinstance(command, Dispatch)
    assert command.decision.phase is Phase.DISPATCHED, "its figures say that it fits, so it need not be asked"
    [spots] = command.decision.expected.values() if command.decision.expected else [[]]
    assert {node[-1] for _, node, _ in spots} in ({"0"}, {"1"}, set())


def test_what_no_domain_of_that_tree_holds_waits_though_the_racks_have_room() -> None:
    s = a_scene(size=3, feeds=(("r0n0", "r1n0"), ("r0n1", "r1n1"), ("r0n2",)))
    s.submit(make_binding("a").tasks(3, gpu=8).gang(**FEED))
    s.submit(make_binding("b").tasks(3, gpu=8).hard(1))
    assert dispatched(s.run()) == [("b", "m")]
    s.decide()
    assert s.verdict("a") is Reason.NO_DOMAIN_FITS


def test_groups_of_pods_go_by_another_tree_than_their_gang() -> None:
    s = a_scene()
    pairs = Partition(2, FEED["network_topology"])
    s.submit(make_binding("a").tasks(4, gpu=8, partition=pairs))
    assert dispatched(s.run()) == [("a", "m")]
    s = a_scene(feeds=(("r0n0",), ("r0n1", "r1n0"), ("r1n1",)))
    s.submit(make_binding("a").tasks(4, gpu=8, partition=pairs))
    assert dispatched(s.run()) == []


@pytest.mark.parametrize("tier", ["feed", "nothing"])
def test_of_a_tree_with_too_many_domains_for_the_figures_the_member_is_asked(tier: str) -> None:
    s = a_scene(size=20, feeds=((f"r0n{n}", f"r1n{n}") for n in range(20)))
    s.submit(make_binding("a").tasks(2, gpu=8).gang(network_topology=TopologyWish("hard", highest_tier_name=tier)))
    commands = s.run()
    if tier == "feed":
        assert [command.decision.phase for command in commands] == [Phase.RESERVING]
    else:
        s.decide()
        assert s.verdict("a") is Reason.NO_TOPOLOGY


def test_a_tree_that_is_published_no_more_is_forgotten() -> None:
    s = a_scene()
    s.submit(make_binding("a").tasks(2, gpu=8).gang(**FEED))
    s.tell(*published(2, ()))
    s.decide()
    assert s.verdict("a") is Reason.NO_TOPOLOGY
