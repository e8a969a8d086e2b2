"""Queues: their state, and the end of closing. The dispatcher, which has the figures, reports their contents."""

from __future__ import annotations

from typing import Any

from atoll.control.caches import Caches
from atoll.control.objects import BindingObject
from atoll.kube.transport import ApiServer
from atoll.kube.workqueue import WorkQueue
from atoll.model.apiresource import QUEUES
from atoll.model.queue_object import QueueObject

Json = dict[str, Any]


class Queues:
    """Keeps the state of every Queue; `atoll.control.commands` opens and closes them."""

    def __init__(self, host: ApiServer, caches: Caches) -> None:
        self._host, self._caches = host, caches
        self._queue: WorkQueue[str] = WorkQueue("queues", lambda key: {"queue": key})
        caches.queues.on_change(self._queue_changed)
        caches.bindings.on_change(self._binding_changed)

    async def run(self) -> None:
        """Keep states until cancelled."""
        await self._queue.run(self._reconcile)

    def _queue_changed(self, old: QueueObject | None, new: QueueObject | None) -> None:
        if new is not None and (old is None or old.status.state != new.status.state):
            self._queue.add(new.metadata.name)

    def _binding_changed(self, old: BindingObject | None, new: BindingObject | None) -> None:
        for binding in (old, new):
            if binding is not None and (gang := binding.gang) is not None:
                self._look_from(gang.queue)

    def _look_from(self, name: str) -> None:
        """A workload of this queue changed: the closing ones on its path may be empty by now."""
        seen: set[str] = set()
        while name not in seen and (queue := self._caches.queues.get(name)) is not None:
            if queue.status.state == "Closing":
                self._queue.add(name)
            seen.add(name)
            name = queue.spec.parent or ""

    async def _reconcile(self, name: str) -> None:
        queue = self._caches.queues.get(name)
        if queue is None:
            return
        known = queue.status.state
        state = known or "Open"
        if state == "Closing" and not self._caches.in_use(name):
            state = "Closed"
        if state != known:
            # A queue that a Command opens meanwhile stays open: the conflict has this look repeated.
            patch = {"metadata": {"resourceVersion": queue.metadata.resource_version}, "status": {"state": state}}
            await self._host.merge_patch(QUEUES, name, patch, subresource="status", field_manager="atoll-control")
