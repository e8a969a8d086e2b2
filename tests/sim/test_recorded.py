"""A time as records have it is simulated again, as it happened and as it would have with other queues."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.dispatcher.core import QueueView
from atoll.model.runs import Part, Record, Run, columns
from atoll.model.timestamps import rfc3339
from atoll.sim import comparison, metrics
from atoll.sim.jobs import GPU
from atoll.sim.journal import Journal
from atoll.sim.recorded import ALIKE, members, read, reproduced
from tests.sim.builders import by_name, make_job, make_member, simulate

BEGIN = datetime(2026, 10, 1, tzinfo=UTC)
END = BEGIN + timedelta(days=1)
Row = dict[str, Any]


def row(name: str, *, epoch: int = 1, uid: str = "", pods: int = 1, gpu: int = 1, **times: Any) -> Row:
    """A run; times are seconds from the beginning."""
    found = {key: times.pop(key) for key in list(times) if isinstance(times[key], int | float)}
    texts = {key: rfc3339(BEGIN.timestamp() + value) for key, value in found.items()}
    amounts = {"pods": float(pods), GPU: float(gpu * pods)}
    part = Part("m", pods, granted=amounts)
    run = Run(
        epoch, texts.pop("dispatched"), queue=times.pop("queue", "q"), asked=amounts, parts=[part], **texts, **times
    )
    return columns(Record(uid or name, "default", name, "Job.batch", run))


def rows_of(journal: Journal) -> Iterator[Row]:
    for record in journal.records.values():
        job, start = record.job, record.first_start
        assert start is not None
        yield row(
            job.name, pods=job.replicas, gpu=job.tasks[0].requests[GPU], submitted=job.submit, dispatched=start,
            bound=start, ended=record.finished, released=record.finished, outcome="Succeeded", queue=job.queue,
        )  # fmt: skip


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 600), st.integers(1, 900), st.integers(1, 8)), min_size=1, max_size=20))
def test_what_a_simulation_did_is_reproduced_from_its_records(wanted: list[tuple[int, int, int]]) -> None:
    jobs = [make_job(f"j{n:02d}", float(at), float(for_), gpu=gpu) for n, (at, for_, gpu) in enumerate(sorted(wanted))]
    first = simulate([make_member()], jobs)
    recorded = read(rows_of(first.journal), BEGIN, END)
    again = simulate([make_member()], recorded.jobs)
    found = reproduced(recorded, again.journal)
    assert found["alike"] == found["jobs"] == len(jobs)
    assert found["furthest"] == []
    # The first submission of a trace is its start.
    assert found["error"]["max"] < 1.0


def test_a_run_that_was_evicted_starts_again_and_runs_as_long_as_its_last_one() -> None:
    found = read(
        [
            row("a", epoch=2, submitted=0, dispatched=500, bound=501, ended=801, released=801, outcome="Succeeded"),
            row("a", epoch=1, submitted=0, dispatched=100, bound=101, ended=400, released=401, outcome="Evicted"),
        ],
        BEGIN,
        END,
    )
    assert [(job.name, job.submit, job.duration) for job in found.jobs] == [("a", 0.0, 300.0)]
    assert (found.waits, found.evictions) == ({("default", "a"): 101.0}, 1)


def test_runs_at_the_edges_of_the_time_take_part_with_what_lies_in_it() -> None:
    """Of two that began before it, one ends in it; of the one that goes on nothing says how long it will run."""
    day = 86400.0
    found = read(
        [
            row("early", submitted=-500, dispatched=-400, bound=-400, ended=100, released=100, outcome="Succeeded"),
            row("endless", submitted=100, dispatched=100, bound=200),
            row("never", submitted=100, dispatched=100, ended=150, released=150, outcome="Deleted"),
            row("early", uid="2", submitted=300, dispatched=301, bound=301, ended=302, released=302),
        ],
        BEGIN,
        END,
    )
    assert {job.name: (job.submit, job.duration) for job in found.jobs} == {
        "early": (0.0, 100.0),
        "endless": (100.0, day - 200 + 1),
        "early#2": (300.0, 1.0),
    }
    assert found.waits == {("default", "endless"): 100.0, ("default", "early#2"): 1.0}
    assert found.notes[1:] == [
        "1 job submitted before that time begin with it",
        "1 workload dropped that never had nodes or asked for nothing",
    ]


def test_a_wait_that_is_not_reproduced_is_named() -> None:
    """It waited for an hour for a reason that is in no record."""
    held = row("held", submitted=0, dispatched=3600, bound=3600, ended=3700, released=3700, outcome="Succeeded")
    recorded = read([held], BEGIN, END)
    found = reproduced(recorded, simulate([make_member()], recorded.jobs).journal)
    assert found["alike"] == 0
    assert found["error"]["max"] > 3600 - ALIKE
    assert found["furthest"][0]["job"] == "default/held"


def test_members_are_pools_of_equal_nodes_as_they_publish_them() -> None:
    profile = {"labels": {"model": "h100"}, "allocatable": {"cpu": "96", GPU: "8", "pods": "110"}}
    capacity = {
        "metadata": {"name": "root", "namespace": "karmada-es-east"},
        "spec": {
            "profiles": [profile],
            "classes": [{"nodes": 2, "profile": 0, "free": {GPU: 8}}, {"nodes": 3, "profile": 0, "free": {GPU: 1}}],
        },
    }
    [east] = members([capacity], [{"metadata": {"name": "east", "labels": {"region": "eu"}}, "spec": {}}])
    assert (east.name, east.labels["region"], east.total()[GPU]) == ("east", "eu", 40)
    assert [(pool.nodes, pool.labels) for pool in east.pools] == [(5, {"model": "h100"})]
    assert members([capacity], []) == [], "a member that has left"


def test_two_runs_beside_each_other_name_the_queues_that_win_and_lose() -> None:
    """Two queues of one member with 8 GPUs: a limit for the first lets the second start at once."""
    jobs = [make_job("a", 0.0, 1000.0, gpu=8, queue="x"), make_job("b", 1.0, 1000.0, gpu=8, queue="y")]
    queues = [QueueView("x", {}), QueueView("y", {})]
    now = simulate([make_member()], jobs, queues=queues)
    limited = [QueueView("x", {GPU: 0}), queues[1]]
    then = simulate([make_member()], jobs, queues=limited)
    found = comparison.compared(
        metrics.report(now.journal, queues), now.journal, metrics.report(then.journal, limited), then.journal
    )
    assert {name: (each["earlier"], each["later"]) for name, each in found["queues"].items()} == {
        "x": (0, 1),
        "y": (1, 0),
    }
    assert found["run"]["never started"] == {"now": 0, "changed": 1}
    assert found["queues"]["y"]["changed"]["wait_mean"] < 60 < found["queues"]["y"]["now"]["wait_mean"]
    assert found["queues"]["y"]["now"]["hours"] == pytest.approx(8 * 1000 / 3600, abs=0.01)
    assert by_name(then.journal)["a"].first_start is None
