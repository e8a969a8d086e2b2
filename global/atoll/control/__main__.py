"""The process `atoll-control`: the host's controllers, one leader at work."""

from __future__ import annotations

import argparse
import asyncio

from atoll.control.actions import Actions
from atoll.control.caches import Caches
from atoll.control.clusters import Clusters
from atoll.control.commands import Commands
from atoll.control.detector import Detector
from atoll.control.figures import MemberFigures, MemberMetrics
from atoll.control.holds import Holds
from atoll.control.queues import Queues
from atoll.control.status import Status
from atoll.control.ttl import Ttl
from atoll.control.unserved import Unserved
from atoll.control.works import Works
from atoll.kube import election, process
from atoll.kube.events import Recorder
from atoll.kube.transport import ApiServer


def main() -> None:
    """Run until a signal or until leadership is lost for good."""
    parser = process.arguments("control", "Makes bindings of workloads, Works of decisions, and status of reports.")
    election.arguments(parser)
    parser.epilog = "example: atoll-control --kubeconfig atoll-control.kubeconfig --health-port 8082"
    options = parser.parse_args()
    process.run("control", options, lambda running: _setup(running, options))


async def _setup(running: process.Process, options: argparse.Namespace) -> None:
    host = await ApiServer.from_kubeconfig(
        options.kubeconfig, user_agent="atoll-control", rate=process.rate_limit(options)
    )
    running.stack.push_async_callback(host.close)
    elector = election.elector(host, "atoll-control", running.identity, options)
    caches: Caches | None = None
    metrics = MemberMetrics(running.metrics)

    async def lead() -> None:
        nonlocal caches
        caches = Caches(host)
        recorder = Recorder(host, "control")
        actions = Actions(host, caches)
        detector, status = Detector(host, caches, recorder), Status(host, caches, recorder)
        works = Works(host, caches)
        clusters, queues, holds = Clusters(host, caches, recorder), Queues(host, caches), Holds(host, caches)
        ttl, commands = Ttl(host, caches), Commands(host, caches, recorder)
        unserved, figures = Unserved(host, caches, recorder), MemberFigures(caches, metrics)
        async with asyncio.TaskGroup() as group:
            group.create_task(caches.run())
            group.create_task(recorder.run())
            await caches.wait()
            for controller in (
                detector, works, status, actions, holds, clusters, queues, ttl, commands, unserved, figures,
            ):  # fmt: skip
                group.create_task(controller.run())

    def ready() -> bool:
        return caches is not None and caches.synced if elector.leading.is_set() else elector.can_lead

    running.ready_when(ready)
    running.add_task("election", elector.run(lead))


if __name__ == "__main__":
    main()
