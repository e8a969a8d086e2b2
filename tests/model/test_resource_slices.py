"""ResourceSlices as pools: generations, completeness, order, and the model of a device."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from atoll.model.devices import Attribute, DeviceId, Taint, Taken, Toleration
from atoll.model.resource_slices import ResourceSlices

Json = dict[str, Any]
DRIVER = "gpu.example.com"


def slice_(
    name: str, devices: list[Json], *, generation: int = 1, count: int = 1, pool: str = "p", **spec: Any
) -> Json:
    reach = spec or {"nodeName": "n"}
    return {
        "metadata": {"name": name},
        "spec": {
            "driver": DRIVER,
            "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
            "devices": devices,
            **reach,
        },
    }


def names(slices: list[Json], node: str = "n", labels: Json | None = None) -> list[list[str]]:
    return [[device.id.name for device in pool.devices] for pool in ResourceSlices(slices).pools(node, labels or {})]


def test_slices_of_a_pool_come_by_name_and_only_of_the_newest_generation():
    slices = [
        slice_("b", [{"name": "d2"}], generation=2, count=2),
        slice_("old", [{"name": "d0"}], generation=1),
        slice_("a", [{"name": "d1"}], generation=2, count=2),
    ]
    assert names(slices) == [["d1", "d2"]]


def test_pool_with_a_missing_slice_is_incomplete():
    [pool] = ResourceSlices([slice_("a", [{"name": "d"}], count=2)]).pools("n", {})
    assert pool.incomplete
    assert not pool.usable


def test_pool_is_dropped_while_another_node_has_its_newer_generation():
    slices = [slice_("a", [{"name": "d"}], count=2), slice_("b", [], generation=2, nodeName="other")]
    assert names(slices) == []


@pytest.mark.parametrize(
    ("slices", "problem"),
    [
        ([slice_("a", [{"name": "d"}, {"name": "d"}])], "device d is published twice"),
        (
            [
                slice_(
                    "a", [{"name": "d", "consumesCounters": [{"counterSet": "s", "counters": {"c": {"value": "1"}}}]}]
                )
            ],
            "device d consumes unknown counter s/c",
        ),
        (
            [
                slice_("a", [], count=2, sharedCounters=[{"name": "s", "counters": {}}]),
                slice_("b", [], count=2, sharedCounters=[{"name": "s", "counters": {}}]),
            ],
            "counter set s is published twice",
        ),
    ],
)
def test_invalid_pool_tells_why(slices: list[Json], problem: str):
    [pool] = ResourceSlices(slices).pools("n", {})
    assert pool.problem == problem


def test_pools_come_by_driver_and_name_those_with_binding_conditions_last():
    slices = [
        slice_("a", [{"name": "bound", "bindingConditions": ["ready"]}], pool="a"),
        slice_("c", [{"name": "c"}], pool="c"),
        slice_("b", [{"name": "b"}], pool="b"),
    ]
    assert names(slices) == [["b"], ["c"], ["bound"]]


def test_slices_reach_nodes_by_name_by_selector_everywhere_or_per_device():
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z"]}]}
    slices = [
        slice_("a", [{"name": "local"}], pool="a"),
        slice_("b", [{"name": "zonal"}], pool="b", nodeSelector={"nodeSelectorTerms": [term]}),
        slice_("c", [{"name": "global"}], pool="c", allNodes=True),
        slice_("d", [{"name": "own", "nodeName": "m"}], pool="d", perDeviceNodeSelection=True),
    ]
    assert names(slices) == [["local"], ["global"]]
    assert names(slices, "m", {"zone": "z"}) == [["zonal"], ["global"], ["own"]]


def test_devices_of_the_pool_on_other_nodes_are_known_for_their_counters():
    consuming = {"name": "far", "consumesCounters": [{"counterSet": "s", "counters": {"c": {"value": "2"}}}]}
    slices = [
        slice_("a", [], count=3, nodeName="n", sharedCounters=[{"name": "s", "counters": {"c": {"value": "4"}}}]),
        slice_("b", [{"name": "near"}], count=3),
        slice_("c", [consuming], count=3, nodeName="m"),
    ]
    [pool] = ResourceSlices(slices).pools("n", {})
    assert pool.counters == {("s", "c"): 4}
    assert [device.id.name for device in pool.elsewhere] == ["far"]
    assert pool.elsewhere[0].counters == {("s", "c"): Fraction(2)}


def test_device_has_qualified_attributes_topology_and_health():
    raw = {
        "name": "d",
        "attributes": {
            "model": {"string": "H100"},
            "resource.kubernetes.io/pcieRoot": {"string": "pci0000:00"},
            "resource.kubernetes.io/numaNode": {"int": 1},
            "fabrics": {"strings": ["a", "b"]},
        },
        "taints": [{"key": "broken", "effect": "NoExecute"}],
    }
    [pool] = ResourceSlices([slice_("a", [raw])]).pools("n", {})
    [device] = pool.devices
    assert device.attribute(f"{DRIVER}/model") == Attribute("string", ("H100",))
    assert device.attribute(f"{DRIVER}/fabrics") == Attribute("string", ("a", "b"), is_list=True)
    assert device.attribute("resource.kubernetes.io/pcieRoot") == Attribute("string", ("pci0000:00",))
    assert device.attribute("resource.kubernetes.io/numaNode") == Attribute("int", (1,))
    assert not device.healthy


@pytest.mark.parametrize(
    ("toleration", "tolerates"),
    [
        (Toleration("k", "Equal", "v", ""), True),
        (Toleration("k", "", "v", "NoSchedule"), True),
        (Toleration("k", "Equal", "w", ""), False),
        (Toleration("", "Exists", "", ""), True),
        (Toleration("k", "Exists", "", "NoExecute"), False),
        (Toleration("k", "Later", "v", ""), False),
    ],
)
def test_toleration_of_a_taint(toleration: Toleration, tolerates: bool):
    assert toleration.tolerates(Taint("k", "v", "NoSchedule")) is tolerates


def test_statuses_of_claims_hold_devices_and_shares_but_not_for_administration():
    def result(device: str, **more: Any) -> Json:
        return {"request": "r", "driver": DRIVER, "pool": "p", "device": device, **more}

    share = {"shareID": "1", "consumedCapacity": {"memory": "1Gi"}}
    claims: list[Json] = [
        {"status": {"allocation": {"devices": {"results": [result("a"), result("b", adminAccess=True)]}}}},
        {"status": {"allocation": {"devices": {"results": [result("c", **share)]}}}},
        {"status": {"allocation": {"devices": {"results": [result("c", **share)]}}}},
        {"metadata": {"name": "waiting"}},
    ]
    taken = Taken.of(claims)
    assert taken.devices == {DeviceId(DRIVER, "p", "a")}
    assert taken.consumed == {DeviceId(DRIVER, "p", "c"): {"memory": 2 << 30}}
    assert [taken.holds(DeviceId(DRIVER, "p", name)) for name in "abc"] == [True, False, True]


@pytest.mark.parametrize(
    ("selector", "tainted"),
    [
        ({}, ["a", "b"]),
        (None, []),
        ({"device": "a"}, ["a"]),
        ({"driver": DRIVER, "pool": "p", "device": "b"}, ["b"]),
        ({"driver": "other", "device": "a"}, []),
    ],
)
def test_rules_taint_devices_beside_their_drivers(selector: Json | None, tainted: list[str]) -> None:
    mine = [{"key": "mine", "effect": "NoExecute"}]
    slices = ResourceSlices([slice_("s", [{"name": "a", "taints": mine}, {"name": "b"}])])
    spec = {"taint": {"key": "broken", "value": "1", "effect": "NoSchedule"}}
    slices.change_rule("r", {"spec": spec if selector is None else {**spec, "deviceSelector": selector}})
    [pool] = slices.pools("n", {})
    rule = Taint("broken", "1", "NoSchedule")
    assert [each.id.name for each in pool.devices if rule in each.taints] == tainted
    assert pool.devices[0].taints[0] == Taint("mine", "", "NoExecute")
    slices.change_rule("r", None)
    assert [rule in each.taints for each in slices.pools("n", {})[0].devices] == [False, False]


def test_taints_of_a_device_are_of_the_newest_generation_and_of_rules() -> None:
    """1. A driver taints a device. 2. Its next generation no longer does, a rule does. 3. The device is gone."""
    mine = [{"key": "mine", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}]
    slices = ResourceSlices([slice_("s", [{"name": "a", "taints": mine}])])
    device = slices.pools("n", {})[0].devices[0].id
    assert slices.taints(device) == (Taint("mine", "", "NoExecute", "2026-01-01T00:00:00Z"),)
    slices.change("t", slice_("t", [{"name": "a"}], generation=9))
    assert slices.taints(device) == ()
    slices.change_rule("r", {"spec": {"deviceSelector": {}, "taint": {"key": "broken", "effect": "NoExecute"}}})
    assert [each.key for each in slices.taints(device)] == ["broken"]
    slices.change("t", None)
    slices.change("s", None)
    assert slices.taints(device) == ()
