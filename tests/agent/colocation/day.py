"""A day of a cluster in virtual time: online pods that request 90 % of each node, and offline gangs that wait without end.

Online use follows curves; on a fifth of the nodes all online pods go up to their requests for two hours, their CPU within
a minute, their memory within 30. Figures are means of five minutes. CPU goes to online pods first, as the weights of
kubelets have it. `python -m tests.agent.colocation.day --nodes 200 --hours 24` prints the figures.
"""

from __future__ import annotations

import argparse
import math
import random
from collections import deque
from dataclasses import dataclass, field

from atoll.agent.colocation.pressure import choose, left
from atoll.agent.colocation.reclaim import Memory, shares
from atoll.agent.colocation.rules import Colocation
from atoll.agent.descheduler.world import Figures, Subject, World
from atoll.agent.objects import Node, PodGroup, PodGroupSpec
from atoll.model.colocation import BATCH_CPU, BATCH_MEMORY
from atoll.model.objects import Meta
from atoll.model.timestamps import rfc3339_seconds
from tests.agent.builders import make_node
from tests.agent.colocation.builders import GI, STALE, offline, published
from tests.agent.descheduler.builders import make_subject

CORES, MEMORY = 8000.0, 32.0
ONLINE, REQUEST_CPU, REQUEST_MEMORY = 4, 1800.0, 6.0
"""Online pods of a node, and their requests in thousandths and GiB."""
MINUTE, HOUR, WINDOW, EPOCH = 60.0, 3600.0, 5, 1_800_000_000.0
ATOLL = Colocation(mode="on")
BOLD = Colocation(
    mode="on", percentile=0.0, window=MINUTE, reserve_cpu=0.0, reserve_memory=0.0, cpu=1.0, memory=1.0, least=1
)
"""Use now alone, no reserve, no pressure below all of a node."""


@dataclass
class Curve:
    """Use of an online pod."""

    name: str
    node: int
    mean: float
    swing: float
    phase: float
    memory: float
    stress: float
    """When it begins; infinite for never."""

    def use(self, at: float) -> tuple[float, float]:
        """Thousandths of cores, GiB."""
        cpu = self.mean + self.swing * math.sin(2 * math.pi * (at / 86400 + self.phase))
        memory = self.memory + 0.5 * math.sin(2 * math.pi * (at / 86400 + self.phase))
        risen = min(1.0, (at - self.stress) / (30 * MINUTE)) if self.stress <= at < self.stress + 2 * HOUR else 0.0
        return (REQUEST_CPU if risen else max(0.0, cpu)), memory + risen * (REQUEST_MEMORY - memory)


@dataclass
class Gang:
    """Offline work: each pod needs so many core-seconds."""

    name: str
    cpu: int
    gib: int
    nodes: list[int]
    """One for each pod."""
    todo: float
    began: float
    done: float = 0.0
    subjects: list[Subject] = field(default_factory=list)


@dataclass
class Day:
    """Figures of a day."""

    useful: float = 0.0
    """Core-hours of gangs that ended, or run at its end."""
    lost: float = 0.0
    """Core-hours that evicted gangs had done."""
    idle: float = 0.0
    """Core-hours that online pods did not use."""
    lacking: int = 0
    """Minutes of online pods without memory or CPU that they requested."""
    throttled: int = 0
    """Node-minutes in which offline pods got less CPU than they would use."""
    ended: int = 0
    evicted: int = 0


