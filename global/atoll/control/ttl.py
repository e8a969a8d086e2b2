"""Removes finished workloads after their `ttlSecondsAfterFinished`, on the host alone: the members' parts go with them.

The moment is counted from the times that the object itself carries, so that a restart neither forgets nor postpones
it. Workloads without a time to live stay, up to a number that the host's etcd holds easily: beyond that the ones that
ended first go. Others' objects are their owners' to remove.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import structlog

from atoll.control.caches import Caches, about_workload
from atoll.control.settings import FinishedSettings
from atoll.kinds import BY_RESOURCE, Kind
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.kube.workqueue import WorkQueue
from atoll.model import keys
from atoll.model.apiresource import ApiResource
from atoll.model.namespaces import opted_in
from atoll.model.objects import Full, Slim
from atoll.model.timestamps import to_seconds

log = structlog.get_logger(__name__)

Item = tuple[ApiResource, str]
"""(kind of a workload, its namespace/name)."""


class Ended:
    """Ended workloads that nothing else removes, by the time of their end."""

    def __init__(self) -> None:
        self._at: dict[Item, float] = {}
        #: (end, number, item), the earliest first; without effect where the item has another end by now
        self._heap: list[tuple[float, int, Item]] = []
        self._number = 0

    def __len__(self) -> int:
        return len(self._at)

    def put(self, item: Item, at: float | None) -> None:
        """It ended then; None for one that has not, is gone, or is removed otherwise."""
        if at is None:
            self._at.pop(item, None)
        elif self._at.get(item) != at:
            self._at[item] = at
            self._number += 1
            heapq.heappush(self._heap, (at, self._number, item))

    def beyond(self, most: int) -> Item | None:
        """Take the one that ended first, where there are more than so many; None where there are not."""
        while len(self._at) > most:
            at, _, item = heapq.heappop(self._heap)
            if self._at.get(item) == at:
                del self._at[item]
                return item
        return None


class Ttl:
    """Deletes finished workloads of namespaces that have opted in."""

    def __init__(self, host: ApiServer, caches: Caches, *, settings: FinishedSettings) -> None:
        self._host, self._caches, self._settings = host, caches, settings
        self._queue: WorkQueue[Item] = WorkQueue("ttl", about_workload, owns=caches.owns)
        self._ended = Ended()
        #: more ended than may stay, of which these go
        self._excess: set[Item] = set()
        for resource, reflector in caches.workloads.items():
            reflector.on_change(partial(self._changed, resource))
        caches.namespaces.on_change(self._namespace_changed)

    async def run(self) -> None:
        """Delete due workloads until cancelled."""
        await self._queue.run(self._reconcile, workers=4)

    def _changed(self, resource: ApiResource, old: Full | None, new: Full | None) -> None:
        found = new or old
        if found is None or not self._caches.owns(found.metadata.namespace):
            return
        for gone in (old,) if old is not None and new is None else ():
            self._ended.put((resource, gone.metadata.key), None)
        if new is None:
            return
        item = resource, new.metadata.key
        if _time_to_live(new.body) is None:
            self._keep(item, new)
        elif (due := self._due(resource, new)) is not None:
            self._queue.add(item, after=max(0.0, due - time.time()))

    def _keep(self, item: Item, obj: Full) -> None:
        """Count an ended workload that has no time to live, and let the first go where there are too many."""
        resource, _ = item
        kind, status = BY_RESOURCE[resource], obj.body.get("status") or {}
        own = not obj.metadata.owner_references and self._caches.left_to_atoll(resource, obj.metadata)
        ended = kind.ended_at(status) if own and kind.finished(status) is not None else None
        self._ended.put(item, to_seconds(ended) if ended is not None else None)
        most = self._settings.most and max(1, self._settings.most // self._caches.shard.of)
        while most and (first := self._ended.beyond(most)) is not None:
            self._excess.add(first)
            self._queue.add(first)

    def _namespace_changed(self, old: Slim | None, new: Slim | None) -> None:
        if new is None or not opted_in(new.metadata.labels):
            return
        if old is not None and old.metadata.labels.get(keys.ENABLED) == new.metadata.labels.get(keys.ENABLED):
            return
        for resource, reflector in self._caches.workloads.items():
            for obj in reflector:
                if obj.metadata.namespace == new.metadata.name:
                    self._changed(resource, None, obj)

    def _due(self, resource: ApiResource, obj: Full) -> float | None:
        kind = BY_RESOURCE[resource]
        return None if kind.finished(obj.body.get("status") or {}) is None else due_at(kind, obj.body)

    async def _reconcile(self, item: tuple[ApiResource, str]) -> None:
        resource, key = item
        obj = self._caches.workloads[resource].get(key)
        if obj is None or obj.metadata.deletion_timestamp is not None:
            return
        if not self._caches.left_to_atoll(resource, obj.metadata):
            return
        due = self._due(resource, obj)
        if item in self._excess:
            self._excess.discard(item)
            due = 0.0 if BY_RESOURCE[resource].finished(obj.body.get("status") or {}) is not None else None
        if due is None:
            return
        if (left := due - time.time()) > 0:
            self._queue.add(item, after=left)
            return
        meta = obj.metadata
        try:
            await self._host.delete(resource, meta.name, meta.namespace, uid=meta.uid)
        except errors.Conflict:
            # Another object has the name by now; its own event tells of it.
            return
        log.info("finished workload removed", kind=resource.kind, workload=key)


def due_at(kind: Kind, obj: Mapping[str, Any]) -> float | None:
    """Time to remove a finished workload, in seconds since the epoch; None where it has no time to live.

    Args:
        kind: of the workload.
        obj: a workload that has ended, whole.
    """
    ttl, ended = _time_to_live(obj), kind.ended_at(obj.get("status") or {})
    return None if ttl is None or ended is None else to_seconds(ended) + ttl


def _time_to_live(obj: Mapping[str, Any]) -> int | None:
    """Seconds; None for a workload that stays. Training jobs of Kubeflow have it in their run policy."""
    spec = obj.get("spec") or {}
    policy = spec.get("runPolicy")
    found = [each.get("ttlSecondsAfterFinished") for each in (spec, policy) if isinstance(each, Mapping)]
    return next((each for each in found if isinstance(each, int) and each >= 0), None)
