"""Gangs that move out of a rack for one that waits, on real API servers: whole, with queue, charge and age."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from atoll.local.atoll_federation import AtollFederation
from atoll.local.keeper import KeptProcess
from atoll.model.apiresource import BINDINGS, QUEUES
from tests.integration.command_line import atollctl
from tests.integration.decisions import YOUNG, decisions, status
from tests.integration.federation import Json, Site, next_is_younger, until
from tests.integration.gangs import gpus, one_member

pytestmark = pytest.mark.integration

MEMBER = "beta"
"""Two racks of two nodes, with 8 GPUs each."""
RACK = {"mode": "hard", "highestTierAllowed": 1}
GPU = "nvidia.com/gpu"


@asynccontextmanager
async def moving(federation: AtollFederation, gangs: int) -> AsyncIterator[None]:
    """A dispatcher that moves so many gangs in an hour, in place of the federation's own."""
    own = federation.process("dispatcher")
    await own.stop()
    spec, flags = own.process.spec, (f"--moved-gangs-per-hour={gangs}", "--set=core.defragmentation.pause=1")
    process = KeptProcess(dataclasses.replace(spec, argv=[*spec.argv, *flags]), own.log.parent)
    try:
        await process.start()
        await process.ready()
        yield
    finally:
        await process.stop()
        await own.start()
        await own.ready()


async def racks(site: Site, name: str) -> list[int]:
    """The rack of each running pod of a job."""
    found = []
    for pod in await site.pods(MEMBER):
        mine = pod["metadata"]["name"].startswith(f"{name}-") and not pod["metadata"].get("deletionTimestamp")
        if mine and pod["status"].get("phase") == "Running":
            found.append(int(pod["spec"]["nodeName"].removeprefix(f"{MEMBER}-n")) // 2)
    return found


async def in_one_rack(site: Site, name: str, pods: int) -> int:
    async def look() -> list[int] | None:
        found = await racks(site, name)
        return found if len(found) == pods else None

    [rack] = set(await until(look, what=f"{pods} pods of {name} run"))
    return rack


async def born(site: Site, name: str) -> list[str]:
    """What its age follows from."""
    found = await site.find(BINDINGS, f"{name}-job")
    assert found is not None
    return [found["metadata"][key] for key in ("uid", "creationTimestamp")]


async def test_a_gang_moves_whole_out_of_the_rack_that_another_one_waits_for(
    federation: AtollFederation, site: Site
) -> None:
    """1. Half of each rack is free, and a gang needs a whole one: without moves it waits. 2. With moves one of the two
    that run leaves its rack. 3. One that comes then gets neither place. 4. Both run again, and the claimant too.
    """
    await one_member(site, MEMBER)
    queue = await site.queue()
    await site.host.merge_patch(QUEUES, queue, YOUNG)

    def gang(name: str, pods: int) -> Json:
        return gpus(name, pods, 4, seconds=None, queue=queue, networkTopology=RACK)

    first = await site.submit(gang("first", 2))
    here = await in_one_rack(site, "first", 2)
    await site.submit(gang("filler", 2))
    assert await in_one_rack(site, "filler", 2) == here
    await site.submit(gang("second", 2))
    assert await in_one_rack(site, "second", 2) != here
    site.kubectl("delete", "jobs.batch.volcano.sh", "filler", "-n", site.namespace)
    await next_is_younger(first)
    await site.submit(gang("wide", 4))
    await site.reason("wide", "NoDomainFits")
    before = {name: await born(site, name) for name in ("first", "second")}
    async with moving(federation, 1):

        async def moved() -> list[str]:
            return [name for name, each in (await decisions(site)).items() if each.moved]

        [gone] = await until(moved, what="a gang leaves its rack")
        stays = "second" if gone == "first" else "first"
        there = await in_one_rack(site, stays, 2)
        await site.submit(gang("late", 2))
        assert await in_one_rack(site, "wide", 4) != there
        assert await in_one_rack(site, gone, 2) == there
        await site.phase(gone, "Running")
        await status(site, queue, allocated={GPU: "32", "cpu": "8", "pods": "8"})
    line = r"2 pods of 1 gang leave rack \S+ of beta: 0\.\d\d pod-hours lost; waiting would cost 4\.00 pod-hours"
    told = await decisions(site)
    [why] = [each.text for each in told[gone].story if each.reason == "Moved"]
    assert re.search(line, why), why
    assert re.search(line, await atollctl(site, "explain", gone))
    assert re.search(line, await atollctl(site, "explain", "wide"))
    assert await born(site, gone) == before[gone]
    assert told[stays].epoch == 1, "the other one stayed"
    assert (told["late"].phase, told["late"].epoch) == ("Suspended", 0)
