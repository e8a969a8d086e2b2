"""A federation unlike the others: a host and a member of the oldest supported Kubernetes beside a new one, all of it on
IPv6, and two agents for each member.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Literal

import pytest
import pytest_asyncio

from atoll.install import versions
from atoll.kube.transport import ApiServer
from atoll.local import audit
from atoll.local.atoll_federation import QUICK_ELECTION, AtollFederation
from atoll.local.keeper import KeptProcess
from atoll.local.layout import FederationConfig, Kubernetes
from atoll.model import keys
from atoll.model.apiresource import BATCH_JOBS, CLUSTERS, LEASES, NAMESPACES, VERDICTS
from atoll.model.member import AgentFacts, facts_annotation
from atoll.model.timestamps import rfc3339_micro
from tests.integration.federation import Json, Site, batch_job, job, member, until

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

OLDEST = Kubernetes(version=f"{versions.OLDEST[0]}.{versions.OLDEST[1]}")
"""Emulated: what API servers of that version have and do."""
LEASE = 5.0
"""Seconds, as in QUICK_ELECTION."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def skewed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AtollFederation]:
    """An old host with an old and a new member, each with two agents."""
    address: Literal["127.0.0.1", "::1"] = "::1" if socket.has_dualstack_ipv6() else "127.0.0.1"
    members = [member("old", 1).model_copy(update={"kubernetes": OLDEST}), member("new", 1)]
    config = FederationConfig(members=members, host=OLDEST, address=address)
    quick = {"control": QUICK_ELECTION, "dispatcher": QUICK_ELECTION, "agent": QUICK_ELECTION}
    directory = tmp_path_factory.mktemp("skewed")
    async with AtollFederation(config, directory, flags=quick, replicas={"agent": 2}) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def old_site(skewed: AtollFederation) -> AsyncIterator[Site]:
    host = await skewed.host.connect()
    members: dict[str, ApiServer] = {name: await each.connect() for name, each in skewed.members.items()}
    made = Site(skewed, host, members)
    await made.open()
    try:
        yield made
    finally:
        await made.close()
        for api in (host, *members.values()):
            await api.close()


async def test_jobs_run_in_members_of_either_version(old_site: Site) -> None:
    """Each fills a member, so that both members get one of each kind."""
    for name in ("one", "two"):
        # Long enough that the second finds the first one's member full.
        await old_site.submit(job(name, cpu="10", seconds=8))
    for name in ("one", "two"):
        await old_site.phase(name, "Completed")
    for name in ("three", "four"):
        await old_site.submit(batch_job(name, cpu="10", seconds=1))

    async def complete() -> bool:
        found = [await old_site.find(BATCH_JOBS, name) for name in ("three", "four")]
        return all(((each or {}).get("status") or {}).get("succeeded") == 1 for each in found)

    await until(complete, what="both batch Jobs have ended")
    assert {await old_site.where(name) for name in ("one", "two")} == {"old", "new"}


async def test_webhook_and_query_api_answer_an_api_server_on_ipv6(old_site: Site) -> None:
    refused = old_site.kubectl("-n", old_site.namespace, "create", "-f", "-", stdin=_NONSENSE, ok=False)
    assert "minAvailable is more than the replicas" in refused

    async def verdicts() -> bool:
        return await old_site.host.list(VERDICTS, old_site.namespace) is not None

    assert await until(verdicts, what="verdicts are answered")
    if old_site.federation.federation.config.address == "::1":
        assert old_site.federation.host.url.startswith("https://[::1]:")


async def test_the_host_knows_versions_nodes_and_resources_of_its_members(old_site: Site) -> None:
    for name, behaves in (("old", {"kubernetes/1.33"}), ("new", {"kubernetes/1.33", "kubernetes/1.36"})):

        async def told(name: str = name) -> Json | None:
            status = (await old_site.host.get(CLUSTERS, name)).get("status") or {}
            return status if status.get("resourceSummary") and status.get("agent") else None

        status = await until(told, what=f"the status of {name} is filled")
        assert status["kubernetesVersion"].startswith("v1.")
        assert status["nodeSummary"] == {"totalNum": 1, "readyNum": 1}
        assert status["resourceSummary"]["allocatable"]["cpu"] == "16"
        assert {each["groupVersion"] for each in status["apiEnablements"]} == {
            "apps/v1",
            "atoll.sh/v1alpha1",
            "batch/v1",
            "batch.volcano.sh/v1alpha1",
        }
        assert behaves <= set(status["agent"]["features"])
        assert ("kubernetes/1.36" in status["agent"]["features"]) == (name == "new")


async def test_a_field_that_an_old_member_would_drop_goes_to_the_new_one_or_waits(old_site: Site) -> None:
    def whole_pod(name: str) -> Json:
        made = job(name, seconds=None)
        made["spec"]["tasks"][0]["template"]["spec"]["resources"] = {"requests": {"cpu": "100m", "memory": "32Mi"}}
        return made

    # Each of them would go to the old member, which is as empty and comes last by name.
    await old_site.submit(whole_pod("anywhere"))
    await old_site.phase("anywhere", "Running")
    assert await old_site.where("anywhere") == "new"
    [pod] = await old_site.pods("new")
    assert pod["spec"]["resources"]["requests"]["memory"] == "32Mi"
    await old_site.only("old")
    await old_site.submit(whole_pod("there"))
    decision = await old_site.reason("there", "FeatureMissing")
    assert decision["blocker"] == {"kind": "Feature", "name": "kubernetes/1.34"}


