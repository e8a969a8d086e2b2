"""Whose pods are whose: a pod belongs to a binding if the workload that was delivered for it owns the pod.

Whoever may create pods in the member can write a binding's UID into their annotations. It counts once the pod's
controller is known to be a delivered workload of that binding, and from then on while the pod is there.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from atoll.agent.objects import Pod
from atoll.kube.events import Recorder
from atoll.kube.reflector import Reflector
from atoll.model import keys
from atoll.model.apiresource import PODS
from atoll.model.objects import Full


class Owners:
    """Judges which binding pods belong to, and again when a workload is heard of after its pods."""

    def __init__(self) -> None:
        """No I/O happens here."""
        #: UID of a delivered workload that is there, or has pods -> UID of its binding
        self._bindings: dict[str, str] = {}
        #: UIDs of workloads that are there, delivered or not
        self._there: set[str] = set()
        self._recorder: Recorder | None = None

    def watch(self, pods: Reflector[Pod], workloads: Iterable[Reflector[Full]]) -> None:
        """Follow these caches, before anybody else does."""
        self._pods = pods
        for reflector in workloads:
            reflector.on_change(self._workload_changed)
        pods.on_change(self._pod_changed)

    def tell(self, recorder: Recorder) -> None:
        """Tell of pods that name a binding that is not theirs."""
        self._recorder = recorder

    def judged(self, pod: Pod) -> Pod:
        """The pod, marked as a stranger where nobody knows yet that it belongs to the binding that it names."""
        stranger = bool(pod.named_binding) and self._bindings.get(pod.metadata.controller_uid) != pod.named_binding
        return pod if stranger == pod.stranger else msgspec.structs.replace(pod, stranger=stranger)

    def _workload_changed(self, old: Full | None, new: Full | None) -> None:
        either = new or old
        if either is None:
            return
        uid, owned = either.metadata.uid, self._pods.by_index("owner", either.metadata.uid)
        if new is None:
            self._there.discard(uid)
            if not owned:
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
        for pod in owned:
            judged = self.judged(pod)
            if judged is not pod:
                self._pods.replace(judged)
            self._tell(judged)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if new is not None:
            if old is None:
                self._tell(new)
            return
        uid = old.metadata.controller_uid if old is not None else ""
        if uid in self._bindings and uid not in self._there and not self._pods.by_index("owner", uid):
            del self._bindings[uid]

    def _tell(self, pod: Pod) -> None:
        owner = next((each for each in pod.metadata.owner_references if each.controller), None)
        # What may be a Job that was not heard of yet is told of when it is.
        if (
            self._recorder is None
            or not pod.stranger
            or (owner and owner.kind == "Job" and owner.uid not in self._there)
        ):
            return
        metadata = pod.metadata
        about = {"apiVersion": PODS.api_version, "kind": PODS.kind, "namespace": metadata.namespace}
        note = f"annotation {keys.BINDING_UID} has no effect: no workload of that binding owns the pod"
        self._recorder.record({**about, "name": metadata.name, "uid": metadata.uid}, "NotOfBinding", note, warning=True)
