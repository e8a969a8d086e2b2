"""The process `atoll-agent`: of one member's agents one leads and works, with credentials for the member and for its
execution namespace.

The lease is in the member, where the work is: whoever can't reach the member can't lead there, and an agent that can't
reach the host goes on.
"""

from __future__ import annotations

import argparse
import asyncio
from functools import partial
from pathlib import Path

from prometheus_client import Gauge

from atoll.agent.credentials import member_connection, secret_renewal
from atoll.agent.facts import Facts
from atoll.agent.heartbeat import Heartbeat
from atoll.agent.member import MemberAgent
from atoll.agent.scheduler.core.log import LOG
from atoll.delivery import Delivery
from atoll.kube import config, election, process, tokens
from atoll.kube.process import Process
from atoll.kube.recording import BestEffort, Recorder
from atoll.kube.transport import ApiServer
from atoll.model.member import facts_annotation, figures_annotation

LEASE = "atoll-agent"
"""In namespace `atoll-system` of the member."""


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
    elector = election.elector(member, LEASE, running.identity, options)
    # What this member's agents say on the host is the leader's to say as well.
    host.writes.guard = lambda: elector.certain
    renewals = {
        "host": tokens.of_file(host, options.kubeconfig),
        "member": secret_renewal(host, member, options.cluster)
        if options.member_secret
        else tokens.of_file(member, options.member_kubeconfig),
    }
    facts = Facts(member, {name: each for name, each in renewals.items() if each is not None})
    expiry = Gauge(
        "atoll_token_expiry_timestamp_seconds",
        "When the token for this cluster expires; 0 where there is none that does",
        ["cluster"],
        registry=running.metrics,
    )
    for name, each in facts.renewals.items():
        expiry.labels(name).set_function(partial(getattr, each, "expires"))
        running.add_task(f"token for the {name}", each.run())
    works: tuple[MemberAgent, Delivery] | None = None
    recorder = running.stack.enter_context(Recorder(options.record, LOG)) if options.record else None

    async def lead() -> None:
        # Everything is read anew: what an earlier leader did is in the member.
        nonlocal works
        agent = MemberAgent(
            host,
            member,
            options.cluster,
            jobs={"on": True, "off": False, "auto": None}[options.jobs],
            log=BestEffort(None if recorder is None or recorder.closed else recorder),
        )
        delivery = Delivery(
            host,
            member,
            options.cluster,
            objects=agent.cache.workloads,
            placement=agent.placement,
            reservations=agent.reservations,
            placing=agent.made_for,
            pods=agent.pods,
            end_pods=agent.end_pods,
        )
        agent.on_placement(delivery.touch)
        agent.surroundings.on_change(lambda _: delivery.look_again())
        works = agent, delivery
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(agent.run(), name="agent")
                tasks.create_task(delivery.run(), name="delivery")
        finally:
            works = None

    def ready() -> bool:
        if not elector.leading.is_set():
            return elector.can_lead
        return works is not None and works[0].ready and works[1].synced

    wrong = Gauge(
        "atoll_topology_problems", "HyperNodes of the member that are wrong in part", registry=running.metrics
    )
    wrong.set_function(lambda: len(works[0].scheduler.room.topology_problems) if works is not None else 0)
    heartbeat = Heartbeat(
        host,
        member,
        options.cluster,
        running.identity,
        leads=elector.leading.is_set,
        notes=lambda: {**(works[0].notes() if works is not None else {}), **facts_annotation(facts.said())},
        figures=lambda: figures_annotation(works[0].tally.figures()) if works is not None and works[0].ready else {},
    )
    running.add_task("facts", facts.run())
    running.ready_when(ready)
    running.add_task("heartbeat", heartbeat.run())
    running.add_task("election", elector.run(lead))


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
    parser.add_argument(
        "--record",
        type=Path,
        help="append all that the scheduler is told and decides to this file (see atoll.sim.replay)",
    )
    election.arguments(parser)
    options = parser.parse_args()
    process.run("agent", options, lambda running: setup(running, options), cluster=options.cluster)


if __name__ == "__main__":
    main()
