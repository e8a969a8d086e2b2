"""JobArrays in tests: their phases, and objects that were made for their indices."""

from __future__ import annotations

from collections import Counter

from atoll.model.apiresource import JOB_ARRAYS
from tests.integration.federation import Json, Site, until


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
