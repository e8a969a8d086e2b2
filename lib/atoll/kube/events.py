"""Kubernetes Events about what Atoll does, never in anybody's way.

Recording is fire and forget. A repetition about the same object, word for word, within `WINDOW` seconds is one
Event whose `series` counts, as with client-go's broadcaster; other than there the note belongs to the identity,
because a gang that waits for other numbers than before is news. Each object has a small budget and the process has
one, so a gang that waits for days does not fill etcd, and a burst of work does not spend its writes on telling of it.
Events over the budget are dropped and counted.
"""

from __future__ import annotations

import asyncio
import math
import re
import socket
import time
import uuid
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
import structlog

from atoll.kube import client_metrics, errors
from atoll.kube.backoff import ceiling
from atoll.kube.transport import ApiServer
from atoll.model.apiresource import EVENTS, ApiResource
from atoll.model.timestamps import rfc3339_micro

WINDOW = 360.0
"""Seconds without a repetition after which a series is over."""
REFRESH = 60.0
"""Least seconds between two writes of one series, after the first repetition was written."""
SWEEP = 5.0
"""Seconds between two looks for repetitions to write."""
BURST, REFILL = 10.0, 1 / 60
"""Events about one object: so many at once, so many a second in the long run."""
ALL_BURST, ALL_REFILL = 100.0, 20.0
"""The same for the whole process, normal events and warnings each."""

_NAME_MAX, _SUFFIX = 253, 12
_NOTE_MAX, _WORD_MAX = 1024, 128
_REMEMBERED = 4096
_QUEUED = 1000
_TRIES, _PAUSE = 4, 1.0
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")

_Key = tuple[str, ...]

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Bucket:
    """Tokens that come back with time."""

    burst: float
    refill: float
    tokens: float
    at: float

    def take(self, now: float) -> bool:
        self.tokens = min(self.burst, self.tokens + (now - self.at) * self.refill)
        self.at = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


@dataclass(slots=True)
class _Series:
    """One Event, and how often it was observed."""

    #: the Event as JSON: thousands are remembered, and few are written a second time
    body: bytes
    #: observations so far, and written ones; 0 = the Event does not exist yet
    count: int
    written: int
    #: seconds of the clock, and since the epoch, of the last observation
    last: float
    last_wall: float
    #: seconds of the clock at the last write
    written_at: float = 0.0
    queued: bool = False


