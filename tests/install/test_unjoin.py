"""Members that leave: with work in them, in force, when they can't be reached, and back again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from atoll import install
from atoll.agent import heartbeat
from atoll.agent.settings import HeartbeatSettings
from atoll.kube.errors import NotFound
from atoll.kube.transport import ApiServer
from atoll.local.atoll_federation import AtollFederation
from atoll.local.layout import default_config
from atoll.model import keys
from atoll.model.apiresource import (
    BINDINGS,
    CLUSTER_ROLES,
    CLUSTERS,
    CRDS,
    JOBS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    SERVICE_ACCOUNTS,
    WORKS,
)
from atoll.model.conditions import condition
from atoll.model.timestamps import to_seconds
from tests.integration.federation import DEADLINE, job, until

Json = dict[str, Any]

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.integration]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AtollFederation]:
    async with AtollFederation(default_config(2, 1), tmp_path_factory.mktemp("federation")) as federation:
        yield federation


@pytest_asyncio.fixture(loop_scope="module")
async def host(fed: AtollFederation) -> AsyncIterator[ApiServer]:
    async with await fed.host.connect() as api:
        yield api


async def submit(host: ApiServer, name: str) -> None:
    made = job(name, cpu="1", seconds=None)
    await host.create(JOBS, {**made, "metadata": {"name": name, "namespace": "default"}})


async def runs_in(host: ApiServer, name: str, *, deadline: float = DEADLINE) -> str:
    async def look() -> str | None:
        found = await host.get(JOBS, name, "default")
        binding = await host.get(BINDINGS, f"{name}-job", "default") if found.get("status") else {}
        clusters = (binding.get("spec") or {}).get("clusters") or []
        running = (found.get("status") or {}).get("running") == 1
        return str(clusters[0]["name"]) if clusters and running else None

    return await until(look, what=f"job {name} runs", deadline=deadline)


async def leave(
    fed: AtollFederation, name: str, *, reach: bool = True, **options: Any
) -> tuple[install.Left, list[str]]:
    said: list[str] = []
    async with await fed.host.connect() as host, await fed.members[name].connect() as api:
        left = await install.unjoin(
            host, api if reach else None, name, credentials=fed.atoll.credentials, progress=said.append, **options
        )
    return left, said


async def join_again(fed: AtollFederation, name: str) -> None:
    async with await fed.host.connect() as host, await fed.members[name].connect() as api:
        await install.join(
            host,
            api,
            name,
            host_at=await install.endpoint(fed.host.kubeconfig),
            member_at=await install.endpoint(fed.members[name].kubeconfig),
            out=fed.atoll.credentials,
        )
    agent = fed.process(f"agent-{name}")
    await agent.stop()
    await agent.start()
    await agent.ready()


async def tainted(fed: AtollFederation, name: str) -> set[str]:
    """Nodes of the member that only Atoll's pods may use."""
    async with await fed.members[name].connect() as api:
        nodes = await api.list(NODES)
    return {
        node["metadata"]["name"]
        for node in nodes
        if any(taint["key"] == keys.NODES for taint in node["spec"].get("taints") or ())
    }


async def gone(api: ApiServer, resource: Any, name: str, namespace: str | None = None) -> bool:
    try:
        await api.get(resource, name, namespace)
    except NotFound:
        return True
    return False


async def test_members_that_joined_are_ready_once_their_agents_were_heard(host: ApiServer) -> None:
    """And not with the next sign of life only."""
    period = HeartbeatSettings().period
    for cluster in await host.list(CLUSTERS):
        name = cluster["metadata"]["name"]
        heard = (await host.get(LEASES, heartbeat.NAME, keys.execution_namespace(name)))["metadata"][
            "creationTimestamp"
        ]
        since = (condition(cluster, "Ready") or {})["lastTransitionTime"]
        assert to_seconds(since) - to_seconds(heard) < period - 2, name


async def test_a_member_with_work_is_refused_and_serves_on(fed: AtollFederation, host: ApiServer) -> None:
    await submit(host, "first")
    member = await runs_in(host, "first")
    with pytest.raises(install.Refused, match=r"1 workloads are dispatched to .*default/first.*--force"):
        await leave(fed, member)
    cluster = await host.get(CLUSTERS, member)
    assert cluster["spec"].get("taints", []) == []
    assert await runs_in(host, "first") == member


async def test_in_force_its_work_goes_elsewhere_and_nothing_of_it_is_left(
    fed: AtollFederation, host: ApiServer
) -> None:
    member = await runs_in(host, "first")
    assert await tainted(fed, member), "its nodes are Atoll's"
    left, said = await leave(fed, member, force=True)
    assert await tainted(fed, member) == set(), "its nodes are open to others again"
    assert left.may_run == ()
    assert "host: default/first goes back to its queue" in said
    other = await runs_in(host, "first")
    assert other != member
    assert await gone(host, CLUSTERS, member)
    assert await gone(host, NAMESPACES, f"karmada-es-{member}")
    assert not any(path.exists() for path in install.agent_kubeconfigs(fed.atoll.credentials, member))
    async with await fed.members[member].connect() as api:
        assert await gone(api, CLUSTER_ROLES, install.AGENT)
        assert await gone(api, SERVICE_ACCOUNTS, install.AGENT, "atoll-system")
        assert not await gone(api, CRDS, "jobs.batch.volcano.sh")
        assert await api.list(PODS, "default") == []
    with pytest.raises(install.Refused, match=f"there is no member {member}; members: {other}"):
        await leave(fed, member)
    await join_again(fed, member)
    await host.delete(JOBS, "first", "default")


async def test_a_member_whose_agent_is_silent_is_let_go_and_what_may_run_is_named(
    fed: AtollFederation, host: ApiServer
) -> None:
    await submit(host, "lost")
    member = await runs_in(host, "lost")
    await fed.process(f"agent-{member}").stop()
    # The lease is younger than its duration: say what a longer silence says.
    await host.merge_patch(
        LEASES, install.AGENT, {"spec": {"renewTime": "2020-01-01T00:00:00.000000Z"}}, f"karmada-es-{member}"
    )
    left, said = await leave(fed, member, reach=False, force=True)
    assert left.may_run == ("default/lost",)
    assert any("does not answer" in line for line in said)
    assert await gone(host, NAMESPACES, f"karmada-es-{member}")
    assert await runs_in(host, "lost") != member
    async with await fed.members[member].connect() as api:
        assert len(await api.list(PODS, "default")) == 1


async def test_purge_removes_what_the_installation_brought(fed: AtollFederation, host: ApiServer) -> None:
    [member] = [each["metadata"]["name"] for each in await host.list(CLUSTERS)]
    await host.delete(JOBS, "lost", "default")

    async def no_work() -> bool:
        return not await host.list(WORKS)

    await until(no_work, what="the last Work is gone")
    _, said = await leave(fed, member, purge=True)
    assert any("CRDs with their objects" in line for line in said)

    async with await fed.members[member].connect() as api:

        async def clean() -> bool:
            there = {crd["metadata"]["name"] for crd in await api.list(CRDS)}
            ours = {crd["metadata"]["name"] for crd in install.member_crds()}
            return not there & ours and await gone(api, NAMESPACES, "atoll-system")

        await until(clean, what="the member is clean")
