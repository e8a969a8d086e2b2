"""Bindings of policies with `schedulerName: atoll` get their gang; from then on the dispatcher queues them.

The webhook has suspended them when Karmada made them. A binding that can't be queued says so by an Event on its
workload: it has pods that another scheduler has placed already, or has none at all.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import msgspec
import structlog

from atoll.control.karmada import gangs
from atoll.control.karmada.caches import Caches, is_ours, reference, spec
from atoll.control.settings import DetectorSettings
from atoll.kinds.metadata import default_queue
from atoll.kube import errors
from atoll.kube.events import Recorder
from atoll.kube.transport import ApiServer
from atoll.kube.workqueue import WorkQueue
from atoll.model import gang, keys, numbers
from atoll.model.apiresource import BINDINGS
from atoll.model.gang import Gang
from atoll.model.objects import MALFORMED, Full
from atoll.model.priority import class_of, default_class
from atoll.model.reports import readable
from atoll.model.verdict import Reason

Json = dict[str, Any]

NOT_SERVED: Final = "NotServed"
"""Reason of the Event on a workload that Atoll can't queue."""

log = structlog.get_logger(__name__)


class Adoption:
    """Writes the gangs."""

    def __init__(self, host: ApiServer, caches: Caches, recorder: Recorder, *, settings: DetectorSettings) -> None:
        self._host, self._caches, self._recorder, self._settings = host, caches, recorder, settings
        self._queue: WorkQueue[str] = WorkQueue("adoption", lambda key: {"binding": key})
        caches.bindings.on_change(self._binding_changed)
        for reflector in caches.workloads.values():
            reflector.on_change(self._workload_changed)
        caches.namespaces.on_change(lambda old, new: self._all_changed())
        caches.priority_classes.on_change(lambda old, new: self._all_changed())

    async def run(self) -> None:
        """Reconcile until cancelled."""
        await self._queue.run(self._reconcile, workers=self._settings.workers)

    def _binding_changed(self, old: Full | None, new: Full | None) -> None:
        if new is not None and (old is None or _read(old) != _read(new)):
            self._queue.add(new.metadata.key)

    def _workload_changed(self, old: Full | None, new: Full | None) -> None:
        if new is not None and (old is None or _said(old) != _said(new)):
            for binding in self._caches.bindings.by_index("workload", new.metadata.uid):
                self._queue.add(binding.metadata.key)

    def _all_changed(self) -> None:
        for binding in self._caches.bindings:
            self._queue.add(binding.metadata.key)

    async def _reconcile(self, key: str) -> None:
        binding = self._caches.bindings.get(key)
        if binding is None or binding.metadata.deletion_timestamp is not None:
            return
        if spec(binding).get("schedulerName") != keys.SCHEDULER_NAME:
            return
        if (why := unserved(binding)) is not None:
            self._tell(binding, NOT_SERVED, why)
            return
        try:
            wanted = self._gang(binding)
            gang.check(wanted)
        except gang.BadGang as error:
            self._tell(binding, Reason.INVALID_GANG, str(error))
            return
        except MALFORMED as error:
            log.warning("workload can't be read", binding=key, exc_info=True)
            self._tell(
                binding, "InvalidWorkload", f"it can't be read: {readable(str(error))}; fix it and apply it again"
            )
            return
        text = gang.encode(wanted)
        if binding.metadata.annotations.get(keys.GANG) == text:
            return
        patch = {"metadata": {"uid": binding.metadata.uid, "annotations": {keys.GANG: text}}}
        with suppress(errors.NotFound):
            await self._host.merge_patch(
                BINDINGS, binding.metadata.name, patch, binding.metadata.namespace, field_manager="atoll-adoption"
            )

    def _gang(self, binding: Full) -> Gang:
        before = _gang_of(binding)
        kind = gangs.kind_of(spec(binding))
        cache = self._caches.workloads.get(kind.resource) if kind is not None else None
        about = reference(binding)
        workload = cache.get(f"{about.get('namespace')}/{about.get('name')}") if cache is not None else None
        arrival = before.arrival if before is not None else numbers.whole(binding.metadata.resource_version) or 0
        found = self._caches.namespaces.get(binding.metadata.namespace)
        queue = default_queue(found.metadata.annotations if found is not None else None)
        if kind is None or workload is None:
            # Its template is not read: what Karmada took from it is in the binding, all but its labels.
            wanted = gangs.of_binding(binding.body, _template(binding), default_queue=queue, arrival=arrival)
        else:
            classes = self._caches.priority_classes
            class_ = class_of(kind.priority_class_of(workload.body), classes)
            asked = kind.gang(
                workload.body, priority=class_.value, default_class=default_class(classes), default_queue=queue
            )
            wanted = gangs.for_karmada(msgspec.structs.replace(asked, preempts=class_.preempts))
        wanted = msgspec.structs.replace(wanted, arrival=arrival)
        if before is not None and (spec(binding).get("clusters") or ()):
            # A dispatched workload stays in the queue that admitted it.
            wanted = msgspec.structs.replace(wanted, queue=before.queue)
        return wanted

    def _tell(self, binding: Full, reason: str, note: str) -> None:
        about = {key: reference(binding).get(key, "") for key in ("apiVersion", "kind", "namespace", "name", "uid")}
        self._recorder.record(about, reason, note, warning=True)


def unserved(binding: Full) -> str | None:
    """Why Atoll can't queue a binding that its policy leaves to Atoll, and what to do; None where it can."""
    if not is_ours(binding):
        return (
            "its policy says schedulerName: atoll, and it has no pods: Atoll queues workloads alone; propagate it by a"
            " policy of its own with another scheduler, or as a dependency (propagateDeps) of the workload"
        )
    if keys.EPOCH not in binding.metadata.annotations:
        return (
            "its policy says schedulerName: atoll, but it was scheduled before that: it runs on as it is, in no queue;"
            " delete it and apply it again to have it queued"
        )
    return None


def _gang_of(binding: Full) -> Gang | None:
    try:
        return gang.decode(binding.metadata.annotations.get(keys.GANG, ""))
    except msgspec.MsgspecError:
        return None


def _template(binding: Full) -> Json:
    """The metadata of a workload of a kind that is not watched, as far as its binding has it."""
    metadata = binding.metadata
    return {
        "metadata": {
            "labels": metadata.labels,
            "annotations": metadata.annotations,
            "creationTimestamp": metadata.creation_timestamp,
        }
    }


def _read(binding: Full) -> tuple[object, ...]:
    """What of a binding its gang depends on."""
    known = spec(binding)
    parts = (
        "resource",
        "replicas",
        "replicaRequirements",
        "components",
        "schedulerName",
        "schedulePriority",
        "clusters",
    )
    annotations = binding.metadata.annotations
    return (annotations.get(keys.GANG), keys.EPOCH in annotations, *(known.get(each) for each in parts))


def _said(workload: Full) -> tuple[object, ...]:
    """What of a workload its gang depends on."""
    metadata = workload.metadata
    return metadata.uid, metadata.generation, metadata.labels, metadata.annotations
