"""Workloads that make room for others on real API servers: taken back whole, the claimant runs, they run again later."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.model.apiresource import PRIORITY_CLASSES, QUEUES
from tests.integration.decisions import YOUNG, decisions, evicted
from tests.integration.federation import Site, job

pytestmark = pytest.mark.integration


async def test_a_job_of_higher_priority_takes_the_place_of_a_lower_one_of_its_queue(site: Site) -> None:
    high: dict[str, Any] = {"metadata": {"name": f"high-{site.namespace}"}, "value": 1000, "globalDefault": False}
    await site.host.create(
        PRIORITY_CLASSES, {"apiVersion": PRIORITY_CLASSES.api_version, "kind": PRIORITY_CLASSES.kind, **high}
    )
    queue = await site.queue(capability={"cpu": "2"})
    await site.host.merge_patch(QUEUES, queue, YOUNG)
    await site.submit(job("low", cpu="1", replicas=2, seconds=None, queue=queue))
    await site.phase("low", "Running")
    await site.submit(job("vip", cpu="2", seconds=2, queue=queue, priorityClassName=high["metadata"]["name"]))
    await evicted(site, "low", "Preempted")
    await site.phase("vip", "Completed")
    await site.phase("low", "Running")
    await site.host.delete(PRIORITY_CLASSES, high["metadata"]["name"])


async def test_an_entitled_queue_reclaims_what_another_one_borrowed(site: Site) -> None:
    above = await site.queue("above", capability={"cpu": "4"})
    borrower = await site.queue("borrower", parent=above, deserved={"cpu": "2"})
    owner = await site.queue("owner", parent=above, deserved={"cpu": "2"})
    await site.host.merge_patch(QUEUES, borrower, YOUNG)
    for number in range(4):
        await site.submit(job(f"b{number}", cpu="1", seconds=None, queue=borrower))
    for number in range(4):
        await site.phase(f"b{number}", "Running")
    await site.submit(job("own", cpu="1", replicas=2, seconds=None, queue=owner))
    await site.phase("own", "Running")
    story = {name: told for name, told in (await decisions(site)).items() if name.startswith("b")}
    gone = [name for name, told in story.items() if any(line.reason == "Reclaimed" for line in told.story)]
    assert len(gone) == 2, "not more than was borrowed"
