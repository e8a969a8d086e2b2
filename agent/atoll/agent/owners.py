"""Whose pods and PodGroups are whose: one belongs to a binding if the workload that was delivered for it owns it.

Whoever may create them in the member can write a binding's UID into their annotations. It counts once the controller
is known to be a delivered workload of that binding, or to be made for one, and from then on while the pod is there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from atoll.agent.objects import Pod, PodGroup
from atoll.kube.events import Recorder, reference
from atoll.kube.reflector import Reflector
from atoll.model import keys
from atoll.model.apiresource import POD_GROUPS, PODS
from atoll.model.objects import Full, Meta, OwnerReference, Slim

_DEEPEST = 8
"""Controllers above a pod that are looked at."""
_Owned = TypeVar("_Owned", Pod, PodGroup)


class Owners:
    """Judges which binding pods and PodGroups belong to, and again when a workload is heard of after them.

    The controller of a pod may be an object made by the delivered workload's controller: a Job of a JobSet, a
    ReplicaSet of a Deployment, another pod. Only objects that have no controller themselves are delivered ones, with
    any annotations.
    """

    def __init__(self) -> None:
        """No I/O happens here."""
        #: UID of a delivered workload that is there, or has pods -> UID of its binding
        self._bindings: dict[str, str] = {}
        #: UIDs of workloads that are there, delivered or not
        self._there: set[str] = set()
        #: UID of an object that is there, or has pods -> its namespace and its controller
        self._above: dict[str, tuple[str, OwnerReference]] = {}
        #: UID -> UIDs of the objects that it controls, pods and PodGroups not among them
        self._below: dict[str, set[str]] = {}
        self._recorder: Recorder | None = None

    def watch(
        self, pods: Reflector[Pod], groups: Reflector[PodGroup], workloads: Iterable[Reflector[Full] | Reflector[Slim]]
    ) -> None:
        """Follow these caches, before any other part does."""
        self._pods, self._groups = pods, groups
        for reflector in workloads:
            reflector.on_change(self._workload_changed)
        pods.on_change(self._pod_changed)
        groups.on_change(self._group_changed)

    def tell(self, recorder: Recorder) -> None:
        """Tell of pods and PodGroups that name a binding that is not theirs."""
        self._recorder = recorder

    def judged(self, obj: _Owned) -> _Owned:
        """The object, marked as a stranger where it is not known yet to belong to the binding that it names."""
        stranger = bool(obj.named_binding) and self._bindings.get(self.delivered(obj)) != obj.named_binding
        return obj if stranger == obj.stranger else msgspec.structs.replace(obj, stranger=stranger)

    def delivered(self, obj: Pod | PodGroup) -> str:
        """UID of the delivered workload above it; empty where none is known."""
        uid = self._topmost(obj.metadata)
        return uid if uid in self._bindings else ""

    def awaited(self, obj: Pod) -> bool:
        """Whether it names a binding, and may be of it by an owner that was not heard of yet."""
        return obj.stranger and bool(uid := self._topmost(obj.metadata)) and uid not in self._there

    def top(self, uid: str) -> str:
        """UID of the highest known controller above an object that is no pod; its own where none is known."""
        for _ in range(_DEEPEST):
            if uid in self._bindings or uid not in self._above:
                break
            uid = self._above[uid][1].uid
        return uid

    def beneath(self, uid: str) -> set[str]:
        """UIDs of all objects that this one controls, and that those control, but pods and PodGroups."""
        found, rest = set[str](), [uid]
        while rest:
            below = self._below.get(rest.pop(), set()) - found
            found |= below
            rest += below
        return found

    def _topmost(self, metadata: Meta) -> str:
        """UID of the highest controller above an object that is known by name at least; empty where there is none."""
        uid, step = "", _controller(metadata)
        for _ in range(_DEEPEST):
            if step is None:
                break
            namespace, reference = step
            uid = reference.uid
            if uid in self._bindings:
                break
            step = self._above.get(uid)
            if step is None and reference.kind == PODS.kind:
                pod = self._pods.get(f"{namespace}/{reference.name}")
                if pod is not None and pod.metadata.uid == uid:
                    step = _controller(pod.metadata)
        return uid

    def _workload_changed(self, old: Full | Slim | None, new: Full | Slim | None) -> None:
        either = new or old
        if either is None:
            return
        uid = either.metadata.uid
        if new is None:
            self._there.discard(uid)
            self._forget(uid)
            return
        above = _controller(new.metadata)
        binding = new.metadata.annotations.get(keys.BINDING_UID, "") if above is None else ""
        if uid in self._there and self._bindings.get(uid, "") == binding:
            return
        self._there.add(uid)
        if above is not None:
            self._above[uid] = above
            self._below.setdefault(above[1].uid, set()).add(uid)
        if binding:
            self._bindings[uid] = binding
        else:
            self._bindings.pop(uid, None)
        self._judge_below(uid)

    def _forget(self, uid: str) -> None:
        """Entries of objects that are gone, without present dependents."""
        while uid and uid not in self._there and not self._below.get(uid) and not self._pods.by_index("owner", uid):
            self._bindings.pop(uid, None)
            self._below.pop(uid, None)
            step = self._above.pop(uid, None)
            if step is None:
                return
            above = step[1].uid
            self._below.get(above, set()).discard(uid)
            uid = above

    def _judge_below(self, uid: str) -> None:
        """Look again at all that this object owns, and what that owns."""
        for owner in (uid, *sorted(self.beneath(uid) - {uid})):
            # The gang before its pods: their wait is the gang's.
            self._judge_again(self._groups, owner)
            self._judge_again(self._pods, owner)

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
                if new.metadata.uid in self._below:
                    self._judge_below(new.metadata.uid)
            return
        if old is not None:
            self._forget(old.metadata.controller_uid)

    def _group_changed(self, old: PodGroup | None, new: PodGroup | None) -> None:
        if old is None and new is not None:
            self._tell(new)

    def _tell(self, obj: Pod | PodGroup) -> None:
        owner = next((each for each in obj.metadata.owner_references if each.controller), None)
        # An event for a Job not seen yet comes with that Job.
        if (
            self._recorder is None
            or not obj.stranger
            or (owner and owner.kind == "Job" and self._topmost(obj.metadata) not in self._there)
        ):
            return
        metadata, resource = obj.metadata, PODS if isinstance(obj, Pod) else POD_GROUPS
        about = reference(resource, metadata.namespace, metadata.name, metadata.uid)
        note = f"annotation {keys.BINDING_UID} has no effect: no workload of that binding owns the {resource.kind}"
        self._recorder.record(about, "NotOfBinding", note, warning=True)


def _controller(metadata: Meta) -> tuple[str, OwnerReference] | None:
    """The namespace and the controller of an object; None for one without."""
    found = next((each for each in metadata.owner_references if each.controller), None)
    return None if found is None else (metadata.namespace, found)
