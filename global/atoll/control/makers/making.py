"""The result of one look at an object that makes Jobs, and the common parts of its Jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from atoll.model.apiresource import JOBS, ApiResource

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class News:
    """An Event on the object."""

    reason: str
    note: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """Actions, in this order."""

    delete: list[str] = field(default_factory=list)
    """Names of Jobs."""
    create: list[Json] = field(default_factory=list)
    """Jobs."""
    note: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    """Name of a Job, and annotations to write; None for the ones to remove."""
    status: Json = field(default_factory=dict)
    """The whole of it, once that is done."""
    again: float | None = None
    """When to look again though nothing changed, in seconds since the epoch."""
    news: list[News] = field(default_factory=list)


def job(
    owner: Mapping[str, Any], resource: ApiResource, name: str, spec: Json, *, labels: Json, annotations: Json
) -> Json:
    """A Job that belongs to `owner`."""
    meta = owner["metadata"]
    reference = {"apiVersion": resource.api_version, "kind": resource.kind, "name": meta["name"], "uid": meta["uid"]}
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {
            "name": name,
            "namespace": meta["namespace"],
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [{**reference, "controller": True, "blockOwnerDeletion": True}],
        },
        "spec": spec,
    }


def phase_of(job: Mapping[str, Any]) -> str:
    """Of a Job; one that nothing is known of is Pending."""
    return str(((job.get("status") or {}).get("state") or {}).get("phase") or "Pending")
