"""End of a workload in the member, and of its Work."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import structlog

from atoll.delivery.needs import Needs
from atoll.delivery.settings import DeliverySettings
from atoll.delivery.statuses import Statuses
from atoll.delivery.work import WorkObject
from atoll.kinds import BY_GVK, Kind
from atoll.kube import errors
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.kube.workqueue import WorkQueue
from atoll.model import keys
from atoll.model.apiresource import CLAIMS, WORKS, ApiResource
from atoll.model.objects import Full
from atoll.model.queues import EVICT_TIMEOUT

Json = dict[str, Any]
EndPods = Callable[[str, int], Awaitable[None]]
"""Binding UID, seconds: has its pods end within that time."""

log = structlog.get_logger(__name__)


class Removal:
    """Removes objects, then lets their Works go."""

    def __init__(
        self,
        host: ApiServer,
        member: ApiServer,
        objects: Mapping[ApiResource, Reflector[Full]],
        queue: WorkQueue[str],
        needs: Needs,
        statuses: Statuses,
        *,
        end_pods: EndPods | None,
        release: Callable[[str], None],
        settings: DeliverySettings,
    ) -> None:
        """No I/O happens here.

        Args:
            host: its API server.
            member: its API server.
            objects: caches of the workload kinds in the member, with index `work`.
            queue: of Works to look at again.
            needs: of workloads.
            statuses: of Works.
            end_pods: has the pods of a binding that goes end in time; None leaves that to their maker.
            release: ends the reservation of a binding.
            settings: of delivery.
        """
        self._host, self._member, self._objects, self._queue = host, member, objects, queue
        self._needs, self._statuses, self._end_pods = needs, statuses, end_pods
        self._release, self._settings = release, settings

    async def withdraw(self, work: WorkObject, kind: Kind, found: Full | None) -> None:
        """Remove the object, wait until it and its pods are gone, then let the Work go."""
        if work.spec.preserve_resources_on_deletion:
            await self._leave_behind(work, kind, found)
            return
        if found is not None and found.metadata.annotations.get(keys.BINDING_UID) == work.binding_uid:
            await self.remove(kind, found)
            if self._end_pods is not None:
                await self._end_pods(work.binding_uid, int(EVICT_TIMEOUT) if work.grace is None else work.grace)
            await self._statuses.leave(work, kind, found)
            return
        if not await self._gone(work, kind):
            self._queue.add(work.metadata.key, after=self._settings.look_again)
            return
        self._release(work.binding_uid)
        if work.metadata.annotations.get(keys.FINAL) == "true":
            await self._remove_claims(work)
        await self._needs.tidy(work)
        await self.let_go(work)

    async def _leave_behind(self, work: WorkObject, kind: Kind, found: Full | None) -> None:
        """Have the member keep the object and its needs, which are Atoll's no more, and end the Work."""
        if found is not None and found.metadata.annotations.get(keys.BINDING_UID) == work.binding_uid:
            # The fence is for what the host may run elsewhere.
            labels, notes = (keys.MANAGED, keys.ON_LOST), (keys.BINDING_UID, keys.EPOCH)
            patch = {"labels": dict.fromkeys(labels), "annotations": dict.fromkeys(notes)}
            about = found.metadata
            with suppress(errors.NotFound):
                await self._member.merge_patch(
                    kind.resource, about.name, {"metadata": {**patch, "uid": about.uid}}, about.namespace
                )
            log.info("left in the member, as its policy asks", kind=kind.resource.kind, workload=about.key)
        await self._needs.leave(work)
        self._release(work.binding_uid)
        await self.let_go(work)

    async def _remove_claims(self, work: WorkObject) -> None:
        """Remove the PersistentVolumeClaims that were made for the workload, which is deleted on the host."""
        namespace = work.manifest["metadata"]["namespace"]
        selector = f"{keys.BINDING_UID}={work.binding_uid}"
        for claim in await self._member.list(CLAIMS, namespace, label_selector=selector):
            metadata = claim["metadata"]
            if not metadata.get("deletionTimestamp"):
                await self._delete(CLAIMS, metadata["name"], namespace, metadata["uid"])

    async def let_go(self, work: WorkObject) -> None:
        """Let the API server delete the Work."""
        rest = [name for name in work.metadata.finalizers if name != keys.WORK_FINALIZER]
        if len(rest) != len(work.metadata.finalizers):
            patch = {"metadata": {"finalizers": rest, "resourceVersion": work.metadata.resource_version}}
            with suppress(errors.NotFound):
                await self._host.merge_patch(WORKS, work.metadata.name, patch, work.metadata.namespace)

    async def _gone(self, work: WorkObject, kind: Kind) -> bool:
        """Whether the member itself, and not merely its cache, has no object of this Work; if it has one, it goes."""
        wanted = work.manifest["metadata"]
        if self._objects[kind.resource].absent:
            return True
        for there in await self._member.named(kind.resource, wanted["name"], wanted["namespace"]):
            metadata = there["metadata"]
            if (metadata.get("annotations") or {}).get(keys.BINDING_UID) == work.binding_uid:
                if not metadata.get("deletionTimestamp"):
                    await self._delete(kind.resource, wanted["name"], wanted["namespace"], metadata["uid"])
                return False
        return True

    async def sweep(self, key: str) -> None:
        """Remove what came by a Work that is no more: its creation was under way when the Work was withdrawn."""
        namespace, name = key.split("/")
        for resource, reflector in self._objects.items():
            for obj in reflector.by_index("work", key):
                if not await self._host.named(WORKS, name, namespace):
                    log.warning("no Work asks for it: removed", kind=resource.kind, workload=obj.metadata.key)
                    await self.remove(BY_GVK[resource.api_version, resource.kind], obj)

    async def remove(self, kind: Kind, found: Full) -> None:
        """Delete an object; in the foreground, so that it stays until its pods are gone."""
        if found.metadata.deletion_timestamp is None:
            metadata = found.metadata
            await self._delete(kind.resource, metadata.name, metadata.namespace, metadata.uid)

    async def _delete(self, resource: ApiResource, name: str, namespace: str, uid: str) -> None:
        # Otherwise the cache is behind: it is gone, or another one has its name.
        with suppress(errors.NotFound, errors.Conflict):
            await self._member.delete(resource, name, namespace, uid=uid, propagation="Foreground")
