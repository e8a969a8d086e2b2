"""A workload of a trace: when it is submitted, and how long it runs.

The simulator's own format holds one job per CSV row or per item of a YAML list (or under `jobs:`), with these columns:

    submit      seconds since the start of the trace, or in every job an RFC 3339 time (required)
    duration    seconds that it runs once all parts have started (required)
    name        default `job-<number>`
    queue       default `default`
    namespace   default `default`
    priority    default 0
    replicas    pods, default 1
    min         pods that must start together, default all
    requests    of one pod: `cpu=4;memory=8Gi;nvidia.com/gpu=8` (in YAML also a mapping)
    estimate    seconds that its user expects; default what --estimates says
    topology    `hard:1` or `soft:2`: mode and highest tier
    divided     true lets it run in several members
    clusters    members that it may use, separated by `;` (in YAML also a list)
    lost        wait, requeue or exclusive: what becomes of it in a lost member; default what --lost says
    toleration  seconds that a member may be away before that; default what --toleration says
    selector    node labels, `model=h100;zone=a` (in YAML also a mapping)
    class       a word to count it under, beside its size
    tasks       YAML only, in place of replicas, min and requests: a list of {name, replicas, min, requests, selector}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from atoll.model import lost, numbers, timestamps, vector
from atoll.model.gang import MOST_PODS, Gang, Task, TopologyWish
from atoll.model.lost import OnLost
from atoll.model.vector import Vector
from atoll.sim.inputs import (
    Fields,
    InputError,
    documents,
    is_csv,
    labels,
    listed,
    moment,
    names,
    requests,
    rows,
    seconds,
    text,
    truth,
    whole,
)

GPU = "nvidia.com/gpu"
GPU_SHARE = "atoll.sh/gpu-milli"
"""Thousandths of GPUs, for traces whose pods share them; members give them card by card."""


@dataclass(frozen=True, slots=True)
class Job:
    """One workload, times in seconds since the start of the trace."""

    name: str
    submit: float
    duration: float
    """How long it runs, from the moment in which all of its parts have their minimum."""
    tasks: tuple[Task, ...]
    queue: str = "default"
    namespace: str = "default"
    priority: int = 0
    minimum: int | None = None
    """Pods that must start together; None for all."""
    estimate: float | None = None
    topology: TopologyWish | None = None
    divided: bool = False
    clusters: tuple[str, ...] = ()
    kind: str = ""
    """A word to count it under; `synthetic` for what no trace contains."""
    labels: Mapping[str, str] = field(default_factory=dict)
    on_lost: OnLost | None = None
    """What becomes of it in a lost member; None for what holds for all."""
    toleration: float | None = None
    """Seconds that a member may be away before that; None for what holds for all."""

    @property
    def replicas(self) -> int:
        return sum(task.replicas for task in self.tasks)

    def total(self) -> Vector:
        """What all pods request together."""
        return vector.total(vector.scaled(task.requests, task.replicas) for task in self.tasks)

    def gang(self, start: float) -> Gang:
        """What the binding says, for a trace that starts at this time (seconds since the epoch)."""
        return Gang(
            self.queue,
            list(self.tasks),
            self.replicas if self.minimum is None else self.minimum,
            self.priority,
            timestamps.rfc3339(start + self.submit),
            self.topology,
            self.estimate,
        )


def read(path: Path) -> list[Job]:
    """Jobs in the simulator's own format, in order of submission.

    Raises:
        InputError: naming the line or item, the field, and the expected form.
    """
    items = list(rows(path, ("submit", "duration")) if is_csv(path) else _items(path))
    if not items:
        raise InputError(f"{path}: no jobs; list at least one")
    first = items[0][1].get("submit") if isinstance(items[0][1], Mapping) else None
    submit = _dated if _is(moment, first) and not _is(seconds, first) else _counted
    return ordered([_job(Fields(content, place), number, submit) for number, (place, content) in enumerate(items)])


def ordered(jobs: Iterable[Job]) -> list[Job]:
    """By submission, then as they were; the first is submitted at 0.

    Raises:
        InputError: two have one name.
    """
    result = sorted(jobs, key=lambda job: job.submit)
    names: set[tuple[str, str]] = set()
    for job in result:
        if (job.namespace, job.name) in names:
            raise InputError(f"job {job.namespace}/{job.name} is in the trace twice: give every job a name of its own")
        names.add((job.namespace, job.name))
    return result


def _items(path: Path) -> Iterable[tuple[str, Mapping[str, Any]]]:
    found: list[Any] = []
    for document in documents(path):
        if "jobs" not in document:
            found.append(document)
            continue
        top = Fields(document, str(path))
        found += top.take("jobs", listed, [])
        top.done()
    return [(f"{path}, job {number}", item) for number, item in enumerate(found, start=1)]


def _job(fields: Fields, number: int, submit: Callable[[Any], float]) -> Job:
    given = fields.maybe("tasks", listed)
    if given is None:
        made = [_task(fields, "task")]
        minimum = made[0].min_available
    else:
        made = []
        for index, item in enumerate(given):
            inner = Fields(item, f"{fields.place}, task {index + 1}")
            made.append(_task(inner, inner.take("name", text, f"task-{index}")))
            inner.done()
        minimum = fields.take("min", _pods, sum(task.min_available for task in made))
    _check_tasks(made, minimum, fields.place)
    job = Job(
        fields.take("name", text, f"job-{number}"),
        fields.take("submit", submit),
        fields.take("duration", seconds),
        tuple(made),
        fields.take("queue", text, "default"),
        fields.take("namespace", text, "default"),
        fields.take("priority", partial(whole, least=-numbers.INT32), 0),
        minimum,
        fields.maybe("estimate", seconds),
        fields.maybe("topology", _topology),
        fields.take("divided", truth, False),
        fields.take("clusters", names, ()),
        fields.take("class", text, ""),
        on_lost=fields.maybe("lost", _on_lost),
        toleration=fields.maybe("toleration", seconds),
    )
    fields.done()
    return job


def _on_lost(value: Any) -> OnLost:
    return lost.read(text(value))


def _task(fields: Fields, name: str) -> Task:
    replicas = fields.take("replicas", _pods, 1)
    least = fields.take("min", _pods, replicas)
    if least > replicas:
        raise InputError(f"{fields.place}: min is {least} of {replicas} pods; ask for no more than there are")
    wanted = {**(fields.maybe("requests", requests) or {}), "pods": 1}
    return Task(name, replicas, least, wanted, fields.take("selector", labels, {}))


def _check_tasks(tasks: list[Task], minimum: int, place: str) -> None:
    pods, known = sum(task.replicas for task in tasks), [task.name for task in tasks]
    if twice := [name for name in known if known.count(name) > 1]:
        raise InputError(f"{place}: task {twice[0]} is there twice: give every task a name of its own")
    if not 1 <= pods <= MOST_PODS:
        raise InputError(f"{place}: a job of {pods} pods; ask for at least 1 and at most {MOST_PODS}")
    if minimum > pods:
        raise InputError(f"{place}: min is {minimum} of {pods} pods; ask for no more than there are")


_pods = partial(whole, most=MOST_PODS)


def _is(convert: Callable[[Any], float], value: Any) -> bool:
    try:
        convert(value)
    except ValueError:
        return False
    return True


def _counted(value: Any) -> float:
    try:
        return seconds(value)
    except ValueError as error:
        raise ValueError(f"{error}, or in all jobs a time such as 2026-01-31T12:00:00Z: one kind per trace") from error


def _dated(value: Any) -> float:
    try:
        return moment(value)
    except ValueError as error:
        raise ValueError(f"{error}, as in the first job: one kind per trace") from error


def _topology(value: Any) -> TopologyWish:
    mode, _, tier = value.partition(":") if isinstance(value, str) else ("", "", "")
    if mode not in ("hard", "soft") or not tier:
        raise ValueError("expected hard:TIER or soft:TIER")
    number = numbers.whole(tier)
    return TopologyWish(mode, None, tier) if number is None else TopologyWish(mode, number)
