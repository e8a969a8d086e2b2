"""Queues are closed and opened as Volcano's own tools do."""

from __future__ import annotations

from atoll.model.apiresource import COMMANDS, QUEUES
from tests.integration.federation import Site, until


def command(action: str, queue: dict) -> dict:
    target = {
        "apiVersion": QUEUES.api_version,
        "kind": QUEUES.kind,
        "name": queue["metadata"]["name"],
        "uid": queue["metadata"]["uid"],
    }
    metadata = {"generateName": f"{queue['metadata']['name']}-", "namespace": "default", "ownerReferences": [target]}
    return {
        "apiVersion": COMMANDS.api_version,
        "kind": COMMANDS.kind,
        "metadata": metadata,
        "action": action,
        "target": target,
    }


async def in_state(site: Site, queue: str, state: str) -> dict:
    async def look() -> dict | None:
        found = await site.find(QUEUES, queue)
        return found if found and (found.get("status") or {}).get("state") == state else None

    return await until(look, what=f"queue {queue} is {state}")
