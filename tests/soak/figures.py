"""Arithmetic of a soak: what /metrics says, how fast memory grows, how late loops are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

RSS = "process_resident_memory_bytes"
LAG = "atoll_loop_lag_seconds"
TEN_MINUTES = 600.0
MB = 1e6


@dataclass(frozen=True, slots=True)
class Sample:
    """One process at one moment."""

    at: float
    """Seconds since the start of the soak."""
    pid: int
    rss: float
    """Bytes."""
    lag: Mapping[float, float]
    """Upper bound of a bucket (seconds) -> looks at the loop so far that were at most so late."""


def read(text: str, at: float, pid: int) -> Sample:
    """The sample that a /metrics page holds.

    Raises:
        KeyError: the page lacks memory or lag.
    """
    rss: dict[str, float] = {}
    lag: dict[float, float] = {}
    for family in text_string_to_metric_families(text):
        if family.name == RSS:
            rss[RSS] = family.samples[0].value
        elif family.name == LAG:
            lag = {float(s.labels["le"]): s.value for s in family.samples if s.name.endswith("_bucket")}
    if not lag:
        raise KeyError(LAG)
    return Sample(at, pid, rss[RSS], lag)


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Growth of y per unit of x by least squares; 0 where there is no line through the points."""
    if len(points) < 2:
        return 0.0
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


def quantile(share: float, before: Mapping[float, float], after: Mapping[float, float]) -> float:
    """The value below which this share of what was counted between two histograms lies, linear inside a bucket.

    What lies in the last bucket counts as its lower end, as Prometheus does it; 0 where nothing was counted.
    """
    bounds = sorted(after)
    counts = [after[bound] - before.get(bound, 0.0) for bound in bounds]
    wanted, lower, below = share * counts[-1], 0.0, 0.0
    if not counts[-1]:
        return 0.0
    for bound, count in zip(bounds, counts, strict=True):
        if count >= wanted:
            inside = count - below
            return lower if bound == float("inf") or not inside else lower + (bound - lower) * (wanted - below) / inside
        lower, below = bound, count
    raise AssertionError("the last bucket holds all")


@dataclass(frozen=True, slots=True)
class Figures:
    """What is said of one process."""

    name: str
    samples: int
    first_mb: float
    last_mb: float
    growth_mb: float
    """Per ten minutes."""
    lag_p99_ms: float
    restarts: int


def figures(name: str, samples: Sequence[Sample], warm_up: float) -> Figures:
    """The figures of a process, from its samples after the warm-up.

    Args:
        name: of the process.
        samples: in order of time, at least one; after a restart only those since then are looked at.
        warm_up: seconds that do not count.
    """
    last = samples[-1]
    restarts = len({sample.pid for sample in samples}) - 1
    counted = [s for s in samples if s.pid == last.pid and (s.at >= warm_up or restarts)] or [last]
    growth = slope([(sample.at, sample.rss) for sample in counted]) * TEN_MINUTES
    lag = quantile(0.99, counted[0].lag if len(counted) > 1 else {}, last.lag)
    return Figures(name, len(counted), counted[0].rss / MB, last.rss / MB, growth / MB, lag * 1000, restarts)
