"""How evenly queues were served: step functions over time, fair shares, and what each job would have had alone."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from atoll.dispatcher.core import QueueView
from atoll.sim.journal import Journal, Record, Steps

Floats = NDArray[np.float64]

_BINS = 2000


def integral(times: ArrayLike, values: ArrayLike, end: float) -> float:
    """Of a step function from 0 to `end`."""
    return float(slices(times, values, np.array([0.0, end]))[0] * end) if end > 0 else 0.0


def slices(times: ArrayLike, values: ArrayLike, edges: Floats) -> Floats:
    """Means of a step function between neighbouring edges; it is 0 before its first time."""
    at, value = np.asarray(times, np.float64), np.asarray(values, np.float64)
    if not at.size:
        return np.zeros(len(edges) - 1)
    area = np.concatenate(([0.0], np.cumsum(value[:-1] * np.diff(at))))
    where = np.searchsorted(at, edges, side="right") - 1
    known = np.maximum(where, 0)
    cumulated = np.where(where < 0, 0.0, area[known] + value[known] * (edges - at[known]))
    means: Floats = np.diff(cumulated) / np.diff(edges)
    return means


def below(steps: Steps, entitled: float, end: float) -> float:
    """The shortfall of use from min(entitled, wanted and used), integrated to `end`."""
    used = np.asarray(steps.used, np.float64)
    asked = used + np.asarray(steps.wanted, np.float64)
    return integral(steps.times, np.maximum(np.minimum(asked, entitled) - used, 0.0), end)


def with_parents(queues: Mapping[str, Steps], known: Mapping[str, QueueView]) -> dict[str, Steps]:
    """Steps of every queue with all below it."""
    below_it: dict[str, list[Steps]] = {name: [] for name in known}
    for name, steps in queues.items():
        seen: set[str] = set()
        above = name
        while above and above not in seen:
            seen.add(above)
            below_it.setdefault(above, []).append(steps)
            above = known[above].parent if above in known else ""
    return {name: _sum(parts) for name, parts in below_it.items()}


def _sum(parts: Sequence[Steps]) -> Steps:
    if len(parts) == 1:
        return parts[0]
    total = Steps()
    if not parts:
        return total
    times = np.unique(np.concatenate([np.asarray(each.times) for each in parts]))
    total.times.extend(times.tolist())
    for name in ("used", "wanted", "waiting"):
        values = np.zeros(len(times))
        for each in parts:
            where = np.searchsorted(np.asarray(each.times), times, side="right") - 1
            values += np.where(where < 0, 0.0, np.asarray(getattr(each, name))[np.maximum(where, 0)])
        getattr(total, name).extend(values.tolist())
    return total


def shares(queues: Sequence[QueueView], names: Sequence[str], resource: str) -> Floats:
    """Weight of each of these queues: its deserved amount where any has one, else its weight."""
    known = {queue.name: queue for queue in queues}
    deserved = [known[name].deserved.get(resource, 0) if name in known else 0 for name in names]
    if any(deserved):
        return np.array(deserved, np.float64)
    return np.array([known[name].weight if name in known else 1 for name in names], np.float64)


def fair(capacity: float, weights: Floats, wanted: Floats) -> Floats:
    """Water-filling: capacity by weight, none above its wish; the rest of one goes to the others."""
    given = np.zeros(len(wanted))
    hungry = wanted > 0
    left = capacity
    while hungry.any() and left > 1e-9:
        weight = np.where(hungry, weights, 0.0)
        # Queues of weight 0 get what those with weight leave.
        weight = weight if weight.sum() > 0 else hungry.astype(np.float64)
        offer = left * weight / weight.sum()
        taken = np.minimum(offer, wanted - given)
        given += taken
        left -= float(taken.sum())
        full = given >= wanted - 1e-9
        if not (hungry & full).any():
            break
        hungry &= ~full
    return given


def jain(journal: Journal, queues: Sequence[QueueView], end: float) -> float:
    """Jain's index of use per fair share, mean over the slices of time in which more is wanted than there is."""
    names = sorted(journal.queues)
    if not names or end <= 0 or not journal.capacity:
        return 1.0
    edges = np.linspace(0.0, end, _BINS + 1)
    used = np.array([slices(journal.queues[name].times, journal.queues[name].used, edges) for name in names])
    waiting = np.array([slices(journal.queues[name].times, journal.queues[name].wanted, edges) for name in names])
    wanted = used + waiting
    weights = shares(queues, names, journal.resource)
    found = []
    for column in np.flatnonzero(wanted.sum(axis=0) > journal.capacity):
        share = fair(journal.capacity, weights, wanted[:, column])
        takes_part = share > 1e-9
        ratio = used[takes_part, column] / share[takes_part]
        if (squares := float((ratio**2).sum())) > 0:
            found.append(float(ratio.sum()) ** 2 / (len(ratio) * squares))
    return float(np.mean(found)) if found else 1.0


def alone(records: Sequence[Record], queues: Sequence[QueueView], resource: str, capacity: int) -> dict[int, float]:
    """`id` of a record -> its completion time if its queue had its share for itself, first come first served.

    Args:
        records: in order of submission.
        queues: for their weights.
        resource: that is measured.
        capacity: of all members.
    """
    by_queue: dict[str, list[Record]] = {}
    for record in records:
        by_queue.setdefault(record.job.queue, []).append(record)
    names = sorted(by_queue)
    weights = shares(queues, names, resource)
    total = float(weights.sum()) or 1.0
    result: dict[int, float] = {}
    for name, weight in zip(names, weights, strict=True):
        share = max(capacity * float(weight) / total, 1.0)
        running: list[tuple[float, float]] = []
        free, now = share, 0.0
        for record in by_queue[name]:
            need = min(float(record.amount), share)
            now = max(now, record.job.submit)
            while running and (running[0][0] <= now or free < need - 1e-9):
                end, amount = heapq.heappop(running)
                free += amount
                now = max(now, end)
            free -= need
            heapq.heappush(running, (now + record.job.duration, need))
            result[id(record)] = now + record.job.duration - record.job.submit
    return result
