"""A day of a cluster in virtual time: use follows curves, a scheduler places new and evicted pods.

The scheduler knows requests and, but for upstream's rule, the taint of hot nodes; Atoll's placer kept places, too.
`python -m tests.agent.descheduler.day` prints figures without moves, with upstream's rule (every look acts, on the
figures as they are, nothing rests, pods of a workload go together) and with Atoll's, whose pods another scheduler or
Atoll's placer places; with `--sizes`, `--pods` and
`--jobs` for recorded pods and curves (`loads.recorded`), else for random ones.
"""

from __future__ import annotations

import argparse
import operator
from dataclasses import dataclass, field
from pathlib import Path

from atoll.agent.descheduler.plan import Memory, plan, source_key
from atoll.agent.descheduler.policy import parse
from atoll.agent.descheduler.rules import Rules
from atoll.agent.descheduler.world import Figures, Subject, World
from atoll.model.timestamps import rfc3339_seconds
from tests.agent.builders import make_node
from tests.agent.descheduler import loads
from tests.agent.descheduler.builders import load_aware, make_subject
from tests.agent.descheduler.loads import Load, Running

POLICY = parse(load_aware(thresholds={"cpu": 50}, targetThresholds={"cpu": 80}, duration="5m"))
HIGH = 0.8
EVERY = 60.0
WINDOW = 5
"""Looks in the mean that figures are."""
EPOCH = 1_800_000_000.0
HOUR = 3600.0
ATOLL = Rules(settle=600)
UPSTREAM = Rules(looks=1, margin=0.0, settle=1e-6, pause=0.0, rest=0.0, youngest=0.0)


@dataclass
class Day:
    """Figures of a day."""

    peaks: list[float] = field(default_factory=list)
    """Use of the busiest node at each look, as a share; above 1 it is demand that waits."""
    evictions: int = 0
    bounces: int = 0
    """Pods back on the node that they were moved off, or moved again within an hour."""
    crowded: int = 0
    """Node-minutes above the target."""
    short: float = 0.0
    """Core-hours that nodes were asked for and do not have."""
    waited: float = 0.0
    """Hours of new and evicted pods without a node."""
    lost: float = 0.0
    """Core-hours of batch work that evictions threw away."""


def run(load: Load, *, hours: float, rules: Rules | None, keeps: bool = False) -> Day:
    """One day; without rules nothing moves; `keeps`: evicted pods start in their planned places, as Atoll's placer does."""
    upstream = rules is UPSTREAM
    places = {each.name: each for each in load.places}
    free = {each.name: [each.cpu, each.memory, float(each.pods)] for each in load.places}
    nodes = [
        make_node(each.name, cpu=f"{each.cpu:.0f}m", memory=f"{each.memory:.0f}", pods=str(each.pods))
        for each in load.places
    ]
    by_key = {f"default/{pod.name}": pod for pod in load.pods}
    subjects: dict[str, Subject] = {}
    memory, found = Memory(), Day()
    past: list[dict[str, float]] = []
    hot: set[str] = set()
    [source] = [source_key(each) for each in POLICY.balances]

    def starts(pod: Running, node: str, now: float) -> None:
        pod.node, pod.since = node, now
        free[node] = [has - wants for has, wants in zip(free[node], _wants(pod), strict=True)]
        subjects[pod.name] = _subject(pod, upstream=upstream, keeps=keeps)

    def ends(pod: Running) -> None:
        free[pod.node] = [has + wants for has, wants in zip(free[pod.node], _wants(pod), strict=True)]
        pod.node = ""
        del subjects[pod.name]

    for pod in load.pods:
        pod.born = pod.born or -2 * HOUR
        if pod.node:
            starts(pod, pod.node, 0)
    for tick in range(int(hours * HOUR / EVERY)):
        now = tick * EVERY
        # 1. Batch work ends; the scheduler knows nothing of the plan: least requested first, hot nodes last.
        for pod in load.pods:
            if pod.node and now >= pod.since + pod.lasts:
                ends(pod)
                pod.done = True
        for pod in sorted(load.pods, key=lambda pod: not pod.place):
            if pod.node or pod.done or pod.begin > now:
                continue
            wants = _wants(pod)
            fitting = [name for name, has in free.items() if all(map(operator.ge, has, wants))]
            if pod.place in fitting:
                fitting = [pod.place]
            pod.place = ""
            if not fitting:
                found.waited += EVERY / HOUR
                subjects[pod.name] = _subject(pod, upstream=upstream, keeps=keeps)
                continue
            node = max(fitting, key=lambda name: (name not in hot, free[name][0] / places[name].cpu, name))
            found.bounces += node == pod.old
            starts(pod, node, now)
        # 2. Use, as it is and as figures show it.
        use = {name: load.beside(name, now) for name in places}
        for pod in load.pods:
            if pod.node:
                use[pod.node] += pod.use(now)
        shares = {name: each / places[name].cpu for name, each in use.items()}
        found.peaks.append(max(shares.values()))
        found.crowded += sum(each > HIGH for each in shares.values())
        found.short += sum(max(0.0, use[name] - each.cpu) for name, each in places.items()) * EVERY / HOUR / 1000
        past = [*past[1 - WINDOW :], use]
        means = {name: {"cpu": sum(each[name] for each in past) / len(past)} for name in places}
        if rules is None or not any(each["cpu"] > HIGH * places[name].cpu for name, each in means.items()):
            memory.above.clear()
            hot.clear()
            continue
        # 3. A look, and its evictions: another pod takes a minute to come.
        figures = Figures(means, {key: {"cpu": pod.use(now)} for key, pod in by_key.items() if pod.node}, taken=now)
        world = World(nodes, list(subjects.values()))
        answer = plan(world, POLICY, {source: figures}, memory, rules, now=now, wall=EPOCH + now)
        hot = set() if upstream else (hot | answer.lasting) - answer.cool
        for move in answer.moves:
            memory.moved(move, now, rules)
            pod = by_key[move.key]
            ends(pod)
            found.evictions += 1
            found.bounces += now - pod.left < HOUR
            found.waited += EVERY / HOUR
            found.lost += (now - pod.since) / HOUR * pod.cpu / 1000 if pod.lasts <= loads.DAY else 0
            pod.left, pod.born, pod.old = now, now, move.node
            pod.place = next((node for node, _ in move.kept if keeps), "")
    return found


