"""Removes finished workloads after their `ttlSecondsAfterFinished`, on the host alone: the members' parts go with them.

The moment is counted from the times that the object itself carries, so that a restart neither forgets nor postpones
it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import structlog

from atoll.control.caches import Caches
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


class Ttl:
    """Deletes finished workloads of namespaces that have opted in."""

    def __init__(self, host: ApiServer, caches: Caches) -> None:
        self._host, self._caches = host, caches
        self._queue: WorkQueue[tuple[ApiResource, str]] = WorkQueue(
            "ttl", lambda key: {"kind": key[0].kind, "workload": key[1]}
        )
        for resource, reflector in caches.workloads.items():
            reflector.on_change(partial(self._changed, resource))
        caches.namespaces.on_change(self._namespace_changed)

    async def run(self) -> None:
        """Delete due workloads until cancelled."""
        await self._queue.run(self._reconcile, workers=4)

    def _changed(self, resource: ApiResource, _: Full | None, new: Full | None) -> None:
        if new is None or _time_to_live(new.body) is None:
            return
        if (due := self._due(resource, new)) is not None:
            self._queue.add((resource, new.metadata.key), after=max(0.0, due - time.time()))

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
    return None if ttl is None or ended is None else to_seconds(ended) + int(ttl)


def _time_to_live(obj: Mapping[str, Any]) -> int | None:
    """Seconds; None for a workload that stays."""
    return (obj.get("spec") or {}).get("ttlSecondsAfterFinished")
