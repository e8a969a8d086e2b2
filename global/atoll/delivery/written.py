"""The write of an object's whole status, and the object with it while a watch is behind."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import msgspec

from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model import versions
from atoll.model.apiresource import ApiResource
from atoll.model.objects import Meta, Slim

Json = dict[str, Any]
S = TypeVar("S", bound=Slim)


async def replace_status(
    host: ApiServer, resource: ApiResource, meta: Meta, status: Json, *, field_manager: str = ""
) -> Json | None:
    """Write the status of this very version of an object; returns the object as it is then, None where it is gone.

    The server takes nothing else of the object, and has less to do than for a patch.

    Raises:
        Conflict: the object has changed since.
    """
    metadata = {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid}
    metadata["resourceVersion"] = meta.resource_version
    body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "status": status}
    try:
        return await host.replace(resource, body, subresource="status", field_manager=field_manager)
    except errors.NotFound:
        return None


def as_written(cached: S, status: Json, version: str, until: float) -> S:
    """The object with the status that it has got since, where the cache is behind; else the cached one itself.

    Args:
        cached: has a field `status`.
        status: that was written.
        version: the resourceVersion that it got.
        until: time of the loop until which the watch is waited for: the store may have been put back.
    """
    late = asyncio.get_running_loop().time() >= until
    if late or not versions.older(cached.metadata.resource_version, version):
        return cached
    metadata = msgspec.structs.replace(cached.metadata, resource_version=version)
    return msgspec.structs.replace(cached, metadata=metadata, status=status)
