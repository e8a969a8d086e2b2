"""Figures of members as metrics: their resources, their use, and the time of their reports."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from prometheus_client import CollectorRegistry, Gauge

from atoll.control.caches import Caches
from atoll.control.objects import ClusterObject, LeaseObject
from atoll.control.settings import FigureSettings
from atoll.model import keys, quantity

Json = dict[str, Any]
Lines = dict[tuple[str, ...], float]
"""Values of the labels -> value."""


class MemberMetrics:
    """Gauges of members; a member that left disappears."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"atoll_member_{name}", text, ["cluster", *labels], registry=registry)

        self._gauges = {
            "ready": gauge("ready", "Whether its agent reports and its API server answers: 1 or 0"),
            "nodes": gauge("nodes", "Nodes"),
            "ready_nodes": gauge("ready_nodes", "Nodes that are ready"),
            "allocatable": gauge("allocatable", "Of all nodes (cores, bytes, devices)", "resource"),
            "allocated": gauge("allocated", "Requests of pods on these nodes", "resource"),
            "dispatched": gauge("dispatched", "Workloads that are dispatched there and have not ended"),
            "running": gauge("running", "Workloads that run there"),
            "report": gauge("last_report_timestamp_seconds", "When its agent reported last"),
        }
        self._shown: dict[str, Lines] = {name: {} for name in self._gauges}

    def show(self, figures: dict[str, Lines]) -> None:
        """Show these and no others."""
        for name, gauge in self._gauges.items():
            lines = figures.get(name, {})
            for labels in self._shown[name].keys() - lines.keys():
                gauge.remove(*labels)
            for labels, value in lines.items():
                gauge.labels(*labels).set(value)
            self._shown[name] = lines


class MemberFigures:
    """Keeps the gauges while one leader lasts."""

    def __init__(self, caches: Caches, metrics: MemberMetrics, *, settings: FigureSettings = FigureSettings()) -> None:
        """No I/O happens here. Call it before the caches run."""
        self._settings = settings
        self._caches, self._metrics = caches, metrics
        #: cluster -> when its agent was heard of last, by this process's clock
        self._heard: dict[str, float] = {}
        caches.leases.on_change(self._lease_changed)

    def _lease_changed(self, old: LeaseObject | None, new: LeaseObject | None) -> None:
        if new is not None and (old is None or old.spec.renew_time != new.spec.renew_time):
            self._heard[keys.cluster_of(new.metadata.namespace)] = time.time()

    async def run(self) -> None:
        """Show what the caches say until cancelled."""
        try:
            while True:
                self._metrics.show(figures(self._caches, self._heard))
                await asyncio.sleep(self._settings.every)
        finally:
            # The figures are the next leader's to tell.
            self._metrics.show({})


def figures(caches: Caches, heard: Mapping[str, float]) -> dict[str, Lines]:
    """By the gauge's name. `heard`: cluster -> when its agent was heard of last."""
    found: dict[str, Lines] = {}
    for cluster in caches.clusters:
        name = cluster.metadata.name
        for gauge, labels, value in (*_of_status(cluster), *_of_work(caches, name)):
            found.setdefault(gauge, {})[name, *labels] = value
        if name in heard:
            found.setdefault("report", {})[(name,)] = heard[name]
    return found


def _of_status(cluster: ClusterObject) -> Iterator[tuple[str, tuple[str, ...], float]]:
    nodes, amounts = cluster.status.get("nodeSummary") or {}, cluster.status.get("resourceSummary") or {}
    yield "ready", (), float(cluster.ready.get("status") == "True")
    yield "nodes", (), float(nodes.get("totalNum") or 0)
    yield "ready_nodes", (), float(nodes.get("readyNum") or 0)
    for gauge in ("allocatable", "allocated"):
        for resource, amount in (amounts.get(gauge) or {}).items():
            yield gauge, (resource,), float(_parsed(amount))


def _of_work(caches: Caches, name: str) -> Iterator[tuple[str, tuple[str, ...], float]]:
    bindings = caches.bindings.by_index("cluster", name)
    there = [binding for binding in bindings if binding.ours and not binding.condition("Finished")]
    yield "dispatched", (), float(len(there))
    yield "running", (), float(sum(1 for binding in there if binding.condition("Running")))


def _parsed(amount: object) -> Fraction:
    try:
        return quantity.parse(str(amount))
    except quantity.QuantityError:
        return Fraction(0)