class Recorder:
    """Writes events.k8s.io/v1 Events; `run` must be running for anything to be written."""

    def __init__(self, api: ApiServer, component: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        """No I/O happens here.

        Args:
            api: where the objects are of the Events.
            component: reports as `atoll.sh/<component>`.
            clock: gives seconds that never go back.
        """
        self._api = api
        self._component = component
        self._clock = clock
        self._instance = f"{component}-{socket.gethostname()}"[:_WORD_MAX]
        self._queue: asyncio.Queue[tuple[_Key, _Series]] = asyncio.Queue(_QUEUED)
        #: recorded series, the longest silent first
        self._series: OrderedDict[_Key, _Series] = OrderedDict()
        #: object -> its budget, the longest unused first
        self._budgets: OrderedDict[str, _Bucket] = OrderedDict()
        now = self._clock()
        #: warning or not -> budget of the process
        self._all = {kind: _Bucket(ALL_BURST, ALL_REFILL, ALL_BURST, now) for kind in (False, True)}
        #: outcome (written, repeated, dropped, failed) -> calls of `record`
        self.outcomes: Counter[str] = Counter()
        client_metrics.recorders.add(self)

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
        """Tell something about an object; returns at once, whatever the API server does.

        Args:
            about: an object reference: apiVersion, kind, namespace, name, uid.
            reason: CamelCase, why; cut at 128 characters.
            note: the sentence; cut at 1,024 bytes, as the API demands.
            warning: whether something is wrong.
            action: the action; the reason where empty.
            related: a second object that it is about.
        """
        now = self._clock()
        which = str(about.get("uid") or "") or f"{about.get('kind')}/{about.get('namespace')}/{about.get('name')}"
        key = (which, str(warning), reason, action, note, str((related or {}).get("uid", "")))
        series = self._series.get(key)
        if series is not None and now - series.last < WINDOW:
            series.count += 1
            series.last, series.last_wall = now, time.time()
            self._series.move_to_end(key)
            self.outcomes["repeated"] += 1
            return
        if self._queue.full() or not self._may(which, now, warning):
            self.outcomes["dropped"] += 1
            return
        body = self._body(about, reason, note, warning, action, related)
        series = self._series[key] = _Series(orjson.dumps(body), 1, 0, now, time.time())
        self._series.move_to_end(key)
        self._enqueue(key, series)
        while len(self._series) > _REMEMBERED:
            self._series.popitem(last=False)

    async def run(self) -> None:
        """Write recorded Events, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._sweep())
            while True:
                key, series = await self._queue.get()
                series.queued = False
                await self._write(key, series)

    # -- budget ----------------------------------------------------------------------------------------------------

    def _may(self, which: str, now: float, warning: bool) -> bool:
        bucket = self._budgets.get(which)
        if bucket is None:
            bucket = self._budgets[which] = _Bucket(BURST, REFILL, BURST, now)
            while len(self._budgets) > _REMEMBERED:
                self._budgets.popitem(last=False)
        self._budgets.move_to_end(which)
        # The object's first: one that talks too much must not use up what the others share.
        return bucket.take(now) and self._all[warning].take(now)

    def _enqueue(self, key: _Key, series: _Series) -> None:
        if not series.queued and not self._queue.full():
            series.queued = True
            self._queue.put_nowait((key, series))

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP)
            now = self._clock()
            for key, series in list(self._series.items()):
                over = now - series.last >= WINDOW
                if 0 < series.written < series.count:
                    # A second time is written soon, the further ones now and then, the last one in the end.
                    if series.written == 1 or over or now - series.written_at >= REFRESH:
                        self._enqueue(key, series)
                elif over and not series.queued:
                    del self._series[key]
            full = BURST / REFILL
            while self._budgets and now - next(iter(self._budgets.values())).at > full:
                self._budgets.popitem(last=False)

    # -- writing -----------------------------------------------------------------------------------------------------

    def _body(
        self,
        about: Mapping[str, Any],
        reason: str,
        note: str,
        warning: bool,
        action: str,
        related: Mapping[str, Any] | None,
    ) -> dict[str, Any]:
        body = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": _name(str(about.get("name", ""))), "namespace": about.get("namespace") or "default"},
            "eventTime": rfc3339_micro(time.time()),
            "reportingController": f"atoll.sh/{self._component}",
            "reportingInstance": self._instance,
            "action": (action or reason)[:_WORD_MAX],
            "reason": reason[:_WORD_MAX],
            "regarding": dict(about),
            "note": note.encode()[:_NOTE_MAX].decode(errors="ignore"),
            "type": "Warning" if warning else "Normal",
        }
        if related is not None:
            body["related"] = dict(related)
        return body

    async def _write(self, key: _Key, series: _Series) -> None:
        for left in reversed(range(_TRIES)):
            count = series.count
            try:
                await self._put(series, count)
            except (errors.Unreachable, errors.Busy) as error:
                if left:
                    await asyncio.sleep(ceiling(_PAUSE, _TRIES - left, math.inf))
                    continue
                self._failed(key, series, error)
            except errors.ApiError as error:
                # Refused: the namespace is on its way out, or the account may not.
                self._failed(key, series, error)
            else:
                self.outcomes["written"] += series.written == 0
                series.written, series.written_at = count, self._clock()
            return

    async def _put(self, series: _Series, count: int) -> None:
        seen = {"count": count, "lastObservedTime": rfc3339_micro(series.last_wall)}
        body = orjson.loads(series.body)
        metadata = body["metadata"]
        if series.written:
            try:
                await self._api.merge_patch(EVENTS, metadata["name"], {"series": seen}, metadata["namespace"])
            except errors.NotFound:
                # Events live for an hour; one that is still true is written anew.
                body["metadata"] = {**metadata, "name": _name(str(body["regarding"].get("name", "")))}
                series.body = orjson.dumps(body)
            else:
                return
        try:
            await self._api.create(EVENTS, {**body, "series": seen} if count > 1 else body)
        except errors.AlreadyExists:
            # Names are random: this one is ours, and its answer was lost.
            return

    def _failed(self, key: _Key, series: _Series, error: errors.ApiError) -> None:
        self.outcomes["failed"] += 1
        if self._series.get(key) is series:
            del self._series[key]
        log.debug("event was not written", reason=orjson.loads(series.body)["reason"], error=str(error))


def reference(resource: ApiResource, namespace: str, name: str, uid: str) -> dict[str, Any]:
    """An object as `Recorder.record` takes it."""
    about = {"apiVersion": resource.api_version, "kind": resource.kind, "namespace": namespace}
    return {**about, "name": name, "uid": uid}


def _name(about: str) -> str:
    """A name of its own for an Event about an object of this name."""
    start = about[: _NAME_MAX - _SUFFIX - 1].rstrip("-.")
    if not _SUBDOMAIN.fullmatch(start):
        start = re.sub(r"[^a-z0-9]+", "-", start.lower()).strip("-") or "object"
    return f"{start}.{uuid.uuid4().hex[:_SUFFIX]}"
