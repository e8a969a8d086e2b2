"""Decisions per second of the dispatcher's core in one process, no API server: a hundred members, a thousand queues.

Half of the pending work can't go: its queue's, its department's or its members' room is used up. The rest is kept in
motion: what is dispatched is written, finishes, and is replaced by a new arrival, so that as many stay pending.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import heapq
import pstats
import random
import resource
import sys
import time
from collections import Counter
from dataclasses import replace
from typing import Any

from atoll.dispatcher.core import (
    BindingGone,
    BindingSet,
    BindingView,
    CapacitySet,
    CapacityView,
    ClusterSet,
    ClusterView,
    Command,
    Dispatch,
    Dispatcher,
    Pass,
    QueueSet,
    QueueView,
)
from atoll.dispatcher.core.events import NodeClass
from atoll.kube.garbage import short_collections
from atoll.model.decision import Decision
from atoll.model.gang import Gang, Task
from atoll.model.timestamps import rfc3339
from bench.report import Progress, Report, median, progress, rate, run, sizes

NAME = "core"
DESCRIPTION = "Decisions per second of the dispatcher's core in process, and how its costs grow with what waits."
BOUND = (
    "of the growth: one push and one pop of a heap of as many keys, measured at both sizes in the same run; "
    "the rates have no bound but the processor"
)
FULL: dict[str, Any] = {
    "pending": 100_000,
    "small": 1000,
    "members": 100,
    "nodes": 100,
    "decisions": 10_000,
    "events": 1000,
}
QUICK: dict[str, Any] = {"pending": 2000, "small": 200, "members": 10, "nodes": 20, "decisions": 200, "events": 60}
GPU = "nvidia.com/gpu"
_NODE = {"cpu": 64_000, "memory": 512 << 30, GPU: 8, "pods": 110}
_RACK = 16
_FANOUT = 10
_SHAPES = 240
KINDS = ("arrival", "finish", "quota edit")
Costs = dict[tuple[str, int], list[float]]
"""(kind of event, workloads that start after it) -> seconds of each such event."""
_ENOUGH = 5
"""Events of a kind that make a median."""
_SEED = 20_260_101
_START = 1_800_000_000.0


def options(parser: argparse.ArgumentParser) -> None:
    """The sizes."""
    parser.add_argument("--pending", type=int, help="workloads that wait, half of them blocked")
    parser.add_argument("--small", type=int, help="workloads that wait in the comparison of growth")
    parser.add_argument("--members", type=int, help="member clusters")
    parser.add_argument("--nodes", type=int, help="nodes of each member")
    parser.add_argument("--decisions", type=int, help="dispatches that are timed")
    parser.add_argument("--events", type=int, help="arrivals, finishes and quota edits that are timed one by one")
    parser.add_argument("--flat", action="store_true", help="a thousand queues side by side, in no tree")
    parser.add_argument("--profile", action="store_true", help="print the hot spots on standard error")


class Scenery:
    """A core with its members, queues and pending work, and what answers its commands."""

    def __init__(self, params: dict[str, Any], pending: int) -> None:
        self.rng = random.Random(_SEED)
        self.core = Dispatcher()
        self.now = _START
        self.serial = 0
        #: UID -> what the API server has of it
        self.views: dict[str, BindingView] = {}
        self.spent = 0.0
        self.leaves: list[str] = []
        for number in range(params["members"]):
            self.tell(ClusterSet(ClusterView(f"m{number:03}")))
            self.tell(CapacitySet(_capacity(f"m{number:03}", params["nodes"])))
        if params["flat"]:
            self._flat_queues(_total(params))
        else:
            self._queues(_total(params))
        self.shapes = [_shape(self.rng, gang=number % 5 == 0, blocked=number % 4 == 1) for number in range(_SHAPES)]
        for _ in range(pending):
            self.arrive()
        # As the process does once it has read its first list (`atoll.dispatcher.shell`).
        gc.freeze()

    def _flat_queues(self, total: dict[str, int]) -> None:
        for number in range(_FANOUT**3):
            self._leaf(f"q{number}", "", number, total)

    def _queues(self, total: dict[str, int]) -> None:
        for a in range(_FANOUT):
            self.tell(QueueSet(QueueView(f"d{a}", {}, weight=a + 1)))
            for b in range(_FANOUT):
                # Every fifth team's limit is used up by its own queues; so is every fourth queue's own.
                team = {GPU: 4} if b % 5 == 1 else {}
                self.tell(QueueSet(QueueView(f"d{a}t{b}", team, parent=f"d{a}", weight=b + 1)))
                for c in range(_FANOUT):
                    self._leaf(f"d{a}t{b}q{c}", f"d{a}t{b}", c, total)

    def _leaf(self, name: str, parent: str, number: int, total: dict[str, int]) -> None:
        own = {GPU: 1, "cpu": 4000} if number % 4 == 1 else {}
        deserved = {name: amount // 2000 for name, amount in total.items()}
        self.tell(
            QueueSet(
                QueueView(name, own, parent=parent, priority=number % 3, deserved=deserved, weight=number % 10 + 1)
            )
        )
        self.leaves.append(name)

    def tell(self, event: Any) -> list[Command]:
        """Hand an event to the core; processor time is counted."""
        began = time.process_time()
        commands = self.core.handle(event)
        self.spent += time.process_time() - began
        return commands

    def arrive(self) -> None:
        """One more workload, in some queue and of some shape."""
        self.serial += 1
        tasks, pods = self.rng.choice(self.shapes)
        gang = Gang(self.rng.choice(self.leaves), tasks, pods, priority=self.rng.randrange(3))
        created = rfc3339(_START + self.serial)
        view = BindingView(
            f"u{self.serial:07}", "default", f"b{self.serial}", 1, 0, gang, Decision(), created, divided=pods > 64
        )
        self.views[view.uid] = view
        self.tell(BindingSet(view))

    def decide(self) -> list[Dispatch]:
        """One pass; its decisions are written."""
        self.now += 0.01
        commands = self.tell(Pass(self.now))
        done = []
        for command in commands:
            view = self.views[command.uid]
            if isinstance(command, Dispatch):
                parts = tuple((part.cluster, tuple(count for _, count in part.tasks)) for part in command.parts)
                view = replace(
                    view, epoch=command.decision.epoch, suspended=False, parts=parts, generation=view.generation + 1
                )
                done.append(command)
            view = replace(view, decision=command.decision)
            self.views[command.uid] = view
            self.tell(BindingSet(view))
        return done

    def finish(self, uid: str) -> None:
        """The workload is complete, and then deleted."""
        view = self.views.pop(uid)
        self.tell(BindingSet(replace(view, finished=True)))
        self.tell(BindingGone(uid))


def _total(params: dict[str, Any]) -> dict[str, int]:
    return {name: amount * params["members"] * params["nodes"] for name, amount in _NODE.items()}


def _capacity(name: str, nodes: int) -> CapacityView:
    racks = -(-nodes // _RACK)
    domains = [(f"{name}-root", 2, "", ""), *((f"{name}-r{rack}", 1, "", f"{name}-root") for rack in range(racks))]
    classes = tuple(
        NodeClass(f"{name}-r{rack}", {}, (), min(_RACK, nodes - rack * _RACK), dict(_NODE)) for rack in range(racks)
    )
    total = {key: amount * nodes for key, amount in _NODE.items()}
    return CapacityView(name, f"{name}-root", 1, tuple(domains), classes, total)


def _shape(rng: random.Random, *, gang: bool, blocked: bool) -> tuple[list[Task], int]:
    """(tasks, pods): one pod, or a gang of 8 to 512; a blocked one asks for more than any node has."""
    gpus = 9 if blocked else rng.choice([0, 1, 1, 2, 4, 8])
    requests = {"cpu": rng.randrange(1, 9) * 1000, "memory": rng.randrange(1, 33) << 30, "pods": 1}
    if gpus:
        requests[GPU] = gpus
    pods = 8 << rng.randrange(7) if gang else 1
    return [Task("worker", pods, pods, requests)], pods


def measure(chosen: argparse.Namespace, told: Progress = progress) -> Report:
    """Run it."""
    params = {**sizes(chosen, QUICK, FULL), "flat": chosen.flat}
    report = Report(NAME, {**params, "queues": _FANOUT**3, "shapes": _SHAPES, "bound": BOUND})
    with short_collections():
        _measure(report, params, profile=chosen.profile, told=told)
    return report


def _measure(report: Report, params: dict[str, Any], *, profile: bool, told: Progress) -> None:
    costs = {}
    for pending in (params["small"], params["pending"]):
        told(f"{pending} workloads arrive")
        scene = Scenery(params, pending)
        arrived = rate(pending, scene.spent)
        told(f"{pending} pending: what can go goes")
        _settle(scene)
        if pending == params["pending"]:
            told(f"{params['decisions']} decisions")
            profiler = cProfile.Profile() if profile else None
            if profiler:
                profiler.enable()
            _decisions(report, scene, params["decisions"])
            if profiler:
                profiler.disable()
                pstats.Stats(profiler, stream=sys.stderr).sort_stats("tottime").print_stats(35)
            report.add("arrival", "events_per_s", arrived, "1/s")
            report.add("all", "rss", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "MiB")
        told(f"{pending} pending: {params['events']} events one by one")
        costs[pending] = _events(scene, pending, params["events"])
    few, many = costs[params["small"]], costs[params["pending"]]
    heap = _heap_growth(params["small"], params["pending"])
    for kind in KINDS:
        for seen, pending in ((few, params["small"]), (many, params["pending"])):
            every = [cost for (which, _), each in seen.items() if which == kind for cost in each]
            started = sum(number * len(each) for (which, number), each in seen.items() if which == kind)
            report.add(f"{kind}, {pending} pending", "median_cost", median(every) * 1e6, "us")
            report.add(f"{kind}, {pending} pending", "dispatches_per_event", started / len(every), "1")
        # Like with like: the more wait, the more often something starts, and a decision costs what it costs.
        for number in (0, 1):
            alike = [each.get((kind, number), []) for each in (few, many)]
            if min(map(len, alike)) >= _ENOUGH:
                case = f"{kind}, {('nothing', 'one workload')[number]} starts"
                report.add(case, "growth", median(alike[1]) / median(alike[0]), "x", heap)
    whole = [median([cost for each in seen.values() for cost in each]) for seen in (few, many)]
    report.add("all events together", "growth", whole[1] / whole[0], "x", heap)


def _settle(scene: Scenery) -> None:
    """Dispatch and finish until passes find nothing that is not looked at yet; arrivals replace what went."""
    for _ in range(3):
        for command in scene.decide():
            scene.finish(command.uid)
            scene.arrive()


def _decisions(report: Report, scene: Scenery, wanted: int) -> None:
    scene.spent, decided, deciding, scene.core.admission.examined = 0.0, 0, 0.0, 0
    divided: Counter[bool] = Counter()
    while decided < wanted:
        before = scene.spent
        done = scene.decide()
        deciding += scene.spent - before
        assert done, "nothing can be dispatched any more"
        decided += len(done)
        for command in done:
            divided[len(command.parts) > 1] += 1
            scene.finish(command.uid)
            scene.arrive()
    examined = scene.core.admission.examined
    report.add("decide and take the answers in", "decisions_per_s", rate(decided, deciding), "1/s")
    report.add("the same, with those that are told what stops them", "decisions_per_s", rate(examined, deciding), "1/s")
    report.add("with arrival, finish and deletion of each", "decisions_per_s", rate(decided, scene.spent), "1/s")
    report.add("divided over members", "share", divided[True] / max(decided, 1), "1")


def _events(scene: Scenery, pending: int, wanted: int) -> Costs:
    """What events cost, each with the pass that follows it, with everything full."""
    seen: Costs = {}
    running: list[str] = []
    while len(scene.views) - len(running) < pending or not running:
        for _ in range(pending - (len(scene.views) - len(running))):
            scene.arrive()
        while done := scene.decide():
            running.extend(command.uid for command in done)
    for number in range(wanted):
        scene.spent = 0.0
        kind = KINDS[number % len(KINDS)]
        if kind == "arrival":
            scene.arrive()
        elif kind == "finish" and running:
            scene.finish(running.pop(0))
        else:
            name = scene.leaves[number % len(scene.leaves)]
            view = scene.core.tree.queue(name).view
            assert view is not None
            scene.tell(QueueSet(replace(view, capability={**view.capability, "cpu": 1_000_000 + number})))
        started = scene.decide()
        running.extend(command.uid for command in started)
        seen.setdefault((kind, len(started)), []).append(scene.spent)
    return seen


def _heap_growth(small: int, large: int) -> float:
    costs = []
    rng = random.Random(_SEED)
    for size in (small, large):
        heap = [(rng.random(), number) for number in range(size)]
        heapq.heapify(heap)
        began = time.process_time()
        for number in range(20_000):
            heapq.heappush(heap, (rng.random(), number))
            heapq.heappop(heap)
        costs.append(time.process_time() - began)
    return costs[1] / costs[0]


if __name__ == "__main__":
    run(NAME, DESCRIPTION, options, measure)
