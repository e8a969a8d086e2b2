"""The loads of Kueue's scheduler benchmark, re-created on bindings: many queues in cohorts, three sizes of workload.

As there, nothing but the queueing runs: workloads are created at their times whatever became of those before, the real
dispatcher admits them through a real API server, and whoever creates them also ends them once they have run. Members
have more room than the queues have quota, so quota alone decides. One clock, slowed down until the load keeps within
the rate that is offered at most, drives arrivals and run times, so that load and quota keep their proportions.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import math
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from atoll.dispatcher.core.backlog.binding import phase_of
from atoll.dispatcher.objects import BindingObject, binding_view, decode_binding
from atoll.kube import errors
from atoll.kube.reflector import Reflector
from atoll.kube.transport import JSON_PATCH, ApiServer
from atoll.local.layout import RAISED_LIMITS
from atoll.model import keys
from atoll.model.apiresource import BINDINGS, QUEUES
from atoll.model.decision import Phase
from atoll.model.timestamps import rfc3339
from bench import machine
from bench.host import Host, installed
from bench.load import clear, creation, namespace, open_loop, send, watching, workspace
from bench.objects import NODE_CORES, binding_object, condition, one_pod
from bench.report import Progress, Report, percentile, progress, rate, run, sizes

NAME = "kueue-shapes"
DESCRIPTION = "The loads of Kueue's scheduler benchmark: many queues, small, medium and large workloads."
BOUND = (
    "creation of such bindings in the same API server by a bare aiohttp client with 32 connections, an open watch "
    "beside it, in the same run, before anything else runs; the load is offered at no more than half of it"
)
REFERENCE = (
    "Kueue v0.20-devel as its project records it, its client held to 50 requests/s: baseline 42.7 workloads/s, mean "
    "time to admission of large, medium, small 16.5, 76.8, 215.5 s, quota use 56 %; large-scale 42.4/s, 105.6, 256.4, "
    "700.4 s, 39 %"
)
FULL: dict[str, Any] = {"shape": "baseline", "queues": 0, "workloads": 0, "load": 0.5, "slowdown": 1.0}
QUICK: dict[str, Any] = {"shape": "baseline", "queues": 4, "workloads": 60, "load": 0.5, "slowdown": 1.0}
_WHERE = "kueue"
_MEMBERS = ("member1", "member2", "member3")
_NOMINAL, _BORROWING = 20, 100
"""Cores that a queue has, and may borrow from its cohort."""
_BOUND_OBJECTS = 2000
_STALL_S = 60.0
_PLAYERS = 32
_TOLD_BOUND_AFTER_S = 15.0
"""What runs longer is reported as bound when it starts, well before the dispatcher would take it back."""
_EPOCH = "/metadata/annotations/" + keys.EPOCH.replace("/", "~1")


@dataclass(frozen=True, slots=True)
class Class:
    """Equal workloads of one pod, in each queue one every `interval` seconds."""

    name: str
    count: int
    interval: float
    cores: int
    run_time: float
    priority: int


@dataclass(frozen=True, slots=True)
class Shape:
    """A load: cohorts of equal queues."""

    cohorts: int
    queues: int
    """Of each cohort."""
    classes: tuple[Class, ...]
    """Of each queue."""

    @property
    def names(self) -> list[str]:
        """Of all queues."""
        return [f"cohort-{cohort}-queue-{queue}" for cohort in range(self.cohorts) for queue in range(self.queues)]

    @property
    def workloads(self) -> int:
        return self.cohorts * self.queues * sum(each.count for each in self.classes)

    @property
    def peak(self) -> float:
        """Workloads that arrive per second while those of all classes do."""
        return self.cohorts * self.queues * sum(1 / each.interval for each in self.classes)

    def sized(self, queues: int, workloads: int) -> Shape:
        """As many queues and workloads as asked for, or near; 0 leaves them as they are."""
        shape = self
        if queues:
            cohorts = max(round(queues / self.queues), 1)
            shape = replace(shape, cohorts=cohorts, queues=max(round(queues / cohorts), 1))
        if workloads:
            factor = workloads / shape.workloads
            classes = tuple(replace(each, count=max(round(each.count * factor), 1)) for each in shape.classes)
            shape = replace(shape, classes=classes)
        return shape


SHAPES: Mapping[str, Shape] = {
    "baseline": Shape(
        5,
        6,
        (
            Class("small", 350, 0.1, 1, 0.2, 50),
            Class("medium", 100, 0.5, 5, 0.5, 100),
            Class("large", 50, 1.2, 20, 1.0, 200),
        ),
    ),
    "large-scale": Shape(
        10,
        100,
        (
            Class("small", 35, 0.06, 1, 0.15, 50),
            Class("medium", 11, 0.3, 5, 0.35, 100),
            Class("large", 4, 0.7, 20, 0.7, 200),
        ),
    ),
}


@dataclass(frozen=True, slots=True)
class Arrival:
    """One workload of the load."""

    at: float
    """Seconds from the beginning."""
    name: str
    queue: str
    of: Class


def arrivals(shape: Shape, slowdown: float) -> list[Arrival]:
    """The whole load, the earliest first; queues take turns, so that the load is even."""
    names = shape.names
    found = [
        Arrival((number + place / len(names)) * each.interval * slowdown, f"{queue}-{each.name}-{number}", queue, each)
        for place, queue in enumerate(names)
        for each in shape.classes
        for number in range(each.count)
    ]
    return sorted(found, key=lambda each: (each.at, each.name))


@dataclass(slots=True)
class Record:
    """When what happened to one workload, by one clock."""

    created: float
    admitted: float | None = None
    """For the first time."""
    running_since: float | None = None
    ran: float = 0.0
    """Seconds for which it was charged, those that were in vain included."""
    epoch: int = 0
    """Of its last dispatch."""
    finished: bool = False

    def start(self, now: float, epoch: int) -> None:
        """It was dispatched."""
        self.running_since, self.epoch = now, epoch
        if self.admitted is None:
            self.admitted = now

    def stop(self, now: float) -> None:
        """It ended, or was evicted."""
        assert self.running_since is not None, "it does not run"
        self.ran += now - self.running_since
        self.running_since = None


@dataclass(slots=True)
class Outcome:
    """What became of a load."""

    records: dict[str, Record] = field(default_factory=dict)
    late: float = 0.0
    """Seconds by which the latest creation missed its time."""
    evictions: Counter[str] = field(default_factory=Counter)
    """Reason -> how many."""

    def admission(self, load: Sequence[Arrival]) -> dict[str, list[float]]:
        """Class -> seconds from creation to the first dispatch."""
        found: defaultdict[str, list[float]] = defaultdict(list)
        for each in load:
            record = self.records.get(each.name)
            if record is not None and record.admitted is not None:
                found[each.of.name].append(record.admitted - record.created)
        return found

    def span(self) -> float:
        """Seconds from the first creation to the last admission."""
        admitted = [each.admitted for each in self.records.values() if each.admitted is not None]
        return max(admitted, default=0.0) - min((each.created for each in self.records.values()), default=0.0)

    def use(self, load: Sequence[Arrival], cores: int, wall: float) -> float:
        """Share of `cores` that was charged, over `wall` seconds."""
        charged = sum(self.records[each.name].ran * each.of.cores for each in load if each.name in self.records)
        return charged / (cores * wall) if wall > 0 else 0.0


def options(parser: argparse.ArgumentParser) -> None:
    """The sizes."""
    parser.add_argument("--shape", choices=list(SHAPES), help="the load: 15,000 workloads or 50,000")
    parser.add_argument("--queues", type=int, help="queues in all (0: as many as the shape has)")
    parser.add_argument(
        "--workloads", type=int, help="workloads in all, the classes in proportion (0: as in the shape)"
    )
    parser.add_argument("--load", type=float, help="most that is offered at any time, as a part of the bound")
    parser.add_argument("--slowdown", type=float, help="least seconds for each second of the shape")
    parser.add_argument("--directory", type=Path, help="keep data and logs here (default: a folder that is removed)")


def measure(chosen: argparse.Namespace, told: Progress = progress) -> Report:
    """Run it."""
    params = sizes(chosen, QUICK, FULL)
    shape = SHAPES[params["shape"]].sized(params["queues"], params["workloads"])
    params |= {"queues": len(shape.names), "workloads": shape.workloads}
    report = Report(NAME, {**params, "in_flight_limits": RAISED_LIMITS, "bound": BOUND, "reference": REFERENCE})
    with workspace(chosen.directory) as directory:
        asyncio.run(_measure(report, shape, params["load"], params["slowdown"], directory, told))
    return report


async def _measure(
    report: Report, shape: Shape, share: float, slowdown: float, directory: Path, told: Progress
) -> None:
    async with installed(directory, told) as host:
        told("the bound")
        bound = await _bound(host, shape)
        slowdown = max(slowdown, shape.peak / (bound * share))
        load = arrivals(shape, slowdown)
        told(f"{len(load)} workloads, {slowdown:.2f} s for each second of the shape")
        await _prepare(host, shape)
        async with host.dispatcher() as dispatcher:
            await dispatcher.pending(0)
            before = host.sample()
            began = time.monotonic()
            # Creations that the server is behind with must not hold up what it is told of the others.
            async with await host.handle.connect() as members:
                outcome = await _Play(host.api, members, load, slowdown, told).run()
            wall = time.monotonic() - began
            after = host.sample()
    case = f"{shape.workloads} workloads in {len(shape.names)} queues"
    add = report.add
    admitted = sum(each.admitted is not None for each in outcome.records.values())
    add(case, "admitted_per_s", rate(admitted, outcome.span()), "1/s", bound)
    add(case, "offered_per_s_at_most", shape.peak / slowdown, "1/s", bound)
    for name, seconds in outcome.admission(load).items():
        add(case, f"mean_time_to_admission_{name}", sum(seconds) / len(seconds), "s")
        add(case, f"p99_time_to_admission_{name}", percentile(seconds, 99), "s")
    add(case, "mean_quota_use", outcome.use(load, len(shape.names) * _NOMINAL, wall), "share")
    for reason, number in outcome.evictions.most_common():
        add(case, reason, number, "evictions")
    finished = sum(each.finished for each in outcome.records.values())
    add(case, "finished", finished, f"of {len(load)}")
    add(case, "wall", wall, "s")
    add(case, "slowdown", slowdown, "s per s of the shape")
    add(case, "latest_creation", outcome.late, "s behind its time")
    for name, seconds_used in sorted(machine.used(before, after).items(), key=lambda item: -item[1]):
        add("CPU per workload", name, seconds_used * 1000 / len(load), "ms")
    others = machine.others(before, after)
    add("the machine", "used_by_others", others, "share")
    if others > machine.QUIET:
        report.remarks.append(f"DISTURBED: others used {others:.0%} of the machine; rates mean little")
    if finished < len(load):
        report.remarks.append(f"STUCK: only {finished} of {len(load)} have ended")
    report.remarks.append(f"to compare with: {REFERENCE}")


async def _bound(host: Host, shape: Shape) -> float:
    """Such bindings created per second."""
    await namespace(host.api, "bound")
    objects = [_binding("bound", each, 0.0) for each in arrivals(shape, 1.0)[:_BOUND_OBJECTS]]
    async with watching(host.api, BINDINGS, "bound", keys.EPOCH.encode()) as seen:
        began = time.monotonic()
        await send(host.handle, [creation(BINDINGS, obj) for obj in objects])
        found = rate(len(objects), time.monotonic() - began)
        await seen.reach(len(objects), _STALL_S)
    await clear(host.api, BINDINGS, "bound")
    return found


async def _prepare(host: Host, shape: Shape) -> None:
    """Queues, and members with twice the room that the queues have quota."""
    await namespace(host.api, _WHERE)
    await host.add_members(_MEMBERS)
    cores = len(shape.names) * _NOMINAL
    await host.give_room(_MEMBERS, math.ceil(2 * cores / (NODE_CORES * len(_MEMBERS))))
    for cohort in range(shape.cohorts):
        await host.api.create(QUEUES, _queue(f"cohort-{cohort}", shape.queues * _NOMINAL))
    queues = [
        _queue(name, _NOMINAL + _BORROWING, parent=name.rpartition("-queue-")[0], deserved=_NOMINAL)
        for name in shape.names
    ]
    await send(host.handle, [creation(QUEUES, obj) for obj in queues])


def _queue(name: str, capability: int, *, parent: str = keys.ROOT_QUEUE, deserved: int = 0) -> dict[str, Any]:
    """Work of others, and of lower priority, may be taken back from it at once, as Kueue does."""
    spec: dict[str, Any] = {"capability": {"cpu": str(capability)}, "parent": parent, "reclaimable": True}
    if deserved:
        spec["deserved"] = {"cpu": str(deserved)}
    return {
        "apiVersion": QUEUES.api_version,
        "kind": QUEUES.kind,
        "metadata": {"name": name, "annotations": {keys.PROTECTED_FOR: "0s"}},
        "spec": spec,
    }


def _binding(where: str, arrival: Arrival, began: float) -> dict[str, Any]:
    """A workload; `began` is the time of the beginning, in seconds since the epoch."""
    requests = {"cpu": arrival.of.cores * 1000, "pods": 1}
    wish = one_pod(arrival.queue, requests, rfc3339(began + arrival.at), arrival.of.priority)
    return binding_object(where, arrival.name, wish)


class _Play:
    """Creates the load, and does to each workload what its member and control would do."""

    def __init__(
        self, users: ApiServer, members: ApiServer, load: Sequence[Arrival], slowdown: float, told: Progress
    ) -> None:
        self._users, self._members, self._load, self._told = users, members, load, told
        self._run_times = {f"{each.name}-job": each.of.run_time * slowdown for each in load}
        self._outcome = Outcome()
        self._records = self._outcome.records
        self._bindings = Reflector(members, BINDINGS, decode_binding, namespace=_WHERE)
        self._bindings.on_change(self._changed)
        #: (rank, order, binding as it was seen, its status from now on); that pods are bound must not wait for long, an
        #: end may
        self._statuses: asyncio.PriorityQueue[tuple[int, int, BindingObject, dict[str, Any]]]
        self._statuses = asyncio.PriorityQueue()
        self._order = itertools.count()
        self._left = len(load)
        #: set whenever one has ended
        self._ended = asyncio.Event()

    async def run(self) -> Outcome:
        """Return when all have ended, or none has for long."""
        began = time.time()
        timed = [(each.at, creation(BINDINGS, _binding(_WHERE, each, began))) for each in self._load]
        async with asyncio.TaskGroup() as group:
            following = [group.create_task(self._bindings.run())]
            following += [group.create_task(self._write()) for _ in range(_PLAYERS)]
            await self._bindings.synced.wait()
            self._outcome.late = await open_loop(self._users, timed)
            self._told("all are created")
            with contextlib.suppress(TimeoutError):
                while self._left:
                    self._ended.clear()
                    async with asyncio.timeout(_STALL_S + max(self._run_times.values())):
                        await self._ended.wait()
            for task in following:
                task.cancel()
        return self._outcome

    def _changed(self, old: BindingObject | None, new: BindingObject | None) -> None:
        view = binding_view(new) if new is not None else None
        if new is None or view is None:
            return
        now, name = time.monotonic(), view.name.removesuffix("-job")
        if old is None:
            self._records[name] = Record(now)
        record, phase = self._records[name], phase_of(view)
        if phase is Phase.DISPATCHED and view.epoch > record.epoch:
            record.start(now, view.epoch)
            run_time = self._run_times[view.name]
            if run_time > _TOLD_BOUND_AFTER_S:
                self._say(0, new, condition("Bound"))
            over = (1, new, condition("Bound"), condition("Finished"))
            asyncio.get_running_loop().call_later(run_time, self._say, *over)
        elif phase is Phase.EVICTING and record.running_since is not None:
            record.stop(now)
            self._outcome.evictions[view.decision.reason] += 1
            self._say(0, new, {**condition("Released"), "observedGeneration": view.generation})
        elif phase is Phase.SUSPENDED and view.decision.question is not None and not view.reserved:
            # Members have more room than the queues have quota.
            yes = {"status": {"reservation": {"epoch": view.epoch, "state": "Fits"}}}
            answers = [{"clusterName": name, **yes} for name in view.decision.question.parts]
            self._statuses.put_nowait((0, next(self._order), new, {"aggregatedStatus": answers}))
        elif phase is Phase.FINISHED and record.running_since is not None:
            record.stop(now)
            record.finished = True
            self._left -= 1
            self._ended.set()

    def _say(self, rank: int, seen: BindingObject, *conditions: dict[str, Any]) -> None:
        self._statuses.put_nowait((rank, next(self._order), seen, {"conditions": list(conditions)}))

    async def _write(self) -> None:
        while True:
            _, _, seen, status = await self._statuses.get()
            meta = seen.metadata
            operations: list[dict[str, Any]] = [
                {"op": "test", "path": _EPOCH, "value": meta.annotations[keys.EPOCH]},
                {"op": "add", "path": "/status", "value": status},
            ]
            path = BINDINGS.path(_WHERE, meta.name, "status")
            try:
                await self._members.request(
                    "PATCH", path, body=orjson.dumps(operations), content_type=JSON_PATCH, deadline=_STALL_S
                )
            except errors.Invalid:
                # It was evicted before it ended.
                continue


if __name__ == "__main__":
    run(NAME, DESCRIPTION, options, measure)
