"""`atollctl devices` on a member whose drivers publish devices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from atoll.model.apiresource import DEVICE_CLASSES, NAMESPACES, RESOURCE_CLAIMS, RESOURCE_SLICES
from tests.atollctl import Ran, atollctl
from tests.integration.federation import Site

pytestmark = pytest.mark.integration

MEMBER = "alpha"
DRIVER = "gpu.example.com"
ROOT = "resource.kubernetes.io/pcieRoot"


def _devices(*roots: str) -> list[dict[str, Any]]:
    """A GPU and a NIC for each root."""
    return [
        {
            "name": f"{kind}-{number}",
            "attributes": {"kind": {"string": kind}, ROOT: {"string": root}},
            "taints": [{"key": "broken", "effect": "NoSchedule"}] if root == "bad" else [],
        }
        for number, root in enumerate(roots)
        for kind in ("gpu", "nic")
    ]


def _class(kind: str) -> dict[str, Any]:
    selector = {"cel": {"expression": f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].kind == '{kind}'"}}
    about = {"apiVersion": DEVICE_CLASSES.api_version, "kind": DEVICE_CLASSES.kind}
    return {**about, "metadata": {"name": f"{kind}.example.com"}, "spec": {"selectors": [selector]}}


def _claim(name: str, *kinds: str, joined: bool = False) -> dict[str, Any]:
    requests = [{"name": kind, "exactly": {"deviceClassName": f"{kind}.example.com"}} for kind in kinds]
    devices: dict[str, Any] = {"requests": requests}
    if joined:
        devices["constraints"] = [{"matchAttribute": ROOT}]
    about = {"apiVersion": RESOURCE_CLAIMS.api_version, "kind": RESOURCE_CLAIMS.kind}
    return {**about, "metadata": {"name": name}, "spec": {"devices": devices}}


async def test_devices_of_a_member_are_listed_and_claims_tried_on_them(site: Site, tmp_path: Path) -> None:
    """Two nodes of two roots each, one of them broken; a claim holds one GPU."""
    member = site.members[MEMBER]
    file = tmp_path / "claims.yaml"

    async def run(*words: str) -> Ran:
        return await atollctl("devices", *words, f"--kubeconfig={site.federation.members[MEMBER].kubeconfig}")

    none = await run("list")
    assert (none.code, "no ResourceSlices" in none.said) == (1, True)
    for kind in ("gpu", "nic"):
        await member.create(DEVICE_CLASSES, _class(kind))
    for node, roots in (("alpha-n0", ("a", "b")), ("alpha-n1", ("c", "bad"))):
        about = {"apiVersion": RESOURCE_SLICES.api_version, "kind": RESOURCE_SLICES.kind, "metadata": {"name": node}}
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": _devices(*roots)}
        await member.create(RESOURCE_SLICES, {**about, "spec": spec})
    space = f"{site.namespace}-devices"
    await member.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}})
    try:
        await member.create(
            RESOURCE_CLAIMS, {**_claim("held", "gpu"), "metadata": {"name": "held", "namespace": space}}
        )
        result = {"request": "gpu", "driver": DRIVER, "pool": "alpha-n0", "device": "gpu-0"}
        status = {"status": {"allocation": {"devices": {"results": [result]}}}}
        await member.merge_patch(RESOURCE_CLAIMS, "held", status, space, subresource="status")

        listed = await run("list", "--no-headers")
        assert [line.split() for line in listed.out.splitlines()] == [
            ["alpha-n0", DRIVER, "alpha-n0", "4", "3", "0", "<none>"],
            ["alpha-n1", DRIVER, "alpha-n1", "4", "2", "2", "<none>"],
        ]
        file.write_text(yaml.safe_dump(_claim("pair", "gpu", "nic", joined=True)))
        two = await run("fit", "-f", str(file), "--pods", "2")
        assert [line.split() for line in two.out.splitlines()[1:]] == [
            ["alpha-n0", "gpu", f"{DRIVER}/alpha-n0/gpu-1", "<none>"],
            ["alpha-n0", "nic", f"{DRIVER}/alpha-n0/nic-1", "<none>"],
            ["alpha-n1", "gpu", f"{DRIVER}/alpha-n1/gpu-0", "<none>"],
            ["alpha-n1", "nic", f"{DRIVER}/alpha-n1/nic-0", "<none>"],
        ]
        three = await run("fit", "-f", str(file), "--pods", "3")
        assert (three.code, three.said.startswith("error: no room for all pods")) == (1, True), three.said
        file.write_text(yaml.safe_dump(_claim("other", "tpu")))
        unknown = await run("fit", "-f", str(file))
        assert "no device class tpu.example.com" in unknown.said
    finally:
        await member.delete(NAMESPACES, space)
        for node in ("alpha-n0", "alpha-n1"):
            await member.delete(RESOURCE_SLICES, node)
        for kind in ("gpu", "nic"):
            await member.delete(DEVICE_CLASSES, f"{kind}.example.com")
