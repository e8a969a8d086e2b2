"""Members with autoscalers of nodes, and members that Karmada had before."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.model.apiresource import BINDINGS, JOBS, NAMESPACES, NODES
from tests.integration.federation import Json, Site, accepting, job, until

pytestmark = pytest.mark.integration

MEMBER = "topo"
EVICTABLE = "cluster-autoscaler.kubernetes.io/safe-to-evict"


async def another_node(site: Site, name: str) -> None:
    """A node like the others joins the member, as an autoscaler makes one."""
    api = site.members[MEMBER]
    like = (await api.list(NODES))[0]
    labels = {key: value for key, value in like["metadata"]["labels"].items() if value != like["metadata"]["name"]}
    metadata = {"name": name, "labels": {**labels, "kubernetes.io/hostname": name, "new": name}}
    metadata["annotations"] = like["metadata"]["annotations"]
    spec: dict[str, Any] = {"taints": like["spec"].get("taints") or []}
    status = {key: like["status"][key] for key in ("allocatable", "capacity")}
    about = {"apiVersion": "v1", "kind": "Node"}
    await api.create(NODES, {**about, "metadata": metadata, "spec": spec, "status": status})


async def test_work_waits_on_the_host_for_nodes_and_goes_to_one_that_comes(site: Site) -> None:
    """1. No node has the label. 2. One comes. 3. Its pod says to an autoscaler what its user wrote."""
    await site.only(MEMBER)
    name = f"{MEMBER}-new-{site.namespace}"
    made = job("waits", seconds=None)
    template = made["spec"]["tasks"][0]["template"]
    template["spec"]["nodeSelector"] = {"new": name}
    template["metadata"]["annotations"][EVICTABLE] = "false"
    await site.submit(made)
    await site.reason("waits", "NoNodeMatches")
    # No pod is there that an autoscaler could make a node for.
    assert await site.pods(MEMBER) == []
    await another_node(site, name)
    try:
        await site.phase("waits", "Running")
        [pod] = await site.pods(MEMBER)
        assert (pod["spec"]["nodeName"], pod["metadata"]["annotations"][EVICTABLE]) == (name, "false")
        await site.no_jobs()
    finally:
        await site.members[MEMBER].delete(NODES, name)


async def test_what_karmada_left_in_a_member_is_not_touched_and_named(site: Site) -> None:
    """An object that Karmada's agent made stays there when Karmada goes, with its labels."""
    await site.only(MEMBER)
    api = site.members[MEMBER]
    await api.create(NAMESPACES, accepting(site.namespace))
    left = job("train", seconds=None)
    left["metadata"] |= {"namespace": site.namespace, "labels": {"karmada.io/managed": "true"}}
    left["metadata"]["annotations"] = {"resourcebinding.karmada.io/name": "train-job"}
    left["spec"]["schedulerName"] = "another"
    before = await api.create(JOBS, left)
    await site.submit(job("train", seconds=None))

    async def told() -> Json | None:
        binding = await site.find(BINDINGS, "train-job")
        said = ((binding or {}).get("status") or {}).get("conditions") or ()
        return next((each for each in said if "is not Atoll's" in each.get("message", "")), None)

    try:
        found = await until(told, what="the binding says what is in the way")
        # The Work says it until the dispatcher takes it back, and its verdict after that.
        assert f"{MEMBER}: Job {site.namespace}/train exists there" in found["message"]
        there = await site.find(JOBS, "train", MEMBER)
        assert there is not None
        assert (there["metadata"]["uid"], there["spec"]) == (before["metadata"]["uid"], before["spec"])
    finally:
        await api.delete(JOBS, "train", site.namespace)
        await site.host.delete(JOBS, "train", site.namespace)
