"""Objects as an API server knows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from atoll.kube.transport import APPLY_PATCH, ApiServer

Json = dict[str, Any]


async def path_of(api: ApiServer, obj: Json) -> str:
    """The path of an object, by the server's own discovery."""
    version, meta = obj["apiVersion"], obj["metadata"]
    prefix = f"/apis/{version}" if "/" in version else f"/api/{version}"
    served = orjson.loads(await api.request("GET", prefix))["resources"]
    [plural] = [each["name"] for each in served if each["kind"] == obj["kind"] and "/" not in each["name"]]
    namespace = f"/namespaces/{meta['namespace']}" if "namespace" in meta else ""
    return f"{prefix}{namespace}/{plural}/{meta['name']}"


async def try_strictly(api: ApiServer, rendered: Sequence[Json]) -> None:
    """Apply each with strict field validation; the server keeps nothing, and raises where one is wrong."""
    asked = {"dryRun": "All", "fieldValidation": "Strict", "fieldManager": "test", "force": "true"}
    for obj in rendered:
        path = await path_of(api, obj)
        await api.request("PATCH", path, body=orjson.dumps(obj), content_type=APPLY_PATCH, params=asked)


async def apply(api: ApiServer, objects: Sequence[Json]) -> None:
    """Apply each as Helm does."""
    for each in objects:
        params = {"fieldManager": "helm", "force": "true", "fieldValidation": "Strict"}
        await api.request(
            "PATCH", await path_of(api, each), body=orjson.dumps(each), content_type=APPLY_PATCH, params=params
        )