def run(*, nodes: int, seed: int, hours: float, rules: Colocation | None) -> Day:
    """One day; without rules nothing is published."""
    chance, found, memory = random.Random(seed), Day(), Memory()
    objects: list[Node] = [make_node(f"n{number:03}", memory="32Gi", pods="60") for number in range(nodes)]
    begins = [chance.uniform(0, hours * HOUR) if number < nodes // 5 else math.inf for number in range(nodes)]
    curves = [
        Curve(f"web-{number}", number // ONLINE, chance.uniform(300, 700), chance.uniform(0, 300),
              chance.gauss(0, 0.12), chance.uniform(2, 3.5), begins[number // ONLINE])
        for number in range(nodes * ONLINE)
    ]  # fmt: skip
    web = [make_subject(each.name, f"n{each.node:03}", cpu="1800m") for each in curves]
    running: dict[str, Gang] = {}
    past: deque[list[tuple[float, float]]] = deque(maxlen=WINDOW)
    made = 0
    for tick in range(int(hours * HOUR / MINUTE)):
        now = tick * MINUTE
        # 1. Use of this minute: CPU to online pods first.
        online = [each.use(now) for each in curves]
        cpu, full = [0.0] * nodes, [0.0] * nodes
        for curve, (thousandths, gib) in zip(curves, online, strict=True):
            cpu[curve.node] += thousandths
            full[curve.node] += gib
        found.idle += sum(CORES - each for each in cpu) / 60_000
        wanted, held = [0.0] * nodes, [0.0] * nodes
        for gang in running.values():
            for node in gang.nodes:
                wanted[node] += gang.cpu * 0.9
                held[node] += gang.gib * 0.9
        part = [min(1.0, (CORES - cpu[n]) / wanted[n]) if wanted[n] else 1.0 for n in range(nodes)]
        found.throttled += sum(each < 1 for each in part)
        found.lacking += sum(ONLINE for n in range(nodes) if full[n] + held[n] > MEMORY or cpu[n] > CORES)
        for gang in list(running.values()):
            gang.done += sum(gang.cpu * 0.9 * part[node] for node in gang.nodes) / 60_000
            if gang.done >= gang.todo:
                found.useful += gang.done
                found.ended += 1
                del running[gang.name]
        past.append([(cpu[n] + wanted[n] * part[n], full[n] + held[n]) for n in range(nodes)])
        if rules is None:
            continue
        # 2. Figures are means; pods are measured from their second minute on.
        means = [[sum(each[n][key] for each in past) / len(past) for key in (0, 1)] for n in range(nodes)]
        pods = {
            f"default/{curve.name}": {"cpu": use[0], "memory": use[1] * GI}
            for curve, use in zip(curves, online, strict=True)
        }
        for gang in running.values():
            if now - gang.began >= 2 * MINUTE:
                for subject, node in zip(gang.subjects, gang.nodes, strict=True):
                    # A mean as well: of the minutes that it has run.
                    share = min(1.0, (now - gang.began) / (WINDOW * MINUTE))
                    use = {"cpu": gang.cpu * 0.9 * part[node] * share, "memory": gang.gib * 0.9 * share * GI}
                    pods[subject.metadata.key] = use
        figures = Figures(
            {f"n{n:03}": {"cpu": means[n][0], "memory": means[n][1] * GI} for n in range(nodes)}, pods, taken=now
        )
        # 3. A look of production code.
        groups = {
            f"default/{each}": PodGroup(Meta(name=each, namespace="default"), PodGroupSpec(2)) for each in running
        }
        world = World(objects, [*web, *(each for gang in running.values() for each in gang.subjects)], groups=groups)
        seen = shares(world, figures, frozenset(), memory, rules, stale=STALE, now=now)
        choice = choose(world, seen, figures, memory, rules, now=now, wall=EPOCH + now)
        objects = [
            published(share.node, share.wanted) if share.wanted and share.wanted != share.published else share.node
            for share in seen
        ]
        # 4. The host evicts and queues again: what was done is lost.
        for leave in choice.leaves:
            left(leave, memory, rules, now)
            gang = running.pop(leave.unit.group.partition("/")[2])
            found.evicted += 1
            found.lost += gang.done
        # 5. Gangs without end wait; each pod needs a place by what is published.
        free = [_free(each) for each in objects]
        for gang in running.values():
            for node in gang.nodes:
                free[node][0] -= gang.cpu
                free[node][1] -= gang.gib * GI
        misses = 0
        while misses < 3:
            size, thousandths, gib = chance.randint(2, 4), chance.choice((500, 1000, 2000)), chance.choice((1, 2, 3))
            places: list[int] = []
            for _ in range(size):
                best = max(range(nodes), key=lambda n: (free[n][0], -n))
                if free[best][0] < thousandths or free[best][1] < gib * GI:
                    break
                free[best][0] -= thousandths
                free[best][1] -= gib * GI
                places.append(best)
            if len(places) < size:
                misses += 1
                for node in places:
                    free[node][0] += thousandths
                    free[node][1] += gib * GI
                continue
            made += 1
            name = f"g{made}"
            work = size * thousandths / 1000 * chance.uniform(0.5, 2)
            running[name] = Gang(name, thousandths, gib, places, work, now)
            running[name].subjects = [
                _pod(name, index, node, thousandths, gib, now) for index, node in enumerate(places)
            ]
    found.useful += sum(gang.done for gang in running.values())
    return found


def _free(node: Node) -> list[float]:
    offers = node.status.allocatable
    return [float(offers.get(BATCH_CPU, 0)), float(offers.get(BATCH_MEMORY, 0))]


def _pod(gang: str, index: int, node: int, cpu: int, gib: int, now: float) -> Subject:
    notes = {"atoll.sh/binding-uid": f"b-{gang}", "scheduling.k8s.io/group-name": gang}
    created = rfc3339_seconds(EPOCH + now)
    return offline(f"{gang}-{index}", f"n{node:03}", cpu=cpu, gib=gib, notes=notes, created=created, kind="Job")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--hours", type=float, default=24)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    print(
        "| rule | offline core-hours | share of idle ones | lost by evictions | evicted gangs | *short* | *throttled* |\n"
        "|---|---|---|---|---|---|---|"
    )
    for name, rules in (("nothing is published", None), ("Atoll's", ATOLL), ("use now, no reserve, no pressure", BOLD)):
        day = run(nodes=given.nodes, seed=given.seed, hours=given.hours, rules=rules)
        print(
            f"| {name} | {day.useful:.0f} | {day.useful / day.idle:.0%} | {day.lost:.0f} | {day.evicted} of"
            f" {day.ended + day.evicted} | {day.lacking} | {day.throttled} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
