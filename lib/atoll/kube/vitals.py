"""How the process itself is: whether its loop is late, how long collections stop it, its memory and CPU time."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

PERIOD = 0.05
"""Seconds between two looks at the loop's delay."""
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 5.0)


class GcPauses(Collector):
    """How long the collector stopped the process; one per process.

    Plain numbers and no histogram: a collection may start while a histogram's lock is held by the same thread.
    """

    def __init__(self) -> None:
        self.seconds = [0.0, 0.0, 0.0]
        self.amount = [0, 0, 0]
        self.longest = 0.0
        self._began = 0.0

    def watch(self) -> None:
        """Begin to measure."""
        gc.callbacks.append(self._tell)

    def unwatch(self) -> None:
        """Stop to measure."""
        gc.callbacks.remove(self._tell)

    def _tell(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            self._began = time.perf_counter()
            return
        lasted = time.perf_counter() - self._began
        generation = info["generation"]
        self.seconds[generation] += lasted
        self.amount[generation] += 1
        self.longest = max(self.longest, lasted)

    def collect(self) -> Iterator[Metric]:
        """Called on every scrape."""
        seconds = CounterMetricFamily("atoll_gc_pause_seconds", "Time in collections of garbage", labels=["generation"])
        amount = CounterMetricFamily("atoll_gc_collections", "Collections of garbage", labels=["generation"])
        for generation in range(3):
            seconds.add_metric([str(generation)], self.seconds[generation])
            amount.add_metric([str(generation)], self.amount[generation])
        yield from (seconds, amount)
        yield GaugeMetricFamily("atoll_gc_longest_pause_seconds", "The longest of them", value=self.longest)


def lag_histogram(registry: CollectorRegistry) -> Histogram:
    """The histogram that `watch_loop` fills."""
    return Histogram(
        "atoll_loop_lag_seconds", "How late the event loop runs what is due", buckets=BUCKETS, registry=registry
    )


async def watch_loop(lag: Histogram) -> None:
    """Measure by how much this task's own timer is late, until cancelled."""
    clock = asyncio.get_running_loop().time
    while True:
        due = clock() + PERIOD
        await asyncio.sleep(PERIOD)
        lag.observe(max(0.0, clock() - due))


def register(registry: CollectorRegistry) -> None:
    """Add memory, CPU time and open files of this process to its metrics."""
    ProcessCollector(registry=registry)
