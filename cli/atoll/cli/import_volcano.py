"""Volcano's Queues and PriorityClasses as Atoll's: the same CRD, of which Atoll acts on other fields."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from atoll.cli.imported import (
    Amount,
    Imported,
    Json,
    amount,
    by_parents,
    metadata,
    new_queue,
    priority_class,
    read,
    rest,
    title,
)
from atoll.model import keys

_WITHOUT_EFFECT = {
    "affinity": "node groups have no effect in Atoll; restrict members with `atollctl queue update --clusters`",
    "type": "has no effect in Atoll",
}


class Guarantee(msgspec.Struct, frozen=True):
    """Amounts that are never lent."""

    resource: dict[str, Amount] | None = None


class Member(msgspec.Struct, frozen=True):
    """A cluster of extendClusters."""

    name: str = ""
    weight: int | None = None
    capacity: dict[str, Amount] | None = None


class Queue(msgspec.Struct, frozen=True, rename="camel"):
    """Spec of a Queue."""

    weight: int | None = None
    capability: dict[str, Amount] | None = None
    deserved: dict[str, Amount] | None = None
    guarantee: Guarantee | None = None
    reclaimable: bool | None = None
    parent: str | None = None
    priority: int | None = None
    affinity: Json | None = None
    extend_clusters: list[Member] | None = None
    type: str | None = None
    dequeue_strategy: str | None = None


def imported(objects: Sequence[Json]) -> Imported:
    """Atoll's objects for those of Volcano.

    Args:
        objects: as `flattened` gives them.

    Raises:
        CommandError: one can't be read.
    """
    result = Imported()
    queues = []
    for obj in objects:
        api = str(obj.get("apiVersion"))
        if obj["kind"] == "Queue" and api.startswith("scheduling.volcano.sh/"):
            queues.append(_queue(obj, result.notes))
        elif obj["kind"] == "PriorityClass" and api.startswith("scheduling.k8s.io/"):
            if found := priority_class(obj, result.notes):
                result.objects.append(found)
        else:
            result.notes.append(f"{title(obj)}: only Queues and PriorityClasses are imported; {_elsewhere(obj)}")
    result.objects += by_parents(queues)
    there = {each["metadata"]["name"] for each in queues} | {keys.ROOT_QUEUE}
    for each in queues:
        parent = each["spec"].get("parent", keys.ROOT_QUEUE)
        if parent not in there:
            result.notes.append(f"{title(each)}: parent {parent} is not among the objects; create that Queue first")
    return result


def _queue(obj: Json, notes: list[str]) -> Json:
    meta, spec = metadata(obj, notes), read(obj, Queue, obj.get("spec"), notes)
    notes.extend(rest(obj, "spec"))
    content = msgspec.to_builtins(spec)
    kept = {name: value for name, value in content.items() if value not in (None, {}, [], "")}
    for lists in (spec.capability, spec.deserved, spec.guarantee.resource if spec.guarantee else None):
        for name, text in (lists or {}).items():
            amount(obj, name, text)
            if "deviceclass/" in name:
                notes.append(f"{title(obj)}: {name} counts devices of DRA; check that Atoll's members offer it by name")
    for name, advice in _WITHOUT_EFFECT.items():
        if kept.pop(name, None) is not None:
            notes.append(f"{title(obj)}: {name} {advice}")
    if "extendClusters" in kept:
        for member in kept["extendClusters"]:
            member.pop("weight", None)
        text = "extendClusters names the only members that serve the queue, and capacity is a ceiling; weight goes"
        notes.append(f"{title(obj)}: {text}; Volcano dispatches nothing by it")
    if "dequeueStrategy" in kept:
        text = f"dequeueStrategy {kept['dequeueStrategy']} acts in Atoll; some versions of Volcano do not read it"
        notes.append(f"{title(obj)}: {text}")
    if meta.name == keys.ROOT_QUEUE:
        kept.pop("parent", None)
    if (obj.get("status") or {}).get("state") in ("Closed", "Closing"):
        notes.append(f"{title(obj)}: it is closed; run `atollctl queue close {meta.name}` once it is applied")
    return new_queue(meta.name, kept, meta.labels)


def _elsewhere(obj: Json) -> str:
    if obj["kind"] in ("Job", "CronJob", "JobFlow", "JobTemplate", "HyperJob"):
        return "apply it to the host as it is"
    if obj["kind"] == "HyperNode":
        return "it stays in its member, where Atoll reads it"
    return "it has no counterpart"
