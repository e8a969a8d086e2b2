"""A workload of a trace: what is submitted when, and how long it runs.

The simulator's own format holds one job per CSV row or per item of a YAML list (or under `jobs:`), with these columns:

    submit      seconds since the start of the trace, or an RFC 3339 time (required)
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
    selector    node labels, `model=h100;zone=a` (in YAML also a mapping)
    class       a word to count it under, beside its size
    tasks       YAML only, in place of replicas, min and requests: a list of {name, replicas, min, requests, selector}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from atoll.model import timestamps, vector
from atoll.model.gang import Gang, Task, TopologyWish
from atoll.model.vector import Vector
from atoll.sim.inputs import Fields, InputError, documents, requests, rows, seconds, truth, whole

GPU = "nvidia.com/gpu"
GPU_SHARE = "atoll.sh/gpu-milli"
"""Thousandths of GPUs, for traces whose pods share them; which card a share comes from is not modelled."""


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
        InputError: naming the line or item, the field, and what is expected.
    """
    name = path.name.removesuffix(".xz")
    if name.endswith(".csv"):
        items: Iterable[tuple[str, Mapping[str, Any]]] = rows(path, ("submit", "duration"))
    else:
        items = _items(path)
    return ordered([_job(Fields(content, place), number) for number, (place, content) in enumerate(items)])


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
        found += document["jobs"] if isinstance(document.get("jobs"), list) else [document]
    return [(f"{path}, job {number}", item) for number, item in enumerate(found, start=1)]


def _job(fields: Fields, number: int) -> Job:
    tasks = fields.maybe("tasks", list)
    if tasks is None:
        replicas = fields.take("replicas", whole, 1)
        least = fields.maybe("min", whole)
        made = [_task(fields, "task", replicas, replicas if least is None else least)]
        minimum = made[0].min_available
    else:
        made = []
        for index, item in enumerate(tasks):
            inner = Fields(item, f"{fields.place}, task {index + 1}")
            count = inner.take("replicas", whole, 1)
            made.append(_task(inner, inner.take("name", str, f"task-{index}"), count, inner.take("min", whole, count)))
            inner.done()
        minimum = fields.take("min", whole, sum(task.min_available for task in made))
    if not sum(task.replicas for task in made) or minimum > sum(task.replicas for task in made):
        raise InputError(
            f"{fields.place}: min is {minimum} of {sum(t.replicas for t in made)} pods; ask for at least 1"
        )
    job = Job(
        fields.take("name", str, f"job-{number}"),
        fields.take("submit", _moment),
        fields.take("duration", seconds),
        tuple(made),
        fields.take("queue", str, "default"),
        fields.take("namespace", str, "default"),
        fields.take("priority", int, 0),
        minimum,
        fields.maybe("estimate", seconds),
        fields.maybe("topology", _topology),
        fields.take("divided", truth, False),
        fields.take("clusters", _names, ()),
        fields.take("class", str, ""),
    )
    fields.done()
    return job


def _task(fields: Fields, name: str, replicas: int, minimum: int) -> Task:
    wanted = {**(fields.maybe("requests", requests) or {}), "pods": 1}
    return Task(name, replicas, minimum, wanted, fields.take("selector", _labels, {}))


def _moment(value: Any) -> float:
    if isinstance(value, datetime):
        return value.timestamp()
    try:
        return float(value)
    except ValueError:
        return timestamps.to_seconds(str(value))


def _topology(value: Any) -> TopologyWish:
    mode, _, tier = str(value).partition(":")
    if mode not in ("hard", "soft") or not tier:
        raise ValueError("expected hard:TIER or soft:TIER")
    return TopologyWish(mode, int(tier)) if tier.isdigit() else TopologyWish(mode, None, tier)


def _names(value: Any) -> tuple[str, ...]:
    if isinstance(value, list):
        return tuple(str(each) for each in value)
    return tuple(filter(None, (part.strip() for part in str(value).split(";"))))


def _labels(value: Any) -> dict[str, str]:
    if isinstance(value, Mapping):
        return {str(key): str(each) for key, each in value.items()}
    pairs = (part.partition("=") for part in str(value).split(";") if part.strip())
    return {key.strip(): each.strip() for key, _, each in pairs}
