"""Records: each closed run goes to the store once, and into counters.

Runs live in the status of their binding until they are recorded. A binding that goes before leaves them in a ConfigMap,
so the removal of a workload never waits for the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import msgspec
import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from atoll.control.caches import Caches
from atoll.control.objects import BindingObject
from atoll.control.settings import RecordSettings
from atoll.delivery.work import WorkObject, gang_of
from atoll.kinds import Kind
from atoll.kube import errors
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.model import keys, runs
from atoll.model.apiresource import CONFIGMAPS
from atoll.model.objects import Full, decode_full
from atoll.model.runs import EVICTED, Part, Record, Run, Seen
from atoll.model.timestamps import rfc3339

Json = dict[str, Any]
_LABEL = "atoll.sh/records"
"""Label of ConfigMaps with runs of bindings that are gone."""
_BATCH = 10_000
"""Records of one file, at most."""
_METER_S = 15.0
_HOURLY = 3600.0
_decode = msgspec.json.Decoder(list[Record])

log = structlog.get_logger(__name__)


class _Place(NamedTuple):
    """Where a record waits for the store."""

    cache: str
    """`bindings` or `outbox`."""
    key: str
    released: str


class Store(Protocol):
    """See `atoll.control.ledger`."""

    def append(self, records: list[Record], unsure: dict[str, str]) -> None: ...

    def expire(self, days: int) -> int: ...


class RecordMetrics:
    """Counters of usage and evictions, and the state of the store."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.usage = Counter(
            "atoll_usage_seconds",
            "Cores, bytes or devices that runs held, times seconds, from the bound gang to its last pod",
            ["queue", "namespace", "member", "resource"],
            registry=registry,
        )
        self.evictions = Counter(
            "atoll_evictions",
            "Runs that were evicted; for_queue is the queue of the workload that got the place",
            ["queue", "reason", "for_queue"],
            registry=registry,
        )
        self.recorded = Counter("atoll_records_written", "Records in the store", registry=registry)
        self.failures = Counter("atoll_records_failures", "Attempts to write records that failed", registry=registry)
        self.pending = Gauge("atoll_records_pending", "Closed runs that are not in the store yet", registry=registry)


