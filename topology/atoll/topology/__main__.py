"""The process `atoll-topology`: one for each cluster with HyperNodes, with or without the rest of Atoll."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from atoll.kube import process
from atoll.kube.process import Process
from atoll.kube.settings import load
from atoll.kube.transport import ApiServer
from atoll.topology.operator import Admission, Operator, Rules, run_kopf
from atoll.topology.periodic import Periodic
from atoll.topology.settings import TopologySettings, slot_of


async def setup(running: Process, settings: TopologySettings) -> None:
    """Connect, and add the operator's tasks."""
    # None: the pod's service account.
    kubeconfig = Path(settings.kubeconfig) if settings.kubeconfig else None
    api = await running.stack.enter_async_context(
        await ApiServer.from_kubeconfig(kubeconfig, user_agent="atoll-topology", rate=process.rate_limit(settings.api))
    )
    rules = Rules(slot_of(settings.slot), settings.lost_share, settings.recovery, settings.counts)
    operator = Operator(api, rules, running.metrics)
    running.ready_when(lambda: operator.ready)
    running.add_task("status", operator.run())
    if settings.discovery.sources:
        periodic = Periodic(
            api,
            Path(settings.discovery.sources),
            every=settings.discovery.every,
            seen=operator.watched.nodes.synced,
            nodes=operator.watched.labels,
            metrics=running.metrics,
        )
        running.add_task("discovery", periodic.run())
    about = settings.admission
    admission = Admission(about.address, about.port, about.service) if about.port else None
    running.add_task("kopf", run_kopf(operator, running.stopping, kubeconfig, admission))


def main(argv: Sequence[str] | None = None) -> None:
    """Console script `atoll-topology`."""
    settings = load(TopologySettings, "topology", "Looks after the HyperNodes of one cluster.", argv)
    process.run("topology", settings, lambda running: setup(running, settings))


if __name__ == "__main__":
    main()
