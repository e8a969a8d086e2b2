"""Changes of a trace before it is run: gangs added, time compressed to a load, estimates made; all seeded."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from atoll.model.gang import Task
from atoll.model.vector import Vector
from atoll.sim.inputs import MOST_SECONDS, InputError
from atoll.sim.jobs import GPU, Job, ordered

SYNTHETIC = "synthetic"
_YEAR = 365.25 * 86400
GANG_SIZES = {2: 13_142, 4: 5_267, 8: 2_486, 16: 872, 32: 755, 64: 84, 128: 15}
"""Workers -> jobs seen (Alibaba spot GPU 2026, aggregates by sultanul-ovi, MIT)."""


@dataclass(frozen=True, slots=True)
class Estimates:
    """What users are assumed to say about run times: `exact`, `none`, or `error=0.5` for up to half off either way."""

    kind: str = "exact"
    error: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Estimates:
        """Read the option.

        Raises:
            InputError: not one of the forms.
        """
        kind, equals, value = text.partition("=")
        if kind in ("exact", "none") and not equals:
            return cls(kind)
        try:
            error = float(value)
        except ValueError:
            error = -1.0
        if kind != "error" or not 0 <= error < 1:
            raise InputError(f"--estimates {text}: expected exact, none, or error=E with E from 0 to below 1")
        return cls(kind, error)

    def __str__(self) -> str:
        return f"error={self.error:g}" if self.kind == "error" else self.kind


def with_gangs(jobs: Sequence[Job], count: int, seed: int) -> list[Job]:
    """The trace and `count` gangs marked as synthetic: sizes as seen in production, one GPU per worker.

    Queue and duration are those of a random job of the trace, submission is uniform over its span.
    """
    if not count:
        return list(jobs)
    if not jobs:
        raise InputError("--gangs needs a trace with jobs: queues and durations are drawn from it")
    random = Random(f"gangs {seed}")
    span = jobs[-1].submit
    made = []
    for number in range(count):
        [size] = random.choices(list(GANG_SIZES), list(GANG_SIZES.values()))
        like = random.choice(jobs)
        task = Task("worker", size, size, {GPU: 1, "pods": 1})
        at = round(random.uniform(jobs[0].submit, span), 3)
        made.append(Job(f"gang-{number:05d}", at, like.duration, (task,), like.queue, like.namespace, kind=SYNTHETIC))
    return ordered([*jobs, *made])


def offered(jobs: Sequence[Job], capacity: Vector, resource: str) -> float:
    """Resource-seconds asked for, per resource-second that the clusters have while jobs are submitted."""
    if len(jobs) < 2 or not capacity.get(resource):
        return 0.0
    span = jobs[-1].submit - jobs[0].submit
    work = sum(job.total().get(resource, 0) * job.duration for job in jobs)
    return work / (capacity[resource] * span) if span > 0 else float("inf")


def compressed(jobs: Sequence[Job], factor: float) -> list[Job]:
    """The same jobs submitted `factor` times as fast, the first at 0; run times stay.

    Raises:
        InputError: they would be submitted over centuries.
    """
    if not jobs:
        return []
    first = jobs[0].submit
    if (span := (jobs[-1].submit - first) / factor) > MOST_SECONDS:
        raise InputError(
            f"the last job would be submitted after {span / _YEAR:.0f} years, time compressed {factor:g} times: "
            "check the times of the trace and --load"
        )
    return [dataclasses.replace(job, submit=round((job.submit - first) / factor, 3)) for job in jobs]


def estimated(jobs: Sequence[Job], estimates: Estimates, seed: int) -> list[Job]:
    """Jobs with estimates; what the trace itself says stays."""
    if estimates.kind == "none":
        return list(jobs)
    random = Random(f"estimates {seed}")
    result = []
    for job in jobs:
        # Drawn for every job, so that one that brings its own does not shift the others.
        factor = 1 + estimates.error * random.uniform(-1, 1)
        value = job.estimate if job.estimate is not None else round(job.duration * factor, 3)
        result.append(dataclasses.replace(job, estimate=value))
    return result


def main_resource(capacity: Vector, jobs: Sequence[Job]) -> str:
    """What load and use are measured in: the device of which the trace asks the largest part; else CPU."""
    asked: dict[str, float] = {}
    for job in jobs:
        for name, amount in job.total().items():
            asked[name] = asked.get(name, 0) + amount * max(job.duration, 1.0)
    devices = [name for name in sorted(asked) if "/" in name and capacity.get(name)]
    candidates = devices or [name for name in sorted(asked) if capacity.get(name) and name != "pods"] or ["pods"]
    return max(candidates, key=lambda name: (asked.get(name, 0) / max(capacity.get(name, 1), 1), name))
