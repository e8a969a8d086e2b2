"""What a day of a cluster is made of: nodes, and pods with requests, lifetimes and curves of use.

`random` makes up all of it. `recorded` has sizes of nodes and pods, and times of batch work, of openb (Alibaba 2023),
and curves of services of Philly (Microsoft 2017): GPUs in use of one virtual cluster on one day, over their mean. No
published trace of these has use beside requests: how much of its request a service uses on average is made up.
"""

from __future__ import annotations

import math
import random as rand
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from atoll.sim import clusters, traces
from atoll.sim.jobs import GPU, Job

DAY = 86400.0
GI = 2**30
STEP = 900.0
"""Seconds of one value of a recorded curve."""
_LEAST_GPUS = 4.0
"""In the mean of a day: one job more or less is no curve."""
_REQUESTED = 0.6
"""Part of all processors that services ask for."""
_USED = (0.4, 0.9)
"""Bounds of the mean use of a service, in parts of its request."""
_WHOLE = 200
"""Nodes that get all batch work; fewer get their part of it."""
_BURST = 2.0
"""Limit of a container, in parts of its request."""


@dataclass(frozen=True, slots=True)
class Place:
    """A node: thousandths of cores, bytes, pods."""

    name: str
    cpu: float
    memory: float
    pods: int = 110


@dataclass(slots=True)
class Running:
    """A pod: what it asks for, when it comes, and what it uses."""

    name: str
    workload: str
    cpu: float
    """Request, thousandths of cores."""
    memory: float
    """Request, bytes."""
    use: Callable[[float], float]
    """Seconds of the day -> thousandths of cores."""
    begin: float = 0.0
    """Second of the day at which it is created."""
    lasts: float = math.inf
    """Seconds that its work takes; anew after an eviction."""
    node: str = ""
    """Where it runs; empty while it waits."""
    born: float = 0.0
    """When the pod in its present form was created."""
    since: float = 0.0
    """When it started."""
    left: float = -math.inf
    """When it was moved last."""
    old: str = ""
    """The node that it left then."""
    place: str = ""
    """The node that keeps a place for it."""
    done: bool = False


@dataclass(frozen=True, slots=True)
class Load:
    """Nodes, pods, and what uses processors beside pods."""

    places: list[Place]
    pods: list[Running]
    beside: Callable[[str, float], float]
    """(node, second) -> thousandths of cores."""


def random(*, nodes: int, seed: int, hours: float) -> Load:
    """Five services of one pod for each node of 8 cores, sines, and stress of two hours on each fifth node."""
    chance = rand.Random(seed)
    places = [Place(f"n{number:03}", 8000, 64 * GI, 30) for number in range(nodes)]
    pods = []
    for number in range(nodes * 5):
        where, mean, swing = chance.choice(places).name, chance.uniform(200, 1400), chance.uniform(0, 500)
        pods.append(
            Running(f"p{number}", f"of-p{number}", 100, GI, _sine(mean, swing, chance.gauss(0, 0.12)), node=where)
        )
    stress = {each.name: (chance.uniform(0, hours * 3600), chance.uniform(2000, 4000)) for each in places[: nodes // 5]}

    def beside(node: str, at: float) -> float:
        begin, cores = stress.get(node, (math.inf, 0.0))
        return cores if begin <= at < begin + 7200 else 0.0

    return Load(places, pods, beside)


def recorded(*, nodes: int, seed: int, sizes: Path, pods: Path, jobs: Path) -> Load:
    """Services with curves of Philly, and all pods of openb that last up to a day, at their times of the day.

    Args:
        nodes: so many, drawn from the list.
        seed: of all draws.
        sizes: openb's node list.
        pods: openb's pod list.
        jobs: Philly's job list.

    Raises:
        InputError: a file is not as its format says.
    """
    chance = rand.Random(seed)
    pools = [pool for member in clusters.read(sizes) for pool in member.pools]
    places = [
        Place(f"n{number:03}", pool.resources["cpu"], pool.resources["memory"])
        for number, pool in enumerate(chance.choices(pools, [pool.nodes for pool in pools], k=nodes))
    ]
    batch, _ = traces.openb(pods)
    days = curves(traces.philly(jobs)[0])
    # The largest pods of the list are whole nodes of the largest size.
    shapes = [each.tasks[0].requests for each in batch if each.tasks[0].requests["cpu"] <= 32000]
    made: list[Running] = []
    left = _REQUESTED * sum(each.cpu for each in places)
    while left > 0:
        shape, curve, used = chance.choice(shapes), chance.choice(days), chance.uniform(*_USED)
        name, cpu, memory = f"s{len(made)}", float(shape["cpu"]), float(shape["memory"])
        for number in range(chance.choice((1, 1, 2, 3, 4))):
            made.append(Running(f"{name}-{number}", name, cpu, memory, _curve(curve, cpu, used)))
            left -= cpu
    for each in batch:
        if 0 < each.duration <= DAY and chance.random() * _WHOLE < nodes:
            cpu, memory = float(each.tasks[0].requests["cpu"]), float(each.tasks[0].requests["memory"])
            at = each.submit % DAY
            made.append(Running(each.name, each.name, cpu, memory, _flat(cpu), at, each.duration, born=at))
    return Load(places, made, lambda node, at: 0.0)


def curves(jobs: list[Job]) -> list[list[float]]:
    """GPUs in use of each virtual cluster on each of its days that used some, over the mean of that day."""
    last = max(each.submit for each in jobs)
    count, per_day = int(last // DAY), int(DAY / STEP)
    found = []
    for queue in sorted({each.queue for each in jobs}):
        changes = [0.0] * (count * per_day + 1)
        for each in jobs:
            if each.queue == queue:
                gpus = sum(task.replicas * task.requests[GPU] for task in each.tasks)
                begin, end = (
                    min(math.ceil(at / STEP), len(changes) - 1) for at in (each.submit, each.submit + each.duration)
                )
                changes[begin] += gpus
                changes[end] -= gpus
        level, busy = 0.0, []
        for change in changes[:-1]:
            level += change
            busy.append(level)
        for day in range(count):
            values = busy[day * per_day : (day + 1) * per_day]
            mean = sum(values) / per_day
            if mean >= _LEAST_GPUS:
                found.append([value / mean for value in values])
    return found


def _sine(mean: float, swing: float, phase: float) -> Callable[[float], float]:
    return lambda at: max(0.0, mean + swing * math.sin(2 * math.pi * (at / DAY + phase)))


def _curve(curve: list[float], cpu: float, used: float) -> Callable[[float], float]:
    return lambda at: min(_BURST, used * curve[int(at % DAY // STEP)]) * cpu


def _flat(cpu: float) -> Callable[[float], float]:
    return lambda at: cpu
