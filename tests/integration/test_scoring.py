"""A queue's scoring reaches its pods, and the ConfigMap of a member acts at once, with what does not act named."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.model import keys
from atoll.model.apiresource import CONFIGMAPS, EVENTS
from tests.integration.federation import Site, job, until

pytestmark = pytest.mark.integration

CONF = """
actions: "allocate, backfill, preempt"
tiers:
- plugins:
  - name: nodeorder
    arguments: {leastrequested.weight: 3, balancedresource.weight: 0}
  - name: tdm
"""


async def nodes_of(site: Site, name: str, pods: int) -> set[str]:
    async def look() -> set[str] | None:
        mine = [each for each in await site.pods("alpha") if each["metadata"]["name"].startswith(f"{name}-")]
        found = [each["spec"].get("nodeName") for each in mine]
        return set(found) if len(found) == pods and all(found) else None

    return await until(look, what=f"{name} has nodes")


async def test_queue_workload_and_member_say_which_nodes_are_preferred(site: Site) -> None:
    """1. A queue spreads: its Job's pods carry that, and go to a node each. 2. A Job of the queue packs: one node.
    3. The member's ConfigMap spreads what says nothing, and the part of it that does not act is named.
    """
    await site.only("alpha")
    member = site.members["alpha"]
    spreading = await site.queue("spreading", annotations={keys.NODE_SCORING: "spread"})
    await site.submit(job("wide", replicas=2, seconds=None, queue=spreading))
    assert len(await nodes_of(site, "wide", 2)) == 2
    made = [each for each in await site.pods("alpha") if each["metadata"]["name"].startswith("wide-")]
    assert {each["metadata"]["annotations"][keys.NODE_SCORING] for each in made} == {"spread"}
    packed = job("packed", replicas=2, seconds=None, queue=spreading)
    packed["metadata"]["annotations"] = {keys.NODE_SCORING: "binpack"}
    await site.submit(packed)
    assert len(await nodes_of(site, "packed", 2)) == 1
    refused = site.kubectl("annotate", "queue", spreading, f"{keys.NODE_SCORING}=best", "--overwrite", ok=False)
    assert "has 'best', which is no term" in refused
    plain = await site.queue("plain")
    await site.submit(job("tight", replicas=2, seconds=None, queue=plain))
    assert len(await nodes_of(site, "tight", 2)) == 1
    about: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap"}
    about["metadata"] = {"name": "atoll-scheduler", "namespace": keys.SYSTEM_NAMESPACE}
    await member.create(CONFIGMAPS, {**about, "data": {"volcano-scheduler.conf": CONF}})
    try:

        async def told() -> Any:
            found = await member.list(EVENTS, keys.SYSTEM_NAMESPACE)
            return next((each for each in found if each.get("reason") == "WithoutEffect"), None)

        event = await until(told, what="what does not act is named")
        assert "plug-in tdm: there is no such plug-in here" in (event.get("note") or event.get("message"))
        await site.submit(job("apart", replicas=2, seconds=None, queue=plain))
        assert len(await nodes_of(site, "apart", 2)) == 2
    finally:
        await member.delete(CONFIGMAPS, "atoll-scheduler", keys.SYSTEM_NAMESPACE)
