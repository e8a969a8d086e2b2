"""Figures of a run, from its journal; all times in seconds, amounts in wholes of the measured resource.

wait              submission to the first start
slowdown          bounded: (end - submission) / max(run time, 10 s), at least 1 (Feitelson's bounded slowdown)
jct               submission to end
utilisation       use / capacity; `window` while jobs are submitted, `whole` until the last job started or ended, or
                  until the run was cut off; `most` at any time
jain              Jain's index of use / fair share over the queues that want something, where the fair share divides
                  the capacity by weight (deserved amounts where they are set) and no queue gets more than it wants;
                  mean over the time in which more is wanted than there is (1 where that never happens)
finish_time       Themis' rho: jct / the jct that the job would have had in its queue's own share, fenced off, first
                  come first served (a job larger than the share gets a share of its size)
below_guarantee   what a queue held less than min(guarantee, what it wanted), integrated; likewise below_deserved
inversions        starts with a waiting job of higher priority and no larger size in the same queue
never_started     by the dispatcher's reason at the end of the run, the most frequent first: how many jobs, and of one
                  of them (the first submitted) the name, the whole verdict and what would help
reservations      heads with a reservation that had a time, how many of them were overtaken by a better rank (that
                  time no longer binds), how many of the others started later, and by how much at most
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atoll.dispatcher.core import QueueView
from atoll.model.quantity import scale_of
from atoll.model.verdict import Reason
from atoll.sim import fairness
from atoll.sim.journal import Journal, Obstacle, Record, Steps

Json = dict[str, Any]
Floats = NDArray[np.float64]

BOUND = 10.0
"""Seconds below which a run time does not count for slowdown."""
CLASSES: tuple[tuple[str, int, float], ...] = (
    ("1", 1, 1), ("2-4", 2, 4), ("5-8", 5, 8), ("9-16", 9, 16), ("17+", 17, math.inf),
    ("8+", 8, math.inf), ("16+", 16, math.inf), ("all", 0, math.inf),
)  # fmt: skip
"""(name, least, most) of the measured resource; the last three overlap with the others."""
BINS = 400
_SERIES = ("used", "wanted", "waiting")


def report(journal: Journal, queues: Sequence[QueueView]) -> Json:
    """All figures as JSON; equal journals give equal text."""
    records = list(journal.records.values())
    alone = fairness.alone(records, queues, journal.resource, journal.capacity)
    submits = [record.job.submit for record in records]
    window = max(submits, default=0.0) - min(submits, default=0.0)
    series = binned(journal, journal.end)
    return {
        "resource": journal.resource,
        "capacity": _whole(journal, journal.capacity),
        "seconds": {"window": _r(window), "whole": _r(journal.end)},
        "jobs": {
            "submitted": len(records),
            "finished": sum(record.finished is not None for record in records),
            "running": sum(record.started is not None and record.finished is None for record in records),
            "waiting": sum(record.started is None and record.finished is None for record in records),
            "never_started": sum(record.first_start is None for record in records),
            "synthetic": sum(record.job.kind == "synthetic" for record in records),
        },
        "never_started": _never_started(journal.obstacles),
        "utilisation": {
            "window": _r(_mean(journal.whole, window) / max(journal.capacity, 1)),
            "whole": _r(_mean(journal.whole, journal.end) / max(journal.capacity, 1)),
            "most": _r(max(journal.whole.used, default=0.0) / max(journal.capacity, 1)),
            "by_member": {
                name: _r(_mean(steps, window) / max(journal.capacities.get(name, 0), 1))
                for name, steps in sorted(journal.members.items())
            },
        },
        "jain": _r(fairness.jain(journal, queues, journal.end)),
        "evictions": _evictions(records),
        "stuck_gangs": sum(record.stranded for record in records),
        "inversions": _inversions(records),
        "reservations": _reservations(records),
        "classes": {
            name: _figures([each for each in records if low <= each.size <= high], alone) for name, low, high in CLASSES
        },
        "kinds": _grouped(records, lambda record: record.job.kind, alone),
        "queues": _queues(journal, queues, alone),
        "series": series,
    }


def _figures(records: Sequence[Record], alone: Mapping[int, float]) -> Json:
    waits = [record.first_start - record.job.submit for record in records if record.first_start is not None]
    over = [record for record in records if record.finished is not None]
    jcts = [(record.finished or 0.0) - record.job.submit for record in over]
    slowdowns = [max(1.0, jct / max(record.job.duration, BOUND)) for record, jct in zip(over, jcts, strict=True)]
    rhos = [jct / alone[id(record)] for record, jct in zip(over, jcts, strict=True) if alone.get(id(record), 0) > 0]
    return {
        "jobs": len(records),
        "wait": spread(waits),
        "slowdown": spread(slowdowns),
        "jct": spread(jcts),
        "finish_time": spread(rhos),
    }


def spread(values: Sequence[float]) -> Json:
    """Mean, percentiles (nearest rank: values that occurred) and maximum; None without values."""
    if not values:
        return {"mean": None, "p50": None, "p95": None, "p99": None, "max": None}
    ordered = sorted(values)
    ranks = {f"p{p}": _r(ordered[max(math.ceil(len(ordered) * p / 100), 1) - 1]) for p in (50, 95, 99)}
    return {"mean": _r(math.fsum(ordered) / len(ordered)), **ranks, "max": _r(ordered[-1])}


def _grouped(records: Iterable[Record], key: Callable[[Record], str], alone: Mapping[int, float]) -> Json:
    groups: dict[str, list[Record]] = {}
    for record in records:
        if name := key(record):
            groups.setdefault(name, []).append(record)
    return {name: _figures(group, alone) for name, group in sorted(groups.items())}


def _queues(journal: Journal, queues: Sequence[QueueView], alone: Mapping[int, float]) -> Json:
    figures = _grouped(journal.records.values(), lambda record: record.job.queue, alone)
    known = {queue.name: queue for queue in queues}
    for name, steps in fairness.with_parents(journal.queues, known).items():
        figure = figures.setdefault(name, {"jobs": 0})
        queue = known.get(name)
        guarantee = queue.guarantee.get(journal.resource, 0) if queue else 0
        deserved = queue.deserved.get(journal.resource, 0) if queue else 0
        figure["used"] = _whole(journal, fairness.integral(steps.times, steps.used, journal.end))
        figure["below_guarantee"] = _whole(journal, fairness.below(steps, guarantee, journal.end))
        figure["below_deserved"] = _whole(journal, fairness.below(steps, deserved, journal.end))
    return dict(sorted(figures.items()))


def _evictions(records: Sequence[Record]) -> Json:
    reasons: dict[str, int] = {}
    for record in records:
        for reason in record.evictions:
            reasons[str(reason)] = reasons.get(str(reason), 0) + 1
    most = max((len(record.evictions) for record in records), default=0)
    return {"total": sum(reasons.values()), "by_reason": dict(sorted(reasons.items())), "most_of_one_job": most}


def _never_started(obstacles: Mapping[Reason, Obstacle]) -> Json:
    most = sorted(obstacles.items(), key=lambda item: (-item[1].jobs, item[0]))
    return {str(reason): dataclasses.asdict(each) for reason, each in most}


def _reservations(records: Sequence[Record]) -> Json:
    made = [record for record in records if record.expected_start is not None]
    binding = [record for record in made if not record.overtaken]
    late = [
        (record.first_start if record.first_start is not None else math.inf) - (record.expected_start or 0.0)
        for record in binding
    ]
    # Planning, writing and binding take their time even where the room is there at the expected time.
    broken = [each for each in late if each > START_SLACK]
    worst = max(broken, default=0.0)
    return {
        "made": len(made),
        "overtaken": len(made) - len(binding),
        "late": len(broken),
        "worst": None if worst == math.inf else _r(worst),
    }


START_SLACK = 2.0
"""Seconds that a head may start after the expected time."""


def _inversions(records: Sequence[Record]) -> int:
    """See the module's text; a sweep over submissions and starts."""
    if len({record.job.priority for record in records}) < 2:
        return 0
    moments: list[tuple[float, int, int, Record]] = []
    for number, record in enumerate(records):
        moments.append((record.job.submit, 1, number, record))
        if record.first_start is not None:
            moments.append((record.first_start, 0, number, record))
    # Starts before submissions at one moment: a new job can't have been passed.
    moments.sort(key=lambda each: each[:3])
    waiting: dict[str, dict[int, dict[int, int]]] = {}
    count = 0
    for _, comes, number, record in moments:
        job = record.job
        ranks = waiting.setdefault(job.queue, {})
        if comes:
            ranks.setdefault(job.priority, {})[number] = record.size
            continue
        ranks.get(job.priority, {}).pop(number, None)
        higher = (sizes for priority, sizes in ranks.items() if priority > job.priority)
        count += any(size <= record.size for sizes in higher for size in sizes.values())
    return count


