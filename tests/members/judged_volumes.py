"""Claims of all kinds for pods that kube-scheduler and our placer judge."""

from __future__ import annotations

import random
from typing import Any

import orjson

from atoll.agent.scheduler.core.events import ClaimSet, StorageClassSet, VolumeSet
from atoll.agent.scheduler.core.mounts import Mounts
from atoll.agent.volumes import decode_claim, decode_class, decode_volume
from atoll.kube.transport import ApiServer
from atoll.local.install import wait_until
from atoll.model.apiresource import CLAIMS, CSI_NODES, STORAGE_CLASSES, VOLUMES, ApiResource

Json = dict[str, Any]
DRIVER, BARE_DRIVER = "disk.example.com", "bare.example.com"
ZONE, KIND = "topology.kubernetes.io/zone", "kind"
_DRIVERS = ApiResource("storage.k8s.io", "v1", "csidrivers", "CSIDriver", namespaced=False)
ANYWHERE = tuple(f"any-{number}" for number in range(6))
BOUND = ("zone-x", "zone-yz", "kind-u", "label-y", "either", "alone", *ANYWHERE)
"""Claims that have a volume: in zones, of a kind of node or of either, by its label, of one pod at a time, anywhere."""
OPEN = ("late", "late-x", "soon", "missing")
"""Claims that have none: of classes that wait for a pod, that wait and are of one zone, that don't; that are not."""
SIZE = {"requests": {"storage": "1Gi"}}


def _among(key: str, *values: str) -> Json:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}


AFFINITIES: dict[str, list[Json]] = {
    "zone-x": [_among(ZONE, "x")],
    "zone-yz": [_among(ZONE, "y", "z")],
    "kind-u": [_among(KIND, "u")],
    "either": [_among(ZONE, "x"), _among(KIND, "v")],
}
CLASSES: dict[str, Json] = {
    "late": {"volumeBindingMode": "WaitForFirstConsumer"},
    "late-x": {
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": ["x"]}]}],
    },
    "soon": {"volumeBindingMode": "Immediate"},
}


async def provide(api: ApiServer, mounts: Mounts, spaces: list[str]) -> None:
    """The same classes, volumes and claims for both, in each of these namespaces."""
    driver = {"apiVersion": _DRIVERS.api_version, "kind": _DRIVERS.kind, "spec": {"attachRequired": False}}
    for each in (DRIVER, BARE_DRIVER):
        await api.create(_DRIVERS, {**driver, "metadata": {"name": each}})
    for name, fields in CLASSES.items():
        head = {"apiVersion": STORAGE_CLASSES.api_version, "kind": STORAGE_CLASSES.kind, "metadata": {"name": name}}
        made = await api.create(STORAGE_CLASSES, {**head, "provisioner": BARE_DRIVER, **fields})
        mounts.changed(StorageClassSet(decode_class(orjson.dumps(made))))
    for space in spaces:
        for name in BOUND:
            await api.create(VOLUMES, _volume(name, space))
        for name in (*BOUND, *CLASSES):
            await api.create(CLAIMS, _claim(name, space))
    for space in spaces:
        await wait_until(lambda space=space: _unbound(api, space), f"claims of {space} are bound", 60)  # type: ignore[misc]
        for claim in await api.list(CLAIMS, space):
            mounts.changed(ClaimSet(decode_claim(orjson.dumps(claim))))
    for volume in await api.list(VOLUMES):
        mounts.changed(VolumeSet(decode_volume(orjson.dumps(volume))))


async def _unbound(api: ApiServer, space: str) -> str:
    there = {each["metadata"]["name"]: each for each in await api.list(CLAIMS, space)}
    waiting = [name for name in BOUND if there[name].get("status", {}).get("phase") != "Bound"]
    return f"{waiting} wait" if waiting else ""


def _volume(name: str, space: str) -> Json:
    labels = {ZONE: "y"} if name == "label-y" else {}
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": AFFINITIES[name]}}} if name in AFFINITIES else {}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{space}-{name}", "labels": labels},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": _modes(name),
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": space, "name": name},
            "csi": {"driver": DRIVER, "volumeHandle": f"{space}-{name}"},
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
            **affinity,
        },
    }


def _claim(name: str, space: str) -> Json:
    bound = name in BOUND
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": space},
        "spec": {
            "accessModes": _modes(name),
            "resources": SIZE,
            "storageClassName": "" if bound else name,
            **({"volumeName": f"{space}-{name}"} if bound else {}),
        },
    }


def _modes(name: str) -> list[str]:
    return ["ReadWriteOncePod"] if name == "alone" else ["ReadWriteMany"]


async def limit(api: ApiServer, node: Json, most: int) -> Json:
    """Let the node attach so many volumes."""
    driver = {"name": DRIVER, "nodeID": node["metadata"]["name"], "allocatable": {"count": most}}
    owner = {"apiVersion": "v1", "kind": "Node", "name": node["metadata"]["name"], "uid": node["metadata"]["uid"]}
    meta = {"name": node["metadata"]["name"], "ownerReferences": [owner]}
    body = {
        "apiVersion": CSI_NODES.api_version,
        "kind": CSI_NODES.kind,
        "metadata": meta,
        "spec": {"drivers": [driver]},
    }
    return await api.create(CSI_NODES, body)


def wanted(rng: random.Random) -> list[Json]:
    """Volumes of a pod: none, most often."""
    if rng.random() < 0.65:
        return []
    names = rng.sample(ANYWHERE, rng.choice([0, 0, 1, 2]))
    names += rng.sample(BOUND[: -len(ANYWHERE)], rng.choice([1, 1, 2])) if rng.random() < 0.6 or not names else []
    if rng.random() < 0.12:
        names.append(rng.choice(OPEN))
    return [{"name": f"v{n}", "persistentVolumeClaim": {"claimName": name}} for n, name in enumerate(names)]