def _wants(pod: Running) -> list[float]:
    return [pod.cpu, pod.memory, 1.0]


def _subject(pod: Running, *, upstream: bool, keeps: bool) -> Subject:
    batch = pod.lasts <= loads.DAY
    # Upstream's rule knows neither what completes nor who places.
    placer = "atoll" if keeps or upstream else "default-scheduler"
    asked = {"resources": {"requests": {"cpu": f"{pod.cpu:.0f}m", "memory": f"{pod.memory:.0f}"}}}
    return make_subject(
        pod.name, pod.node, containers=[asked], ready=bool(pod.node), owner=pod.name if upstream else pod.workload,
        created=rfc3339_seconds(EPOCH + pod.born), kind="Job" if batch else "ReplicaSet",
        restartPolicy="Never" if batch and not upstream else "Always", schedulerName=placer,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--hours", type=float, default=24)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sizes", type=Path, help="openb's node list (CSV, or .xz)")
    parser.add_argument("--pods", type=Path, help="openb's pod list")
    parser.add_argument("--jobs", type=Path, help="Philly's job list")
    given = parser.parse_args()
    recorded = [given.sizes, given.pods, given.jobs]
    if any(recorded) and not all(recorded):
        parser.error("give all of --sizes, --pods and --jobs, or none")
    print(
        "| rule | highest use | node-minutes above 80 % | core-hours short | evictions | bounces | pod-hours waiting"
        " | batch core-hours lost |\n|---|---|---|---|---|---|---|---|"
    )
    rows = (
        ("no moves", None, False),
        ("upstream's", UPSTREAM, False),
        ("Atoll's, another scheduler", ATOLL, False),
        ("Atoll's, Atoll's placer", ATOLL, True),
    )
    for name, rules, keeps in rows:
        if given.jobs:
            load = loads.recorded(
                nodes=given.nodes, seed=given.seed, sizes=given.sizes, pods=given.pods, jobs=given.jobs
            )
        else:
            load = loads.random(nodes=given.nodes, seed=given.seed, hours=given.hours)
        day = run(load, hours=given.hours, rules=rules, keeps=keeps)
        print(
            f"| {name} | {max(day.peaks):.0%} | {day.crowded} | {day.short:.0f} | {day.evictions} | {day.bounces}"
            f" | {day.waited:.1f} | {day.lost:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
