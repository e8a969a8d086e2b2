"""The process `atoll-agent`: one per member, with credentials for it and for its execution namespace."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

import structlog
from prometheus_client import Gauge

from atoll.agent.credentials import member_connection
from atoll.agent.member import MemberAgent
from atoll.delivery import Delivery
from atoll.kube import config, errors, process
from atoll.kube.process import Process
from atoll.kube.transport import ApiServer
from atoll.model.apiresource import ApiResource

AGAIN = 1.0
"""Seconds until a question that the member refused is asked again."""
_DEPLOYMENTS = ApiResource("apps", "v1", "deployments", "Deployment")

log = structlog.get_logger(__name__)


async def runs_volcano(member: ApiServer) -> bool:
    """Whether Volcano's own job controller is in the member: two of them would fight over every Job.

    Asks until there is an answer: an API server that has just come back refuses everybody for a moment.
    """
    while True:
        try:
            await member.get(_DEPLOYMENTS, "volcano-controllers", "volcano-system")
        except errors.NotFound:
            return False
        except errors.ApiError as error:
            log.warning("can't tell whether Volcano runs in the member, will ask again", error=str(error))
            await asyncio.sleep(AGAIN)
        else:
            return True


async def setup(running: Process, options: argparse.Namespace) -> None:
    """Connect to both clusters and add the agent's tasks."""
    agent_name = f"atoll-agent/{options.cluster}"
    host = await running.stack.enter_async_context(
        await ApiServer.from_kubeconfig(options.kubeconfig, user_agent=agent_name, rate=process.rate_limit(options))
    )
    if options.member_secret:
        to_member = await member_connection(host, options.cluster)
    else:
        to_member = await config.load(options.member_kubeconfig)
    member = await running.stack.enter_async_context(
        ApiServer(to_member, user_agent=agent_name, connections=128, rate=process.rate_limit(options))
    )
    jobs = options.jobs == "on" or (options.jobs == "auto" and not await runs_volcano(member))
    if not jobs:
        log.info("Volcano Jobs are left to another controller", flag=options.jobs)
    agent = MemberAgent(host, member, options.cluster, identity=running.identity, jobs=jobs)
    wrong = Gauge(
        "atoll_topology_problems", "HyperNodes of the member that are wrong in part", registry=running.metrics
    )
    wrong.set_function(lambda: len(agent.scheduler.room.topology_problems))
    delivery = Delivery(
        host,
        member,
        options.cluster,
        objects=agent.cache.workloads,
        placement=agent.placement,
        reservations=agent.reservations,
    )
    agent.on_placement(delivery.touch)
    running.ready_when(lambda: agent.ready and delivery.synced)
    running.add_task("agent", agent.run())
    running.add_task("delivery", delivery.run())


def main() -> None:
    """Console script `atoll-agent`."""
    parser = process.arguments("agent", "Runs and places the gangs of one member cluster.")
    parser.add_argument("--cluster", required=True, help="name of the member's Cluster object on the host")
    to_member = parser.add_mutually_exclusive_group()
    to_member.add_argument(
        "--member-kubeconfig",
        type=Path,
        help="credentials for the member (default: the pod's service account)",
    )
    to_member.add_argument(
        "--member-secret",
        action="store_true",
        help="credentials for the member are in the Secret on the host that spec.secretRef of its Cluster names",
    )
    parser.add_argument(
        "--jobs",
        choices=["auto", "on", "off"],
        default="auto",
        help="reconcile Volcano Jobs; auto: unless Volcano's controllers run in the member",
    )
    options = parser.parse_args()
    process.run("agent", options, lambda running: setup(running, options), cluster=options.cluster)


if __name__ == "__main__":
    main()
