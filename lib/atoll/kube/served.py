"""Which resources an API server has, as it tells every user that asks."""

from __future__ import annotations

from collections.abc import Iterable

import orjson

from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model.apiresource import ApiResource


async def served(api: ApiServer, resources: Iterable[ApiResource]) -> list[ApiResource]:
    """The resources among these that an API server has."""
    wanted = list(resources)
    try:
        groups = orjson.loads(await api.request("GET", "/apis")).get("groups") or ()
    except errors.NotFound:
        groups = ()
    versions = {"v1", *(version["groupVersion"] for group in groups for version in group["versions"])}
    found: dict[str, set[str]] = {}
    for version in dict.fromkeys(each.api_version for each in wanted if each.api_version in versions):
        path = f"/apis/{version}" if "/" in version else f"/api/{version}"
        try:
            listed = orjson.loads(await api.request("GET", path))["resources"]
        except errors.NotFound:
            continue
        found[version] = {each["name"] for each in listed}
    return [each for each in wanted if each.plural in found.get(each.api_version, ())]
