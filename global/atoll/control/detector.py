"""Workload → binding: every workload in an opted-in namespace gets one ResourceBinding with its needs.

The detector creates a binding suspended and at epoch 0, and afterwards keeps exactly its own fields as they must be:
resource, replicas, components, placement and the gang annotation. It deletes the binding when the workload is gone.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

import structlog

from atoll.control import foreign, policies
from atoll.control.binding_drafts import BindingDrafts, claim, owned
from atoll.control.caches import Caches, about_workload
from atoll.control.objects import BindingObject
from atoll.control.predecessors import Predecessors
from atoll.control.settings import ControlSettings
from atoll.control.statuses import STATUS_REFUSED, breaks_rules, put_status
from atoll.delivery.work import WorkObject
from atoll.kinds import BY_GVK, BY_RESOURCE, Kind, known, objects_of, statuses
from atoll.kube import errors
from atoll.kube.events import Recorder
from atoll.kube.transport import ApiServer
from atoll.kube.workqueue import WorkQueue
from atoll.model import claim_charges, gang, keys
from atoll.model.apiresource import BINDINGS, ApiResource
from atoll.model.binding_names import binding_names
from atoll.model.objects import MALFORMED, Full
from atoll.model.overrides import OverrideObject
from atoll.model.policies import TooMany
from atoll.model.queue_object import QueueObject
from atoll.model.reports import readable
from atoll.model.timestamps import rfc3339_seconds

Json = dict[str, Any]
Key = tuple[ApiResource, str]
_TOGETHER_S = 0.1
"""Seconds in which changes of a namespace's policies come together: each is about all of its workloads."""

log = structlog.get_logger(__name__)


