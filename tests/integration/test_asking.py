"""Members are asked before anybody makes room for others, on real API servers: nobody goes for what would not start."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
import pytest_asyncio

from atoll.model import keys
from atoll.model.apiresource import BINDINGS, CAPACITIES, JOBS, PODS, POLICIES, PRIORITY_CLASSES, QUEUES, WORKS
from atoll.model.decision import Decision, decode
from atoll.model.verdict import Reason
from tests.integration.decisions import YOUNG, evicted
from tests.integration.federation import Site, until
from tests.integration.gangs import gpus

pytestmark = pytest.mark.integration


@pytest_asyncio.fixture(loop_scope="session")
async def queue(site: Site) -> AsyncIterator[str]:
    """A queue whose jobs go to beta (4 nodes of 8 GPUs), and a job in it with a pod of 6 GPUs on each node."""
    policy: dict[str, Any] = {
        "apiVersion": POLICIES.api_version,
        "kind": POLICIES.kind,
        "metadata": {"name": "beta", "namespace": site.namespace},
        "spec": {
            "resourceSelectors": [{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}],
            "placement": {"clusterAffinity": {"clusterNames": ["beta"]}},
        },
    }
    await site.host.create(POLICIES, policy)
    name = f"high-{site.namespace}"
    high: dict[str, Any] = {"metadata": {"name": name}, "value": 1000, "globalDefault": False}
    await site.host.create(
        PRIORITY_CLASSES, {"apiVersion": PRIORITY_CLASSES.api_version, "kind": PRIORITY_CLASSES.kind, **high}
    )
    queue = await site.queue()
    await site.host.merge_patch(QUEUES, queue, YOUNG)
    await site.submit(gpus("low", 4, 6, seconds=None, queue=queue))
    await site.phase("low", "Running")
    yield queue
    await site.host.delete(PRIORITY_CLASSES, name)


async def submit_high(site: Site, queue: str, **more: Any) -> None:
    """A job that needs all of beta."""
    await site.submit(gpus("high", 4, 8, queue=queue, priorityClassName=f"high-{site.namespace}", **more))


async def free_in_beta(site: Site, gpus: int) -> None:
    async def look() -> bool:
        published = await site.host.list(CAPACITIES, "karmada-es-beta")
        classes = [each for obj in published for each in obj["spec"]["classes"]]
        return bool(sum(each["nodes"] * each["free"]["nvidia.com/gpu"] for each in classes) == gpus)

    await until(look, what=f"beta says that {gpus} GPUs are free")


async def occupy(site: Site, gpus: int) -> None:
    """Somebody else's pod, on a node of beta."""
    resources = {"requests": {"nvidia.com/gpu": gpus}, "limits": {"nvidia.com/gpu": gpus}}
    containers = [{"name": "c", "image": "x", "resources": resources}]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "foreign", "namespace": "default"},
        "spec": {"nodeName": "beta-n0", "containers": containers},
    }
    await site.members["beta"].create(PODS, pod)


def decided(site: Site) -> list[tuple[str, Decision]]:
    """(binding, decision) of all that the dispatcher wrote, oldest first."""
    found = []
    for event in site.audit():
        if event["verb"] == "patch" and event["user"]["username"].endswith(":atoll-dispatcher"):
            if event["responseStatus"]["code"] != 200 or event["objectRef"].get("subresource"):
                continue
            name = event["objectRef"]["name"].removesuffix("-job")
            texts = [each["value"] for each in event["requestObject"] if each["path"].endswith("decision")]
            found += [(name, decode(text)) for text in texts]
    return found


def questions(site: Site) -> list[dict[str, Any]]:
    """Works that only asked."""
    created = [
        event["requestObject"]
        for event in site.audit()
        if event["verb"] == "create" and event["objectRef"]["resource"] == "works"
    ]
    return [work for work in created if keys.QUESTION in work["metadata"]["annotations"]]


async def withdrawn(site: Site) -> None:
    async def look() -> bool:
        works = await site.host.list(WORKS, "karmada-es-beta")
        return not [work for work in works if keys.QUESTION in work["metadata"]["annotations"]]

    await until(look, what="no question is left")


