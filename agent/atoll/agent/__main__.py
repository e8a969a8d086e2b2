"""The process `atoll-agent`: of one member's agents one leads and works, with credentials for the member and for its
execution namespace.

The lease is in the member, where the work is: whoever can't reach the member can't lead there, and an agent that can't
reach the host goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from prometheus_client import Gauge

from atoll.agent.facts import Facts
from atoll.agent.fence import Fence
from atoll.agent.heartbeat import Heartbeat
from atoll.agent.joining import ensure_joined
from atoll.agent.member import MemberAgent
from atoll.agent.push_credentials import host_connection, host_renewal, member_connection, secret_renewal
from atoll.agent.scheduler import device_claims
from atoll.agent.scheduler.core.log import LOG
from atoll.agent.settings import AgentSettings
from atoll.agent.tunnel import Tunnel
from atoll.delivery import Delivery
from atoll.kube import config, election, logs, process, token_renewal
from atoll.kube.config import Connection
from atoll.kube.declared import Declared
from atoll.kube.process import Process
from atoll.kube.recording import BestEffort, LogWriter
from atoll.kube.settings import load
from atoll.kube.transport import ApiServer
from atoll.model import keys, rights
from atoll.model.member import facts_annotation, figures_annotation, kind_feature

LEASE = "atoll-agent"
"""In namespace `atoll-system` of the member."""


async def setup(running: Process, settings: AgentSettings) -> None:
    """Connect to both clusters and add the agent's tasks."""
    agent_name = f"atoll-agent/{settings.cluster}"
    # None: the pod's service account.
    host_file = Path(settings.kubeconfig) if settings.kubeconfig else None
    member_file = Path(settings.member_kubeconfig) if settings.member_kubeconfig else None

    async def connected(connection: Connection, connections: int = 64) -> ApiServer:
        api = ApiServer(
            connection, user_agent=agent_name, connections=connections, rate=process.rate_limit(settings.api)
        )
        return await running.stack.enter_async_context(api)

    if settings.member_secret:
        host = await connected(await config.load(host_file))
        member = await connected(await member_connection(host, settings.cluster), 128)
    elif settings.host_secret:
        member = await connected(await config.load(member_file), 128)
        await ensure_joined(member, settings.cluster, settings.join)
        host = await connected(await host_connection(member, settings.cluster))
    else:
        host = await connected(await config.load(host_file))
        member = await connected(await config.load(member_file), 128)
    # Without the host such an agent can't even begin.
    fence = Fence(member, settings=settings.heartbeat) if not settings.member_secret else None
    elector = election.elector(
        member,
        LEASE,
        running.identity,
        settings.election,
        annotations=fence.annotations if fence is not None else lambda _: {},
    )
    # What this member's agents say on the host is the leader's to say as well.
    host.writes.guard = lambda: elector.certain
    renewals = {
        "host": host_renewal(member, host) if settings.host_secret else token_renewal.of_file(host, host_file),
        "member": secret_renewal(host, member, settings.cluster)
        if settings.member_secret
        else token_renewal.of_file(member, member_file),
    }
    facts = Facts(member, {name: each for name, each in renewals.items() if each is not None}, settings=settings.facts)
    token_renewal.show_expiry(
        running.metrics, {name: partial(getattr, each, "expires") for name, each in facts.renewals.items()}
    )
    for name, each in facts.renewals.items():
        running.add_task(f"token for the {name}", each.run())
    works: tuple[MemberAgent, Delivery] | None = None
    record = settings.record
    kept = LogWriter(Path(record), LOG, settings=settings.recording) if record else None
    recorder = running.stack.enter_context(kept) if kept is not None else None

    declared = Declared(host, member, rights.IN_MEMBER)

    async def lead() -> None:
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(declared.run())
            await declared.keep(serve)
            watching.cancel()

    async def serve() -> None:
        # Everything is read anew: what an earlier leader did is in the member.
        nonlocal works
        agent = MemberAgent(
            host,
            member,
            settings.cluster,
            settings,
            log=BestEffort(None if recorder is None or recorder.closed else recorder),
        )
        delivery = Delivery(
            host,
            member,
            settings.cluster,
            objects=agent.cache.workloads,
            placement=agent.placement,
            reservations=agent.reservations,
            placing=agent.made_for,
            pods=agent.pods,
            end_pods=agent.end_pods,
            ownership=agent.cache.owners,
            fenced=lambda: fence is not None and fence.closed,
            settings=settings.delivery,
        )
        agent.on_placement(delivery.touch)
        agent.jobs.statuses.just_sent = delivery.just_sent
        agent.surroundings.on_change(lambda _: delivery.look_again())
        reading = Tunnel(host, member, settings.cluster, agent.pods_of, agent.domain_of, settings=settings.tunnel)
        works = agent, delivery
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(agent.run(), name="agent")
                tasks.create_task(deliver(delivery), name="delivery")
                tasks.create_task(reading.run(), name="tunnel")
        finally:
            works = None

    async def deliver(delivery: Delivery) -> None:
        # A Work of a kind that was not heard of yet would be called unknown.
        await declared.settled()
        await delivery.run()

    def ready() -> bool:
        if not elector.leading.is_set():
            return elector.can_lead
        return works is not None and works[0].ready and works[1].synced

    wrong = Gauge(
        "atoll_topology_problems", "HyperNodes of the member that are wrong in part", registry=running.metrics
    )
    running.metrics.register(device_claims.OUTCOMES)
    wrong.set_function(lambda: len(works[0].scheduler.room.fleet.problems) if works is not None else 0)

    def unserved() -> dict[str, str]:
        lacking = ((kind_feature(kind.resource), declared.lacking(kind)) for kind in declared.all())
        return {feature: "; ".join(found) for feature, found in lacking if found}

    def notes() -> dict[str, str]:
        if works is None:
            return facts_annotation(facts.said())
        fenced = {keys.FENCE: f"{settings.heartbeat.fence:g}"} if fence is not None else {}
        said = facts.said(works[0].cache.served, unserved())
        return {**works[0].notes(), **facts_annotation(said), **fenced}

    heartbeat = Heartbeat(
        host,
        member,
        settings.cluster,
        running.identity,
        settings=settings.heartbeat,
        leads=elector.leading.is_set,
        notes=notes,
        figures=lambda: figures_annotation(works[0].tally.figures()) if works is not None and works[0].ready else {},
        contact=fence.contact if fence is not None else lambda _: None,
        asked=lambda text: works[0].ask_claims(text) if works is not None else None,
    )
    if fence is not None:
        running.add_task("fence", fence.run(lambda: elector.certain))
    running.add_task("facts", facts.run())
    running.ready_when(ready)
    running.add_task("heartbeat", heartbeat.run())
    running.add_task("election", elector.run(lead))


async def join_only(settings: AgentSettings) -> None:
    """Leave the credentials for the host in the member."""
    logs.configure(settings.log_level, process="agent", cluster=settings.cluster)
    async with await ApiServer.from_kubeconfig(
        settings.member_kubeconfig or None, user_agent=f"atoll-agent/{settings.cluster}"
    ) as member:
        await ensure_joined(member, settings.cluster, settings.join)
        await host_connection(member, settings.cluster)


def main(argv: Sequence[str] | None = None) -> None:
    """Console script `atoll-agent`."""
    settings = load(AgentSettings, "agent", "Runs and places the gangs of one member cluster.", argv)
    if settings.join.only:
        asyncio.run(join_only(settings))
        return
    process.run("agent", settings, lambda running: setup(running, settings), cluster=settings.cluster)


if __name__ == "__main__":
    main()