class Detector:
    """Keeps bindings as workloads and policies ask."""

    def __init__(
        self, host: ApiServer, caches: Caches, recorder: Recorder, *, settings: ControlSettings = ControlSettings()
    ) -> None:
        self._settings = settings
        self._host, self._caches, self._recorder = host, caches, recorder
        self._drafts = BindingDrafts(caches, self._tell)
        self._predecessors = Predecessors(host, caches, recorder, settings=settings.predecessors)
        self.queue: WorkQueue[Key] = WorkQueue("detector", about_workload, owns=caches.owns)
        #: namespaces all of whose workloads need a look
        self._namespaces: WorkQueue[str] = WorkQueue("namespaces", lambda name: {"namespace": name})
        for kind in known():
            self._follow(kind)
        caches.bindings.on_change(self._binding_changed)
        caches.namespaces.on_change(lambda old, new: self._namespace_changed(new.metadata.name) if new else None)
        caches.policies.on_change(lambda old, new: self._namespace_changed((new or old).metadata.namespace))  # type: ignore[union-attr]
        caches.cluster_policies.on_change(lambda old, new: self._all_changed())
        for claims in caches.device_claims.values():
            claims.on_change(self._device_claim_changed)
        caches.queues.on_change(self._queue_changed)
        caches.overrides.on_change(lambda old, new: self._override_came(old, new))
        caches.cluster_overrides.on_change(lambda old, new: self._override_came(old, new))
        caches.priority_classes.on_change(lambda old, new: self._all_changed())
        caches.works.on_change(self._work_changed)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.queue.run(self.reconcile, workers=self._settings.detector.workers))
            group.create_task(self._namespaces.run(self.look_at_namespace))

    # -- triggers ----------------------------------------------------------------------------------------------------

    def _follow(self, kind: Kind) -> None:
        def changed(old: Full | None, new: Full | None) -> None:
            same = old is not None and new is not None and old.metadata.uid == new.metadata.uid
            with suppress(*MALFORMED):
                if same and old and new and _said(kind, old) == _said(kind, new):
                    return
            found = new or old
            if found is not None:
                self.queue.add((kind.resource, found.metadata.key))

        self._caches.workloads[kind.resource].on_change(changed)

    def _binding_changed(self, old: BindingObject | None, new: BindingObject | None) -> None:
        binding = new or old
        same = old is not None and new is not None and owned(old) == owned(new) and old.charged == new.charged
        if binding is None or same:
            return
        self._look_at_workload_of(binding)

    def _work_changed(self, old: WorkObject | None, new: WorkObject | None) -> None:
        """The last dispatch is over: its finished work need not be done again."""
        if old is not None and new is None:
            annotations = old.metadata.annotations
            key = f"{annotations.get(keys.BINDING_NAMESPACE)}/{annotations.get(keys.BINDING_NAME)}"
            if (binding := self._caches.bindings.get(key)) is not None:
                self._look_at_workload_of(binding)

    def _queue_changed(self, old: QueueObject | None, new: QueueObject | None) -> None:
        before, after = (_inherited(each) for each in (old, new))
        if before != after:
            self._all_changed()

    def _device_claim_changed(self, old: Full | None, new: Full | None) -> None:
        """Workloads may have waited for it; its spec never changes."""
        if old is None and new is not None and not new.metadata.controller_uid:
            self._namespace_changed(new.metadata.namespace)

    def _override_came(self, old: OverrideObject | None, new: OverrideObject | None) -> None:
        """Policies may have waited for it."""
        if old is None and new is not None:
            name, namespace = new.metadata.name, new.metadata.namespace
            cache = self._caches.policies if namespace else self._caches.cluster_policies
            waiting = cache.by_index("depends on override", name)
            if namespace and any(each.metadata.namespace == namespace for each in waiting):
                self._namespace_changed(namespace)
            elif not namespace and waiting:
                self._all_changed()

    def _look_at_workload_of(self, binding: BindingObject) -> None:
        reference = binding.spec.resource
        if (kind := BY_GVK.get((reference.api_version, reference.kind))) is not None:
            self.queue.add((kind.resource, f"{reference.namespace}/{reference.name}"))

    def _namespace_changed(self, namespace: str) -> None:
        self._namespaces.add(namespace, after=_TOGETHER_S)

    async def look_at_namespace(self, namespace: str) -> None:
        for resource, cache in self._caches.workloads.items():
            for key in cache.keys_of("namespace", namespace):
                self.queue.add((resource, key))

    def _all_changed(self) -> None:
        for resource, cache in self._caches.workloads.items():
            for obj in cache:
                self.queue.add((resource, obj.metadata.key))

    # -- one workload ------------------------------------------------------------------------------------------------

    async def reconcile(self, key: Key) -> None:
        resource, name = key
        obj = self._caches.workloads[resource].get(name)
        kind = BY_RESOURCE[resource]
        mine = self._bindings_for(resource, name)
        gone = obj is None or obj.metadata.deletion_timestamp is not None
        for binding in mine:
            if (gone or obj is None or binding.spec.resource.uid != obj.metadata.uid) and not _deleting(binding):
                await self._host.delete(
                    BINDINGS, binding.metadata.name, binding.metadata.namespace, uid=binding.metadata.uid
                )
        if gone or obj is None or not self._caches.left_to_atoll(resource, obj.metadata):
            if obj is not None and obj.metadata.deletion_timestamp and not mine and kind.assembly is None:
                await self._tell_ended(kind, obj)
            return
        current = next((b for b in mine if b.spec.resource.uid == obj.metadata.uid), None)
        if current is not None and _deleting(current):
            return
        if (before := next((b for b in mine if b is not current), None)) is not None:
            # The name is free once the binding of the workload's predecessor is gone; its event brings us back.
            if kind.takes(obj.body):
                await self._predecessors.tell(kind, obj, before)
            return
        try:
            over = current is None and kind.finished(obj.body.get("status") or {}) is not None
            waits = kind.assembly.waits(obj.body) if kind.assembly is not None and current is None else None
            if waits is not None and not over:
                await self._tell_waiting(kind, obj, waits)
            if over or not kind.takes(obj.body):
                return
            if who := foreign.writer(kind, obj):
                self._tell(kind, obj, foreign.RUN_BY_ANOTHER, foreign.note(kind, who, sent=current is not None))
                if kind.dedicated and current is None:
                    return
            try:
                policy = self._drafts.policy(kind, obj, current)
            except TooMany as error:
                await self._tell_not_followed(kind, obj, current, "TooManyPolicies", str(error))
                return
            if policy is not None and (missing := policies.missing_overrides(self._caches, policy)):
                note = (
                    f"policy {policy.metadata.name} waits for override policies that do not exist: {', '.join(missing)}"
                )
                await self._tell_not_followed(kind, obj, current, "DependentOverridesMissing", note)
                return
            try:
                wanted = self._drafts.of(kind, obj, current, policy)
            except claim_charges.Missing as error:
                note = f"its pods use what does not exist in namespace {obj.metadata.namespace}: {error}; create it"
                await self._tell_not_followed(kind, obj, current, "ResourceClaimNotFound", note)
                return
        except MALFORMED as error:
            log.warning("workload can't be read", kind=resource.kind, workload=name, exc_info=True)
            why = readable(f"{type(error).__name__}: {error}")
            self._tell(kind, obj, "InvalidWorkload", f"it is invalid and was ignored; fix it and apply it again: {why}")
            return
        if current is None:
            await self._create(kind, obj, wanted)
        elif owned(current) != (wanted["annotations"][keys.GANG], wanted["spec"]) or claim(current) != wanted["claim"]:
            labels, notes = wanted["claim"]
            metadata: Json = {"annotations": {**wanted["annotations"], **notes}, "labels": labels}
            was, now = current.gang, gang.decode(wanted["annotations"][keys.GANG])
            if was is None or (was.queue, claim_charges.by_name(was)) != (
                now.queue,
                claim_charges.by_name(now),
            ):
                # A workload dispatched in the meantime keeps the queue and the devices that it was admitted with.
                metadata["resourceVersion"] = current.metadata.resource_version
            patch = {"metadata": metadata, "spec": _replacing(owned(current)[1], wanted["spec"])}
            await self._host.merge_patch(
                BINDINGS, current.metadata.name, patch, current.metadata.namespace, field_manager="atoll-detector"
            )

    def _bindings_for(self, resource: ApiResource, key: str) -> list[BindingObject]:
        namespace, name = key.split("/")
        found = []
        for candidate in binding_names(resource, name):
            binding = self._caches.bindings.get(f"{namespace}/{candidate}")
            if binding is not None and binding.ours:
                reference = binding.spec.resource
                if (reference.api_version, reference.kind, reference.name) == (
                    resource.api_version,
                    resource.kind,
                    name,
                ):
                    found.append(binding)
        return found

    async def _create(self, kind: Kind, obj: Full, wanted: Json) -> None:
        names = binding_names(kind.resource, obj.metadata.name)
        name = names[0]
        if self._caches.bindings.get(f"{obj.metadata.namespace}/{name}") is not None:
            name = names[1]
        binding = {
            "apiVersion": BINDINGS.api_version,
            "kind": BINDINGS.kind,
            "metadata": {
                "name": name,
                "namespace": obj.metadata.namespace,
                "annotations": {**wanted["annotations"], **_said_of(wanted["claim"][1]), keys.EPOCH: "0"},
                "labels": _said_of(wanted["claim"][0]),
                "finalizers": [keys.BINDING_FINALIZER],
                "ownerReferences": [
                    {
                        "apiVersion": kind.resource.api_version,
                        "kind": kind.resource.kind,
                        "name": each["metadata"]["name"],
                        "uid": each["metadata"]["uid"],
                        # Only one object can be the controller.
                        **({"controller": True, "blockOwnerDeletion": True} if kind.assembly is None else {}),
                    }
                    for each in objects_of(kind, obj.body)
                ],
            },
            "spec": {**wanted["spec"], "suspension": {"scheduling": True}},
        }
        try:
            await self._host.create(BINDINGS, binding, field_manager="atoll-detector")
        except errors.AlreadyExists as error:
            # Ours and not seen yet, or that of another kind's workload of this name: the cache is about to tell.
            raise errors.Retry(0.2) from error

    async def _tell_not_followed(
        self, kind: Kind, obj: Full, current: BindingObject | None, reason: str, note: str
    ) -> None:
        """Say why no policy is followed yet: a new workload waits, any other goes on as it is."""
        self._tell(kind, obj, reason, note)
        if current is None:
            await self._tell_waiting(kind, obj, (reason, note))

    async def _tell_waiting(self, kind: Kind, obj: Full, waits: tuple[str, str]) -> None:
        """Write on the objects of a workload why it can't be run yet."""
        status = kind.aggregate(obj.body, [], waiting=waits, now=rfc3339_seconds(time.time()))
        for each, wanted in statuses(kind, obj.body, status):
            try:
                await put_status(self._host, kind.resource, each, wanted, seen=each["metadata"]["resourceVersion"])
            except errors.Invalid as error:
                if breaks_rules(error):
                    self._tell(kind, obj, STATUS_REFUSED, error.said)
                # Else it changed meanwhile, and who wrote it may matter; its event brings us back.
                log.debug("not written", kind=kind.resource.kind, workload=obj.metadata.key, error=str(error))

    async def _tell_ended(self, kind: Kind, obj: Full) -> None:
        """Write on a workload that is deleted, and that others keep, that it has no pods any more."""
        if kind.takes(obj.body) and self._caches.left_to_atoll(kind.resource, obj.metadata):
            keepers = ", ".join(obj.metadata.finalizers) or "owners"
            await self._tell_waiting(kind, obj, ("Deleted", f"Atoll runs it no more; kept by {keepers}"))

    def _tell(self, kind: Kind, obj: Full, reason: str, note: str) -> None:
        metadata = obj.metadata
        about = {
            "apiVersion": kind.resource.api_version,
            "kind": kind.resource.kind,
            "namespace": metadata.namespace,
            "name": metadata.name,
            "uid": metadata.uid,
        }
        self._recorder.record(about, reason, note, warning=True)


def _inherited(queue: QueueObject | None) -> tuple[object, ...]:
    """What of a queue its workloads depend on."""
    if queue is None:
        return ()
    notes = queue.metadata.annotations
    return notes.get(keys.DEFAULT_POLICY), notes.get(keys.LOST_TOLERATION), queue.spec.parent


def _said(kind: Kind, obj: Full) -> tuple[object, ...]:
    """What of a workload its binding depends on."""
    metadata = obj.metadata
    return (
        metadata.generation,
        metadata.labels,
        metadata.annotations,
        metadata.deletion_timestamp,
        kind.carried(obj.body.get("status") or {}),
        foreign.writer(kind, obj),
    )


def _said_of(claim: dict[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in claim.items() if value is not None}


def _replacing(old: Any, new: Any) -> Any:
    """The merge patch by which a value becomes another one, with nothing of the old one left in it."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    return {**dict.fromkeys(old), **{key: _replacing(old.get(key), value) for key, value in new.items()}}


def _deleting(binding: BindingObject) -> bool:
    return binding.metadata.deletion_timestamp is not None
