"""A day of a cluster in virtual time: use follows curves of services and stress, a scheduler places evicted pods.

The scheduler knows requests and, but for upstream's rule, the taint of hot nodes; nothing else.
`python -m tests.agent.descheduler.day --nodes 200 --hours 24` prints figures without moves, with upstream's rule (every
look acts, on the figures as they are, and nothing rests) and with Atoll's.
"""

from __future__ import annotations

import argparse
import math
import random
from dataclasses import dataclass, field

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
HOUR = 3600.0
ATOLL = Rules(settle=600)
UPSTREAM = Rules(looks=1, margin=0.0, settle=1e-6, pause=0.0, rest=0.0, youngest=0.0)


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
    """Use of the busiest node at each look, as a share."""
    evictions: int = 0
    bounces: int = 0
    """Pods back on the node that they were moved off, or moved again within an hour."""
    crowded: int = 0
    """Node-minutes above the target."""


def run(*, nodes: int, seed: int, hours: float, rules: Rules | None, taint: bool = True) -> Day:
    """One day; without rules nothing moves."""
    chance = random.Random(seed)
    names = [f"n{number:03}" for number in range(nodes)]
    pods = [
        Running(f"p{number}", chance.choice(names), chance.uniform(200, 1400), chance.uniform(0, 500),
                chance.gauss(0, 0.12), -2 * HOUR)
        for number in range(nodes * 5)
    ]  # fmt: skip
    by_key = {f"default/{pod.name}": pod for pod in pods}
    stress = {name: (chance.uniform(0, hours * HOUR), chance.uniform(2000, 4000)) for name in names[: nodes // 5]}
    free = dict.fromkeys(names, 20)
    for pod in pods:
        free[pod.node] -= 1
    objects: list[Node] = [make_node(name, pods="30") for name in names]
    subjects = {pod.name: _subject(pod) for pod in pods}
    memory, found = Memory(), Day()
    past: list[dict[str, float]] = []
    hot: set[str] = set()
    [source] = [source_key(each) for each in POLICY.balances]
    for tick in range(int(hours * HOUR / EVERY)):
        now = tick * EVERY
        use = dict.fromkeys(names, 0.0)
        for pod in pods:
            use[pod.node] += pod.use(now)
        for name, (begin, cores) in stress.items():
            use[name] += cores if begin <= now < begin + 2 * HOUR else 0
        found.peaks.append(max(use.values()) / CORES)
        found.crowded += sum(each > 0.8 * CORES for each in use.values())
        past = [*past[1 - WINDOW :], use]
        means = {name: {"cpu": sum(each[name] for each in past) / len(past)} for name in names}
        if rules is None or not any(each["cpu"] > 0.8 * CORES for each in means.values()):
            memory.above.clear()
            hot.clear()
            continue
        figures = Figures(means, {key: {"cpu": pod.use(now)} for key, pod in by_key.items()}, taken=now)
        world = World(objects, list(subjects.values()))
        answer = plan(world, POLICY, {source: figures}, memory, rules, now=now, wall=EPOCH + now)
        hot = (hot | answer.lasting) - answer.cool if taint else set()
        for move in answer.moves:
            memory.moved(move, now, rules)
            pod = by_key[move.key]
            # The scheduler knows nothing of the plan: least requested, hot nodes last.
            free[pod.node] += 1
            node = max(names, key=lambda name: (name not in hot, free[name], name))
            found.bounces += node == move.node or now - pod.left < HOUR
            pod.left = pod.born = now
            pod.node = node
            subjects[pod.name] = _subject(pod)
            free[node] -= 1
            found.evictions += 1
    return found


def _subject(pod: Running) -> Subject:
    return make_subject(pod.name, pod.node, cpu="100m", created=rfc3339_seconds(EPOCH + pod.born))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--hours", type=float, default=24)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    print("| rule | highest use | node-minutes above 80 % | evictions | bounces |\n|---|---|---|---|---|")
    for name, rules in (("no moves", None), ("upstream's", UPSTREAM), ("Atoll's", ATOLL)):
        day = run(nodes=given.nodes, seed=given.seed, hours=given.hours, rules=rules, taint=rules is not UPSTREAM)
        print(f"| {name} | {max(day.peaks):.0%} | {day.crowded} | {day.evictions} | {day.bounces} |", flush=True)


if __name__ == "__main__":
    main()
