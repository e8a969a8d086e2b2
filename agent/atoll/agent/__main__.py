"""The process `atoll-agent`: one per member, with credentials for it and for its execution namespace."""

from __future__ import annotations

import argparse
from pathlib import Path

from prometheus_client import Gauge

from atoll.agent.credentials import member_connection
from atoll.agent.member import MemberAgent
from atoll.delivery import Delivery
from atoll.kube import config, process
from atoll.kube.process import Process
from atoll.kube.transport import ApiServer


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
    jobs = {"on": True, "off": False, "auto": None}[options.jobs]
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
        placing=agent.made_for,
        pods=agent.pods,
    )
    agent.on_placement(delivery.touch)
    agent.surroundings.on_change(lambda _: delivery.look_again())
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
