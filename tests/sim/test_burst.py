"""A burst over members whose figures are old: what is dispatched is bound at once, for the host counts what it sent."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from atoll.dispatcher.core import Command, Dispatch, Event, Pass, QueueView
from atoll.sim.jobs import GPU
from atoll.sim.member import Delays
from atoll.sim.simulation import START, Options, Simulation
from tests.sim.builders import by_name, make_job, make_member

JOBS, MEMBERS = 500, 20
LATE = 5.0
"""Seconds after its dispatch by which a PodGroup is scheduled."""


class Dispatches:
    """Notes when each workload was dispatched, in place of a log."""

    def __init__(self) -> None:
        self.times: dict[str, list[float]] = {}

    def begin(self, _: object) -> None: ...

    def record(self, event: Event, commands: Sequence[Command]) -> None:
        for command in commands:
            if isinstance(event, Pass) and isinstance(command, Dispatch):
                self.times.setdefault(command.name, []).append(event.now - START)


@pytest.mark.parametrize(
    "stale", [pytest.param(0.5, id="figures of now"), pytest.param(15.0, id="figures of 15 s ago")]
)
def test_no_pod_group_of_a_burst_is_unschedulable_for_long(stale: float) -> None:
    chance = random.Random(7)
    members = [make_member(f"m{number:02}", nodes=4, tiers=(2,)) for number in range(MEMBERS)]
    jobs = [
        make_job(
            f"j{number:03}",
            chance.uniform(0.0, 1.0),
            chance.uniform(20.0, 90.0),
            pods=chance.choice((1, 1, 2, 3, 4)),
            gpu=chance.choice((1, 2, 4, 8)),
            divided=chance.random() < 0.2,
        )
        for number in range(JOBS)
    ]
    jobs.sort(key=lambda job: job.submit)
    noted: Any = Dispatches()
    delays = Delays(publish=stale, interval=max(stale, Delays().interval))
    run = Simulation(members, [QueueView("q", {})], jobs, GPU, Options(delays=delays), recorder=noted)
    run.run()
    records = by_name(run.journal)
    assert all(record.finished is not None for record in records.values()), "all of them ran"
    assert max(run.journal.whole.waiting) > JOBS / 2, "it was more than the members hold at once"
    evicted = {name: record.evictions for name, record in records.items() if record.evictions}
    assert evicted == {}, "what was sent fitted"
    waits = {name: (record.first_start or 0.0) - noted.times[name][0] for name, record in records.items()}
    assert {name: seconds for name, seconds in waits.items() if seconds > LATE} == {}
    assert {name: times for name, times in noted.times.items() if len(times) > 1} == {}
