"""The write of a status: of this very object, and where that counts of this very version."""

from __future__ import annotations

from typing import Any, Final

from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model.apiresource import ApiResource

Json = dict[str, Any]

STATUS_REFUSED: Final = "StatusRefused"
"""Reason of the Event that tells of a status which the host's API server refuses."""


def breaks_rules(error: errors.Invalid) -> bool:
    """Whether the API server refused a status by its rules, so that the same one is refused again."""
    return " is invalid: " in error.said


async def put_status(host: ApiServer, resource: ApiResource, obj: Json, status: Json, *, seen: str = "") -> Json | None:
    """Write a status; returns the object as it is then, None where there is none.

    Args:
        host: the API server.
        resource: of the object.
        obj: with metadata.
        status: the whole of it.
        seen: only over that resourceVersion: an old write knows nothing of later reports.

    Raises:
        Invalid: the object is not as it was seen, or the status breaks a rule of its API (`breaks_rules`).
    """
    about = obj["metadata"]
    operations: list[Json] = [{"op": "test", "path": "/metadata/uid", "value": about["uid"]}]
    if seen:
        operations.append({"op": "test", "path": "/metadata/resourceVersion", "value": seen})
    operations.append({"op": "add", "path": "/status", "value": status})
    try:
        return await host.json_patch(
            resource, about["name"], operations, about["namespace"], subresource="status", field_manager="atoll-control"
        )
    except errors.NotFound:
        return None
