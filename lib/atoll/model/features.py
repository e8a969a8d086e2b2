"""What a workload needs that a member may lack: an agent that knows its kind, a Kubernetes that keeps its fields.

An API server drops a field that it does not know, or that is off there, in silence: the pods would run without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from atoll.model.apiresource import ApiResource
from atoll.model.member import UNSAID, kind_feature, kubernetes_feature

Json = Mapping[str, Any]

_POD_LEVEL = kubernetes_feature((1, 34))
_LATER = kubernetes_feature((1, 35))


def of(resource: ApiResource, pod_specs: Iterable[Json]) -> list[str]:
    """What a workload of this kind with these pods needs beyond what every member has; sorted."""
    found = {kind_feature(resource)} - UNSAID
    for spec in pod_specs:
        found.update(_of_pod(spec))
    return sorted(found)


def _of_pod(spec: Json) -> Iterator[str]:
    """By the version in which a field is on by default."""
    if spec.get("resources") or spec.get("resourceClaims"):
        yield _POD_LEVEL
    if spec.get("hostnameOverride"):
        yield _LATER
    for kind in ("initContainers", "containers"):
        for container in _items(spec.get(kind)):
            if container.get("restartPolicyRules"):
                yield _LATER
            for each in _items(container.get("env")):
                source = each.get("valueFrom")
                if isinstance(source, Mapping) and source.get("fileKeyRef"):
                    yield _LATER


def _items(value: object) -> list[Json]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def said_of(missing: Iterable[str]) -> str:
    """What a member lacks, for people."""
    parts = []
    for each in missing:
        product, _, version = each.partition("/")
        kept = product == "kubernetes"
        lacks = f"it has no {each}: its CRD is not there, or the agent does not know it"
        parts.append(f"it behaves as an older Kubernetes than {version}" if kept else lacks)
    return "; ".join(parts)
