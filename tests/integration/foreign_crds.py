"""CRDs of other systems as tests need them: whatever is in an object is kept; and who plays their controllers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model.apiresource import CRDS, PODS, ApiResource

Json = dict[str, Any]


def crd(resource: ApiResource) -> Json:
    """A definition that keeps everything."""
    keeps = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": keeps},
        "subresources": {"status": {}},
    }
    names = {"plural": resource.plural, "kind": resource.kind, "singular": resource.kind.lower()}
    spec = {
        "group": resource.group,
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "names": names,
        "versions": [version],
    }
    name = f"{resource.plural}.{resource.group}"
    # API servers ask for it where a group ends in .k8s.io.
    metadata = {"name": name, "annotations": {"api-approved.kubernetes.io": "unapproved, of a test"}}
    about = {"apiVersion": CRDS.api_version, "kind": CRDS.kind, "metadata": metadata}
    return {**about, "spec": spec}


async def bring(apis: Iterable[ApiServer], resources: Iterable[ApiResource]) -> None:
    """Have these clusters serve these resources."""
    wanted = list(resources)
    for api in apis:
        for each in wanted:
            try:
                await api.create(CRDS, crd(each))
            except errors.AlreadyExists:
                continue
    # An object can be made some time after its definition.
    for api in apis:
        for each in wanted:
            async with asyncio.timeout(30):
                while True:
                    try:
                        await api.list(each)
                        break
                    except errors.NotFound:
                        await asyncio.sleep(0.05)


def owner(resource: ApiResource, obj: Json) -> Json:
    """The reference of what a controller makes for an object."""
    about = {"apiVersion": resource.api_version, "kind": resource.kind}
    return {**about, "name": obj["metadata"]["name"], "uid": obj["metadata"]["uid"], "controller": True}


async def make(api: ApiServer, made: ApiResource, name: str, above: Json, obj: Json, labels: Json, spec: Json) -> Json:
    """What a controller makes for an object, in its namespace."""
    metadata = {"name": name, "namespace": obj["metadata"]["namespace"], "ownerReferences": [above], "labels": labels}
    about = {"apiVersion": made.api_version, "kind": made.kind}
    return await api.create(made, {**about, "metadata": metadata, "spec": spec})


async def make_pods(api: ApiServer, resource: ApiResource, obj: Json, role: str, count: int, template: Json) -> None:
    """The pods of one role, as operators make them directly."""
    for index in range(count):
        head = template.get("metadata") or {}
        metadata = {
            "name": f"{obj['metadata']['name']}-{role}-{index}",
            "namespace": obj["metadata"]["namespace"],
            "ownerReferences": [owner(resource, obj)],
            "labels": head.get("labels") or {},
            "annotations": head.get("annotations") or {},
        }
        spec = template["spec"]
        await api.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


async def say(api: ApiServer, resource: ApiResource, obj: Json, status: Json) -> None:
    """Write the status as the controller of the kind does."""
    metadata = obj["metadata"]
    operations = [{"op": "add", "path": "/status", "value": status}]
    await api.json_patch(resource, metadata["name"], operations, metadata["namespace"], subresource="status")