async def test_a_yes_comes_before_the_first_eviction(site: Site, queue: str) -> None:
    await submit_high(site, queue, seconds=1)
    await evicted(site, "low", "Preempted")
    await site.phase("high", "Completed")
    told = decided(site)
    asked = next(i for i, (name, each) in enumerate(told) if name == "high" and each.question is not None)
    went = next(i for i, (name, each) in enumerate(told) if name == "low" and each.reason == "Preempted")
    assert asked < went
    low = await site.find(BINDINGS, "low-job")
    assert low is not None
    [question] = questions(site)
    assert question["spec"]["suspendDispatching"]
    assert not question["metadata"].get("finalizers")
    assert orjson.loads(question["metadata"]["annotations"][keys.QUESTION]) == {low["metadata"]["uid"]: None}
    assert "high" not in [work["metadata"]["name"] for work in await site.host.list(WORKS, "karmada-es-alpha")]
    await withdrawn(site)
    await site.phase("low", "Running")


async def test_no_victim_is_evicted_where_the_member_knows_of_something_in_the_way(site: Site, queue: str) -> None:
    """1. Beta's agent is stopped, so its figures stay. 2. Somebody takes the 2 GPUs that low leaves on a node. 3. By the
    figures high fits once low is gone. 4. The agent comes back and says no: low stays. 5. The pod goes: low makes room.
    """
    await free_in_beta(site, 8)
    before = {pod["metadata"]["uid"] for pod in await site.pods("beta")}
    agent = site.federation.process("atoll-agent-beta")
    await agent.stop()
    try:
        await occupy(site, 2)
        await submit_high(site, queue, seconds=None)

        async def asked() -> bool:
            return bool(questions(site))

        await until(asked, what="beta is asked")
    finally:
        await agent.start()

    async def refused() -> Decision | None:
        return next((each for name, each in decided(site) if name == "high" and each.reason == "PartRefused"), None)

    blocker = (await until(refused, what="the dispatcher says that beta refused")).blocker
    assert blocker is not None
    assert (blocker.kind, blocker.name, blocker.requested, blocker.available) == ("Cluster", "beta", "4", "3")
    await withdrawn(site)
    assert not [each for name, each in decided(site) if name == "low" and each.reason == "Preempted"]
    pods = await site.pods("beta")
    assert {pod["metadata"]["uid"] for pod in pods} == before, "low runs as before, nothing of high was made"
    await site.members["beta"].delete(PODS, "foreign", "default", grace_seconds=0)
    await evicted(site, "low", "Preempted")
    await site.phase("high", "Running")


async def test_the_next_dispatcher_asks_anew_and_evicts_once(site: Site, queue: str) -> None:
    """1. Beta's agent is stopped. 2. It is asked. 3. Another dispatcher begins. 4. The agent comes back."""
    await free_in_beta(site, 8)
    agent = site.federation.process("atoll-agent-beta")
    await agent.stop()
    try:
        await submit_high(site, queue, seconds=None)

        async def asked() -> bool:
            return bool(questions(site))

        await until(asked, what="beta is asked")
        await site.federation.process("dispatcher").restart()
    finally:
        await agent.start()
    await site.phase("high", "Running")
    assert [each.reason for name, each in decided(site) if name == "low"].count(Reason.PREEMPTED) == 1
    await withdrawn(site)


async def test_a_member_that_is_away_keeps_nothing_from_starting_elsewhere(site: Site, queue: str) -> None:
    """1. Alpha is full of what must not go. 2. Beta's agent is stopped, and beta is asked. 3. Alpha is free: high starts."""
    allowed = {"spec": {"placement": {"clusterAffinity": {"clusterNames": ["alpha", "beta"]}}}}
    await site.host.merge_patch(POLICIES, "beta", allowed, site.namespace)
    await site.submit(gpus("full", 8, 8, seconds=None, queue=queue, priorityClassName=f"high-{site.namespace}"))
    await site.phase("full", "Running")
    await free_in_beta(site, 8)
    agent = site.federation.process("atoll-agent-beta")
    await agent.stop()
    try:
        await submit_high(site, queue, seconds=None)

        async def asked() -> bool:
            return bool(questions(site))

        await until(asked, what="beta is asked")
        await site.host.delete(JOBS, "full", site.namespace)
        await site.phase("high", "Running")
        assert await site.where("high") == "alpha"
        await withdrawn(site)
    finally:
        await agent.start()
    assert not [each for name, each in decided(site) if name == "low" and each.reason == "Preempted"]
