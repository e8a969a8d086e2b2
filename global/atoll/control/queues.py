"""Queues: their state by Command, their counts from the bindings."""

from __future__ import annotations

from typing import Any

import structlog

from atoll.control.caches import Caches
from atoll.control.objects import BindingObject, CommandObject, QueueObject
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.kube.workqueue import WorkQueue
from atoll.model.apiresource import COMMANDS, QUEUES

Json = dict[str, Any]
COUNTED = 1.0
"""Least seconds between two updates of a queue's counts."""
_STATES = {"OpenQueue": "Open", "CloseQueue": "Closed"}

log = structlog.get_logger(__name__)


class Queues:
    """Keeps the status of every Queue, and consumes the Commands that target one."""

    def __init__(self, host: ApiServer, caches: Caches) -> None:
        self._host, self._caches = host, caches
        self._queue: WorkQueue[str] = WorkQueue("queues")
        self._commands: WorkQueue[str] = WorkQueue("commands")
        caches.queues.on_change(self._queue_changed)
        caches.bindings.on_change(self._binding_changed)
        caches.commands.on_change(lambda old, new: self._commands.add(new.metadata.key) if new is not None else None)

    async def run(self) -> None:
        """Consume Commands one at a time until cancelled."""
        await self._commands.run(self._obey)

    async def run_counts(self) -> None:
        """Keep state and counts until cancelled."""
        await self._queue.run(self._reconcile)

    def _queue_changed(self, old: QueueObject | None, new: QueueObject | None) -> None:
        if new is not None and (old is None or old.status.get("state") != new.status.get("state")):
            self._queue.add(new.metadata.name)

    def _binding_changed(self, old: BindingObject | None, new: BindingObject | None) -> None:
        for binding in (old, new):
            if binding is not None and (gang := binding.gang) is not None:
                self._queue.add(gang.queue, after=COUNTED)

    async def _obey(self, key: str) -> None:
        command = self._caches.commands.get(key)
        if command is None:
            return
        target = command.target
        state = _STATES.get(command.action)
        if target is None or target.kind != QUEUES.kind or state is None:
            log.warning("command is not for a queue and is left alone", command=key, action=command.action)
            return
        queue = self._caches.queues.get(target.name)
        if queue is not None and (not target.uid or target.uid == queue.metadata.uid):
            if state == "Closed" and self._counts(target.name)["running"]:
                state = "Closing"
            patch = {"status": {"state": state}}
            await self._host.merge_patch(
                QUEUES, target.name, patch, subresource="status", field_manager="atoll-control"
            )
        await self._delete(command)

    async def _delete(self, command: CommandObject) -> None:
        try:
            await self._host.delete(
                COMMANDS, command.metadata.name, command.metadata.namespace, uid=command.metadata.uid
            )
        except errors.Conflict:
            return

    async def _reconcile(self, name: str) -> None:
        queue = self._caches.queues.get(name)
        if queue is None:
            return
        counts = self._counts(name)
        state = queue.status.get("state") or "Open"
        if state == "Closing" and not counts["running"]:
            state = "Closed"
        wanted = {"state": state, **counts}
        if any(queue.status.get(key, 0) != value for key, value in wanted.items()):
            await self._host.merge_patch(
                QUEUES, name, {"status": wanted}, subresource="status", field_manager="atoll-control"
            )

    def _counts(self, name: str) -> dict[str, int]:
        counts = {"pending": 0, "running": 0, "completed": 0}
        for binding in self._caches.bindings.by_index("queue", name):
            if binding.condition("Finished"):
                counts["completed"] += 1
            elif binding.suspended:
                counts["pending"] += 1
            else:
                counts["running"] += 1
        return counts
