"""Small federations and traces; they hide what the behaviour does not depend on."""

from __future__ import annotations

import dataclasses
from typing import Any

from atoll.dispatcher.core import QueueView
from atoll.model.gang import Task
from atoll.sim.clusters import MemberSpec, Pool
from atoll.sim.jobs import GPU, Job
from atoll.sim.journal import Journal, Record
from atoll.sim.member import Delays
from atoll.sim.simulation import Options, Simulation

DELAYS = Delays()
START_UP = DELAYS.coalesce + DELAYS.write + DELAYS.delivery + DELAYS.plan + DELAYS.bind
"""Seconds from submission to the start where there is room."""


def make_member(name: str = "m", nodes: int = 1, gpu: int = 8, tiers: tuple[int, ...] = ()) -> MemberSpec:
    return MemberSpec(name, (Pool(nodes, {GPU: gpu, "pods": 110}, tiers=tiers),))


def make_job(name: str, submit: float, duration: float, *, pods: int = 1, gpu: int = 1, **more: Any) -> Job:
    least = more.pop("least", pods)
    task = Task("w", pods, least, {GPU: gpu, "pods": 1})
    return Job(name, submit, duration, (task,), **{"queue": "q", "minimum": least, **more})


def simulate(
    members: list[MemberSpec], jobs: list[Job], *, queues: list[QueueView] | None = None, **options: Any
) -> Simulation:
    """A finished run with everything verified at every step."""
    options = {"verify": True, **options}
    run = Simulation(members, queues or [QueueView("q", {})], jobs, GPU, Options(**options))
    run.run()
    return run


def by_name(journal: Journal) -> dict[str, Record]:
    return {record.job.name: record for record in journal.records.values()}


def starts(run: Simulation) -> dict[str, float | None]:
    return {
        name: None if record.first_start is None else round(record.first_start, 6)
        for name, record in by_name(run.journal).items()
    }


def with_members(job: Job, *names: str) -> Job:
    return dataclasses.replace(job, clusters=names)
