"""JobArrays in tests: their phases, and objects that were made for their indices."""

from __future__ import annotations

from collections import Counter

from atoll.model import keys
from atoll.model.apiresource import JOB_ARRAYS, PODS
from tests.integration.federation import Json, Site, until
from tests.integration.gangs import gpus


async def in_phase(site: Site, name: str, *phases: str) -> Json:
    """An array once it is in one of these phases."""

    async def look() -> Json | None:
        found = await site.find(JOB_ARRAYS, name)
        return found if found and (found.get("status") or {}).get("phase") in phases else None

    return await until(look, what=f"array {name} is {' or '.join(phases)}")


def made(site: Site, member: str, plural: str) -> Counter[str]:
    """Index -> objects of this resource that were made for it in the member."""
    found: Counter[str] = Counter()
    for event in site.audit(member):
        reference = event.get("objectRef") or {}
        new = event["verb"] == "create" and event["responseStatus"]["code"] == 201
        if new and reference.get("resource") == plural and not reference.get("subresource"):
            found[reference["name"]] += 1
    return found


def scattered(name: str, indices: int, *, at_once: int, seconds: float) -> Json:
    """In members alpha and beta; each index takes a node."""
    return {
        "apiVersion": JOB_ARRAYS.api_version,
        "kind": JOB_ARRAYS.kind,
        "metadata": {"name": name, "annotations": {keys.DIVIDED: "any", keys.ONLY_CLUSTERS: "alpha,beta"}},
        "spec": {
            "indices": indices,
            "atOnce": at_once,
            "template": {"spec": gpus(name, 1, 8, seconds=seconds)["spec"]},
        },
    }


async def running(site: Site, member: str) -> set[str]:
    """Indices whose pods have nodes in a member."""
    return {
        pod["metadata"]["labels"][keys.ARRAY_INDEX]
        for pod in await site.members[member].list(PODS, site.namespace)
        if pod["spec"].get("nodeName") and pod["status"].get("phase") in ("Pending", "Running")
    }
