"""Members in which another scheduler binds: kube-scheduler places the pods that Atoll has planned."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from atoll.kube.transport import ApiServer
from atoll.local.atoll_federation import QUICK_ELECTION, AtollFederation
from atoll.local.layout import FederationConfig, Member, NodeGroup
from atoll.model import keys, quantity
from atoll.model.apiresource import PODS
from tests.integration.federation import Json, Site, batch_job, job, until

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

CPUS = 8


def plain(name: str, nodes: int, **more: Any) -> Member:
    """A member of nodes with 8 CPUs each, where kube-scheduler places."""
    group = NodeGroup(count=nodes, prefix=f"{name}-n", allocatable={"cpu": str(CPUS), "memory": "32Gi", "pods": "110"})
    return Member(name=name, nodes=[group], **{"placer": "kube-scheduler", **more})


LAYOUT = FederationConfig(members=[plain("plain", 3)])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def delegated(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AtollFederation]:
    quick = {"control": QUICK_ELECTION, "dispatcher": QUICK_ELECTION}
    async with AtollFederation(LAYOUT, tmp_path_factory.mktemp("placers"), flags=quick) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def here(delegated: AtollFederation) -> AsyncIterator[Site]:
    host = await delegated.host.connect()
    members: dict[str, ApiServer] = {name: await each.connect() for name, each in delegated.members.items()}
    made = Site(delegated, host, members)
    await made.open()
    try:
        yield made
    finally:
        await made.close()
        await asyncio.gather(host.close(), *(api.close() for api in members.values()))


def foreign(name: str, namespace: str, *, cpu: str = "1", priority: str = "") -> Json:
    """A pod that its user made in the member."""
    container = {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}
    spec: Json = {"containers": [container], "terminationGracePeriodSeconds": 0}
    if priority:
        spec["priorityClassName"] = priority
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


async def used(api: ApiServer) -> Counter[str]:
    """Node -> milli-CPU that its pods request."""
    found: Counter[str] = Counter()
    for pod in await api.list(PODS):
        if pod["spec"].get("nodeName") and pod["status"]["phase"] not in ("Succeeded", "Failed"):
            for container in pod["spec"]["containers"]:
                requests = container["resources"].get("requests") or {}
                found[pod["spec"]["nodeName"]] += quantity.ceil_units("cpu", requests.get("cpu", "0"))
    return found


async def test_a_gang_is_planned_here_and_bound_by_kube_scheduler(here: Site) -> None:
    """1. A Volcano Job and a batch Job come. 2. All pods of each run, bound by kube-scheduler where they were planned."""
    await here.submit(job("gang", replicas=6, cpu="2", seconds=None))
    await here.submit(batch_job("batch", parallelism=2, cpu="2", seconds=None))
    await here.phase("gang", "Running")

    async def both_run() -> bool:
        pods = await here.pods("plain")
        return len(pods) == 8 and all(pod["status"]["phase"] == "Running" for pod in pods)

    await until(both_run, what="all pods run")
    for pod in await here.pods("plain"):
        assert pod["spec"]["schedulerName"] == "default-scheduler"
        assert pod["spec"]["nodeName"] == pod["metadata"]["annotations"][keys.PLANNED_NODE]
        assert not pod["spec"].get("schedulingGates")
    bindings = [e for e in here.audit("plain") if e["objectRef"].get("subresource") == "binding"]
    assert {event["user"]["username"] for event in bindings} == {"admin"}
    assert max((await used(here.members["plain"])).values()) <= CPUS * 1000
