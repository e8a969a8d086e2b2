"""A queue of real work: short gangs over two members within a quota, and nothing left afterwards."""

from __future__ import annotations

import asyncio
import random

import pytest

from atoll.model.apiresource import JOBS, QUEUES
from tests.e2e.jobs import job, part_of_node, shell, task
from tests.integration.federation import Json, Site, until

JOBS_IN_ALL = 60
LIMIT = 8
"""Pods of the queue at once. Three fill a node, so that the two nodes of one member are not enough."""


@pytest.mark.timeout(600)
async def test_sixty_jobs_run_over_two_members_within_their_queue_and_leave_nothing(
    site: Site, leaves_nothing: list[str]
) -> None:
    leaves_nothing.append(site.namespace)
    cpu = part_of_node(0.26)
    queue = await site.queue("shift", capability={"cpu": f"{LIMIT * cpu}m"})
    rng = random.Random(7)
    sizes = [rng.randint(1, 4) for _ in range(JOBS_IN_ALL)]
    peak = 0

    async def watch() -> None:
        nonlocal peak
        while True:
            allocated = ((await site.host.get(QUEUES, queue)).get("status") or {}).get("allocated") or {}
            peak = max(peak, int(allocated.get("pods", 0)))
            await asyncio.sleep(0.5)

    watching = asyncio.create_task(watch())
    for number, size in enumerate(sizes):
        work = task("w", shell("sleep 1", cpu=cpu), replicas=size)
        await site.submit(job(f"short-{number}", work, queue=queue))

    async def done() -> list[Json] | None:
        found = await site.host.list(JOBS, site.namespace)
        phases = [(each.get("status") or {}).get("state", {}).get("phase") for each in found]
        return found if phases == ["Completed"] * JOBS_IN_ALL else None

    found = await until(done, deadline=280, what="all jobs are Completed")
    watching.cancel()
    assert {each["metadata"]["name"]: each["status"]["succeeded"] for each in found} == {
        f"short-{number}": size for number, size in enumerate(sizes)
    }
    assert peak == LIMIT
    ran = {each["status"]["state"]["message"] for each in found}
    assert any("east" in text for text in ran)
    assert any("west" in text for text in ran)
