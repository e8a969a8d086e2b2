"""Waiting time that a queue grants, on real API servers: what has waited that long gets room kept in any strategy."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.model import keys
from tests.integration.federation import Site, until
from tests.integration.gangs import gpus, one_member

pytestmark = pytest.mark.integration


async def test_capacity_is_reserved_for_what_has_waited_as_long_as_its_queue_grants(site: Site) -> None:
    """Beta has 4 nodes of 8 GPUs. 1. Half of one node is free, the rest of it in an hour. 2. A workload that is impatient
    by itself gets no room kept. 3. One whose queue grants that does: only what ends before passes."""
    await one_member(site, "beta")
    other, plain = await site.queue("other"), await site.queue("plain")
    granted = await site.queue("granted", annotations={keys.SLA_WAITING_TIME: "2s"})

    async def submit(name: str, queue: str, gpu: int, lasts: str, **annotations: str) -> None:
        wanted: dict[str, Any] = gpus(name, 1, gpu, seconds=None, queue=queue)
        wanted["metadata"].setdefault("annotations", {}).update({keys.RUNNING_ESTIMATE: lasts, **annotations})
        await site.submit(wanted)

    def reserved(name: str) -> bool:
        verdict = ("get", "verdicts.query.atoll.sh", f"{name}-job", "-n", site.namespace, "-o", "json")
        return '"reserved"' in site.kubectl(*verdict)

    for name, gpu, lasts in (("full0", 8, "10h"), ("full1", 8, "10h"), ("full2", 8, "10h"), ("runs", 4, "1h")):
        await submit(name, other, gpu, lasts)
        await site.phase(name, "Running")
    await submit("claims", plain, 8, "1h", **{keys.SLA_WAITING_TIME: "1s"})
    await site.reason("claims", "InsufficientResources")
    await submit("head", granted, 8, "1h")
    await site.reason("head", "InsufficientResources")

    async def is_reserved() -> bool:
        return reserved("head")

    await until(is_reserved, what="capacity is reserved for head")
    assert not reserved("claims"), "its queue grants nothing"
    await submit("passes", other, 1, "10m")
    await site.phase("passes", "Running")
    await submit("delays", other, 1, "10h")
    await site.reason("delays", "WouldDelayHead")
