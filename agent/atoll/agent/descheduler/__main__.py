"""The process `atoll-descheduler`: one leader per cluster, with or without the rest of Atoll."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from atoll.agent.colocation import loop as colocation
from atoll.agent.descheduler.cluster import Cluster
from atoll.agent.descheduler.looks import Looks, Metrics
from atoll.agent.descheduler.settings import DeschedulerSettings
from atoll.kube import election, process
from atoll.kube.events import Recorder
from atoll.kube.process import Process
from atoll.kube.settings import load
from atoll.kube.transport import ApiServer

LEASE = "atoll-descheduler"
"""In namespace `atoll-system` of the cluster."""


async def setup(running: Process, settings: DeschedulerSettings) -> None:
    """Connect, and add the tasks."""
    # None: the pod's service account.
    kubeconfig = Path(settings.kubeconfig) if settings.kubeconfig else None
    api = await running.stack.enter_async_context(
        await ApiServer.from_kubeconfig(
            kubeconfig, user_agent="atoll-descheduler", rate=process.rate_limit(settings.api)
        )
    )
    elector = election.elector(api, LEASE, running.identity, settings.election)
    metrics = Metrics(running.metrics)
    offline = colocation.Metrics(running.metrics) if settings.colocation.mode != "off" else None
    working: Cluster | None = None

    async def lead() -> None:
        # Everything is read anew. Pauses of an earlier leader are forgotten; looks in a row are counted again.
        nonlocal working
        working = Cluster(api, settings.policy)
        recorder = Recorder(api, "descheduler")
        looks = Looks(api, working, settings, recorder=recorder, metrics=metrics)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(working.run(), name="cluster")
                tasks.create_task(recorder.run(), name="events")
                tasks.create_task(looks.run(), name="looks")
                if offline is not None:
                    reclaiming = colocation.Loop(api, working, settings, recorder=recorder, metrics=offline)
                    tasks.create_task(reclaiming.run(), name="colocation")
        finally:
            working = None

    def ready() -> bool:
        return working.synced if working is not None else elector.can_lead and not elector.leading.is_set()

    running.ready_when(ready)
    running.add_task("election", elector.run(lead))


def main(argv: Sequence[str] | None = None) -> None:
    """Console script `atoll-descheduler`."""
    settings = load(
        DeschedulerSettings,
        "descheduler",
        "Moves pods from nodes with much use to nodes with little, by a DeschedulerPolicy.",
        argv,
        epilog="Example: atoll-descheduler --policy=volcano-system/volcano-descheduler --set dryRun=true",
    )
    process.run("descheduler", settings, lambda running: setup(running, settings))


if __name__ == "__main__":
    main()
