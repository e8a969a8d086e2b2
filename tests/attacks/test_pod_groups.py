"""PodGroups that somebody writes by hand in a member: they keep no nodes, and say nothing of others' workloads."""

from __future__ import annotations

from collections import Counter

import pytest

from atoll.agent.scheduler.core.holds import Hold
from atoll.agent.scheduler.reservations import hold_group
from atoll.model import keys
from atoll.model.apiresource import BINDINGS, EVENTS, JOBS, NAMESPACES, NODES, POD_GROUPS
from atoll.model.gang import Gang, Task
from tests.integration.federation import Json, Site, job, until

pytestmark = pytest.mark.integration


async def test_one_with_a_plan_keeps_no_nodes_when_an_agent_starts(site: Site) -> None:
    """1. The agent is away. 2. A PodGroup keeps all nodes of its member for nobody. 3. The agent comes back."""
    await site.only("topo")
    topo = site.members["topo"]
    metadata = {"name": site.namespace, "labels": {keys.MADE: "true"}}
    await topo.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    names = [node["metadata"]["name"] for node in await topo.list(NODES)]
    agent = site.federation.process("agent-topo")
    await agent.stop()
    gang = Gang("default", [Task("w", len(names), len(names), {"cpu": 15_000, "pods": 1})], len(names))
    slots = Counter((0, name) for name in names)
    hold = Hold("nobody", 999, gang, "forged", site.namespace, 0.0, 0.0, slots=slots)
    await topo.create(POD_GROUPS, hold_group(hold, "2099-01-01T00:00:00.000Z"))
    await agent.start()
    await site.submit(job("honest", cpu="15", seconds=None))
    await site.phase("honest", "Running")

    async def gone() -> bool:
        return "forged-hold" not in {each["metadata"]["name"] for each in await topo.list(POD_GROUPS, site.namespace)}

    await until(gone, what="it is removed")


async def test_one_with_a_stranger_s_binding_tells_nothing_of_it(site: Site) -> None:
    """1. A workload runs. 2. A PodGroup that waits names its binding. 3. The host hears of the workload again."""
    await site.only("topo")
    await site.submit(job("mine", seconds=None))
    await site.phase("mine", "Running")
    topo, (pod,) = site.members["topo"], await site.pods("topo")
    identity = {key: pod["metadata"]["annotations"][key] for key in (keys.BINDING_UID, keys.EPOCH)}
    await topo.create(
        POD_GROUPS,
        {
            "apiVersion": POD_GROUPS.api_version,
            "kind": POD_GROUPS.kind,
            "metadata": {"name": "forged", "namespace": site.namespace, "annotations": identity},
            "spec": {"minMember": 7, "queue": "default"},
        },
    )

    async def waits() -> bool:
        found = await topo.get(POD_GROUPS, "forged", site.namespace)
        return "0 of 7" in str(found.get("status"))

    await until(waits, what="it says why it waits")
    (task,) = (await site.host.get(JOBS, "mine", site.namespace))["spec"]["tasks"]
    two = {"spec": {"minAvailable": 1, "tasks": [{**task, "replicas": 2}]}}
    await site.host.merge_patch(JOBS, "mine", two, site.namespace)

    async def placement() -> Json | None:
        binding = await site.host.get(BINDINGS, "mine-job", site.namespace)
        for item in (binding.get("status") or {}).get("aggregatedStatus") or ():
            found: Json = (item.get("status") or {}).get("placement") or {}
            if sum((found.get("nodes") or {}).values()) == 2:
                return found
        return None

    told = await until(placement, what="the host hears of the second pod")
    assert told["waiting"] == ""

    async def event() -> bool:
        events = await topo.list(EVENTS, site.namespace)
        return any(each["reason"] == "NotOfBinding" and each["regarding"]["name"] == "forged" for each in events)

    await until(event, what="it is told of")
