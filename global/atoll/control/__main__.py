"""The process `atoll-control`: the host's controllers, one leader at work."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from prometheus_client import Gauge

from atoll.control.actions import Actions
from atoll.control.caches import Caches
from atoll.control.carried_objects import Dependencies
from atoll.control.certificates import Certificates
from atoll.control.claim_shapes import ClaimShapes
from atoll.control.clusters import Clusters
from atoll.control.commands import Commands
from atoll.control.detector import Detector
from atoll.control.figures import MemberFigures, MemberMetrics
from atoll.control.interception import Interception
from atoll.control.karmada.adoption import Adoption
from atoll.control.karmada.caches import Caches as KarmadaCaches
from atoll.control.karmada.progress import Progress
from atoll.control.karmada.summaries import Summaries
from atoll.control.makers.controller import Makers
from atoll.control.notifications import Notifications
from atoll.control.notifications import counter as notification_counter
from atoll.control.overrides import Overrides
from atoll.control.profiles import Profiles
from atoll.control.queues import Queues
from atoll.control.records import RecordMetrics, Records, Store
from atoll.control.rules import Rules
from atoll.control.settings import ControlSettings
from atoll.control.shards import Candidate
from atoll.control.status import Status
from atoll.control.suspend_switches import Holds
from atoll.control.ttl import Ttl
from atoll.control.unserved import Unserved
from atoll.control.workload_kinds import WorkloadKinds
from atoll.control.works import Works
from atoll.kube import process
from atoll.kube.declared import Declared
from atoll.kube.events import Recorder
from atoll.kube.settings import load
from atoll.model import rights
from atoll.model.shards import Shard


def main(argv: Sequence[str] | None = None) -> None:
    """Run until a signal or until leadership is lost for good."""
    settings = load(
        ControlSettings,
        "control",
        "Makes bindings of workloads, Works of decisions, and status of reports.",
        argv,
        epilog="example: atoll-control --kubeconfig atoll-control.kubeconfig --health-port 8082",
    )
    process.run("control", settings, lambda running: _setup(running, settings))


async def _setup(running: process.Process, settings: ControlSettings) -> None:
    host = await running.connect(settings)
    candidate = Candidate(host, running.identity, settings.election, settings.shards)
    Gauge("atoll_control_shards", "Shards of namespaces", registry=running.metrics).set(settings.shards)
    leads = Gauge("atoll_control_leads", "Whether this replica leads a shard: 1 or 0", registry=running.metrics)
    leads.set_function(lambda: float(candidate.leading))
    caches: Caches | KarmadaCaches | None = None
    metrics, record_metrics = MemberMetrics(running.metrics), RecordMetrics(running.metrics)
    notified = notification_counter(running.metrics)
    if settings.on == "karmada" and settings.records.store:
        raise SystemExit("--records: bindings of a Karmada have no runs to record; leave it out with --on karmada")
    if settings.on == "karmada" and settings.notifications.targets:
        raise SystemExit("--notifications: bindings of a Karmada have no runs; leave it out with --on karmada")
    if settings.on == "karmada" and settings.shards > 1:
        raise SystemExit("--shards: one leader follows all bindings of a Karmada; leave it out with --on karmada")
    store = _store(settings.records.store)

    declared = Declared(host, host, rights.ON_HOST)
    interception = Interception(host, declared)

    async def lead_on_karmada(_: Shard) -> None:
        nonlocal caches
        caches = KarmadaCaches(host)
        recorder = Recorder(host, "control")
        controllers = (
            Adoption(host, caches, recorder, settings=settings.detector),
            Progress(host, caches, settings=settings.status),
            Summaries(host, caches, settings=settings.karmada),
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(caches.run())
            group.create_task(recorder.run())
            await caches.wait()
            for controller in controllers:
                group.create_task(controller.run())

    async def lead(shard: Shard) -> None:
        async with asyncio.TaskGroup() as group:
            watching = [group.create_task(declared.run())]
            if shard.number == 0:
                watching.append(group.create_task(interception.run()))
            await declared.keep(partial(control, shard))
            for each in watching:
                each.cancel()

    async def control(shard: Shard) -> None:
        nonlocal caches
        caches = Caches(host, shard)
        recorder = Recorder(host, "control")
        actions = Actions(host, caches)
        detector = Detector(host, caches, recorder, settings=settings)
        dependencies = Dependencies(host, caches, recorder, settings=settings.dependencies)
        rules = Rules(caches, recorder, settings=settings.rules)
        overrides = Overrides(host, caches, recorder)
        records = Records(host, caches, record_metrics, store, settings=settings.records)
        notifications = Notifications(caches, recorder, notified, settings=settings.notifications)
        works = Works(host, caches, rules, dependencies, overrides, records, settings=settings.works)
        status = Status(
            host,
            caches,
            recorder,
            overrides,
            records,
            notifications,
            starts=(detector.queue, works.queue),
            settings=settings.status,
        )
        controllers: list[Any] = [
            dependencies, overrides, detector, works, status, actions, Holds(host, caches, settings=settings.holds),
            Ttl(host, caches, settings=settings.finished), Commands(host, caches, recorder),
            Makers(host, caches, recorder, settings=settings.makers), records, notifications,
        ]  # fmt: skip
        if shard.number == 0:
            # Of all namespaces, or of none.
            controllers += [
                Clusters(host, caches, recorder, settings=settings.clusters),
                Queues(host, caches),
                Unserved(host, caches, recorder, settings=settings.unserved),
                MemberFigures(caches, metrics, settings=settings.figures),
                WorkloadKinds(host, caches, declared, interception, recorder, settings=settings.workload_kinds),
                Profiles(host, caches, settings=settings.profiles),
                Certificates(host, caches),
                ClaimShapes(host, caches),
            ]
        async with asyncio.TaskGroup() as group:
            group.create_task(caches.run())
            group.create_task(recorder.run())
            await caches.wait()
            for controller in controllers:
                group.create_task(controller.run())

    def ready() -> bool:
        return caches is not None and caches.synced if candidate.leading else candidate.can_lead

    running.ready_when(ready)
    running.add_task("election", candidate.run(lead_on_karmada if settings.on == "karmada" else lead))


def _store(url: str) -> Store | None:
    """The store of records; None without one.

    Raises:
        SystemExit: a package that it needs is not installed.
    """
    if not url:
        return None
    try:
        # Only this process needs these packages, and only with a store.
        from atoll.control.ledger import Ledger

        return Ledger(url)
    except (ImportError, ValueError) as error:
        raise SystemExit(
            f"--records {url}: {error}; install atoll[records] and the package of that file system"
        ) from error


if __name__ == "__main__":
    main()
