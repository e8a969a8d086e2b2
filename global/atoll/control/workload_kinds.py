"""The status of WorkloadKinds: whether what users declared is served on the host, and if not why.

One that is deleted stays, by a finalizer, while workloads of it have bindings: they could not be followed any more.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from atoll.control.caches import Caches
from atoll.control.interception import Interception
from atoll.control.objects import BindingObject
from atoll.control.settings import WorkloadKindSettings
from atoll.kinds import own_title
from atoll.kinds.declared import BadDeclaration, kind_of
from atoll.kinds.templated import Templated
from atoll.kube import errors
from atoll.kube.crds import crd_name
from atoll.kube.declared import Declared
from atoll.kube.events import Recorder
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.kube.workqueue import WorkQueue
from atoll.model import keys
from atoll.model.apiresource import WORKLOAD_KINDS
from atoll.model.conditions import condition, is_true, with_condition
from atoll.model.objects import MALFORMED, Full, Slim

Json = dict[str, Any]


class WorkloadKinds:
    """Keeps condition Served, and the finalizer."""

    def __init__(
        self,
        host: ApiServer,
        caches: Caches,
        declared: Declared,
        interception: Interception,
        recorder: Recorder,
        *,
        settings: WorkloadKindSettings = WorkloadKindSettings(),
    ) -> None:
        """No I/O happens here; `run` does it."""
        self._settings = settings
        self._host, self._caches, self._declared, self._interception = host, caches, declared, interception
        self._recorder = recorder
        self._queue: WorkQueue[str] = WorkQueue("workload kinds", lambda name: {"workload_kind": name})
        # These caches outlive this: their handlers are of the process.
        self._following: tuple[tuple[Reflector[Full], Callable[[Full | None, Full | None], None]], ...] = (
            (declared.objects, self._changed),
            *(
                (each, lambda _, __: self._all_changed())
                for each in (declared.roles, *interception.configurations.values())
            ),
        )
        caches.crds.on_change(self._crd_changed)
        caches.bindings.on_change(self._binding_changed)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        for cache, handler in self._following:
            cache.on_change(handler)
        try:
            await self._interception.known.wait()
            self._all_changed()
            await self._queue.run(self._reconcile)
        finally:
            for cache, handler in self._following:
                cache.remove_handler(handler)

    def _changed(self, old: Full | None, new: Full | None) -> None:
        if new is not None:
            self._queue.add(new.metadata.name)

    def _all_changed(self) -> None:
        for each in self._declared.objects:
            self._queue.add(each.metadata.name)

    def _crd_changed(self, old: Slim | None, new: Slim | None) -> None:
        either = new or old
        if either is not None and self._declared.objects.get(either.metadata.name) is not None:
            self._queue.add(either.metadata.name)

    def _binding_changed(self, old: BindingObject | None, new: BindingObject | None) -> None:
        if new is None and old is not None:
            for each in self._declared.objects:
                if each.metadata.deletion_timestamp is not None:
                    self._queue.add(each.metadata.name)

    async def _reconcile(self, name: str) -> None:
        obj = self._declared.objects.get(name)
        if obj is None:
            return
        try:
            kind = kind_of(obj.body, own_title)
        except BadDeclaration as error:
            await self._write(obj, False, "Invalid", str(error))
            return
        left = self._bindings(kind)
        finalizers: list[str] = list(obj.body["metadata"].get("finalizers") or ())
        if obj.metadata.deletion_timestamp is not None:
            if left:
                said = f"it goes with the last workload that has a binding; {left} left, new ones are refused"
                await self._write(obj, False, "Terminating", said)
            elif keys.KIND_FINALIZER in finalizers:
                await self._finalizers(obj, [each for each in finalizers if each != keys.KIND_FINALIZER])
            return
        if keys.KIND_FINALIZER not in finalizers:
            await self._finalizers(obj, [*finalizers, keys.KIND_FINALIZER])
        served, reason, message = self._judged(kind)
        if served and not is_true(condition(obj.body, "Served")):
            self._tell_missed(kind, obj.metadata.creation_timestamp)
        await self._write(obj, served, reason, message)
        if reason == "VersionNotServed":
            # A resource is served some time after its definition is there.
            self._queue.add(name, after=self._settings.again)
        elif reason == "NotIntercepted" and math.isfinite(wait := self._interception.spread(kind)):
            self._queue.add(name, after=wait)

    def _judged(self, kind: Templated) -> tuple[bool, str, str]:
        resource = kind.resource
        crd = crd_name(resource)
        if self._caches.crds.get(crd) is None:
            return False, "NoCRD", f"CRD {crd} is not there; it is served once it is"
        if lacking := self._declared.lacking(kind):
            text = f"Atoll may not {'; '.join(lacking)}: create a ClusterRole with these rules and label"
            return (
                False,
                "NoRights",
                f"{text} {keys.KIND_RIGHTS_LABEL}=true, here and in the members that are to run it",
            )
        cache = self._caches.workloads.get(resource)
        if cache is None or (isinstance(cache, Reflector) and (cache.absent or not cache.synced.is_set())):
            return False, "VersionNotServed", f"CRD {crd} does not serve version {resource.version}"
        system = self._caches.namespaces.get(keys.SYSTEM_NAMESPACE)
        if kind.dedicated and system is not None and system.metadata.labels.get(keys.HOST_PROFILE) == "shared":
            text = "it has no suspend switch, and this host runs workloads itself: they are refused; say spec.suspend"
            return False, "SharedHost", text
        if self._interception.spread(kind) > 0:
            text = (
                f"API servers don't ask about it yet: none of its objects is suspended before {keys.CONTROLLER} sees it"
            )
            return False, "NotIntercepted", text
        return True, "Served", f"{resource.kind} of namespaces that have opted in is queued; held by {kind.words.held}"

    def _tell_missed(self, kind: Templated, since: str) -> None:
        """Name objects from after the declaration of which the webhook was not asked: they may run unqueued."""
        resource = kind.resource
        for each in self._caches.workloads[resource]:
            metadata = each.metadata
            if metadata.creation_timestamp < since or not self._caches.left_to_atoll(resource, metadata):
                continue
            with suppress(*MALFORMED):
                if kind.takes(each.body):
                    continue
            about = {"apiVersion": resource.api_version, "kind": resource.kind, "uid": metadata.uid}
            about |= {"namespace": metadata.namespace, "name": metadata.name}
            text = "Atoll leaves it alone: it was created before its kind was served; delete it and create it again"
            self._recorder.record(about, "NotIntercepted", text, warning=True)

    def _bindings(self, kind: Templated) -> int:
        resource = kind.resource
        references = (each.spec.resource for each in self._caches.bindings if each.ours)
        return sum((each.api_version, each.kind) == (resource.api_version, resource.kind) for each in references)

    async def _finalizers(self, obj: Full, finalizers: list[str]) -> None:
        patch = {"metadata": {"resourceVersion": obj.metadata.resource_version, "finalizers": finalizers}}
        try:
            await self._host.merge_patch(WORKLOAD_KINDS, obj.metadata.name, patch, field_manager="atoll-control")
        except errors.NotFound:
            return

    async def _write(self, obj: Full, served: bool, reason: str, message: str) -> None:
        before: Json = obj.body.get("status") or {}
        conditions = list(before.get("conditions") or ())
        wanted = {
            "observedGeneration": obj.metadata.generation,
            "conditions": with_condition(conditions, "Served", served, reason, message, now=time.time()),
        }
        if wanted == {name: before.get(name) for name in wanted}:
            return
        try:
            await self._host.merge_patch(
                WORKLOAD_KINDS,
                obj.metadata.name,
                {"status": wanted},
                subresource="status",
                field_manager="atoll-control",
            )
        except errors.NotFound:
            return
