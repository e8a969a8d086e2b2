"""Whose pods and PodGroups are whose: one belongs to a binding if the workload that was delivered for it owns it.

Whoever may create them in the member can write a binding's UID into their annotations. It counts once the controller
is known to be a delivered workload of that binding, and from then on while the pod is there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from atoll.agent.objects import Pod, PodGroup
from atoll.kube.events import Recorder
from atoll.kube.reflector import Reflector
from atoll.model import keys
from atoll.model.apiresource import POD_GROUPS, PODS
from atoll.model.objects import Full

_Owned = TypeVar("_Owned", Pod, PodGroup)


class Owners:
    """Judges which binding pods and PodGroups belong to, and again when a workload is heard of after them."""

    def __init__(self) -> None:
        """No I/O happens here."""
        #: UID of a delivered workload that is there, or has pods -> UID of its binding
        self._bindings: dict[str, str] = {}
        #: UIDs of workloads that are there, delivered or not
        self._there: set[str] = set()
        self._recorder: Recorder | None = None

    def watch(self, pods: Reflector[Pod], groups: Reflector[PodGroup], workloads: Iterable[Reflector[Full]]) -> None:
        """Follow these caches, before anybody else does."""
        self._pods, self._groups = pods, groups
        for reflector in workloads:
            reflector.on_change(self._workload_changed)
        pods.on_change(self._pod_changed)
        groups.on_change(self._group_changed)

    def tell(self, recorder: Recorder) -> None:
        """Tell of pods and PodGroups that name a binding that is not theirs."""
        self._recorder = recorder

    def judged(self, obj: _Owned) -> _Owned:
        """The object, marked as a stranger where nobody knows yet that it belongs to the binding that it names."""
        stranger = bool(obj.named_binding) and self._bindings.get(obj.metadata.controller_uid) != obj.named_binding
        return obj if stranger == obj.stranger else msgspec.structs.replace(obj, stranger=stranger)

    def _workload_changed(self, old: Full | None, new: Full | None) -> None:
        either = new or old
        if either is None:
            return
        uid = either.metadata.uid
        if new is None:
            self._there.discard(uid)
            if not self._pods.by_index("owner", uid):
                self._bindings.pop(uid, None)
            return
        binding = new.metadata.annotations.get(keys.BINDING_UID, "")
        if uid in self._there and self._bindings.get(uid, "") == binding:
            return
        self._there.add(uid)
        if binding:
            self._bindings[uid] = binding
        else:
            self._bindings.pop(uid, None)
        # The gang before its pods: what they wait for is its.
        self._judge_again(self._groups, uid)
        self._judge_again(self._pods, uid)

    def _judge_again(self, reflector: Reflector[_Owned], owner: str) -> None:
        for obj in reflector.by_index("owner", owner):
            judged = self.judged(obj)
            if judged is not obj:
                reflector.replace(judged)
            self._tell(judged)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if new is not None:
            if old is None:
                self._tell(new)
            return
        uid = old.metadata.controller_uid if old is not None else ""
        if uid in self._bindings and uid not in self._there and not self._pods.by_index("owner", uid):
            del self._bindings[uid]

    def _group_changed(self, old: PodGroup | None, new: PodGroup | None) -> None:
        if old is None and new is not None:
            self._tell(new)

    def _tell(self, obj: Pod | PodGroup) -> None:
        owner = next((each for each in obj.metadata.owner_references if each.controller), None)
        # What may be a Job that was not heard of yet is told of when it is.
        if (
            self._recorder is None
            or not obj.stranger
            or (owner and owner.kind == "Job" and owner.uid not in self._there)
        ):
            return
        metadata, resource = obj.metadata, PODS if isinstance(obj, Pod) else POD_GROUPS
        about = {"apiVersion": resource.api_version, "kind": resource.kind, "namespace": metadata.namespace}
        note = f"annotation {keys.BINDING_UID} has no effect: no workload of that binding owns the {resource.kind}"
        self._recorder.record({**about, "name": metadata.name, "uid": metadata.uid}, "NotOfBinding", note, warning=True)
