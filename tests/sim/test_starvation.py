"""A large gang and an endless stream of small jobs, on the files of examples/starvation."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

import pytest

from atoll.model.queues import Strategy
from atoll.model.verdict import Reason
from atoll.sim import clusters, jobs, load, metrics, queues
from atoll.sim.jobs import GPU
from atoll.sim.journal import Journal, Record
from atoll.sim.metrics import START_SLACK
from atoll.sim.simulation import run

EXAMPLE = Path(__file__).parents[2] / "examples" / "starvation"
LAST_OF_THE_STREAM = 14_700.0


@functools.cache
def played(strategy: Strategy | None, file: str = "queues.yaml", reclaimable: bool = False) -> Journal:
    members = clusters.read(EXAMPLE / "clusters.yaml")
    views = queues.with_strategy(queues.read(EXAMPLE / file), strategy)
    views = [dataclasses.replace(view, reclaimable=view.reclaimable or reclaimable) for view in views]
    trace = load.estimated(jobs.read(EXAMPLE / "jobs.csv"), load.Estimates(), 0)
    journal, _ = run(members, views, trace, GPU)
    assert all(record.finished is not None for record in journal.records.values())
    return journal


def gang(strategy: Strategy | None, file: str = "queues.yaml") -> Record:
    [found] = [record for record in played(strategy, file).records.values() if record.job.kind == "gang"]
    assert not found.evictions
    return found


def test_with_traverse_it_waits_until_the_stream_ends() -> None:
    assert gang(Strategy.TRAVERSE).expected_start is None
    assert (gang(Strategy.TRAVERSE).first_start or 0) > LAST_OF_THE_STREAM


@pytest.mark.parametrize(
    ("strategy", "file", "within"),
    [
        pytest.param(Strategy.BACKFILL, "queues.yaml", 30 * 60, id="backfill: once what ran before it is over"),
        pytest.param(None, "queues-sla.yaml", 70 * 60, id="a waiting time of 30 minutes: as long after that"),
    ],
)
def test_it_starts_by_the_reserved_time(strategy: Strategy | None, file: str, within: float) -> None:
    record = gang(strategy, file)
    assert record.first_start is not None
    assert record.expected_start is not None
    assert record.first_start <= record.expected_start + START_SLACK
    assert record.first_start - record.job.submit < within
    assert not record.overtaken


def test_a_gang_that_borrows_and_is_evicted_does_not_keep_the_members_empty_for_it_again() -> None:
    """Each of the small jobs may take it back: it was started three times, each time beside one of them in the end."""
    journal = played(Strategy.BACKFILL, reclaimable=True)
    [found] = [record for record in journal.records.values() if record.job.kind == "gang"]
    assert found.evictions == [Reason.RECLAIMED]
    report = metrics.report(journal, [])
    assert report["utilisation"]["window"] > 0.9
    assert report["reservations"]["late"] == 0


def test_work_that_all_waited_too_long_does_not_keep_members_idle_for_each_other() -> None:
    members = clusters.read(EXAMPLE / "clusters.yaml")
    [training, _] = queues.read(EXAMPLE / "queues-sla.yaml")
    mine = [dataclasses.replace(job, queue=training.name) for job in jobs.read(EXAMPLE / "jobs.csv")]
    trace = load.estimated(mine, load.Estimates(), 0)
    journal, _ = run(members, [training], trace, GPU)
    work = sum(job.duration * job.total()[GPU] for job in trace)
    assert journal.end < 1.2 * work / journal.capacity
