"""Commands as vcctl sends them: a wish about a queue or a Job, that atoll-control takes and deletes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from atoll.cli.errors import CommandError

if TYPE_CHECKING:
    from atoll.kube.transport import ApiServer
    from atoll.model.apiresource import ApiResource

Json = dict[str, Any]

QUEUE_NAMESPACE = "default"
"""Queues have no namespace; where vcctl puts their Commands."""


async def send(host: ApiServer, resource: ApiResource, target: Json, action: str) -> None:
    """Send a Command; it goes with its target if it is not taken.

    Args:
        host: the API server.
        resource: of the target.
        target: the object, as the API server gave it.
        action: such as OpenQueue.
    """
    from atoll.model.apiresource import COMMANDS

    meta = target["metadata"]
    reference = {"apiVersion": resource.api_version, "kind": resource.kind, "name": meta["name"], "uid": meta["uid"]}
    reference["controller"] = True
    await host.create(
        COMMANDS,
        {
            "apiVersion": COMMANDS.api_version,
            "kind": COMMANDS.kind,
            "metadata": {
                "generateName": f"{meta['name']}-{action.lower()}-",
                "namespace": meta.get("namespace") or QUEUE_NAMESPACE,
                "ownerReferences": [reference],
            },
            "action": action,
            "target": reference,
        },
        field_manager="atollctl",
    )


async def followed(
    host: ApiServer,
    resource: ApiResource,
    target: Json,
    reached: Callable[[Json], bool],
    *,
    seconds: float,
    wanted: str,
) -> Json:
    """Wait until an object is as a Command wants it; gives the object as it is then.

    Args:
        host: the API server.
        resource: of the object.
        target: the object before the Command.
        reached: whether this object is as wanted.
        seconds: how long to wait.
        wanted: the awaited state, in words.

    Raises:
        CommandError: it did not happen in time, or the object was deleted.
    """
    kind, name = resource.kind.lower(), target["metadata"]["name"]
    try:
        async with asyncio.timeout(seconds):
            return await seen(host, resource, target, reached)
    except TimeoutError:
        namespace = target["metadata"].get("namespace") or QUEUE_NAMESPACE
        raise CommandError(
            f"{kind} {name} is not {wanted} after {seconds:.0f} s; the command stays:"
            f" is atoll-control running? (kubectl get commands -n {namespace})"
        ) from None


async def seen(host: ApiServer, resource: ApiResource, target: Json, reached: Callable[[Json], bool]) -> Json:
    """Wait until an object is as it should be; gives it as it is then.

    Args:
        host: the API server.
        resource: of the object.
        target: the object as it was last read.
        reached: whether this object is as wanted.

    Raises:
        CommandError: it was deleted, or the watch ended.
    """
    import orjson

    meta = target["metadata"]
    if reached(target):
        return target
    stream = host.watch(
        resource,
        meta.get("namespace"),
        resource_version=meta["resourceVersion"],
        field_selector=f"metadata.name={meta['name']}",
    )
    async for line in stream:
        event = orjson.loads(line)
        if event["type"] == "DELETED":
            break
        if event["type"] != "BOOKMARK" and reached(event["object"]):
            found: Json = event["object"]
            return found
    raise CommandError(f"{resource.kind.lower()} {meta['name']} was deleted, or the watch of it ended")
