"""One module, or one folder, per workload kind behind one interface: pure functions on dicts.

A kind declares the checks and defaults of admission, needs of its pods, how its object is rewritten for a member,
reports of members, and how the reports of all members become the status on the host. Nothing outside this package
knows a workload's fields. It imports only `atoll.api`, `atoll.model` and `atoll.admission`.

Users declare further kinds (`declared.py`). A process announces the ones that it read by `declare`; `known` and the
lookups have them from then on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from atoll.kinds import (
    app_wrapper,
    apps,
    batch_job,
    job_array,
    job_set,
    kubeflow,
    leader_worker_set,
    metadata,
    pod_group,
    ray,
    spark,
    train_job,
    volcano_job,
)
from atoll.kinds.interface import Json, Kind, Outcome, Part, Report, Standing
from atoll.model import namespaces
from atoll.model.apiresource import JOBS, ApiResource
from atoll.model.objects import MALFORMED

KINDS: tuple[Kind, ...] = (
    volcano_job.KIND, batch_job.KIND, pod_group.KIND, job_set.KIND, apps.DEPLOYMENT, apps.STATEFUL_SET, *kubeflow.KINDS,
    train_job.KIND,    *ray.KINDS, leader_worker_set.KIND, spark.KIND, app_wrapper.KIND, job_array.KIND,
)  # fmt: skip
"""Every workload kind that Atoll takes."""

DELIVERED: tuple[Kind, ...] = tuple(kind for kind in KINDS if kind.in_member is not None)
"""Atoll's own that members run."""

BY_RESOURCE: dict[ApiResource, Kind] = {kind.resource: kind for kind in KINDS}
BY_GVK: dict[tuple[str, str], Kind] = {(kind.resource.api_version, kind.resource.kind): kind for kind in KINDS}
_known: list[Kind] = list(KINDS)


def declare(kinds: Iterable[Kind]) -> None:
    """From now on users have declared these kinds, and no others."""
    _known[:] = [*KINDS, *kinds]
    for lookup in (BY_RESOURCE, BY_GVK):
        lookup.clear()
    BY_RESOURCE.update((kind.resource, kind) for kind in _known)
    BY_GVK.update(((kind.resource.api_version, kind.resource.kind), kind) for kind in _known)


def known() -> tuple[Kind, ...]:
    """Atoll's own kinds, then users' declared ones."""
    return tuple(_known)


def own_title(group: str, plural: str) -> str | None:
    """How people name Atoll's own kind of this resource; None where it has none."""
    found = (kind.words.title for kind in KINDS if (kind.resource.group, kind.resource.plural) == (group, plural))
    return next(found, None)


def needs_queue(resource: ApiResource) -> bool:
    """Whether an object is the host's where only workloads that name a queue are Atoll's: no other system runs
    Volcano Jobs.
    """
    return resource != JOBS


def left_to_atoll(resource: ApiResource, obj: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a namespace with these labels leaves this object to Atoll."""
    if namespaces.needs_queues(labels) and needs_queue(resource):
        return metadata.names_queue(obj)
    return namespaces.opted_in(labels)


def entire(kind: Kind, obj: Mapping[str, Any]) -> Mapping[str, Any]:
    """A workload with referred objects at their places, for readers of pod templates; as it is where they can't
    be read.
    """
    if kind.referred is None:
        return obj
    try:
        return kind.referred.entire(obj)
    except MALFORMED:
        return obj


def brought(kind: Kind, manifest: Mapping[str, Any]) -> Sequence[Json]:
    """What a member gets beside a workload of this kind, before it; nothing where it can't be read."""
    if kind.referred is None:
        return ()
    try:
        return kind.referred.brought(manifest)
    except MALFORMED:
        return ()


BROUGHT: tuple[ApiResource, ...] = tuple(each for kind in KINDS if kind.referred for each in kind.referred.brings)
"""All that members get beside workloads."""


def kind_of(manifest: Mapping[str, Any]) -> Kind | None:
    """The kind of an object; None for one that is no workload of ours."""
    return BY_GVK.get((str(manifest.get("apiVersion")), str(manifest.get("kind"))))


def assembled(kind: Kind, objects: Iterable[Json]) -> list[Json]:
    """The workloads of these objects of one kind, in the order of their first objects."""
    if kind.assembly is None:
        return list(objects)
    found: dict[tuple[str, str], list[Json]] = {}
    for each in objects:
        if name := kind.assembly.name(each):
            found.setdefault((each["metadata"]["namespace"], name), []).append(each)
    return [kind.assembly.workload(each, "") for each in found.values()]


def objects_of(kind: Kind, workload: Json) -> Sequence[Json]:
    """The objects of a workload: most often itself."""
    return (workload,) if kind.assembly is None else kind.assembly.objects(workload)


def statuses(kind: Kind, workload: Json, status: Json) -> Sequence[tuple[Json, Json]]:
    """(object, its status) of a workload's objects that change with the status that its kind aggregated."""
    if kind.assembly is not None:
        return kind.assembly.statuses(workload, status)
    return [(workload, status)] if status != (workload.get("status") or {}) else []


__all__ = [
    "BY_GVK", "BY_RESOURCE", "DELIVERED", "KINDS", "Kind", "Outcome", "Part", "Report", "Standing", "assembled",
    "declare", "kind_of", "known", "left_to_atoll", "needs_queue", "objects_of", "own_title", "statuses",
]  # fmt: skip
