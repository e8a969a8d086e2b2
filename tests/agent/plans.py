"""Gangs and nodes that the planner is asked about, and what it says of those that wait."""

from __future__ import annotations

from atoll.agent.objects import Pod, PodGroup
from atoll.agent.scheduler.core.gangs import Standing, by_name, standing
from atoll.agent.scheduler.core.planner import Plan, Wait
from atoll.agent.scheduler.core.room import Room
from tests.agent.builders import make_domain, make_node, make_room

OURS = by_name("atoll", "volcano")


def gang(room: Room, group: PodGroup, pods: list[Pod]) -> Standing:
    return standing(group.metadata.key, group, pods, room, OURS)


def racks(count: int = 2, size: int = 2) -> Room:
    nodes = [make_node(f"r{r}n{n}") for r in range(count) for n in range(size)]
    domains = [make_domain(f"rack{r}", 1, [f"r{r}n{n}" for n in range(size)]) for r in range(count)]
    domains.append(make_domain("all", 2, [f"rack{r}" for r in range(count)], of="HyperNode"))
    return make_room(*nodes, domains=domains)


def assert_waits(outcome: Plan | Wait, reason: str, *words: str) -> None:
    assert isinstance(outcome, Wait), outcome
    assert outcome.reason == reason
    for word in words:
        assert word in outcome.message
