"""The fields of a binding that the detector owns, as its workload, policy and queue ask for them.

No I/O: `Detector` creates, changes and deletes the objects.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from atoll.admission import trust
from atoll.control import policies
from atoll.control.caches import Caches
from atoll.control.objects import BindingObject
from atoll.kinds import Kind
from atoll.model import claim_charges, failover, gang, keys, lost, network, numbers, quantity, together
from atoll.model import placement as placements
from atoll.model.apiresource import PRIORITY_CLASSES, ApiResource
from atoll.model.objects import Full
from atoll.model.policies import PolicyObject, best, claim_metadata, claim_of, suspended_on
from atoll.model.priority import PriorityClassObject, class_of, default_class
from atoll.model.reports import readable
from atoll.model.timestamps import is_time, to_seconds
from atoll.model.verdict import Reason

Json = dict[str, Any]


class BindingDrafts:
    """Computes bindings of the caches' objects."""

    def __init__(self, caches: Caches, tell: Callable[[Kind, Full, str, str], None]) -> None:
        """`tell` warns of a workload: its kind, itself, a reason and a note."""
        self._caches, self._tell = caches, tell

    def policy(self, kind: Kind, obj: Full, current: BindingObject | None) -> PolicyObject | None:
        """The policy that it follows."""
        wished = kind.queue_of(obj.body, default=self._caches.default_queue(obj.metadata.namespace))
        claim = claim_of(current.metadata.annotations) if current is not None else None
        return policies.choose(self._caches, kind.resource, obj, _queue(wished, current), claim)

    def _claim(self, namespace: str, resource: ApiResource, name: str) -> Json | None:
        found = self._caches.device_claims[resource].get(f"{namespace}/{name}")
        return found.body if found is not None else None

    def of(self, kind: Kind, obj: Full, current: BindingObject | None, policy: PolicyObject | None) -> Json:
        """Fields `annotations`, `spec` and `claim` (labels and annotations that name its policy).

        Raises:
            Missing: a claim of its pods does not exist.
            ValueError: the workload can't be read.
        """
        follows = claim_metadata(policy if policy is not None and best([policy], kind.resource, obj) else None)
        if _is_lazy(policy, current, obj):
            # What the policy says now counts from the workload's next change.
            assert current is not None
            own, kept = owned(current)
            return {"annotations": {keys.GANG: own}, "spec": kept, "claim": follows}
        status = obj.body.get("status") or {}
        class_ = self._class(kind, obj, policy)
        wish = kind.gang(
            obj.body,
            priority=class_.value,
            default_class=default_class(self._caches.priority_classes),
            default_queue=self._caches.default_queue(obj.metadata.namespace),
            carried=self._caches.carried(current, kind, obj) if current is not None else kind.carried(status),
        )
        wish = msgspec.structs.replace(
            wish, preempts=class_.preempts, arrival=_arrival(obj, current), queue=_queue(wish.queue, current)
        )
        runs = None
        # Most have no claims, and decoding is dear.
        if current is not None and current.charged and '"claimCharges":' in current.metadata.annotations[keys.GANG]:
            runs = current.gang
        wish = claim_charges.charged(wish, partial(self._claim, obj.metadata.namespace), runs)
        if wish.replicas > numbers.INT32:
            raise ValueError(f"{wish.replicas} pods are more than an object can say")
        placement = placements.with_annotations(
            (policy.spec.placement if policy is not None else None) or {}, obj.metadata.annotations
        )
        on_lost, toleration = lost.wish(
            obj.metadata.annotations,
            policy.metadata.annotations if policy is not None else {},
            placement.get("clusterTolerations") or (),
            wish.queue,
            self._caches.said_of_queue,
        )
        said = policy.spec.failover if policy is not None else None
        wish = msgspec.structs.replace(
            wish,
            on_lost=on_lost,
            lost_toleration=toleration,
            unhealthy=failover.of_application(said, service=kind.service),
            leaving=failover.of_cluster(said, service=kind.service),
            suspended=suspended_on(policy),
            scattered=wish.scattered and self._scatters(placement, obj, current),
            copies=kind.service and placements.duplicates(placement.get("replicaScheduling")),
            network=network.read(policy.metadata.annotations.get(keys.NETWORK)) if policy is not None else "",
            **placements.groups_of(placement, obj.metadata.labels),
            together=together.read(obj.metadata.annotations.get(keys.TOGETHER)),
        )
        spec: Json = {
            "resource": {
                "apiVersion": kind.resource.api_version,
                "kind": kind.resource.kind,
                "namespace": obj.metadata.namespace,
                "name": obj.metadata.name,
                "uid": obj.metadata.uid,
            },
            "replicas": wish.replicas,
            "schedulePriority": {"priority": wish.priority},
            "conflictResolution": policy.spec.conflict_resolution if policy is not None else "Abort",
            "components": [
                {
                    "name": gang.component_name(task.name),
                    "replicas": task.replicas,
                    "replicaRequirements": {
                        "resourceRequest": {
                            name: quantity.format_units(name, amount)
                            for name, amount in sorted(task.requests.items())
                            if name != "pods"
                        }
                    },
                }
                for task in wish.tasks
            ],
        }
        if placement:
            spec["placement"] = placement
        if wish.follows or wish.avoids:
            groups = {"affinityGroup": wish.follows, "antiAffinityGroup": wish.avoids}
            spec["workloadAffinityGroups"] = {name: each for name, each in groups.items() if each}
        if policy is not None and (propagates := policy.spec.propagates) is not None:
            spec["propagateDeps"] = propagates
        if policy is not None and policy.spec.preserve_resources_on_deletion:
            spec["preserveResourcesOnDeletion"] = True
        if at := self._rescheduled(kind, obj, current):
            spec["rescheduleTriggeredAt"] = at
        if said:
            spec["failover"] = said
        missing = [
            name
            for resource, name in kind.namespaced_needs(obj.body)
            if resource == PRIORITY_CLASSES and self._caches.priority_classes.get(name) is None
        ]
        if missing:
            wish = msgspec.structs.replace(wish, classless=True)
        annotations = {keys.GANG: gang.encode(wish)}
        if policy is not None and policy.spec.activation_preference == "Lazy":
            annotations[keys.POLICY_ACTIVE] = str(obj.metadata.generation)
        try:
            gang.check(wish)
        except gang.BadGang as error:
            # The dispatcher says that it is invalid, not why.
            self._tell(kind, obj, Reason.INVALID_GANG, str(error))
        for name in missing:
            note = (
                f"PriorityClass {name} does not exist here: it counts with priority {wish.priority}, and members"
                " that have no such class start none of its pods; create it, or correct priorityClassName"
            )
            self._tell(kind, obj, "PriorityClassNotFound", note)
        return {"annotations": annotations, "spec": spec, "claim": follows}

    def _scatters(self, placement: Json, obj: Full, current: BindingObject | None) -> bool:
        """Whether it may have parts in further members; while it runs that stays as it was."""
        if current is not None and current.charged:
            return current.scattered
        return placements.may_divide(placement, obj.metadata.annotations)

    def _rescheduled(self, kind: Kind, obj: Full, current: BindingObject | None) -> str:
        """Time of a requested new placement: by its annotation, or by a note of others on its binding."""
        said = obj.metadata.annotations.get(keys.RESCHEDULE, "")
        before = current.spec.reschedule_triggered_at if current is not None else ""
        if said and not is_time(said):
            self._tell(kind, obj, "RescheduleIgnored", f"annotation {keys.RESCHEDULE}: {readable(said)} is no time")
        elif said and (not before or to_seconds(said) > to_seconds(before)):
            return said
        return before

    def _class(self, kind: Kind, obj: Full, policy: PolicyObject | None) -> PriorityClassObject:
        """The PriorityClass that its policy names, if its queue allows that one; else its own."""
        classes = self._caches.priority_classes
        if name := policies.class_of(policy):
            queue = kind.queue_of(obj.body, default=self._caches.default_queue(obj.metadata.namespace))
            found = self._caches.queues.get(queue)
            allowed = trust.classes_allowed(found.metadata.annotations) if found is not None else None
            field = "spec.schedulePriority.priorityClassName"
            problems = [
                *trust.class_problems(name, field),
                *trust.not_allowed([(field, name)], queue, allowed),
                *trust.unknown_classes([(field, name)], [each.metadata.name for each in classes]),
            ]
            if not problems:
                return class_of(name, classes)
            self._tell(kind, obj, "PolicyPriorityIgnored", f"its policy's {problems[0]}")
        return class_of(kind.priority_class_of(obj.body), classes)


