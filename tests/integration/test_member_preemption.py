"""Work that came to a member without the host leaves for work of a higher priority, whole, and as its budgets allow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from atoll.kube.transport import ApiServer
from atoll.model.apiresource import BUDGETS, EVENTS, NODES, POD_GROUPS, PODS, PRIORITY_CLASSES
from tests.integration.federation import Site, until

pytestmark = pytest.mark.integration

GPU = "nvidia.com/gpu"


def pod(name: str, node: str, priority: str, *, group: str = "", finalizer: bool = False) -> dict[str, Any]:
    meta: dict[str, Any] = {"name": name, "namespace": "default", "labels": {"test": "preemption"}}
    meta["annotations"] = {"scheduling.k8s.io/group-name": group} if group else {}
    if finalizer:
        meta["finalizers"] = ["atoll.sh/test"]
    container = {"name": "main", "image": "busybox", "resources": {"limits": {GPU: "8"}, "requests": {"cpu": "1"}}}
    spec: dict[str, Any] = {"schedulerName": "atoll", "priorityClassName": priority, "containers": [container]}
    spec |= {"nodeSelector": {"kubernetes.io/hostname": node}, "terminationGracePeriodSeconds": 0}
    spec["tolerations"] = [{"key": "atoll.sh/nodes", "operator": "Exists"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


async def get(member: ApiServer, name: str) -> dict[str, Any] | None:
    found = [each for each in await member.list(PODS, "default") if each["metadata"]["name"] == name]
    return found[0] if found else None


async def test_a_lower_gang_leaves_whole_once_its_budget_allows_it(site: Site) -> None:
    """1. A gang runs on two nodes; a budget keeps its pods. 2. A higher pod waits for one of the nodes: the gang stays.
    3. The budget goes: the whole gang is evicted. 4. One victim is still there: the node is nominated, and nothing is
    bound. 5. It is gone: the pod is bound.
    """
    member = site.members["alpha"]
    nodes = sorted(each["metadata"]["name"] for each in await member.list(NODES))[:2]
    classes = {name: f"{name}-{site.namespace}" for name in ("low", "high")}
    names = {name: f"{name}-{site.namespace}" for name in ("low0", "low1", "high", "gang")}
    for name, value in (("low", 1), ("high", 1000)):
        about = {"apiVersion": PRIORITY_CLASSES.api_version, "kind": "PriorityClass", "value": value}
        await member.create(PRIORITY_CLASSES, {**about, "metadata": {"name": classes[name]}})
    group = {"apiVersion": POD_GROUPS.api_version, "kind": "PodGroup", "spec": {"minMember": 2}}
    await member.create(POD_GROUPS, {**group, "metadata": {"name": names["gang"], "namespace": "default"}})
    selector = {"matchLabels": {"test": "preemption"}}
    budget: dict[str, Any] = {"apiVersion": BUDGETS.api_version, "kind": BUDGETS.kind}
    budget |= {"metadata": {"name": names["gang"], "namespace": "default"}}
    await member.create(BUDGETS, {**budget, "spec": {"minAvailable": 2, "selector": selector}})

    def seen(name: str, wanted: Callable[[dict[str, Any] | None], Any]) -> Callable[[], Any]:
        async def look() -> bool:
            return bool(wanted(await get(member, names[name])))

        return look

    try:
        for number, node in enumerate(nodes):
            low = pod(names[f"low{number}"], node, classes["low"], group=names["gang"], finalizer=not number)
            await member.create(PODS, low)
        for name in ("low0", "low1"):
            await until(seen(name, lambda it: it and it["spec"].get("nodeName")), what="the gang runs")
        await member.create(PODS, pod(names["high"], nodes[0], classes["high"]))
        told = seen("high", lambda it: it and it.get("status", {}).get("conditions"))
        await until(told, what="the pod is told that it waits")
        for name in ("low0", "low1"):
            assert "deletionTimestamp" not in ((await get(member, names[name])) or {"metadata": {}})["metadata"]
        await member.delete(BUDGETS, names["gang"], "default")
        await until(seen("low1", lambda it: it is None), what="all of the gang leaves")
        kept = seen("high", lambda it: it and it["status"].get("nominatedNodeName") == nodes[0])
        await until(kept, what="the node is nominated")
        assert not ((await get(member, names["high"])) or {"spec": {}})["spec"].get("nodeName")
        victim = await get(member, names["low0"])
        assert victim is not None
        assert "DisruptionTarget" in {each["type"] for each in victim["status"]["conditions"]}
        await member.merge_patch(PODS, names["low0"], {"metadata": {"finalizers": None}}, "default")
        await until(seen("high", lambda it: it and it["spec"].get("nodeName") == nodes[0]), what="the pod is bound")
        events = await member.list(EVENTS, "default")
        preempted = {each["regarding"]["name"] for each in events if each.get("reason") == "Preempted"}
        assert {names["low0"], names["low1"]} <= preempted
    finally:
        for name in ("low0", "low1", "high"):
            if await get(member, names[name]) is not None:
                await member.merge_patch(PODS, names[name], {"metadata": {"finalizers": None}}, "default")
                await member.delete(PODS, names[name], "default")
        await member.delete(POD_GROUPS, names["gang"], "default")
        await member.delete(BUDGETS, names["gang"], "default")
        for name in classes.values():
            await member.delete(PRIORITY_CLASSES, name)
