"""Kubernetes Events about what Atoll does, never in anybody's way.

Recording is fire and forget through a bounded queue. The same sentence about the same object is told once per
`REPEAT` seconds, and each object has a small budget, so a gang that waits for days does not fill etcd.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import structlog

from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model.apiresource import EVENTS
from atoll.model.timestamps import rfc3339_micro

REPEAT = 120.0
_BURST, _REFILL = 10.0, 1 / 60
_ALL_BURST, _ALL_REFILL = 100.0, 20.0
"""Normal events of the whole process: a burst of work must not spend its writes on telling of it; warnings may."""
_REMEMBERED = 4096
_QUEUED = 1000

log = structlog.get_logger(__name__)


class Recorder:
    """Writes events.k8s.io/v1 Events; `run` must be running for anything to be written."""

    def __init__(self, api: ApiServer, component: str) -> None:
        self._api = api
        self._component = component
        self._queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue(_QUEUED)
        #: (uid, reason, note) -> when it was last told
        self._told: OrderedDict[tuple[str, str, str], float] = OrderedDict()
        #: uid -> (tokens, when)
        self._budget: OrderedDict[str, tuple[float, float]] = OrderedDict()
        #: (tokens, when) for normal events about anything
        self._all = (_ALL_BURST, time.monotonic())
        self.dropped = 0

    def record(
        self,
        about: Mapping[str, Any],
        reason: str,
        note: str,
        *,
        warning: bool = False,
        action: str = "",
        related: Mapping[str, Any] | None = None,
    ) -> None:
        """Tell something about an object.

        Args:
            about: an object reference: apiVersion, kind, namespace, name, uid.
            reason: CamelCase, why.
            note: the sentence; cut at 1,024 bytes, as the API demands.
            warning: whether something is wrong.
            action: what was done; the reason where empty.
            related: a second object that it is about.
        """
        now = time.monotonic()
        uid = str(about.get("uid", ""))
        if not self._may(uid, (uid, reason, note), now, warning):
            return
        namespace = about.get("namespace") or "default"
        event = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": f"{about.get('name', 'object')}.{uuid.uuid4().hex[:12]}", "namespace": namespace},
            "eventTime": rfc3339_micro(time.time()),
            "reportingController": f"atoll.sh/{self._component}",
            "reportingInstance": self._component,
            "action": action or reason,
            "reason": reason,
            "regarding": dict(about),
            "note": note.encode()[:1024].decode(errors="ignore"),
            "type": "Warning" if warning else "Normal",
        }
        if related is not None:
            event["related"] = dict(related)
        try:
            self._queue.put_nowait(event)
        except asyncio.QueueFull:
            self.dropped += 1

    def _may(self, uid: str, sentence: tuple[str, str, str], now: float, warning: bool) -> bool:
        last = self._told.get(sentence)
        if last is not None and now - last < REPEAT:
            return False
        if not warning:
            tokens = min(_ALL_BURST, self._all[0] + (now - self._all[1]) * _ALL_REFILL)
            self._all = (tokens, now)
            if tokens < 1:
                self.dropped += 1
                return False
            self._all = (tokens - 1, now)
        tokens, when = self._budget.get(uid, (_BURST, now))
        tokens = min(_BURST, tokens + (now - when) * _REFILL)
        if tokens < 1:
            self.dropped += 1
            return False
        self._budget[uid] = (tokens - 1, now)
        self._told[sentence] = now
        for memory in (self._told, self._budget):
            while len(memory) > _REMEMBERED:
                memory.popitem(last=False)
        return True

    async def run(self) -> None:
        """Write what was recorded, until cancelled."""
        while True:
            event = await self._queue.get()
            try:
                await self._api.create(EVENTS, event)
            except errors.ApiError as error:
                log.debug("event was not written", error=str(error))
