"""Metrics of all dealings with API servers, read from the live objects at each scrape."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from atoll.kube.client_metrics import Durations, Named, caches, clients, queues, recorders, refused


class KubeCollector(Collector):
    """Requests, caches and queues of this process."""

    def collect(self) -> Iterator[Metric]:
        """Called on every scrape."""
        requests = CounterMetricFamily(
            "atoll_api_requests", "Answers of API servers", labels=["verb", "resource", "code"]
        )
        answers: Counter[tuple[str, str, int]] = Counter()
        for client in list(clients):
            # A copy in one step: this runs in a thread, while the loop goes on counting.
            answers.update(dict(client.requests))
        for (verb, resource, code), amount in sorted(answers.items()):
            requests.add_metric([verb, resource, str(code)], amount)
        yield requests
        seconds: dict[str, Durations] = {}
        for client in list(clients):
            for verb, durations in list(client.seconds.items()):
                seconds.setdefault(verb, Durations()).add(durations)
        latency = HistogramMetricFamily(
            "atoll_api_request_seconds", "Time to the answer of an API server", labels=["verb"]
        )
        for verb, durations in sorted(seconds.items()):
            latency.add_metric([verb], durations.buckets(), durations.total)
        yield latency
        distrust = CounterMetricFamily(
            "atoll_reports_refused", "Reports of members that were left out", labels=["kind", "namespace"]
        )
        for (kind, namespace), amount in sorted(dict(refused).items()):
            distrust.add_metric([kind, namespace], amount)
        yield distrust
        objects = GaugeMetricFamily("atoll_cache_objects", "Objects in a cache", labels=["resource"])
        silence = GaugeMetricFamily(
            "atoll_cache_silence_seconds", "Time since a cache last heard from its API server", labels=["resource"]
        )
        relists = CounterMetricFamily("atoll_cache_relists", "Lists after the first", labels=["resource"])
        # Several caches of one process may be of one resource (of several members, or of several groups that use one
        # plural): they are shown together, because a scrape with one series twice is refused as a whole.
        for name, several in _by_name(caches):
            objects.add_metric([name], sum(len(cache) for cache in several))
            # One that does not run, such as that of a leader that lost its lease, is not meant to hear.
            if heard := [cache.heard_at for cache in several if cache.active_at is not None]:
                silence.add_metric([name], time.monotonic() - min(heard))
            relists.add_metric([name], sum(cache.relists for cache in several))
        yield from (objects, silence, relists)
        depth = GaugeMetricFamily("atoll_workqueue_depth", "Keys that wait for a worker", labels=["queue"])
        handled = CounterMetricFamily("atoll_workqueue_handled", "Looks at keys", labels=["queue"])
        retries = CounterMetricFamily("atoll_workqueue_retries", "Looks that failed", labels=["queue"])
        delayed = GaugeMetricFamily("atoll_workqueue_delayed", "Keys that wait for their time", labels=["queue"])
        unfinished = GaugeMetricFamily(
            "atoll_workqueue_unfinished_seconds", "Time that keys have been with workers, added up", labels=["queue"]
        )
        longest = GaugeMetricFamily(
            "atoll_workqueue_longest_seconds", "Time that one key has been with its worker", labels=["queue"]
        )
        waits = HistogramMetricFamily(
            "atoll_workqueue_wait_seconds", "From the time a key is due until a worker gets it", labels=["queue"]
        )
        looks = HistogramMetricFamily("atoll_workqueue_look_seconds", "Time that a look takes", labels=["queue"])
        for name, some in _by_name(queues):
            depth.add_metric([name], sum(len(queue) - queue.delayed for queue in some))
            delayed.add_metric([name], sum(queue.delayed for queue in some))
            handled.add_metric([name], sum(queue.handled for queue in some))
            retries.add_metric([name], sum(queue.retries for queue in some))
            under_way = [since for queue in some for since in queue.unfinished]
            unfinished.add_metric([name], sum(under_way))
            longest.add_metric([name], max(under_way, default=0.0))
            for family, each in ((waits, [q.waits for q in some]), (looks, [q.looks for q in some])):
                merged = Durations()
                for durations in each:
                    merged.add(durations)
                family.add_metric([name], merged.buckets(), merged.total)
        yield from (depth, delayed, handled, retries, unfinished, longest, waits, looks)
        events = CounterMetricFamily("atoll_events", "Events, by what became of them", labels=["outcome"])
        told: Counter[str] = Counter()
        for recorder in list(recorders):
            told.update(dict(recorder.outcomes))
        for outcome in ("written", "repeated", "dropped", "failed"):
            events.add_metric([outcome], told[outcome])
        yield events


N = TypeVar("N", bound=Named)


def _by_name(things: Iterable[N]) -> Iterator[tuple[str, list[N]]]:
    named: dict[str, list[N]] = {}
    for each in list(things):
        named.setdefault(each.name, []).append(each)
    yield from sorted(named.items())
