"""What every process shows of its dealings with API servers, read from the live objects when somebody scrapes.

Clients, caches and queues announce themselves here at birth and are forgotten with their last reference, so that no
process has to wire its metrics by hand.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Protocol
from weakref import WeakSet

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class Client(Protocol):
    """An `ApiServer`."""

    requests: Counter[tuple[str, str, int]]
    """(verb, resource, code) -> answers; code 0 = none."""


class Cache(Protocol):
    """A `Reflector`."""

    relists: int
    heard_at: float
    """time.monotonic() of the last event or list."""

    @property
    def name(self) -> str: ...

    def __len__(self) -> int: ...


class Queue(Protocol):
    """A `WorkQueue`."""

    name: str
    retries: int
    handled: int

    def __len__(self) -> int: ...


clients: WeakSet[Client] = WeakSet()
caches: WeakSet[Cache] = WeakSet()
queues: WeakSet[Queue] = WeakSet()


class KubeCollector(Collector):
    """Requests, caches and queues of this process."""

    def collect(self) -> Iterator[Metric]:
        """Called on every scrape."""
        requests = CounterMetricFamily(
            "atoll_api_requests", "Answers of API servers", labels=["verb", "resource", "code"]
        )
        answers: Counter[tuple[str, str, int]] = Counter()
        for client in list(clients):
            answers.update(client.requests)
        for (verb, resource, code), amount in sorted(answers.items()):
            requests.add_metric([verb, resource, str(code)], amount)
        yield requests
        objects = GaugeMetricFamily("atoll_cache_objects", "Objects in a cache", labels=["resource"])
        silence = GaugeMetricFamily(
            "atoll_cache_silence_seconds", "Time since a cache last heard from its API server", labels=["resource"]
        )
        relists = CounterMetricFamily("atoll_cache_relists", "Lists after the first", labels=["resource"])
        for cache in sorted(caches, key=lambda each: each.name):
            objects.add_metric([cache.name], len(cache))
            silence.add_metric([cache.name], time.monotonic() - cache.heard_at)
            relists.add_metric([cache.name], cache.relists)
        yield from (objects, silence, relists)
        depth = GaugeMetricFamily("atoll_workqueue_depth", "Keys that wait for a worker", labels=["queue"])
        handled = CounterMetricFamily("atoll_workqueue_handled", "Looks at keys", labels=["queue"])
        retries = CounterMetricFamily("atoll_workqueue_retries", "Looks that failed", labels=["queue"])
        for queue in sorted(queues, key=lambda each: each.name):
            depth.add_metric([queue.name], len(queue))
            handled.add_metric([queue.name], queue.handled)
            retries.add_metric([queue.name], queue.retries)
        yield from (depth, handled, retries)
