"""A member that lies about itself, with its agent's own rights on the host: it loses its own room and nobody else's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from atoll import install
from atoll.cli.clusters import gather
from atoll.install import quota
from atoll.install.credentials import ensure_account, ensure_namespace
from atoll.install.rights import remove_rights
from atoll.install.roles import agent_on_host
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import (
    CAPACITIES,
    CLUSTERS,
    LEASES,
    NAMESPACES,
    POLICIES,
    RESOURCE_QUOTAS,
    WORKS,
    ApiResource,
)
from atoll.model.timestamps import rfc3339_micro
from atoll.view.clusters import text
from tests.integration.federation import Json, Site, job, until

pytestmark = pytest.mark.integration

NAME, OWN = "liar", "karmada-es-liar"
USER_AGENT = "test-trust"
"""The test of roles passes over what is asked under this name."""


def head(resource: ApiResource, name: str, namespace: str | None = None) -> Json:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}


def capacity(name: str = "nodes", *, generation: int = 1, cpu: int = 64_000, **spec: Any) -> Json:
    """A claim of four nodes."""
    classes = [{"domain": "", "profile": 0, "nodes": 4, "free": {"cpu": cpu, "memory": 2**38, "pods": 100}}]
    said = {"cluster": NAME, "generation": generation, "root": "", "objects": 1, "profiles": [{}], "classes": classes}
    return {**head(CAPACITIES, name, OWN), "spec": {**said, "total": {"cpu": 4 * cpu}, **spec}}


@asynccontextmanager
async def liar(site: Site, directory: Path) -> AsyncIterator[ApiServer]:
    """A member that is nothing but its agent's account on the host; only what tolerates its taint goes there."""
    host = site.host
    await ensure_namespace(host, OWN)
    await ensure_account(host, install.AGENT, OWN)
    await quota.ensure_quota(host, OWN)
    await install.ensure_rights(host, f"{install.AGENT}-{NAME}", (OWN, install.AGENT), agent_on_host(NAME))
    token, _ = await install.issue_token(host, install.AGENT, OWN)
    at = await install.endpoint(site.federation.host.kubeconfig)
    install.write_kubeconfig(directory / "liar", at, install.AGENT, token, namespace=OWN)
    taint = {"key": NAME, "effect": "NoSchedule"}
    await host.create(CLUSTERS, {**head(CLUSTERS, NAME), "spec": {"syncMode": "Pull", "taints": [taint]}})
    kinds = [{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}]
    placement = {
        "clusterAffinity": {"clusterNames": [NAME]},
        "clusterTolerations": [{"key": NAME, "operator": "Exists"}],
    }
    policy = {"resourceSelectors": kinds, "placement": placement}
    await host.create(POLICIES, {**head(POLICIES, "to-the-liar", site.namespace), "spec": policy})
    try:
        async with await ApiServer.from_kubeconfig(directory / "liar", user_agent=USER_AGENT) as agent:
            tasks = [asyncio.create_task(live(agent))]
            try:
                await until(lambda: said(site, "Ready", "True"), what="the liar is ready")
                yield agent
            finally:
                tasks.append(asyncio.create_task(let_go(agent)))
                await site.no_jobs()
                for task in tasks:
                    task.cancel()
    finally:
        await host.delete(CLUSTERS, NAME)
        await remove_rights(host, f"{install.AGENT}-{NAME}", agent_on_host(NAME))
        await host.delete(NAMESPACES, OWN)
        await until(lambda: gone(site), what="the liar's namespace is gone")


async def gone(site: Site) -> bool:
    with suppress(errors.NotFound):
        await site.host.get(NAMESPACES, OWN)
        return False
    return True


async def live(agent: ApiServer) -> None:
    while True:
        spec = {"holderIdentity": NAME, "leaseDurationSeconds": 2**31 - 1, "renewTime": rfc3339_micro(time.time())}
        await agent.apply(LEASES, {**head(LEASES, install.AGENT, OWN), "spec": spec}, field_manager="liar")
        await asyncio.sleep(5)


async def let_go(agent: ApiServer) -> None:
    """Confirm removals, at last."""
    while True:
        for work in await agent.list(WORKS, OWN):
            if work["metadata"].get("deletionTimestamp"):
                with suppress(errors.NotFound):
                    await agent.merge_patch(WORKS, work["metadata"]["name"], {"metadata": {"finalizers": None}}, OWN)
        await asyncio.sleep(0.2)


async def said(site: Site, type_: str, status: str) -> Json | None:
    """A condition of the liar's Cluster, once it has this status."""
    cluster = await site.host.get(CLUSTERS, NAME)
    found = (each for each in cluster.get("status", {}).get("conditions", ()) if each["type"] == type_)
    return next((each for each in found if each["status"] == status), None)


async def described(site: Site) -> str:
    members = await gather(site.host)
    return text(next(each for each in members if each["name"] == NAME), time.time())


