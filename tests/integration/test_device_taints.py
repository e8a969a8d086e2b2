"""A driver taints a device that a gang over two members uses: the host moves the gang, whole."""

from __future__ import annotations

import pytest

from atoll.model.apiresource import EVENTS, RESOURCE_SLICES
from tests.integration.command_line import atollctl
from tests.integration.device_drivers import equipped, slice_of, template, using
from tests.integration.federation import Site, until
from tests.integration.gangs import allow_division

pytestmark = pytest.mark.integration
MEMBER, OTHER = "alpha", "beta"
UNDER_TEST = f"{MEMBER}-n0"
NAMED = f"device gpu.example.com/{UNDER_TEST}/gpu-"
ECC = {"key": "gpu.example.com/ecc", "effect": "NoExecute"}


async def test_a_gang_over_two_members_leaves_a_tainted_device_and_returns(site: Site) -> None:
    """1. One member has four pairs of devices, the other one not even their classes: a gang of seven waits, and the
    verdict names both. 2. The other one gets four: the gang runs in both. 3. A driver taints two devices with
    `NoSchedule`: nothing moves. 4. It taints them with `NoExecute`: all seven pods go, and the gang waits with that in
    its story, for six pairs are left. 5. The taint goes: the gang runs anew.
    """
    member = site.members[MEMBER]

    async def publish(generation: int, *taints: dict[str, str]) -> None:
        made = slice_of(UNDER_TEST, [*taints], generation)
        await member.merge_patch(RESOURCE_SLICES, UNDER_TEST, {"spec": made["spec"]})

    async def running() -> dict[str, str]:
        return {
            pod["metadata"]["uid"]: name
            for name in (MEMBER, OTHER)
            for pod in await site.pods(name)
            if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
        }

    async def explained(words: str) -> bool:
        return words in await atollctl(site, "explain", "train")

    async with equipped(site, MEMBER):
        await template(site)
        await allow_division(site, MEMBER, OTHER)
        await site.submit(using("train", replicas=7, seconds=None, minAvailable=7))
        await site.reason("train", "InsufficientResources")
        verdict = await atollctl(site, "explain", "train")
        assert f"{MEMBER}: 4 of 7 pods" in verdict, verdict
        assert f"{OTHER}: 0 of 7 pods" in verdict, verdict
        assert "no node has any for it" in verdict, verdict
        async with equipped(site, OTHER):
            await site.phase("train", "Running")
            before = await running()
            assert sorted(before.values()) in ([MEMBER] * 4 + [OTHER] * 3, [MEMBER] * 3 + [OTHER] * 4)

            await publish(2, {**ECC, "effect": "NoSchedule"})
            await until(lambda: explained("devices 7 of 6"), what="the host counts them no more")
            assert await running() == before

            await publish(3, ECC)

            async def named() -> bool:
                events = await member.list(EVENTS, site.namespace)
                return any(each["reason"] == "DeviceTainted" and "ecc:NoExecute" in each["note"] for each in events)

            await until(named, what="the gang is named in the member")
            await until(lambda: explained(f"moves     {NAMED}"), what="explain says so")

            async def gone() -> bool:
                return not await site.pods(MEMBER) and not await site.pods(OTHER)

            await until(gone, what="the whole gang has left")
            await site.reason("train", "InsufficientResources")
            await until(lambda: explained(f"{MEMBER}: {NAMED}"), deadline=30, what="its story says why")

            await publish(4)
            await site.phase("train", "Running")
            after = await running()
            assert len(after) == 7
            assert not after.keys() & before.keys()