def _arrival(obj: Full, current: BindingObject | None) -> int:
    """The workload's place in its second: by the resourceVersion that it was first seen with, which its
    binding keeps. Versions of all workloads of a host can be compared.
    """
    if current is not None:
        return current.gang.arrival if current.gang is not None else 0
    return numbers.whole(obj.metadata.resource_version) or 0


def _queue(wished: str, current: BindingObject | None) -> str:
    """The queue of the binding: that which the workload names, but while it is charged the one that admitted it."""
    if current is None or current.gang is None or not current.charged:
        return wished
    return current.gang.queue


def owned(binding: BindingObject) -> tuple[str, Json]:
    """The detector's fields as they are, comparable with `BindingDrafts.of`."""
    reference = binding.spec.resource
    spec: Json = {
        "resource": {
            "apiVersion": reference.api_version,
            "kind": reference.kind,
            "namespace": reference.namespace,
            "name": reference.name,
            "uid": reference.uid,
        },
        "replicas": binding.spec.replicas,
        "components": binding.spec.components,
        "conflictResolution": binding.spec.conflict_resolution,
    }
    if binding.spec.schedule_priority is not None:
        spec["schedulePriority"] = binding.spec.schedule_priority
    if binding.spec.placement is not None:
        spec["placement"] = binding.spec.placement
    if binding.spec.propagate_deps is not None:
        spec["propagateDeps"] = binding.spec.propagate_deps
    if binding.spec.workload_affinity_groups is not None:
        spec["workloadAffinityGroups"] = binding.spec.workload_affinity_groups
    if binding.spec.preserve_resources_on_deletion is not None:
        spec["preserveResourcesOnDeletion"] = binding.spec.preserve_resources_on_deletion
    if binding.spec.reschedule_triggered_at:
        spec["rescheduleTriggeredAt"] = binding.spec.reschedule_triggered_at
    if binding.spec.failover is not None:
        spec["failover"] = binding.spec.failover
    return binding.metadata.annotations.get(keys.GANG, ""), spec


def claim(binding: BindingObject) -> tuple[dict[str, str | None], dict[str, str | None]]:
    """The labels and annotations by which it says which policy it follows, comparable with `BindingDrafts.of`."""
    labels, notes = claim_metadata(None)
    metadata = binding.metadata
    return {key: metadata.labels.get(key) for key in labels}, {key: metadata.annotations.get(key) for key in notes}


def _is_lazy(policy: PolicyObject | None, current: BindingObject | None, obj: Full) -> bool:
    """Whether a binding keeps the policy of the time of its workload's last change."""
    if policy is None or current is None or policy.spec.activation_preference != "Lazy":
        return False
    notes = current.metadata.annotations
    follows = claim_of(notes) == (policy.metadata.namespace or "", policy.metadata.name)
    return follows and notes.get(keys.POLICY_ACTIVE) == str(obj.metadata.generation)