def binned(journal: Journal, end: float, bins: int = BINS) -> Json:
    """Means per equal slice of time: of use, of demand, and of the jobs that wait, in all and per queue."""
    if end <= 0:
        return {"times": [], "used": [], "wanted": [], "waiting": [], "queues": {}}
    edges = np.linspace(0.0, end, bins + 1)

    def means(steps: Steps) -> Json:
        slices = {name: fairness.slices(steps.times, getattr(steps, name), edges) for name in _SERIES}
        return {
            name: [_r(value) if name == "waiting" else _whole(journal, value) for value in values]
            for name, values in slices.items()
        }

    return {
        "times": [_r(edge) for edge in edges[:-1]],
        **means(journal.whole),
        "queues": {name: means(steps) for name, steps in sorted(journal.queues.items())},
    }


def _mean(steps: Steps, end: float) -> float:
    return fairness.integral(steps.times, steps.used, end) / end if end > 0 else 0.0


def _whole(journal: Journal, amount: float) -> float:
    """An amount of the measured resource, whose accounting is in thousandths if it is CPU."""
    scale = scale_of(journal.resource)
    return amount // scale if isinstance(amount, int) and amount % scale == 0 else _r(amount / scale)


def _r(value: float) -> float:
    """Microseconds are more than delays resolve; rounding keeps the JSON short and equal on every machine."""
    return round(float(value), 6)
