"""Members as ClusterProfiles of the Cluster Inventory API, for programs that don't know Atoll's own objects.

A ClusterProfile has no credentials. ClusterProfiles of another manager are left alone, also where they have the name of
a member.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import structlog

from atoll.control.caches import Caches
from atoll.control.objects import ClusterObject, decode_cluster
from atoll.control.settings import ProfileSettings
from atoll.kube.crds import crd_name, wake
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.kube.workqueue import WorkQueue
from atoll.model.apiresource import CLUSTER_PROFILES
from atoll.model.conditions import with_condition
from atoll.model.objects import Slim
from atoll.model.profiles import IDENTITY, MANAGER

Json = dict[str, Any]

_CRD: Final = crd_name(CLUSTER_PROFILES)
_LABEL: Final = "x-k8s.io/cluster-manager"
_LONGEST: Final = 1024
"""Characters of a property's value, by the API."""

log = structlog.get_logger(__name__)


class Profiles:
    """Keeps one ClusterProfile for each Cluster, where a namespace is named for them."""

    def __init__(self, host: ApiServer, caches: Caches, *, settings: ProfileSettings) -> None:
        self._host, self._caches, self._namespace = host, caches, settings.namespace
        self._queue: WorkQueue[str] = WorkQueue("profiles", lambda key: {"cluster": key})
        self._found = Reflector(
            host, CLUSTER_PROFILES, decode_cluster, namespace=settings.namespace or None, optional=True
        )
        if self._namespace:
            wake(caches.crds, [self._found])
            caches.crds.on_change(self._crd_changed)
            self._found.on_change(self._changed)
            caches.clusters.on_change(self._changed)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        if not self._namespace:
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(self._found.run())
            await self._found.synced.wait()
            group.create_task(self._queue.run(self._reconcile))

    def _changed(self, old: ClusterObject | None, new: ClusterObject | None) -> None:
        either = new or old
        assert either is not None, "one of both is there"
        self._queue.add(either.metadata.name)

    def _crd_changed(self, old: Slim | None, new: Slim | None) -> None:
        if new is not None and new.metadata.name == _CRD:
            for cluster in self._caches.clusters:
                self._queue.add(cluster.metadata.name)

    async def _reconcile(self, name: str) -> None:
        cluster, found = self._caches.clusters.get(name), self._found.get(f"{self._namespace}/{name}")
        manager = found.spec["clusterManager"]["name"] if found is not None else MANAGER
        if manager != MANAGER:
            if cluster is not None:
                log.warning("a ClusterProfile of this name is another manager's", cluster=name, manager=manager)
            return
        if cluster is None:
            if found is not None:
                await self._host.delete(CLUSTER_PROFILES, name, self._namespace)
            return
        if found is None:
            if self._caches.crds.get(_CRD) is None:
                return
            # The watch brings it back here, for its status.
            await self._host.create(CLUSTER_PROFILES, _new(name, self._namespace), field_manager="atoll-control")
            return
        status = status_of(cluster, found.status)
        if status != found.status:
            await self._host.merge_patch(
                CLUSTER_PROFILES,
                name,
                {"status": status},
                self._namespace,
                subresource="status",
                field_manager="atoll-control",
            )


def _new(name: str, namespace: str) -> Json:
    return {
        "apiVersion": CLUSTER_PROFILES.api_version,
        "kind": CLUSTER_PROFILES.kind,
        "metadata": {"name": name, "namespace": namespace, "labels": {_LABEL: MANAGER}},
        "spec": {"displayName": name, "clusterManager": {"name": MANAGER}},
    }


def status_of(cluster: ClusterObject, before: Json) -> Json:
    """Facts in its ClusterProfile about a member; lists that others may have written are replaced."""
    ready = cluster.ready
    conditions = with_condition(
        list(before.get("conditions") or ()),
        "ControlPlaneHealthy",
        {"True": True, "False": False}.get(ready.get("status", "")),
        ready.get("reason") or "NotReported",
        ready.get("message") or "",
        now=time.time(),
    )
    said = {
        IDENTITY: cluster.spec.get("id"),
        "atoll.sh/region": cluster.spec.get("region"),
        "atoll.sh/provider": cluster.spec.get("provider"),
        "atoll.sh/zones": ",".join(cluster.spec.get("zones") or ()),
    }
    properties = [{"name": name, "value": str(value)[:_LONGEST]} for name, value in said.items() if value]
    version = cluster.status.get("kubernetesVersion")
    return {
        **before,
        "conditions": conditions,
        **({"properties": properties} if properties or before.get("properties") else {}),
        **({"version": {"kubernetes": version}} if version else {}),
    }
