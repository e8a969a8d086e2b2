"""Pods with claims in a member where Atoll places: what they wait for, and which nodes their volumes allow."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.model import placer
from atoll.model.apiresource import (
    BINDINGS,
    CLAIMS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    SERVICE_ACCOUNTS,
    STORAGE_CLASSES,
    VOLUMES,
)
from tests.integration.federation import Json, Site, accepting, job, until

pytestmark = pytest.mark.integration

MEMBER = "topo"


def claim(name: str, **spec: Any) -> Json:
    resources = {"requests": {"storage": "1Gi"}}
    about = {"apiVersion": "v1", "kind": CLAIMS.kind, "metadata": {"name": name}}
    return {**about, "spec": {"accessModes": ["ReadWriteOnce"], "resources": resources, **spec}}


async def make(site: Site, obj: Json) -> Json:
    return await site.members[MEMBER].create(
        CLAIMS, {**obj, "metadata": {**obj["metadata"], "namespace": site.namespace}}
    )


def mounting(name: str, *claims: str) -> Json:
    """A bare pod for Atoll's scheduler."""
    volumes = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]
    tolerations = [{"key": placer.TAINT["key"], "operator": "Exists"}]
    container = {"name": "c", "image": "busybox", "resources": {"requests": {"cpu": "100m"}}}
    spec = {"schedulerName": "atoll", "containers": [container], "volumes": volumes, "tolerations": tolerations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


async def start(site: Site, pod: Json) -> None:
    pod["metadata"]["namespace"] = site.namespace
    await site.members[MEMBER].create(PODS, pod)


async def opened(site: Site) -> None:
    """The namespace in the member, with what its controllers make in it."""
    api = site.members[MEMBER]
    await api.create(NAMESPACES, accepting(site.namespace))
    await until(lambda: site.find(SERVICE_ACCOUNTS, "default", MEMBER), what="the namespace has its account")


async def waits(site: Site, name: str, words: str) -> None:
    """Wait until the pod says that it does not get a node, and why."""

    async def look() -> bool:
        pod = await site.find(PODS, name, MEMBER)
        assert pod is not None
        assert not pod["spec"].get("nodeName")
        conditions = (pod.get("status") or {}).get("conditions") or ()
        said = [each for each in conditions if each["type"] == "PodScheduled" and each["status"] == "False"]
        return any(each["reason"] == "Unschedulable" and words in each.get("message", "") for each in said)

    await until(look, what=f"pod {name} says {words!r}")


async def placed(site: Site, name: str) -> str:
    """Wait until the pod has a node."""

    async def look() -> str | None:
        pod = await site.find(PODS, name, MEMBER)
        node: str | None = (pod or {}).get("spec", {}).get("nodeName")
        return node

    return await until(look, what=f"pod {name} has a node")


def on_node(name: str, hostname: str, claim_of: str) -> Json:
    """A volume that only one node reaches, for one claim."""
    among = {"key": "kubernetes.io/hostname", "operator": "In", "values": [hostname]}
    namespace, _, claim_name = claim_of.partition("/")
    return {
        "apiVersion": "v1",
        "kind": VOLUMES.kind,
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
            "persistentVolumeReclaimPolicy": "Delete",
            "hostPath": {"path": "/data"},
            "claimRef": {"apiVersion": "v1", "kind": CLAIMS.kind, "namespace": namespace, "name": claim_name},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [among]}]}},
        },
    }


async def test_a_bare_pod_waits_for_a_claim_that_is_missing_and_starts_once_it_is_there(site: Site) -> None:
    await opened(site)
    await start(site, mounting("waits", "data"))
    await waits(site, "waits", 'persistentvolumeclaim "data" not found')
    await make(site, claim("data", storageClassName="immediate"))
    await placed(site, "waits")
    await site.members[MEMBER].delete(PODS, "waits", site.namespace)


async def test_a_pod_waits_for_a_volume_and_runs_on_the_node_that_reaches_it(site: Site) -> None:
    """1. Its claim is of no class and not bound. 2. A volume comes that the last node has."""
    await opened(site)
    api = site.members[MEMBER]
    nodes = sorted(each["metadata"]["name"] for each in await api.list(NODES))
    await make(site, claim("data", storageClassName=""))
    await start(site, mounting("waits", "data"))
    await waits(site, "waits", 'unbound immediate PersistentVolumeClaims: persistentvolumeclaim "data"')
    volume = f"v-{site.namespace}"
    await api.create(VOLUMES, on_node(volume, nodes[-1], f"{site.namespace}/data"))
    assert await placed(site, "waits") == nodes[-1]
    # Another one, that may not be there, waits with the reason of the nodes.
    beside = mounting("beside", "data")
    beside["spec"]["nodeSelector"] = {"kubernetes.io/hostname": nodes[0]}
    await start(site, beside)
    await waits(site, "beside", "didn't match Pod's node affinity/selector")
    for name in ("waits", "beside"):
        await api.delete(PODS, name, site.namespace)
    await api.delete(CLAIMS, "data", site.namespace)
    await api.delete(VOLUMES, volume)


async def test_a_claim_that_waits_for_its_first_pod_gets_its_volume_before_the_pod_is_bound(site: Site) -> None:
    await opened(site)
    await make(site, claim("data"))
    await start(site, mounting("first", "data"))
    node = await placed(site, "first")
    found = await site.find(CLAIMS, "data", MEMBER)
    assert found is not None
    assert found["status"]["phase"] == "Bound"
    assert found["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] == node
    await site.members[MEMBER].delete(PODS, "first", site.namespace)


async def test_a_claim_whose_class_makes_no_volumes_is_refused_with_the_reason(site: Site) -> None:
    await opened(site)
    name = f"local-{site.namespace}"
    about = {"apiVersion": STORAGE_CLASSES.api_version, "kind": STORAGE_CLASSES.kind, "metadata": {"name": name}}
    mode = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
    api = site.members[MEMBER]
    await api.create(STORAGE_CLASSES, {**about, **mode})
    await make(site, claim("data", storageClassName=name))
    await start(site, mounting("waits", "data"))
    await waits(site, "waits", f'storageclass "{name}" makes no volumes')
    await api.delete(PODS, "waits", site.namespace)
    await api.delete(STORAGE_CLASSES, name)


async def test_a_gang_whose_claim_is_missing_in_the_member_says_so_on_the_host(site: Site) -> None:
    await site.only(MEMBER)
    made = job("gang", replicas=2, seconds=None)
    pod = made["spec"]["tasks"][0]["template"]["spec"]
    pod["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    await site.submit(made)

    async def told() -> bool:
        binding = await site.find(BINDINGS, "gang-job")
        said = ((binding or {}).get("status") or {}).get("aggregatedStatus") or ()
        places = [(each.get("status") or {}).get("placement") or {} for each in said]
        return any('persistentvolumeclaim "data" not found' in place.get("waiting", "") for place in places)

    await until(told, what="the host knows why")
    assert not any(each["spec"].get("nodeName") for each in await site.pods(MEMBER))
    await make(site, claim("data", accessModes=["ReadWriteMany"]))
    await site.phase("gang", "Running")
    await site.host.delete(JOBS, "gang", site.namespace)