class Records:
    """Follows runs while one leader lasts."""

    def __init__(
        self,
        host: ApiServer,
        caches: Caches,
        metrics: RecordMetrics,
        store: Store | None,
        *,
        settings: RecordSettings = RecordSettings(),
    ) -> None:
        """No I/O happens here. Call it before the caches run."""
        self._host, self._caches, self._metrics, self._store, self._settings = host, caches, metrics, store, settings
        self._outbox: Reflector[Full] = Reflector(
            host, CONFIGMAPS, decode_full, namespace=keys.SYSTEM_NAMESPACE, label_selector=_LABEL
        )
        #: identity of a record -> its place
        self._pending: dict[str, _Place] = {}
        #: UID of a binding -> epoch of its last run in the store, until its status says so
        self._written: dict[str, int] = {}
        #: key of a binding -> its open run as it was metered last
        self._open: dict[str, Run] = {}
        self._tell: Callable[[str], None] = lambda key: None
        caches.bindings.on_change(self._binding_changed)
        self._outbox.on_change(self._outbox_changed)

    def on_written(self, tell: Callable[[str], None]) -> None:
        """Call `tell(key of the binding)` when a run of the binding is in the store."""
        self._tell = tell

    async def run(self) -> None:
        """Meter and write until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._meter())
            if self._store is not None:
                group.create_task(self._outbox.run())
                group.create_task(self._write(self._store))

    # -- runs of a binding ---------------------------------------------------------------------------------------------

    def status_of(self, binding: BindingObject, status: Json, works: list[WorkObject], kind: Kind) -> Json:
        """`runs` and `recorded` for a new status of the binding."""
        after = msgspec.structs.replace(binding, status=status)
        parts = [_part(work, kind) for work in works] if not binding.suspended else []
        followed = self._followed(after, parts, gone=not after.evicting)
        result: Json = {"runs": msgspec.to_builtins(followed)} if followed else {}
        epoch = max(self._written.get(binding.metadata.uid, 0), int(status.get("recorded") or 0))
        return {**result, "recorded": epoch} if epoch else result

    async def keep(self, binding: BindingObject) -> None:
        """Keep the last runs of a binding that goes; its finalizer may go afterwards."""
        left = self._followed(binding, [], gone=True)
        records = [each for each in _records(binding, left) if not self._in_store(each, binding)]
        if self._store is None or not records:
            return
        config = {
            "apiVersion": CONFIGMAPS.api_version,
            "kind": CONFIGMAPS.kind,
            "metadata": {
                "name": f"atoll-records-{binding.metadata.uid}",
                "namespace": keys.SYSTEM_NAMESPACE,
                "labels": {_LABEL: "pending"},
            },
            "data": {"records": msgspec.json.encode(records).decode()},
        }
        await self._host.apply(CONFIGMAPS, config, field_manager="atoll-control")

    def _followed(self, binding: BindingObject, parts: list[Part], *, gone: bool) -> list[Run]:
        decision, wish, found = binding.decision, binding.gang, self._caches.workload_of(binding)
        outcome = next((c for c in binding.status.get("conditions") or () if c["type"] == "Finished"), None)
        seen = Seen(
            time.time(),
            decision,
            queue=wish.queue if wish is not None else "",
            submitted=wish.submitted if wish is not None else "",
            user=found[1].metadata.annotations.get(keys.SUBMITTED_BY, "") if found is not None else "",
            asked=runs.amounts(wish.total()) if wish is not None else {},
            parts=parts,
            bound=binding.condition("Bound"),
            running=binding.condition("Running"),
            outcome=str(outcome["reason"]) if outcome is not None and outcome["status"] == "True" else "",
            gone=gone,
            deleted=binding.metadata.deletion_timestamp or "",
            claimant=self._claimant(decision.room_for) if decision.phase.going else ("", ""),
        )
        return runs.follow(runs.runs_of(binding.status), seen)

    def _claimant(self, uid: str) -> tuple[str, str]:
        found = next(iter(self._caches.bindings.by_index("uid", uid)), None) if uid else None
        if found is None:
            return uid, ""
        wish, reference = found.gang, found.spec.resource
        return f"{reference.namespace}/{reference.name}", wish.queue if wish is not None else ""

    def _in_store(self, record: Record, binding: BindingObject) -> bool:
        last = max(self._written.get(record.uid, 0), int(binding.status.get("recorded") or 0))
        return record.run.epoch <= last

    # -- from caches to the store --------------------------------------------------------------------------------------

    def _binding_changed(self, old: BindingObject | None, new: BindingObject | None) -> None:
        either = new or old
        assert either is not None, "one of both is there"
        uid, key = either.metadata.uid, either.metadata.key
        if not self._caches.owns(either.metadata.namespace):
            return
        present = runs.runs_of(new.status) if new is not None else []
        self._count(key, runs.runs_of(old.status) if old is not None else None, present, either)
        if new is None:
            self._written.pop(uid, None)
            self._open.pop(key, None)
            for each in [each for each, place in self._pending.items() if place[:2] == ("bindings", key)]:
                del self._pending[each]
            return
        if int(new.status.get("recorded") or 0) >= self._written.get(uid, 0):
            self._written.pop(uid, None)
        if self._store is not None:
            for record in _records(new, present):
                if not self._in_store(record, new):
                    self._pending.setdefault(record.id, _Place("bindings", key, record.run.released))

    def _outbox_changed(self, old: Full | None, new: Full | None) -> None:
        if new is not None:
            for record in filter(lambda each: self._caches.owns(each.namespace), _read(new)):
                self._pending[record.id] = _Place("outbox", new.metadata.key, record.run.released)
        elif old is not None:
            for record in _read(old):
                self._pending.pop(record.id, None)

    async def _write(self, store: Store) -> None:
        # The first write looks up all records that may be in the store already.
        await self._outbox.synced.wait()
        expired, until = 0.0, 0.0
        while True:
            self._metrics.pending.set(len(self._pending))
            if len(self._pending) < _BATCH:
                await asyncio.sleep(max(until - time.monotonic(), 0.05))
            until = time.monotonic() + self._settings.every
            try:
                await self._write_batch(store)
                if time.monotonic() > expired:
                    await asyncio.to_thread(store.expire, self._settings.keep)
                    expired = time.monotonic() + _HOURLY
            except Exception as error:
                # Whatever a file system raises, the records stay where they are until it works again.
                self._metrics.failures.inc()
                log.warning("records not written", error=repr(error)[:500], pending=len(self._pending))
                await asyncio.sleep(self._settings.every)

    async def _write_batch(self, store: Store) -> None:
        places = dict(list(self._pending.items())[:_BATCH])
        found = {id_: self._found(id_, place) for id_, place in places.items()}
        batch = [record for record in found.values() if record is not None]
        if batch:
            await asyncio.to_thread(store.append, batch, {id_: each.released for id_, each in self._pending.items()})
            self._metrics.recorded.inc(len(batch))
        for id_, record in found.items():
            self._pending.pop(id_, None)
            place = places[id_]
            binding = self._caches.bindings.get(place.key) if place.cache == "bindings" else None
            if record is not None and binding is not None and binding.metadata.uid == record.uid:
                self._written[record.uid] = max(self._written.get(record.uid, 0), record.run.epoch)
                self._tell(place.key)
        waiting = {place.key for place in self._pending.values()}
        for key in dict.fromkeys(place.key for place in places.values() if place.cache == "outbox"):
            if key not in waiting and (config := self._outbox.get(key)) is not None:
                # One that was applied again since has records that were not read.
                meta = config.metadata
                with contextlib.suppress(errors.Conflict):
                    await self._host.delete(CONFIGMAPS, meta.name, meta.namespace, version=meta.resource_version)

    def _found(self, id_: str, place: _Place) -> Record | None:
        records: list[Record] = []
        if place.cache == "outbox":
            if (config := self._outbox.get(place.key)) is not None:
                records = _read(config)
        elif (binding := self._caches.bindings.get(place.key)) is not None:
            records = _records(binding, runs.runs_of(binding.status))
        return next((each for each in records if each.id == id_), None)

    # -- counters ------------------------------------------------------------------------------------------------------

    async def _meter(self) -> None:
        while True:
            await asyncio.sleep(_METER_S)
            for number, (key, run) in enumerate(list(self._open.items())):
                binding = self._caches.bindings.get(key)
                if binding is not None and self._open.get(key) is run:
                    self._open[key] = runs.counted(run, rfc3339(time.time()))
                    self._add(run, self._open[key], binding)
                if number % 500 == 499:
                    await asyncio.sleep(0)

    def _count(self, key: str, before: list[Run] | None, present: list[Run], binding: BindingObject) -> None:
        """Count the difference between two states of a binding; a leader's first look counts nothing."""
        known = {run.epoch: run for run in before or ()}
        metered = self._open.pop(key, None)
        for run in present:
            old = known.get(run.epoch)
            if before is not None and run.outcome == EVICTED and (old is None or not old.ended):
                self._metrics.evictions.labels(run.queue, run.reason, run.for_queue).inc()
            if metered is not None and metered.epoch == run.epoch:
                self._add(metered, run, binding)
            elif before is not None and old is None:
                self._add(None, run, binding)
            if not run.released:
                self._open[key] = run if before is not None else runs.counted(run, rfc3339(time.time()))

    def _add(self, before: Run | None, run: Run, binding: BindingObject) -> None:
        known = {part.member: part.seconds for part in before.parts} if before is not None else {}
        for part in run.parts:
            for resource, seconds in part.seconds.items():
                more = seconds - known.get(part.member, {}).get(resource, 0.0)
                if more > 0:
                    labels = (run.queue, binding.metadata.namespace, part.member, resource)
                    self._metrics.usage.labels(*labels).inc(more)


