"""Room that is kept for a head on real API servers: what passes it goes to nodes on which it is in nobody's way."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.model import keys
from atoll.model.apiresource import WORKS
from tests.integration.decisions import decisions
from tests.integration.federation import Site, next_is_younger, until
from tests.integration.gangs import gpus, one_member

pytestmark = pytest.mark.integration


async def test_what_passes_a_head_goes_to_a_node_that_the_head_does_not_need(site: Site) -> None:
    """Beta has 4 nodes of 8 GPUs: after the first four jobs 2, 1, 0 and 0 of them are free."""
    await one_member(site, "beta")
    queue = await site.queue(dequeueStrategy="backfill")

    async def submit(name: str, gpu: int, lasts: str) -> dict[str, Any]:
        wanted = gpus(name, 1, gpu, seconds=None, queue=queue)
        wanted["metadata"].setdefault("annotations", {})[keys.RUNNING_ESTIMATE] = lasts
        return await site.submit(wanted)

    async def node_of(name: str) -> str:
        await site.phase(name, "Running")
        [pod] = [pod for pod in await site.pods("beta") if pod["metadata"]["name"].startswith(f"{name}-")]
        return str(pod["spec"]["nodeName"])

    nodes = {}
    for name, gpu, lasts in (("long", 6, "10h"), ("most", 7, "1h"), ("full1", 8, "10h"), ("full2", 8, "10h")):
        await submit(name, gpu, lasts)
        nodes[name] = await node_of(name)
    head = await submit("head", 8, "1h")

    async def reserved() -> bool:
        told = (await decisions(site)).get("head")
        if told is None or told.reason != "InsufficientResources":
            return False
        return '"reserved"' in site.kubectl(
            "get", "verdicts.query.atoll.sh", "head-job", "-n", site.namespace, "-o", "json"
        )

    await until(reserved, what="capacity is reserved for head")
    await next_is_younger(head)
    # Beside `most` is the tighter gap, but the head needs that node in an hour.
    await submit("passes", 1, "2h")
    assert await node_of("passes") == nodes["long"]
    [work] = [
        each for each in await site.host.list(WORKS, "karmada-es-beta") if each["metadata"]["name"].startswith("passes")
    ]
    assert nodes["long"] in work["metadata"]["annotations"][keys.EXPECTED]
