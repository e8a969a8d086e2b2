"""What pods insist on: Atoll's own placer looks at it, or they wait with that reason, on the host and in a member."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.model import keys
from atoll.model.apiresource import BINDINGS, CAPACITIES, CRDS, NODES, NUMA_TOPOLOGIES, PODS
from tests.integration.federation import Site, job, until
from tests.integration.foreign_crds import bring

pytestmark = pytest.mark.integration

ANTI = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "alone"}}}
        ]
    }
}


CLAIM = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]


def insisting(name: str) -> dict[str, Any]:
    made = job(name, replicas=2)
    template = made["spec"]["tasks"][0]["template"]
    template["metadata"]["labels"] = {"app": "alone"}
    template["spec"]["affinity"] = ANTI
    return made


async def test_pods_that_keep_each_other_away_get_a_node_each_and_wait_where_there_are_too_few(site: Site) -> None:
    """1. Two pods: two nodes. 2. Nine: no member has so many."""
    await site.submit(insisting("apart"))

    async def placed() -> list[str] | None:
        pods = [pod for name in site.members for pod in await site.pods(name)]
        nodes = [pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")]
        return nodes if len(nodes) == 2 else None

    assert len(set(await until(placed, what="both have nodes"))) == 2
    many = insisting("many")
    many["spec"]["tasks"][0]["replicas"] = many["spec"]["minAvailable"] = 9
    await site.submit(many)

    async def refused() -> bool:
        binding = await site.find(BINDINGS, "many-job")
        text = ((binding or {}).get("metadata") or {}).get("annotations", {}).get(keys.DECISION, "")
        return "anti-affinity" in text or "alpha holds" in text

    await until(refused, what="a member refuses")
    assert not [pod for name in site.members for pod in await site.pods(name) if "many" in pod["metadata"]["name"]]


async def test_a_bare_pod_whose_claim_is_not_made_stays_pending_in_the_member_with_that_reason(site: Site) -> None:
    member = site.members["alpha"]
    spec = {**insisting("x")["spec"]["tasks"][0]["template"]["spec"], "resourceClaims": CLAIM}
    name = f"bare-{site.namespace}"
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "alone"}},
        "spec": {**spec, "schedulerName": "atoll"},
    }
    await member.create(PODS, pod)

    async def told() -> bool:
        found = await member.get(PODS, name, "default")
        conditions = found.get("status", {}).get("conditions", ())
        return any(
            each["type"] == "PodScheduled"
            and "waiting for the resource claim controller to create the claim" in each["message"]
            for each in conditions
            if each.get("message")
        )

    try:
        await until(told, what="the pod says why it waits")
        assert not (await member.get(PODS, name, "default"))["spec"].get("nodeName")
    finally:
        await member.delete(PODS, name, "default")


async def test_pods_with_a_host_port_run_on_a_node_each_and_wait_with_that_reason_where_none_is_free(
    site: Site,
) -> None:
    """1. Two pods with a port in one job: two nodes. 2. Nine with the same port wait: no member has so many nodes."""
    made = job("ports", replicas=2, seconds=None)
    container = made["spec"]["tasks"][0]["template"]["spec"]["containers"][0]
    container["ports"] = [{"containerPort": 80, "hostPort": 18080}]
    await site.submit(made)

    async def placed() -> list[str] | None:
        pods = [pod for name in site.members for pod in await site.pods(name)]
        nodes = [pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")]
        return nodes if len(nodes) == 2 else None

    nodes = await until(placed, what="both have nodes")
    assert len(set(nodes)) == 2
    many = job("many", replicas=9)
    many["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["ports"] = container["ports"]
    await site.submit(many)

    async def refused() -> bool:
        binding = await site.find(BINDINGS, "many-job")
        text = ((binding or {}).get("metadata") or {}).get("annotations", {}).get(keys.DECISION, "")
        return "alpha holds 8 of the 9 pods of its part" in text

    await until(refused, what="a member refuses")
    assert not [pod for name in site.members for pod in await site.pods(name) if "many" in pod["metadata"]["name"]]


async def test_a_pod_that_kubelets_align_goes_where_one_numa_node_has_its_cpus(site: Site) -> None:
    """Every node has two free CPUs: one has them in one NUMA node, the others in two. The member is asked."""
    member = site.members["alpha"]
    await bring([member], [NUMA_TOPOLOGIES])
    names = sorted(node["metadata"]["name"] for node in await member.list(NODES))
    for name in names:
        body = {
            "apiVersion": NUMA_TOPOLOGIES.api_version,
            "kind": NUMA_TOPOLOGIES.kind,
            "metadata": {"name": name},
            "spec": {
                "policies": {"CPUManagerPolicy": "static", "TopologyManagerPolicy": "single-numa-node"},
                "numares": {"cpu": {"allocatable": "0-1" if name == names[-1] else "0,2", "capacity": 4}},
                "cpuDetail": {str(cpu): {"numa": cpu // 2, "socket": 0, "core": cpu} for cpu in range(4)},
            },
        }
        await member.create(NUMA_TOPOLOGIES, body)

    async def told() -> bool:
        return any(each["spec"].get("aligns") for each in await site.host.list(CAPACITIES, "karmada-es-alpha"))

    try:
        await until(told, what="the host knows that the member's kubelets align")
        await site.only("alpha")
        for name in ("aligned", "again"):
            made = job(name, cpu="2", seconds=None)
            task = made["spec"]["tasks"][0]
            task["topologyPolicy"] = "single-numa-node"
            amounts = {"cpu": "2", "memory": "64Mi"}
            task["template"]["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
            await site.submit(made)
            if name == "aligned":
                assert await site.where("aligned") == "alpha"

        async def placed() -> list[str]:
            return [pod["spec"]["nodeName"] for pod in await site.pods("alpha") if pod["spec"].get("nodeName")]

        assert await until(placed, what="it has a node") == [names[-1]]

        async def refused() -> bool:
            binding = await site.find(BINDINGS, "again-job")
            text = ((binding or {}).get("metadata") or {}).get("annotations", {}).get(keys.DECISION, "")
            return "alpha holds 0 of the 1 pod" in text and "NUMA nodes" in text

        await until(refused, what="the member refuses another one")
        assert len(await site.pods("alpha")) == 1
    finally:
        await member.delete(CRDS, f"{NUMA_TOPOLOGIES.plural}.{NUMA_TOPOLOGIES.group}")

        async def gone() -> bool:
            return not any(each["spec"].get("aligns") for each in await site.host.list(CAPACITIES, "karmada-es-alpha"))

        await until(gone, what="nothing is aligned any more")
