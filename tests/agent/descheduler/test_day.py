"""A day of a cluster in virtual time: use follows curves of services and stress, a scheduler places evicted pods.

The scheduler knows requests and the taint of hot nodes, as Atoll's placer and kube-scheduler do; nothing else.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

import pytest

from atoll.agent.descheduler.plan import Memory, plan, source_key
from atoll.agent.descheduler.policy import parse
from atoll.agent.descheduler.rules import Rules
from atoll.agent.descheduler.world import Figures, Subject, World
from atoll.agent.objects import Node
from atoll.model.timestamps import rfc3339_seconds
from tests.agent.builders import make_node
from tests.agent.descheduler.builders import load_aware, make_subject

POLICY = parse(load_aware(thresholds={"cpu": 50}, targetThresholds={"cpu": 80}, duration="5m"))
EVERY = 60.0
WINDOW = 5
"""Looks in the mean that figures are."""
EPOCH = 1_800_000_000.0
CORES = 8000.0


@dataclass
class Running:
    """A pod with its curve: so many thousandths of cores, swinging by so much with this phase."""

    name: str
    node: str
    mean: float
    swing: float
    phase: float
    born: float
    left: float = -math.inf
    """When it was moved last."""

    def use(self, at: float) -> float:
        return max(0.0, self.mean + self.swing * math.sin(2 * math.pi * (at / 86400 + self.phase)))


@dataclass
class Day:
    """Figures of a day."""

    peaks: list[float] = field(default_factory=list)
    evictions: int = 0
    bounces: int = 0
    crowded: int = 0
    """Node-minutes above the target."""


def run(*, nodes: int, seed: int, hours: float, moves: bool) -> Day:
    """One day; a bounce is a pod back on the node that it was moved off, or moved again within an hour."""
    chance = random.Random(seed)
    names = [f"n{number:03}" for number in range(nodes)]
    pods = [
        Running(f"p{number}", chance.choice(names), chance.uniform(200, 1400), chance.uniform(0, 500),
                chance.gauss(0, 0.12), -7200.0)
        for number in range(nodes * 5)
    ]  # fmt: skip
    stress = {name: (chance.uniform(0, hours * 3600), chance.uniform(2000, 4000)) for name in names[: nodes // 5]}
    free = dict.fromkeys(names, 20)
    for pod in pods:
        free[pod.node] -= 1
    objects: list[Node] = [make_node(name, pods="30") for name in names]
    memory, rules, found = Memory(), Rules(settle=600), Day()
    past: list[dict[str, float]] = []
    hot: set[str] = set()
    for tick in range(int(hours * 3600 / EVERY)):
        now = tick * EVERY
        use = dict.fromkeys(names, 0.0)
        for pod in pods:
            use[pod.node] += pod.use(now)
        for name, (begin, cores) in stress.items():
            use[name] += cores if begin <= now < begin + 7200 else 0
        found.peaks.append(max(use.values()) / CORES)
        found.crowded += sum(each > 0.8 * CORES for each in use.values())
        past = [*past[1 - WINDOW :], use]
        if not moves:
            continue
        figures = Figures(
            {name: {"cpu": sum(each[name] for each in past) / len(past)} for name in names},
            {f"default/{pod.name}": {"cpu": pod.use(now)} for pod in pods},
            taken=now,
        )
        subjects: list[Subject] = [
            make_subject(pod.name, pod.node, cpu="100m", created=rfc3339_seconds(EPOCH + pod.born)) for pod in pods
        ]
        [source] = [source_key(each) for each in POLICY.balances]
        answer = plan(World(objects, subjects), POLICY, {source: figures}, memory, rules, now=now, wall=EPOCH + now)
        hot = (hot | answer.lasting) - answer.cool
        for move in answer.moves:
            memory.moved(move, now, rules)
            pod = next(each for each in pods if f"default/{each.name}" == move.key)
            # The scheduler knows nothing of the plan: least requested, hot nodes last.
            free[pod.node] += 1
            node = max(names, key=lambda name: (name not in hot, free[name], name))
            found.bounces += node == move.node or now - pod.left < 3600
            pod.left = now
            pod.node, pod.born = node, now
            free[node] -= 1
            found.evictions += 1
    return found


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_nothing_bounces_in_a_day_and_nodes_are_crowded_for_less_time(seed: int) -> None:
    calm = run(nodes=20, seed=seed, hours=6, moves=False)
    moved = run(nodes=20, seed=seed, hours=6, moves=True)
    assert moved.bounces == 0
    assert moved.evictions > 0
    assert moved.crowded < calm.crowded / 2