def _records(binding: BindingObject, present: list[Run]) -> list[Record]:
    """The closed runs."""
    reference, metadata = binding.spec.resource, binding.metadata
    kind = runs.kind_of(reference.api_version, reference.kind)
    return [
        Record(metadata.uid, reference.namespace or metadata.namespace, reference.name, kind, run)
        for run in present
        if run.released
    ]


def _read(config: Full) -> list[Record]:
    try:
        return _decode.decode((config.body.get("data") or {}).get("records") or "[]")
    except msgspec.MsgspecError:
        log.warning("records can't be read", configmap=config.metadata.key)
        return []


def _part(work: WorkObject, kind: Kind) -> Part:
    gang, placement = gang_of(work, kind), work.reported.get("placement") or {}
    return Part(
        keys.cluster_of(work.metadata.namespace),
        gang.replicas,
        str(placement.get("domain") or ""),
        runs.amounts(gang.total()),
        busy=_busy(placement.get("busy")),
    )


def _busy(said: Any) -> dict[str, float]:
    """What a member says of the use of its part; nothing where that can't be."""
    try:
        found = msgspec.convert(said or {}, dict[str, float])
    except msgspec.ValidationError:
        return {}
    return {name: found[name] for name in ("cpu", "memory") if 0 <= found.get(name, -1.0) < math.inf}
