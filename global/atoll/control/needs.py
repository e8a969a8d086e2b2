"""What a workload needs in a member before it comes: its namespace and that one's rules, and PriorityClasses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from atoll.control.caches import Caches
from atoll.control.rules import OURS, Rules
from atoll.kinds import Kind
from atoll.model import keys
from atoll.model.apiresource import NAMESPACES, PRIORITY_CLASSES
from atoll.model.namespaces import propagated
from atoll.model.objects import Full, Meta
from atoll.model.pod_security import LABELS

Json = dict[str, Any]


def needs_of(caches: Caches, rules: Rules, kind: Kind, obj: Full) -> list[Json]:
    """Manifests, in the order in which they are made."""
    namespace = obj.metadata.namespace
    found = caches.namespaces.get(namespace)
    metadata = found.metadata if found is not None else Meta(name=namespace)
    return [_namespace(metadata), *rules.of(metadata), *_shared(caches, kind, obj)]


def said_of_pods(metadata: Meta) -> tuple[Any, ...]:
    """Facts of a namespace in every Work of its workloads."""
    return {key: text for key, text in metadata.labels.items() if key in LABELS}, propagated(metadata.annotations)


def _namespace(metadata: Meta) -> Json:
    levels = {key: text for key, text in metadata.labels.items() if key in LABELS}
    about: Json = {"name": metadata.name, "labels": {**OURS, **levels}}
    if kinds := propagated(metadata.annotations):
        about["annotations"] = {keys.PROPAGATE: ",".join(kinds)}
    return {"apiVersion": NAMESPACES.api_version, "kind": NAMESPACES.kind, "metadata": about}


def _shared(caches: Caches, kind: Kind, obj: Full) -> Iterator[Json]:
    for resource, name in kind.namespaced_needs(obj.body):
        if resource != PRIORITY_CLASSES or name.startswith("system-"):
            continue
        if (found := caches.priority_classes.get(name)) is None:
            continue
        manifest: Json = {"apiVersion": resource.api_version, "kind": resource.kind}
        manifest["metadata"] = {"name": name, "labels": OURS}
        manifest["value"] = found.value
        if found.preemption_policy:
            manifest["preemptionPolicy"] = found.preemption_policy
        yield manifest
