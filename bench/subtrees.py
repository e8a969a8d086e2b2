"""One dispatcher over all top queues beside one for each of them with a fixed share of each member, in virtual time.

The production core and member placement play the same jobs twice. The shares are whole nodes of each member, by the
deserved amounts of the top queues (`atoll.dispatcher.split.webster.seats`): between them nothing is lent, and a gang
finds no more than the share. `steady` has four top queues with the same demand, `bursts` the same jobs, of which each
queue submits its own in a quarter of the time; `philly` is one job in eight of the published trace on one node in
eight, with a top queue for each virtual cluster.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from atoll.dispatcher.core import Command, Event, QueueView
from atoll.dispatcher.split.webster import seats
from atoll.kube.garbage import short_collections
from atoll.model.gang import Task
from atoll.sim import clusters, fairness, metrics, queues, traces
from atoll.sim.clusters import MemberSpec, Pool
from atoll.sim.jobs import GPU, Job, ordered
from atoll.sim.journal import Journal
from atoll.sim.load import GANG_SIZES, compressed, offered
from atoll.sim.simulation import Options, Simulation
from bench.report import Progress, Report, progress, run, sizes

NAME = "subtrees"
DESCRIPTION = "Waits, use and CPU time with one dispatcher over all top queues, and with one for each of them."
BOUND = "of each figure of the dispatchers by top queue: the one of the single dispatcher on the same jobs"
FULL: dict[str, Any] = {"jobs": 5000, "load": 0.9, "trace": ""}
QUICK: dict[str, Any] = {"jobs": 200, "load": 0.9, "trace": ""}
_SEED: Final = 12
_TOPS: Final = ("a", "b", "c", "d")
_ROUNDS: Final = 3
_EVERY: Final = 8
_NODE: Final = {GPU: clusters.GPUS_PER_NODE, "pods": 110}


def options(parser: argparse.ArgumentParser) -> None:
    """The sizes."""
    parser.add_argument("--jobs", type=int, help="jobs of each made load")
    parser.add_argument("--load", type=float, help="GPU time that is asked for, per GPU time of the members")
    parser.add_argument("--trace", help="file of the Philly trace (default: the two made loads alone)")


@dataclasses.dataclass(frozen=True)
class Load:
    """Members, top queues with their deserved amounts, and jobs."""

    members: Sequence[MemberSpec]
    tops: Sequence[QueueView]
    below: Sequence[QueueView]
    jobs: Sequence[Job]

    def of(self, top: QueueView, shares: dict[str, dict[str, int]]) -> Load:
        """What the dispatcher of this top queue has."""
        leaves = [each for each in self.below if each.parent == top.name]
        names = {top.name, *(each.name for each in leaves)}
        members = [
            dataclasses.replace(spec, pools=(dataclasses.replace(spec.pools[0], nodes=count),))
            for spec in self.members
            if (count := shares[spec.name][top.name])
        ]
        return Load(members, [top], leaves, [job for job in self.jobs if job.queue in names])


def shares(load: Load) -> dict[str, dict[str, int]]:
    """Member -> top queue -> its nodes; what rounding leaves a queue short of it gets from the members that follow."""
    owed = {top.name: 0.0 for top in load.tops}
    total = sum(top.deserved[GPU] for top in load.tops)
    found = {}
    for spec in load.members:
        nodes = spec.pools[0].nodes
        for top in load.tops:
            owed[top.name] += nodes * top.deserved[GPU] / total
        found[spec.name] = seats(nodes, {name: max(round(1000 * each), 0) for name, each in owed.items()})
        for name, count in found[spec.name].items():
            owed[name] -= count
    return found


def made(count: int, load: float, *, bursts: bool) -> Load:
    """Four members and four top queues of equal size, two queues below each."""
    rng = random.Random(_SEED)
    members = [MemberSpec(f"m{number}", (Pool(32, _NODE),)) for number in range(4)]
    tops = [QueueView(name, {}, deserved={GPU: 32 * clusters.GPUS_PER_NODE}) for name in _TOPS]
    below = [QueueView(f"{top}-{leaf}", {}, parent=top, deserved={GPU: 128}) for top in _TOPS for leaf in (1, 2)]
    jobs = []
    for number in range(count):
        size = 1 if rng.random() < 0.5 else rng.choices(list(GANG_SIZES), list(GANG_SIZES.values()))[0]
        duration = round(min(rng.lognormvariate(math.log(1200), 1.2), 86_400), 3)
        top = number % len(_TOPS)
        at = rng.random()
        if bursts:
            # In each round every queue has its quarter.
            at = (rng.randrange(_ROUNDS) + (top + at) / len(_TOPS)) / _ROUNDS
        task = Task("worker", size, size, {GPU: 1, "pods": 1})
        queue = f"{_TOPS[top]}-{1 + rng.randrange(2)}"
        jobs.append(Job(f"j{number:06d}", at * 1e6, duration, (task,), queue, queue, estimate=duration))
    return _with_load(Load(members, tops, below, ordered(jobs)), load)


def philly(trace: Path, load: float) -> Load:
    """Of the published trace, on its own virtual clusters, one job and one node of so many; all clusters take all."""
    members = [
        dataclasses.replace(spec, pools=(Pool(spec.pools[0].nodes // _EVERY, _NODE),)) for spec in clusters.philly()
    ]
    tops = [dataclasses.replace(top, deserved={GPU: top.deserved[GPU] // _EVERY}) for top in queues.philly()]
    return _with_load(Load(members, tops, (), ordered(traces.philly(trace)[0][::_EVERY])), load)


def _with_load(made: Load, load: float) -> Load:
    capacity = {GPU: sum(spec.total()[GPU] for spec in made.members)}
    return dataclasses.replace(made, jobs=compressed(made.jobs, load / offered(made.jobs, capacity, GPU)))


@dataclasses.dataclass
class Played:
    """A run, or the runs of all dispatchers together."""

    journals: list[Journal]
    decisions: int
    cpu: list[float]
    """Seconds of each core."""
    evictions: int


def play(load: Load) -> Played:
    """Play it with one dispatcher."""
    simulation = Simulation(load.members, [*load.tops, *load.below], load.jobs, GPU, Options())
    handle, spent = simulation.host.core.handle, 0.0

    def timed(event: Event) -> list[Command]:
        nonlocal spent
        began = time.process_time()
        try:
            return handle(event)
        finally:
            spent += time.process_time() - began

    setattr(simulation.host.core, "handle", timed)  # noqa: B010
    with short_collections():
        journal = simulation.run()
    evictions = sum(len(record.evictions) for record in journal.records.values())
    return Played([journal], simulation.host.writes.get("Dispatch", 0), [spent], evictions)


def play_apart(load: Load, told: Progress) -> Played:
    """Play it with one dispatcher for each top queue."""
    whole = Played([], 0, [], 0)
    parts = shares(load)
    for top in load.tops:
        told(f"dispatcher of {top.name}")
        one = play(load.of(top, parts))
        whole = Played(
            whole.journals + one.journals,
            whole.decisions + one.decisions,
            whole.cpu + one.cpu,
            whole.evictions + one.evictions,
        )
    return whole


def figures(played: Played, load: Load, largest: int) -> dict[str, tuple[float, str]]:
    """Metric -> value and unit."""
    records = [record for journal in played.journals for record in journal.records.values()]
    waits = metrics.spread([each.first_start - each.job.submit for each in records if each.first_start is not None])
    window = max(job.submit for job in load.jobs)
    used = sum(fairness.integral(each.whole.times, each.whole.used, window) for each in played.journals)
    capacity = sum(spec.total()[GPU] for spec in load.members)
    return {
        "wait_mean": (waits["mean"], "s"),
        "wait_p95": (waits["p95"], "s"),
        "gpu_hours": (used / 3600, "h"),
        "utilisation": (100 * used / (capacity * window), "%"),
        "largest_gang": (largest, "GPUs"),
        "never_started": (sum(each.first_start is None for each in records), "1"),
        "evictions": (played.evictions, "1"),
        "decisions": (played.decisions, "1"),
        "cpu_per_decision": (1e6 * sum(played.cpu) / max(played.decisions, 1), "us"),
        "cpu_of_the_busiest": (max(played.cpu), "s"),
    }


def measure(chosen: argparse.Namespace, told: Progress = progress) -> Report:
    """Run it."""
    params = sizes(chosen, QUICK, FULL)
    report = Report(NAME, {**params, "bound": BOUND})
    count, load = params["jobs"], params["load"]
    loads = {name: made(count, load, bursts=name == "bursts") for name in ("steady", "bursts")}
    if params["trace"]:
        loads["philly"] = philly(Path(params["trace"]), load)
    for name, each in loads.items():
        told(f"{name}: one dispatcher")
        parts = [nodes for found in shares(each).values() for nodes in found.values()]
        most = max(spec.pools[0].nodes for spec in each.members)
        one = figures(play(each), each, most * clusters.GPUS_PER_NODE)
        many = figures(play_apart(each, told), each, max(parts) * clusters.GPUS_PER_NODE)
        for metric, (value, unit) in one.items():
            report.add(f"{name}, one dispatcher", metric, value, unit)
            report.add(f"{name}, by top queue", metric, many[metric][0], unit, value or None)
    return report


if __name__ == "__main__":
    run(NAME, DESCRIPTION, options, measure)
