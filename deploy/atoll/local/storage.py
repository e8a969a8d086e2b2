"""Storage of a member: a default class, and a stand-in for the driver that makes its volumes.

kwok mounts nothing, yet claims must be bound as elsewhere: not before their first pod has a node, by a volume that is
where that node is. The volume binder of the controller manager does its part; what asks for a volume is answered here.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from atoll.kube.errors import AlreadyExists, NotFound
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.kube.workqueue import WorkQueue
from atoll.local.install import create_all
from atoll.model.apiresource import CLAIMS, NODES, STORAGE_CLASSES, VOLUMES, ApiResource
from atoll.model.objects import Full, decode_full

DRIVER = "storage.local.atoll.sh"
FIRST_CONSUMER, IMMEDIATE = "standard", "immediate"
"""Storage classes: the default one makes a volume once a pod that uses the claim has a node, the other one at once."""
_DRIVERS = ApiResource("storage.k8s.io", "v1", "csidrivers", "CSIDriver", namespaced=False)
_ZONE = "topology.kubernetes.io/zone"
_PROVISIONER = "volume.kubernetes.io/storage-provisioner"
_SELECTED_NODE = "volume.kubernetes.io/selected-node"
_PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"


async def install_classes(api: ApiServer) -> None:
    """Create the driver and both classes."""
    driver = {"apiVersion": _DRIVERS.api_version, "kind": _DRIVERS.kind, "metadata": {"name": DRIVER}}
    # kwok attaches nothing: the attach-detach controller is not to wait for it.
    await create_all(api, _DRIVERS, [{**driver, "spec": {"attachRequired": False}}])
    await create_all(
        api, STORAGE_CLASSES, [_class(FIRST_CONSUMER, "WaitForFirstConsumer"), _class(IMMEDIATE, "Immediate")]
    )


def _class(name: str, mode: str) -> dict[str, Any]:
    default = str(name == FIRST_CONSUMER).lower()
    return {
        "apiVersion": STORAGE_CLASSES.api_version,
        "kind": STORAGE_CLASSES.kind,
        "metadata": {"name": name, "annotations": {"storageclass.kubernetes.io/is-default-class": default}},
        "provisioner": DRIVER,
        "volumeBindingMode": mode,
        "reclaimPolicy": "Delete",
        "allowVolumeExpansion": True,
    }


class Provisioner:
    """Makes the volumes that claims of one member ask for, and removes those whose claim is gone."""

    def __init__(self, api: ApiServer) -> None:
        """No I/O happens here.

        Args:
            api: an administrator's client of the member; whoever made it closes it.
        """
        self._api = api
        self._claims: Reflector[Full] = Reflector(api, CLAIMS, decode_full)
        self._volumes: Reflector[Full] = Reflector(api, VOLUMES, decode_full)
        self._queue: WorkQueue[tuple[ApiResource, str]] = WorkQueue("provisioner")
        for cache in (self._claims, self._volumes):
            cache.on_change(self._watching(cache.resource))

    def _watching(self, resource: ApiResource) -> Any:
        def changed(_: Full | None, new: Full | None) -> None:
            if new is not None:
                self._queue.add((resource, new.metadata.key))

        return changed

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._claims.run())
            group.create_task(self._volumes.run())
            group.create_task(self._queue.run(self._reconcile))

    async def _reconcile(self, key: tuple[ApiResource, str]) -> None:
        resource, name = key
        found = (self._claims if resource is CLAIMS else self._volumes).get(name)
        if found is None or found.metadata.deletion_timestamp:
            return
        if resource is CLAIMS:
            if found.metadata.annotations.get(_PROVISIONER) == DRIVER and not found.body["spec"].get("volumeName"):
                await self._provide(found)
        elif (
            found.metadata.annotations.get(_PROVISIONED_BY) == DRIVER
            and (found.body.get("status") or {}).get("phase") == "Released"
            and found.body["spec"].get("persistentVolumeReclaimPolicy") == "Delete"
        ):
            await self._remove(name)

    async def _provide(self, claim: Full) -> None:
        node = claim.metadata.annotations.get(_SELECTED_NODE, "")
        with contextlib.suppress(AlreadyExists):
            await self._api.create(VOLUMES, _volume(claim, await self._zone(node) if node else ""))

    async def _remove(self, name: str) -> None:
        with contextlib.suppress(NotFound):
            await self._api.delete(VOLUMES, name)

    async def _zone(self, node: str) -> str:
        """The node's zone; empty where nodes have none: the volume can be reached from all of them."""
        labels: dict[str, str] = (await self._api.get(NODES, node))["metadata"].get("labels") or {}
        return labels.get(_ZONE, "")


def _volume(claim: Full, zone: str) -> dict[str, Any]:
    spec, meta = claim.body["spec"], claim.metadata
    name = f"pvc-{meta.uid}"
    reference = {"apiVersion": "v1", "kind": CLAIMS.kind, "namespace": meta.namespace, "name": meta.name}
    zones = {"matchExpressions": [{"key": _ZONE, "operator": "In", "values": [zone]}]}
    return {
        "apiVersion": "v1",
        "kind": VOLUMES.kind,
        "metadata": {"name": name, "annotations": {_PROVISIONED_BY: DRIVER}},
        "spec": {
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "accessModes": spec["accessModes"],
            "volumeMode": spec.get("volumeMode", "Filesystem"),
            "storageClassName": spec["storageClassName"],
            "persistentVolumeReclaimPolicy": "Delete",
            "claimRef": {**reference, "uid": meta.uid},
            "csi": {"driver": DRIVER, "volumeHandle": name},
            **({"nodeAffinity": {"required": {"nodeSelectorTerms": [zones]}}} if zone else {}),
        },
    }
