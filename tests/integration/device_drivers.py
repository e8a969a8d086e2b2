"""Drivers and administrators of devices in members, and workloads with claims for them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from atoll.model.apiresource import CAPACITIES, DEVICE_CLASSES, RESOURCE_CLAIM_TEMPLATES, RESOURCE_SLICES
from atoll.model.device_claims import class_resource
from tests.integration.federation import Site, job, until

DRIVER = "gpu.example.com"
ROOT = "resource.kubernetes.io/pcieRoot"
PAIR = {
    "requests": [{"name": kind, "exactly": {"deviceClassName": f"{kind}.example.com"}} for kind in ("gpu", "nic")],
    "constraints": [{"matchAttribute": ROOT}],
}
GPUS = class_resource("gpu.example.com")


def head(resource: Any, name: str) -> dict[str, Any]:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}}


def slice_of(
    node: str, taints: list[dict[str, str]] | None = None, generation: int = 1, *, joined: bool = True
) -> dict[str, Any]:
    """Two GPUs and two NICs, a pair on each of two roots; or none of them with another on one root."""
    devices = [
        {
            "name": f"{kind}-{root}",
            "attributes": {
                "kind": {"string": kind},
                ROOT: {"string": f"root-{root}" if joined else f"{kind}-{root}"},
            },
            **({"taints": taints} if taints and kind == "gpu" else {}),
        }
        for root in range(2)
        for kind in ("gpu", "nic")
    ]
    pool = {"name": node, "generation": generation, "resourceSliceCount": 1}
    return {
        **head(RESOURCE_SLICES, node),
        "spec": {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices},
    }


@asynccontextmanager
async def equipped(site: Site, name: str, *, joined: bool = True) -> AsyncIterator[None]:
    """Two nodes of a member have devices as `slice_of`, and the member has their classes."""
    member, nodes = site.members[name], [f"{name}-n0", f"{name}-n1"]
    for kind in ("gpu", "nic"):
        selector = {"cel": {"expression": f"device.attributes['{DRIVER}'].kind == '{kind}'"}}
        spec = {"selectors": [selector], "extendedResourceName": f"example.com/{kind}"}
        await member.create(DEVICE_CLASSES, {**head(DEVICE_CLASSES, f"{kind}.example.com"), "spec": spec})
    for node in nodes:
        await member.create(RESOURCE_SLICES, slice_of(node, joined=joined))
    try:
        await until(lambda: published(site, name, nodes), what="the host knows the devices")
        yield
    finally:
        for node in nodes:
            await member.delete(RESOURCE_SLICES, node)
        for kind in ("gpu", "nic"):
            await member.delete(DEVICE_CLASSES, f"{kind}.example.com")


async def published(site: Site, member: str, nodes: Iterable[str]) -> bool:
    """Whether the host knows devices of all these nodes of a member."""
    found = [each["spec"] for each in await site.host.list(CAPACITIES, f"karmada-es-{member}")]
    classes = [group for each in found for group in each["classes"] if group["free"].get(GPUS)]
    return {name for group in classes for name in group["names"]} >= {*nodes}


async def template(
    site: Site, name: str = "pair", devices: dict[str, Any] = PAIR, annotations: dict[str, str] | None = None
) -> None:
    """On the host; `annotations` of the claims that are made of it."""
    about = {"metadata": {"annotations": annotations}} if annotations else {}
    made = {**head(RESOURCE_CLAIM_TEMPLATES, name), "spec": {**about, "spec": {"devices": devices}}}
    await site.host.create(RESOURCE_CLAIM_TEMPLATES, {**made, "metadata": {"name": name, "namespace": site.namespace}})


def using(name: str, claims: str = "pair", **more: Any) -> dict[str, Any]:
    made = job(name, **more)
    spec = made["spec"]["tasks"][0]["template"]["spec"]
    spec["resourceClaims"] = [{"name": "devices", "resourceClaimTemplateName": claims}]
    spec["containers"][0].setdefault("resources", {})["claims"] = [{"name": "devices"}]
    return made
