"""`atollctl devices joint`: each group of a printed template gets its devices under one root."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.cli.devices import PCIE_ROOT, joint_template
from atoll.cli.errors import CommandError
from atoll.fit.devices import Fleet, Refused, prepare
from atoll.fit.devices.selection import Selection
from atoll.model.device_claims import Claim, DeviceClass
from atoll.model.devices import Taken
from atoll.model.resource_slices import ResourceSlices

DRIVER = "d.example.com"
PAIR = ["gpu=gpu.example.com", "nic=nic.example.com"]


def slices(gpus: int, nics: list[int]) -> ResourceSlices:
    """A node with `gpus` under each root, and NICs under these."""
    placed = [("gpu", root) for root in range(4) for _ in range(gpus)] + [("nic", root) for root in nics]
    devices = [
        {"name": f"{kind}-{at}", "attributes": {"kind": {"string": kind}, PCIE_ROOT: {"string": f"root-{root}"}}}
        for at, (kind, root) in enumerate(placed)
    ]
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": "n", "pool": pool, "devices": devices}
    return ResourceSlices([{"metadata": {"name": "n"}, "spec": spec}])


def place(template: dict[str, Any], there: ResourceSlices) -> list[str]:
    """The devices in order of the requests; empty where they don't fit."""
    classes = {
        f"{kind}.example.com": DeviceClass.of(
            {
                "metadata": {"name": f"{kind}.example.com"},
                "spec": {"selectors": [{"cel": {"expression": f"device.attributes['{DRIVER}'].kind == '{kind}'"}}]},
            }
        )
        for kind in ("gpu", "nic")
    }
    problem = prepare([Claim.of(template)], there.pools("n", {}), classes, Selection(), "n", {})
    found = Fleet({"n": problem}).place(1, Taken.of([]))
    if isinstance(found, Refused):
        return []
    assert isinstance(found, list)
    return [pick.option.device.id.name for pod in found for pick in pod.picks]


def test_each_pair_is_under_a_root_of_its_own_value() -> None:
    template = joint_template("pairs", PAIR, 4, PCIE_ROOT)
    assert place(template, slices(1, [3, 2, 1, 0])) == [
        "gpu-0", "nic-7", "gpu-1", "nic-6", "gpu-2", "nic-5", "gpu-3", "nic-4",
    ]  # fmt: skip
    assert place(template, slices(1, [0, 0, 1, 2])) == [], "root 3 has no NIC"


def test_a_group_may_have_several_devices_of_a_class() -> None:
    template = joint_template("pairs", ["gpu=gpu.example.com:2", "nic=nic.example.com"], 1, PCIE_ROOT)
    assert place(template, slices(2, [2])) == ["gpu-4", "gpu-5", "nic-8"]
    assert place(template, slices(1, [2])) == []


@pytest.mark.parametrize(
    ("devices", "groups", "same", "words"),
    [
        (["gpu"], 1, PCIE_ROOT, "NAME=DEVICECLASS"),
        (["gpu=a", "gpu=b"], 1, PCIE_ROOT, "one name"),
        (PAIR, 17, PCIE_ROOT, "at most 32"),
        (["gpu=a:33"], 1, PCIE_ROOT, "at most 32"),
        (PAIR, 1, "rack", "qualified"),
    ],
)
def test_a_claim_that_kubernetes_would_refuse_is_not_printed(
    devices: list[str], groups: int, same: str, words: str
) -> None:
    with pytest.raises(CommandError, match=words):
        joint_template("pairs", devices, groups, same)
