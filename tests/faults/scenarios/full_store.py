"""The store's space quota is reached (alarm NOSPACE), and freed: compaction, defragmentation, disarm."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

from atoll.kube import errors
from atoll.model.apiresource import CONFIGMAPS
from tests.chaos.plan import Submission
from tests.chaos.servers import STORE
from tests.faults.ground import Ground, Json, jobs, text64

EXEMPT: frozenset[str] = frozenset()
_PLACE = "kube-public"
_ROOM = 24 * 2**20
_QUOTA = "--quota-backend-bytes="


def wishes(quick: bool) -> list[Submission]:
    return jobs("full", 20 if quick else 100)


async def play(ground: Ground) -> None:
    store = ground.servers.of(STORE)
    usual = list(store.spec.argv)
    async with ground.store() as ask:
        size = int((await ask("maintenance/status"))["dbSize"])
    store.spec = replace(
        store.spec, argv=[*(each for each in usual if not each.startswith(_QUOTA)), f"{_QUOTA}{size + _ROOM}"]
    )
    try:
        # With the small quota from here on.
        await ground.outage(STORE, 0)
        await ground.sleep(2)
        async with ground.fault("outage (quota of the store)", STORE):
            made = await _fill(ground)
            await ground.sleep(ground.size(20, 6))
            began = time.time()
            await _free(ground, made)
            ground.say(f"freed in {time.time() - began:.1f} s")
    finally:
        store.spec = replace(store.spec, argv=usual)
        await ground.outage(STORE, 0)


async def _fill(ground: Ground) -> list[str]:
    """Write until the store takes nothing any more; the names of what was written."""
    made: list[str] = []
    for number in range(400):
        name = f"ballast-{number}"
        ballast: Json = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": _PLACE},
            "data": {"x": "x" * 900_000},
        }
        try:
            await ground.host.create(CONFIGMAPS, ballast)
            made.append(name)
        except errors.ApiError as error:
            if "space" in str(error):
                ground.say(f"full after {number} objects: {error}")
                return made
            await asyncio.sleep(0.2)
    raise RuntimeError("the store took everything")


async def _free(ground: Ground, made: list[str]) -> None:
    for name in made:
        await ground.host.delete(CONFIGMAPS, name, _PLACE)
    async with ground.store() as ask:
        found = await ask("kv/range", key=text64("/"))
        await ask("kv/compaction", revision=found["header"]["revision"], physical=True)
        await ask("maintenance/defragment")
        for alarm in (await ask("maintenance/alarm", action="GET")).get("alarms", ()):
            await ask("maintenance/alarm", action="DEACTIVATE", **alarm)
