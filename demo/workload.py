"""The jobs that are submitted, and when: the trace's own, those moved into it, and synthetic gangs.

Pure, and the same for the same seed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from atoll.model import keys
from atoll.model.apiresource import JOBS, QUEUES
from demo.philly import MOVED_GPUS, TraceJob
from demo.scales import GPU, GPUS_PER_NODE, QUEUE_OF, Scale

RUN_TIME_CAP_S = 3 * 3600.0
NAMESPACE = "default"
ORIGIN = "demo.atoll.sh/origin"
_TASK = "worker"
_SYNTHETIC_GPUS = (32, 40, 48, 56, 64)
_SYNTHETIC_RUN_S = (1200.0, 7200.0)
_WAVE = 4
"""Synthetic gangs come in waves of that many, close together, as retries and sweeps do."""
_WAVE_SPREAD_S = 600.0


class Origin(StrEnum):
    """Where a job comes from."""

    TRACE = "trace"
    MOVED = "moved"
    SYNTHETIC = "synthetic"


@dataclass(frozen=True, slots=True)
class Submission:
    """One job of the demo."""

    name: str
    queue: str
    offset: float
    """Seconds of the demo after its start at which it is submitted."""
    run_time: float
    """Seconds of the demo that its pods run."""
    gpus: int
    origin: Origin
    highest_tier: int | None = None
    """Hard network topology: all pods in one domain of this tier or a nearer one."""

    @property
    def pods(self) -> int:
        """Up to one node's GPUs are one pod, more are pods of a whole node each."""
        return max(1, -(-self.gpus // GPUS_PER_NODE))


@dataclass(frozen=True, slots=True)
class Workload:
    """Everything that is submitted, in order of time."""

    submissions: Sequence[Submission]
    capped: int
    """Jobs of the trace whose run time was cut to RUN_TIME_CAP_S."""


def generate(trace: Sequence[TraceJob], scale: Scale, seed: int) -> Workload:
    """Compress the trace and put the other jobs in it."""
    rng = random.Random(seed)
    jobs = [job for job in trace if job.gpus < MOVED_GPUS][:: scale.every]
    moved = [job for job in trace if job.gpus == MOVED_GPUS][: scale.moved]
    begin = min(job.submitted for job in jobs)
    window = max((job.submitted - begin).total_seconds() for job in jobs)
    found = [_traced(job, (job.submitted - begin).total_seconds(), Origin.TRACE, scale) for job in jobs]
    found += [_traced(job, rng.uniform(0, window), Origin.MOVED, scale) for job in moved]
    found += _synthetic(rng, window, scale)
    found.sort(key=lambda each: (each.offset, each.name))
    return Workload(found, sum(job.seconds > RUN_TIME_CAP_S for job in [*jobs, *moved]))


def _traced(job: TraceJob, second: float, origin: Origin, scale: Scale) -> Submission:
    return Submission(
        name=f"{origin}-{job.row}",
        queue=QUEUE_OF[job.cluster],
        offset=second / scale.factor,
        run_time=min(job.seconds, RUN_TIME_CAP_S) / scale.factor,
        gpus=job.gpus,
        origin=origin,
    )


def _synthetic(rng: random.Random, window: float, scale: Scale) -> list[Submission]:
    waves = -(-scale.synthetic // _WAVE)
    starts = [rng.uniform(0.75 * wave, 0.75 * wave + 0.5) / waves * window for wave in range(waves)]
    queues = sorted(scale.queues)
    found = []
    for number in range(scale.synthetic):
        gpus = rng.choice(_SYNTHETIC_GPUS)
        # Most must be near each other: a rack of four nodes holds 32 GPUs, two racks 64. Every fourth takes any place.
        rack = gpus == _SYNTHETIC_GPUS[0] and rng.random() < 0.7
        found.append(
            Submission(
                name=f"{Origin.SYNTHETIC}-{number}",
                queue=queues[rng.randrange(len(queues))],
                offset=(starts[number // _WAVE] + rng.uniform(0, _WAVE_SPREAD_S)) / scale.factor,
                run_time=rng.uniform(*_SYNTHETIC_RUN_S) / scale.factor,
                gpus=gpus,
                origin=Origin.SYNTHETIC,
                highest_tier=None if number % 4 == 3 else 1 if rack else 2,
            )
        )
    return found


def job_object(job: Submission) -> dict[str, Any]:
    """The Volcano Job."""
    share = {GPU: str(min(job.gpus, GPUS_PER_NODE))}
    spec: dict[str, Any] = {
        "queue": job.queue,
        "minAvailable": job.pods,
        "tasks": [
            {
                "name": _TASK,
                "replicas": job.pods,
                "template": {
                    "metadata": {"annotations": {keys.RUN_TIME: f"{max(round(job.run_time * 1000), 1)}ms"}},
                    "spec": {
                        "restartPolicy": "Never",
                        "containers": [
                            {"name": "train", "image": "train", "resources": {"requests": share, "limits": share}}
                        ],
                    },
                },
            }
        ],
    }
    if job.highest_tier is not None:
        spec["networkTopology"] = {"mode": "hard", "highestTierAllowed": job.highest_tier}
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {"name": job.name, "namespace": NAMESPACE, "labels": {ORIGIN: str(job.origin)}},
        "spec": spec,
    }


def queue_object(name: str, gpus: int) -> dict[str, Any]:
    """The Queue with its capability."""
    return {
        "apiVersion": QUEUES.api_version,
        "kind": QUEUES.kind,
        "metadata": {"name": name},
        "spec": {"capability": {GPU: str(gpus)}},
    }
