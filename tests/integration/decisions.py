"""What the audit log and queues say of decisions."""

from __future__ import annotations

import time
from typing import Any

import orjson

from atoll import install
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import BINDINGS, QUEUES
from atoll.model.decision import MOVES_AFTER, Decision, decode
from atoll.model.timestamps import rfc3339
from tests.integration.federation import Site, until


async def decisions(site: Site) -> dict[str, Decision]:
    """Job -> what was decided on it last."""
    found = {}
    for binding in await site.host.list(BINDINGS, site.namespace):
        text = binding["metadata"]["annotations"].get(keys.DECISION)
        found[binding["metadata"]["name"].removesuffix("-job")] = decode(text)
    return found


async def status(site: Site, queue: str, **wanted: Any) -> dict[str, Any]:
    """Wait until a queue's status has these fields."""

    async def look() -> dict[str, Any] | None:
        found = ((await site.find(QUEUES, queue)) or {}).get("status") or {}
        seen.update(found)
        return found if all(found.get(key) == value for key, value in wanted.items()) else None

    seen: dict[str, Any] = {}
    try:
        return await until(look)
    except AssertionError:
        raise AssertionError(f"queue {queue}: wanted {wanted}, last seen {seen}") from None


YOUNG: dict[str, Any] = {"metadata": {"annotations": {keys.PROTECTED_FOR: "0s"}}}


async def evicted(site: Site, name: str, reason: str) -> None:
    async def look() -> bool:
        told = (await decisions(site)).get(name)
        return told is not None and any(line.reason == reason for line in told.story)

    await until(look, what=f"{name} is {reason}")


async def predate(site: Site, name: str) -> None:
    """Write as the dispatcher that a job was dispatched so long ago that the host follows requests to move it."""
    kubeconfig = install.kubeconfig_of(site.federation.atoll.credentials, "dispatcher")
    async with await ApiServer.from_kubeconfig(kubeconfig) as dispatcher:
        decision = await site.decided(name)
        decision["dispatched"] = rfc3339(time.time() - 2 * MOVES_AFTER)
        notes = {keys.DECISION: orjson.dumps(decision).decode()}
        patch = {"metadata": {"annotations": notes}}
        await dispatcher.merge_patch(BINDINGS, f"{name}-job", patch, site.namespace)
