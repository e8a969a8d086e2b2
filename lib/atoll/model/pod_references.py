"""Which ConfigMaps, Secrets and claims pod templates refer to, wherever a workload has its templates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from atoll.model.apiresource import (
    CLAIMS,
    CONFIGMAPS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    SECRETS,
    ApiResource,
)

_NAMED_IN: Final[Mapping[str, tuple[ApiResource, str]]] = {
    "configMapKeyRef": (CONFIGMAPS, "name"),
    "configMapRef": (CONFIGMAPS, "name"),
    "configMap": (CONFIGMAPS, "name"),
    "secretKeyRef": (SECRETS, "name"),
    "secretRef": (SECRETS, "name"),
    "nodePublishSecretRef": (SECRETS, "name"),
    "azureFile": (SECRETS, "secretName"),
    "persistentVolumeClaim": (CLAIMS, "claimName"),
}
"""Field of a pod spec, however deep -> its target, and the field that names it."""
_EVERYWHERE: Final = frozenset({"kube-root-ca.crt"})
"""ConfigMaps that every cluster makes in every namespace."""


class Reference(NamedTuple):
    """An object of the workload's namespace that its pods refer to."""

    resource: ApiResource
    name: str
    optional: bool
    """Pods start without it."""


def references(manifest: Mapping[str, Any]) -> list[Reference]:
    """What the pod templates of an object refer to, by kind and name; optional where it is so in every place.

    A template is whatever has a list `containers`: kinds keep it in many places. Schemas don't look into it, so what is
    of a wrong type is left out.
    """
    found: dict[tuple[str, str], Reference] = {}
    for pod in _pods(manifest.get("spec")):
        for each in _of_pod(pod):
            key = (each.resource.plural, each.name)
            known = found.get(key)
            found[key] = each if known is None or known.optional else known
    return [found[key] for key in sorted(found)]


def _pods(value: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, list):
        for each in value:
            yield from _pods(each)
    elif isinstance(value, dict):
        if isinstance(value.get("containers"), list):
            yield value
        else:
            for each in value.values():
                yield from _pods(each)


def _of_pod(value: Any, field: str = "") -> Iterator[Reference]:
    if isinstance(value, list):
        for each in value:
            if field == "resourceClaims":
                yield from _named(RESOURCE_CLAIMS, each, "resourceClaimName")
                yield from _named(RESOURCE_CLAIM_TEMPLATES, each, "resourceClaimTemplateName")
            elif field == "imagePullSecrets":
                # A kubelet pulls without those that are missing.
                yield from _named(SECRETS, each, "name", optional=True)
            else:
                yield from _of_pod(each)
    elif isinstance(value, dict):
        if field in _NAMED_IN:
            resource, named = _NAMED_IN[field]
            yield from _named(resource, value, named)
        elif field == "secret":
            # A volume calls it `secretName`, a source of a projected one `name`.
            yield from _named(SECRETS, value, "secretName" if "secretName" in value else "name")
        else:
            for name, each in value.items():
                yield from _of_pod(each, name)


def _named(resource: ApiResource, value: Any, field: str, *, optional: bool = False) -> Iterator[Reference]:
    name = value.get(field) if isinstance(value, dict) else None
    if isinstance(name, str) and name and not (resource == CONFIGMAPS and name in _EVERYWHERE):
        yield Reference(resource, name, optional or value.get("optional") is True)
