"""The objects that make empty API servers a federation: CRDs, nodes, HyperNodes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import orjson

from atoll.kube.errors import AlreadyExists, ApiError, NotFound
from atoll.kube.transport import ApiServer
from atoll.model.apiresource import CRDS, ApiResource

_BATCH = 256


async def create_all(api: ApiServer, resource: ApiResource, objects: Sequence[dict[str, Any]]) -> None:
    """Create objects side by side; what exists already stays as it is.

    Raises:
        ApiError: one was refused; a note names it.
    """

    async def create(item: dict[str, Any]) -> None:
        try:
            await api.create(resource, item)
        except AlreadyExists:
            pass
        except ApiError as error:
            error.add_note(f"while creating {item['kind']} {item['metadata']['name']!r}")
            raise

    # Bounded, so that 10,000 nodes do not become 10,000 tasks that all wait for a connection.
    for at in range(0, len(objects), _BATCH):
        await asyncio.gather(*(create(item) for item in objects[at : at + _BATCH]))


async def install_crds(api: ApiServer, crds: Sequence[dict[str, Any]], deadline_s: float = 90) -> None:
    """Create CRDs; return when each is established and listed by discovery.

    Discovery counts because the garbage collector reads it at its start and then only every 30 s:
    a kind that it has not seen keeps its dependants for that long.

    Raises:
        ApiError: a CRD was refused.
        TimeoutError: a CRD is not served in time; the message has the server's reason.
    """
    if not crds:
        return
    await create_all(api, CRDS, crds)
    wanted: dict[str, set[str]] = {}
    for crd in crds:
        for version in crd["spec"]["versions"]:
            if version.get("served", True):
                group_version = f"{crd['spec']['group']}/{version['name']}"
                wanted.setdefault(group_version, set()).add(crd["spec"]["names"]["plural"])

    async def missing() -> str:
        groups = orjson.loads(await api.request("GET", "/apis"))["groups"]
        served = {item["groupVersion"] for group in groups for item in group["versions"]}
        for group_version, plurals in wanted.items():
            if group_version not in served:
                return await _refusals(api) or f"{group_version} is not in discovery"
            try:
                answer = orjson.loads(await api.request("GET", f"/apis/{group_version}"))
            except NotFound:
                return f"{group_version} is not served"
            if absent := plurals - {item["name"] for item in answer["resources"]}:
                return await _refusals(api) or f"{min(absent)} is not in {group_version}"
        return ""

    await wait_until(missing, "CRDs", deadline_s)


async def _refusals(api: ApiServer) -> str:
    return "; ".join(
        f"{item['metadata']['name']}: {condition.get('message')}"
        for item in await api.list(CRDS)
        for condition in ((item.get("status") or {}).get("conditions") or ())
        if condition["type"] == "NamesAccepted" and condition["status"] == "False"
    )


async def wait_until(missing: Callable[[], Awaitable[str]], what: str, deadline_s: float, poll_s: float = 0.05) -> None:
    """Call until it returns an empty string; raise TimeoutError with its last answer."""
    ends = time.monotonic() + deadline_s
    while reason := await missing():
        if time.monotonic() > ends:
            raise TimeoutError(f"{what} not ready after {deadline_s:.0f} s: {reason}")
        await asyncio.sleep(poll_s)