async def test_what_it_publishes_that_can_t_be_so_is_said_on_its_cluster(site: Site, tmp_path: Path) -> None:
    """1. One good object, one of nodes in a domain that there is not. 2. The condition names it. 3. It is mended."""
    async with liar(site, tmp_path) as agent:
        await agent.create(CAPACITIES, capacity())
        classes = [{"domain": "nowhere", "profile": 0, "nodes": 1, "free": {"cpu": 1}}]
        await agent.create(CAPACITIES, capacity("rubbish", root="x", classes=classes))
        found = await until(lambda: said(site, "CapacityAccepted", "False"), what="the Cluster says so")
        assert "ClusterCapacity rubbish is not used: spec.classes[0].domain: nowhere" in found["message"]
        assert found["message"] in await described(site)
        await agent.delete(CAPACITIES, "rubbish", OWN)
        await until(lambda: said(site, "CapacityAccepted", "True"), what="it is mended")


async def test_the_number_of_objects_that_it_makes_is_bounded(site: Site, tmp_path: Path) -> None:
    """The bound is a quota like any other; here it is a smaller one."""
    async with liar(site, tmp_path) as agent:
        less = {"count/clustercapacities.atoll.sh": "2"}
        await site.host.merge_patch(RESOURCE_QUOTAS, quota.NAME, {"spec": {"hard": less}}, OWN)

        async def counted() -> bool:
            found = await site.host.get(RESOURCE_QUOTAS, quota.NAME, OWN)
            return bool(found["status"]["hard"] == less)

        await until(counted, what="the quota is in force")
        for number in range(2):
            await agent.create(CAPACITIES, capacity(f"nodes-{number}", root=f"r{number}"))
        with pytest.raises(errors.Forbidden, match="exceeded quota"):
            await agent.create(CAPACITIES, capacity("one-too-many"))
        without_nodes = capacity(classes=[{"domain": "", "profile": 0, "nodes": 0, "free": {}}])
        with pytest.raises(errors.Invalid, match="nodes"):
            await agent.create(CAPACITIES, without_nodes)


async def test_no_more_of_it_is_used_than_its_ceiling_whatever_it_claims(site: Site, tmp_path: Path) -> None:
    async with liar(site, tmp_path) as agent:
        await agent.create(CAPACITIES, capacity())
        note = {"metadata": {"annotations": {keys.CEILING: "cpu=3"}}}
        await site.host.merge_patch(CLUSTERS, NAME, note)
        await site.submit(job("fits", cpu="2", seconds=None))
        assert await site.where("fits") == NAME
        await site.submit(job("beyond", cpu="2", seconds=None))
        decision = await site.reason("beyond", "QuotaExceeded")
        assert (decision["blocker"]["kind"], decision["blocker"]["name"]) == ("Cluster", NAME)
        note["metadata"]["annotations"][keys.CEILING] = "as much as you like"
        await site.host.merge_patch(CLUSTERS, NAME, note)
        found = await until(lambda: said(site, "CeilingValid", "False"), what="the Cluster says so")
        assert "write resource=quantity" in found["message"]


@pytest.mark.long
async def test_one_that_binds_nothing_gets_no_more_after_three_workloads(site: Site, tmp_path: Path) -> None:
    """1. It claims four nodes, other figures twice a second, and binds nothing. 2. Three workloads are taken back, and
    its Cluster, the next one's reason and `cluster describe` say why. 3. An administrator says that it is mended.
    """
    async with liar(site, tmp_path) as agent:
        await agent.create(CAPACITIES, capacity())

        async def lie() -> None:
            for generation in range(2, 10_000):
                spec = capacity(generation=generation, cpu=64_000 + generation)["spec"]
                await agent.merge_patch(CAPACITIES, "nodes", {"spec": spec}, OWN)
                await asyncio.sleep(0.5)

        lies = asyncio.create_task(lie())
        try:
            for number in range(3):
                await site.submit(job(f"lost-{number}", cpu=f"{1 + number}", seconds=None))
                assert await site.where(f"lost-{number}") == NAME
            found = await until(lambda: said(site, "TakesWork", "False"), deadline=120, what="the breaker opens")
            assert found["reason"] == "NotBoundInTime"
            await site.submit(job("next", cpu="5", seconds=None))
            decision = await site.reason("next", "MemberFailing")
            assert decision["blocker"]["name"] == NAME
            assert "TakesWork: no" in await described(site)
            for taints in ([{"key": keys.CORDONED, "effect": "NoSchedule"}], []):
                spec = {"taints": [{"key": NAME, "effect": "NoSchedule"}, *taints]}
                await site.host.merge_patch(CLUSTERS, NAME, {"spec": spec})
            await until(lambda: said(site, "TakesWork", "True"), what="it is closed by hand")
        finally:
            lies.cancel()
