"""Two kinds of GPUs in one member, and a quota for each, on real API servers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from atoll.model.apiresource import NODES, QUEUES
from tests.integration.command_line import atollctl
from tests.integration.federation import Site, job, until

pytestmark = pytest.mark.integration

GPU = "nvidia.com/gpu"


@pytest_asyncio.fixture(loop_scope="session")
async def two_kinds(site: Site) -> AsyncIterator[Site]:
    """A node of each kind in member alpha; the root queue names them, for as long as the test runs."""
    nodes = sorted(node["metadata"]["name"] for node in await site.members["alpha"].list(NODES))
    for name, kind in zip(nodes, ("h100", "a100"), strict=False):
        await site.members["alpha"].merge_patch(NODES, name, {"metadata": {"labels": {"gpu": kind}}})
    flags = ["--flavor", f"{GPU}@h100=gpu=h100", "--flavor", f"{GPU}@a100=gpu=a100"]
    await atollctl(site, "queue", "create", "root", *flags)
    yield site
    await site.no_jobs()
    for queue in await site.host.list(QUEUES):
        if queue["metadata"]["name"].startswith("q-"):
            await site.host.delete(QUEUES, queue["metadata"]["name"])
    await site.host.delete(QUEUES, "root")
    for name in nodes[:2]:
        await site.members["alpha"].merge_patch(NODES, name, {"metadata": {"labels": {"gpu": None}}})


async def test_a_quota_is_of_one_kind_and_pods_are_kept_to_it(two_kinds: Site) -> None:
    site = two_kinds
    queue = await site.queue(capability={f"{GPU}@h100": "2", f"{GPU}@a100": "1", f"{GPU}@other": "0"})

    def asking(name: str, **pod: object) -> dict:
        made = job(name, seconds=None, queue=queue)
        spec = made["spec"]["tasks"][0]["template"]["spec"]
        spec["containers"][0]["resources"] = {"limits": {GPU: 1}, "requests": {GPU: 1, "cpu": "100m"}}
        spec.update(pod)
        return made

    await site.submit(asking("says", nodeSelector={"gpu": "h100"}))
    await site.phase("says", "Running")
    for name in ("open-1", "open-2"):
        await site.submit(asking(name))
        await site.phase(name, "Running")
    kinds = {
        node["metadata"]["name"]: (node["metadata"].get("labels") or {}).get("gpu")
        for node in await site.members["alpha"].list(NODES)
    }
    placed = {
        pod["metadata"]["name"].rsplit("-worker", 1)[0]: kinds[pod["spec"]["nodeName"]]
        for pod in await site.pods("alpha")
    }
    assert placed == {"says": "h100", "open-1": "h100", "open-2": "a100"}

    await site.submit(asking("late", nodeSelector={"gpu": "a100"}))
    await site.reason("late", "QuotaExceeded")
    assert f"{GPU}@a100" in await atollctl(site, "explain", "late")

    async def charged() -> bool:
        found = await site.find(QUEUES, queue)
        allocated = ((found or {}).get("status") or {}).get("allocated") or {}
        return (allocated.get(f"{GPU}@h100"), allocated.get(f"{GPU}@a100"), allocated.get(GPU)) == ("2", "1", "3")

    await until(charged, what="the queue's status")
    data = json.loads(await atollctl(site, "queue", "describe", queue, "-o", "json"))
    used = {each["resource"]: each for each in data["resources"]}
    assert used[f"{GPU}@h100"]["used"] == "2"
    said = await atollctl(site, "queue", "update", "root", "--flavor", f"{GPU}@h100=gpu=h100", ok=False)
    assert f"queue '{queue}' has a quota of flavor 'a100'" in said
