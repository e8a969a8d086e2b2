"""Queues: their counts from the bindings, and the end of closing."""

from __future__ import annotations

from typing import Any

from atoll.control.caches import Caches
from atoll.control.objects import BindingObject, QueueObject
from atoll.kube.transport import ApiServer
from atoll.kube.workqueue import WorkQueue
from atoll.model.apiresource import QUEUES

Json = dict[str, Any]
COUNTED = 1.0
"""Least seconds between two updates of a queue's counts."""


class Queues:
    """Keeps the status of every Queue; `atoll.control.commands` opens and closes them."""

    def __init__(self, host: ApiServer, caches: Caches) -> None:
        self._host, self._caches = host, caches
        self._queue: WorkQueue[str] = WorkQueue("queues", lambda key: {"queue": key})
        caches.queues.on_change(self._queue_changed)
        caches.bindings.on_change(self._binding_changed)

    async def run(self) -> None:
        """Keep state and counts until cancelled."""
        await self._queue.run(self._reconcile)

    def _queue_changed(self, old: QueueObject | None, new: QueueObject | None) -> None:
        if new is not None and (old is None or old.status.get("state") != new.status.get("state")):
            self._queue.add(new.metadata.name)

    def _binding_changed(self, old: BindingObject | None, new: BindingObject | None) -> None:
        for binding in (old, new):
            if binding is not None and (gang := binding.gang) is not None:
                self._queue.add(gang.queue, after=COUNTED)

    async def _reconcile(self, name: str) -> None:
        queue = self._caches.queues.get(name)
        if queue is None:
            return
        counts = self._caches.queue_counts(name)
        state = queue.status.get("state") or "Open"
        if state == "Closing" and not counts["running"]:
            state = "Closed"
        wanted = {"state": state, **counts}
        if any(queue.status.get(key, 0) != value for key, value in wanted.items()):
            await self._host.merge_patch(
                QUEUES, name, {"status": wanted}, subresource="status", field_manager="atoll-control"
            )
