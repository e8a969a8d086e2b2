"""Quotas in fractions of devices, and resources that nobody has, as their users are told of them."""

from __future__ import annotations

import pytest
import yaml

from tests import atollctl as commands
from tests.integration.command_line import atollctl
from tests.integration.federation import Site, job, until

pytestmark = pytest.mark.integration


async def test_a_fraction_is_refused_and_an_unknown_name_is_warned_of(site: Site) -> None:
    name = f"q-{site.namespace}"
    said = await atollctl(site, "queue", "create", name, "--capability", "nvidia.com/gpu=1.5", ok=False)
    assert "--capability nvidia.com/gpu=1.5: is counted in whole numbers" in said
    queue = await site.queue(capability={"nvidia.com/gpu": "2"})
    manifest = {"spec": {"deserved": {"nvidia.com/gpu": "500m"}}}
    refused = site.kubectl("patch", "queue", queue, "--type=merge", "-p", yaml.safe_dump(manifest), ok=False)
    assert "spec.deserved.nvidia.com/gpu: is a fraction of what is counted in whole numbers" in refused

    async def update(amounts: str) -> str:
        words = ("queue", "update", queue, "--capability", amounts)
        return (await commands.atollctl(*words, f"--kubeconfig={site.federation.host.kubeconfig}")).said

    async def hinted() -> bool:
        # The webhook may not have heard of the members' nodes yet.
        said = await update("nvidia.com/gpus=2")
        await update("nvidia.com/gpu=2")
        return "Warning: spec.capability.nvidia.com/gpus: no member has nvidia.com/gpus; did you mean" in said

    await until(hinted, what="the hint")
    misspelt = job("misspelt")
    container = misspelt["spec"]["tasks"][0]["template"]["spec"]["containers"][0]
    container["resources"] = {"limits": {"nvidia.com/gpus": 1}}
    told = site.warned("create", "-f", "-", stdin=yaml.safe_dump(misspelt))
    assert "no member has nvidia.com/gpus; did you mean nvidia.com/gpu?" in told
