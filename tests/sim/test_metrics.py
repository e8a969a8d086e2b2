"""Figures that can be worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from atoll.dispatcher.core import QueueView
from atoll.sim import fairness, metrics
from atoll.sim.jobs import GPU, Job
from atoll.sim.journal import Journal, Steps
from tests.sim.builders import make_job


def journal(*jobs: tuple[Job, float, float]) -> Journal:
    """Jobs with their start and end on 8 GPUs in member m."""
    made = Journal(GPU, 8, capacities={"m": 8})
    moments: list[tuple[float, int, Callable[[], None]]] = []
    for number, (job, start, end) in enumerate(jobs):
        uid = str(number)
        amount = job.total()[GPU]
        moments.append((job.submit, 0, partial(made.submitted, uid, job)))
        moments.append((start, 1, partial(made.started, uid, start)))
        moments.append((start, 2, partial(made.occupied, uid, "m", start, amount)))
        moments.append((end, 3, partial(made.finished, uid, end)))
        moments.append((end, 4, partial(made.occupied, uid, "m", end, -amount)))
    for *_, action in sorted(moments, key=lambda each: each[:2]):
        action()
    made.end = max(end for *_, end in jobs)
    return made


def test_waits_and_slowdowns_are_per_class_of_size() -> None:
    small, large = make_job("a", 0.0, 5.0), make_job("b", 0.0, 100.0, gpu=8)
    found = metrics.report(journal((small, 0.0, 5.0), (large, 20.0, 120.0)), [QueueView("q", {})])
    assert found["classes"]["1"]["wait"]["max"] == 0.0
    assert found["classes"]["1"]["slowdown"]["max"] == 1.0
    assert found["classes"]["8+"]["wait"]["mean"] == 20.0
    assert found["classes"]["8+"]["slowdown"]["max"] == 1.2
    assert found["classes"]["all"]["jobs"] == 2
    assert found["utilisation"]["whole"] == pytest.approx((5 + 800) / (8 * 120), abs=1e-6)


def test_percentiles_are_values_that_occurred() -> None:
    assert metrics.spread([float(n) for n in range(1, 101)]) == {
        "mean": 50.5, "p50": 50.0, "p95": 95.0, "p99": 99.0, "max": 100.0,
    }  # fmt: skip


def test_below_guarantee_counts_only_what_was_wanted() -> None:
    made = journal((make_job("a", 0.0, 10.0, gpu=4), 10.0, 20.0))
    found = metrics.report(made, [QueueView("q", {}, guarantee={GPU: 3}, deserved={GPU: 6})])
    # 3 of the guarantee, 4 of what it deserves were wanted, for 10 s.
    assert found["queues"]["q"]["below_guarantee"] == 30.0
    assert found["queues"]["q"]["below_deserved"] == 40.0


def test_an_even_split_has_a_jain_index_of_one_and_a_monopoly_a_half() -> None:
    a, b = make_job("a", 0.0, 10.0, gpu=8, queue="qa"), make_job("b", 0.0, 10.0, gpu=8, queue="qb")
    queues = [QueueView("qa", {}), QueueView("qb", {})]
    assert metrics.report(journal((a, 0.0, 10.0), (b, 10.0, 20.0)), queues)["jain"] == pytest.approx(0.5, abs=0.01)
    half_a, half_b = make_job("a", 0.0, 10.0, gpu=4, queue="qa"), make_job("b", 0.0, 10.0, gpu=4, queue="qb")
    more = make_job("c", 0.0, 10.0, gpu=4, queue="qb")
    even = journal((half_a, 0.0, 10.0), (half_b, 0.0, 10.0), (more, 10.0, 20.0))
    assert metrics.report(even, queues)["jain"] == pytest.approx(1.0)


def test_water_is_filled_by_weight_up_to_what_is_wanted() -> None:
    given = fairness.fair(12.0, np.array([1.0, 2.0, 1.0]), np.array([1.0, 100.0, 100.0]))
    assert given == pytest.approx([1.0, 22 / 3, 11 / 3])


def test_finish_time_fairness_compares_with_the_own_share() -> None:
    first, second = make_job("a", 0.0, 10.0, gpu=4, queue="qa"), make_job("b", 0.0, 10.0, gpu=4, queue="qa")
    other = make_job("c", 0.0, 10.0, gpu=4, queue="qb")
    made = journal((first, 0.0, 10.0), (second, 0.0, 10.0), (other, 10.0, 20.0))
    found = metrics.report(made, [QueueView("qa", {}), QueueView("qb", {})])["queues"]
    # Alone on half of it, qa would have ended its jobs at 10 and 20, qb its one at 10.
    assert found["qa"]["finish_time"]["p50"] == 0.5
    assert found["qb"]["finish_time"]["max"] == 2.0


def test_a_start_that_passes_a_higher_priority_is_an_inversion() -> None:
    high, low = make_job("h", 0.0, 10.0, priority=5), make_job("l", 1.0, 10.0)
    queues = [QueueView("q", {})]
    assert metrics.report(journal((high, 12.0, 22.0), (low, 2.0, 12.0)), queues)["inversions"] == 1
    assert metrics.report(journal((high, 2.0, 12.0), (low, 12.0, 22.0)), queues)["inversions"] == 0


def test_a_queue_counts_for_those_above_it() -> None:
    steps = Steps()
    steps.step(0.0, used=4)
    total = fairness.with_parents(
        {"leaf": steps}, {"leaf": QueueView("leaf", {}, parent="top"), "top": QueueView("top", {})}
    )
    assert list(total["top"].used) == [4.0]
