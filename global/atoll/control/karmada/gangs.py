"""The gang of a binding that Karmada made: of its workload where Atoll knows the kind, else of what Karmada read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from atoll.kinds import BY_GVK, Kind
from atoll.kinds.metadata import queue_of
from atoll.model import keys, quantity
from atoll.model.gang import BadGang, Gang, Task

Json = Mapping[str, Any]

_ALONE: Final = "pods"
"""Task of a workload that Karmada knows no components of."""


def kind_of(spec: Json) -> Kind | None:
    """The kind of a binding's workload; None for one that only Karmada knows."""
    reference = spec.get("resource") or {}
    return BY_GVK.get((str(reference.get("apiVersion")), str(reference.get("kind"))))


def asks(spec: Json) -> bool:
    """Whether a binding's workload has pods: nothing else has a place in a queue."""
    return bool(spec.get("replicas") or any(each.get("replicas") for each in spec.get("components") or ()))


def for_karmada(gang: Gang) -> Gang:
    """What of a gang is decided on the host: how much it needs. It goes to one cluster whole, and the scheduler of that
    cluster sees to nodes and to the rules between pods: a Cluster's summary says nothing of them.

    Raises:
        BadGang: it insists on being near each other in a network, which nothing of Karmada's knows.
    """
    if gang.network_topology is not None and gang.network_topology.hard:
        raise BadGang(
            "networkTopology: mode hard can't be kept on a Karmada, whose summaries have no domains: use mode soft, or"
            " a federation of Atoll's own"
        )
    tasks = [
        Task(task.name, task.replicas, task.min_available, task.requests, scopes=task.scopes) for task in gang.tasks
    ]
    return msgspec.structs.replace(gang, tasks=tasks, whole=True, needs=[], features=[], network_topology=None)


def of_binding(binding: Json, workload: Json, *, default_queue: str, arrival: int) -> Gang:
    """The gang of what Karmada's interpreter read: all replicas of all components, or none.

    Args:
        binding: as Karmada made it.
        workload: its resource template, of which metadata alone is read.
        default_queue: of workloads that name none.
        arrival: see `Gang.arrival`.

    Raises:
        ValueError: a quantity can't be read.
    """
    spec, metadata = binding["spec"], workload["metadata"]
    components = spec.get("components") or [
        {
            "name": _ALONE,
            "replicas": spec.get("replicas") or 0,
            "replicaRequirements": spec.get("replicaRequirements"),
        }
    ]
    tasks = [_task(each) for each in components]
    return Gang(
        queue=queue_of(workload, default=default_queue),
        tasks=tasks,
        min_available=sum(task.replicas for task in tasks),
        priority=int((spec.get("schedulePriority") or {}).get("priority") or 0),
        submitted=str(metadata.get("creationTimestamp") or ""),
        arrival=arrival,
        hold=(metadata.get("annotations") or {}).get(keys.HOLD) == "true",
        whole=True,
    )


def _task(component: Json) -> Task:
    replicas = int(component.get("replicas") or 0)
    wants = (component.get("replicaRequirements") or {}).get("resourceRequest") or {}
    return Task(str(component.get("name") or _ALONE), replicas, replicas, {**quantity.requests(wants), "pods": 1})
