"""Work that came to a member without the host is held to the member's own queues."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.kube import errors
from atoll.model.apiresource import NODES, POD_GROUPS, PODS, QUEUES
from tests.integration.federation import Site, until

pytestmark = pytest.mark.integration

GPU = "nvidia.com/gpu"


async def test_a_queue_of_the_member_is_not_exceeded_and_its_next_gang_starts_when_one_ends(site: Site) -> None:
    """1. A queue may use the GPUs of one node. 2. The first of two gangs starts, the second is told the queue. 3. The
    first ends: the second starts.
    """
    member = site.members["alpha"]
    nodes = sorted(each["metadata"]["name"] for each in await member.list(NODES))[:2]
    queue = f"team-{site.namespace}"
    names = [f"{queue}-{number}" for number in range(2)]
    await member.create(
        QUEUES,
        {
            "apiVersion": QUEUES.api_version, "kind": "Queue", "metadata": {"name": queue},
            "spec": {"capability": {GPU: 8}},
        },
    )  # fmt: skip

    async def found(name: str) -> dict[str, Any]:
        return await member.get(PODS, name, "default")

    async def bound(name: str) -> bool:
        return bool((await found(name))["spec"].get("nodeName"))

    try:
        for name, node in zip(names, nodes, strict=True):
            meta: dict[str, Any] = {"name": name, "namespace": "default"}
            group = {"apiVersion": POD_GROUPS.api_version, "kind": "PodGroup", "metadata": meta}
            await member.create(POD_GROUPS, {**group, "spec": {"minMember": 1, "queue": queue}})
            container = {"name": "main", "image": "busybox", "resources": {"limits": {GPU: "8"}}}
            spec = {
                "schedulerName": "atoll", "containers": [container], "terminationGracePeriodSeconds": 0,
                "nodeSelector": {"kubernetes.io/hostname": node},
                "tolerations": [{"key": "atoll.sh/nodes", "operator": "Exists"}],
            }  # fmt: skip
            notes = {"scheduling.k8s.io/group-name": name}
            await member.create(
                PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {**meta, "annotations": notes}, "spec": spec}
            )
            if name == names[0]:
                await until(lambda: bound(names[0]), what="the first gang starts")

        async def told() -> bool:
            conditions = (await found(names[1]))["status"].get("conditions") or ()
            return any(f"queue {queue} may use 0 more of {GPU}" in each.get("message", "") for each in conditions)

        await until(told, what="the second gang is told of the queue")
        assert not await bound(names[1])
        await member.delete(PODS, names[0], "default")
        await until(lambda: bound(names[1]), what="the second gang starts")
    finally:
        for resource, name, namespace in (
            *((PODS, name, "default") for name in names),
            *((POD_GROUPS, name, "default") for name in names),
            (QUEUES, queue, None),
        ):
            try:
                await member.delete(resource, name, namespace)
            except errors.NotFound:
                continue