async def test_a_member_whose_agent_is_too_new_gets_nothing(old_site: Site) -> None:
    """A member of which there is nothing but what its agent would write."""
    host, name = old_site.host, "ghost"
    home = keys.execution_namespace(name)
    await host.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": home}})
    about = {"apiVersion": CLUSTERS.api_version, "kind": CLUSTERS.kind, "metadata": {"name": name}}
    await host.create(CLUSTERS, {**about, "spec": {"syncMode": "Pull"}})
    says = {**facts_annotation(AgentFacts("99.0.0", "v1.36.0", "1.36", ("batch/v1/Job",))), keys.READYZ: "ok"}
    now = rfc3339_micro(time.time())
    lease = {
        "apiVersion": LEASES.api_version,
        "kind": LEASES.kind,
        "metadata": {"name": "atoll-agent", "namespace": home, "annotations": says},
        "spec": {"holderIdentity": "ghost", "leaseDurationSeconds": 3600, "renewTime": now},
    }
    await host.create(LEASES, lease)

    async def told() -> Json | None:
        status = (await host.get(CLUSTERS, name)).get("status") or {}
        found = [each for each in status.get("conditions") or () if each["type"] == "AgentVersionSupported"]
        return found[0] if found else None

    found = await until(told, what="its Cluster says so")
    assert (found["status"], found["reason"]) == ("False", "AgentTooNew")
    await old_site.only(name)
    await old_site.submit(job("waits", seconds=None))
    decision = await old_site.reason("waits", "AgentVersionUnsupported")
    assert decision["blocker"]["name"] == name
    assert "upgrade the host first" in decision["blocker"]["message"]
    await host.delete(CLUSTERS, name)
    await host.delete(NAMESPACES, home)


# -- agents --------------------------------------------------------------------------------------------------------------


def agents(site: Site, member: str) -> list[KeptProcess]:
    return [site.federation.process(f"agent-{member}"), site.federation.process(f"agent-{member}-2")]


async def leader(site: Site, member: str, *, apart_from: int | None = None) -> KeptProcess:
    """The agent that holds the member's lease, once one of those that run now does."""

    async def look() -> KeptProcess | None:
        lease = await site.members[member].get(LEASES, "atoll-agent", keys.SYSTEM_NAMESPACE)
        holder = str(lease["spec"]["holderIdentity"])
        found = [each for each in agents(site, member) if each.running and holder.endswith(f"-{each.pid}")]
        return found[0] if found and found[0].pid != apart_from else None

    return await until(look, what=f"an agent of {member} leads")


async def ready(site: Site, member: str) -> str:
    cluster = await site.host.get(CLUSTERS, member)
    (found,) = [each for each in cluster["status"]["conditions"] if each["type"] == "Ready"]
    return f"{found['status']} {found['message']}"


async def test_of_two_agents_one_works_and_the_other_goes_on_when_it_dies(old_site: Site) -> None:
    """1. A gang runs, made by one agent. 2. That one is killed while more come. 3. The other one finishes them."""
    site, member = old_site, "new"
    await site.submit(job("before", replicas=3, cpu="1", seconds=1))
    await site.phase("before", "Completed")
    first = await leader(site, member)
    for each in agents(site, member):
        await each.ready()
    dead = first.pid
    for number in range(4):
        await site.submit(job(f"during-{number}", replicas=2, cpu="1", seconds=1))
    first.kill()
    await leader(site, member, apart_from=dead)
    for number in range(4):
        await site.phase(f"during-{number}", "Completed")
    assert await ready(site, member) == "True the agent reports and the member's API server is ready"
    made: Counter[str] = Counter()
    for member in site.members:
        for event in audit.read(site.federation.members[member].audit_log):
            where = event.object_ref
            if where.namespace != site.namespace or event.verb != "create" or not event.user.username.endswith("agent"):
                continue
            assert event.response_status.code != 409, f"done twice: {where.path} {where.key}"
            if where.path in ("pods", "pods/binding") and event.ok:
                made[f"{where.path} {where.name}"] += 1
    # A write in which the agent was killed has no good answer, yet may be done.
    pods = [pod for each in site.members for pod in await site.pods(each)]
    assert len(pods) == 3 + 4 * 2
    assert all(pod["spec"].get("nodeName") for pod in pods)
    names = {pod["metadata"]["name"] for pod in pods}
    assert made.keys() <= {f"{path} {name}" for path in ("pods", "pods/binding") for name in names}
    assert set(made.values()) == {1}, made


async def test_an_agent_that_can_not_reach_its_member_says_so_though_it_leads_no_more(old_site: Site) -> None:
    member = "old"
    running = old_site.federation.federation.processes.processes
    (server,) = [each.pid for each in running if each.spec.name == f"{member}-apiserver"]
    assert server is not None
    os.kill(server, signal.SIGSTOP)
    try:

        async def away() -> bool:
            return (await ready(old_site, member)).startswith("False the member's API server is not ready")

        await until(away, what="the host knows that the member is away")
        # Longer than a lease: by then none of its agents leads.
        ends = asyncio.get_running_loop().time() + 2 * LEASE

        async def stays() -> bool:
            assert await away()
            return asyncio.get_running_loop().time() > ends

        await until(stays, what="it stays like that without a leader")
    finally:
        os.kill(server, signal.SIGCONT)

    async def back() -> bool:
        return (await ready(old_site, member)).startswith("True")

    await until(back, what="an agent leads again")


_NONSENSE = """
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: bad}
spec:
  minAvailable: 9
  tasks:
  - name: worker
    replicas: 1
    template: {spec: {containers: [{name: c, image: busybox}]}}
"""
