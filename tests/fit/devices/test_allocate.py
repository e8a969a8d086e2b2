"""From pools and claims to allocation results, as resource.k8s.io/v1 has them."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.fit.devices import (
    ClaimError,
    Refused,
    SelectionError,
    allocation_results,
    prepare,
    solve,
)
from atoll.model.device_claims import Claim, DeviceClass, Request, Wish
from atoll.model.devices import Capacity, Device, DeviceId, Nodes, Pool, Taken

Json = dict[str, Any]
NODE = "n"
ONLY_NODE = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [NODE]}]}]}


def device(name: str, **more: Any) -> Device:
    return Device(DeviceId("d", "p", name), **{"nodes": Nodes(NODE), **more})


def selects(expression: str, each: Device) -> bool:
    if expression == "fails":
        raise SelectionError("no such key: fails")
    return expression in ("", each.id.name)


def allocated(devices: list[Device], claim: Claim, *, config: Json | None = None, taken: Taken | None = None) -> Json:
    classes = {"c": DeviceClass("c", config=(config,) if config else ())}
    problem = prepare([claim], [Pool("d", "p", tuple(devices))], classes, selects, NODE, {})
    found, _ = solve(problem, taken or Taken())
    assert isinstance(found, tuple)
    [result] = allocation_results(problem, found, NODE, share_id=lambda: "SHARE")  # type: ignore[arg-type]
    return result


def claim(*wishes: Wish, **more: Any) -> Claim:
    return Claim("claim", tuple(Request(wish.name, (wish,)) for wish in wishes), **more)


def test_result_names_the_device_its_conditions_and_the_node():
    bound = device("a", binding_conditions=("ready",), binding_failure_conditions=("broken",))
    assert allocated([bound], claim(Wish("r", "c", raw_tolerations=({"operator": "Exists"},)))) == {
        "devices": {
            "results": [
                {
                    "request": "r",
                    "driver": "d",
                    "pool": "p",
                    "device": "a",
                    "tolerations": [{"operator": "Exists"}],
                    "bindingConditions": ["ready"],
                    "bindingFailureConditions": ["broken"],
                }
            ]
        },
        "nodeSelector": ONLY_NODE,
    }


def test_share_consumes_what_the_policy_makes_of_the_request():
    shared = device("a", shared=True, capacity={"memory": Capacity("8Gi", "1Gi", ("1Gi", "2Gi", "4Gi"))})
    [first, second] = allocated([shared], claim(Wish("r", "c", capacity=(("memory", "3Gi"),)), Wish("s", "c")))[
        "devices"
    ]["results"]
    assert (first["shareID"], first["consumedCapacity"]) == ("SHARE", {"memory": "4Gi"})
    assert second["consumedCapacity"] == {"memory": "1Gi"}


def test_configuration_of_the_class_comes_first_and_once():
    result = allocated(
        [device("a"), device("b")],
        claim(Wish("r", "c"), Wish("s", "c"), config=({"requests": ["s"], "opaque": {"x": 2}}, {"opaque": {"x": 3}})),
        config={"opaque": {"x": 1}},
    )
    assert result["devices"]["config"] == [
        {"source": "FromClass", "requests": ["r", "s"], "opaque": {"x": 1}},
        {"source": "FromClaim", "requests": ["s"], "opaque": {"x": 2}},
        {"source": "FromClaim", "opaque": {"x": 3}},
    ]


def test_node_selectors_of_network_devices_are_merged():
    zone = {"key": "zone", "operator": "In", "values": ["z"]}
    rack = {"key": "rack", "operator": "In", "values": ["r"]}

    def reached(name: str, *expressions: Json) -> Device:
        return device(name, nodes=Nodes(terms=({"matchExpressions": list(expressions)},)))

    wishes = claim(Wish("r", "c", count=2))
    merged = allocated([reached("a", zone), reached("b", rack, zone)], wishes)["nodeSelector"]
    assert merged == {"nodeSelectorTerms": [{"matchExpressions": [zone, rack]}]}
    everywhere = device("a", nodes=Nodes(everywhere=True))
    assert "nodeSelector" not in allocated([everywhere], claim(Wish("r", "c")))
    binding = device("a", nodes=Nodes(everywhere=True), binds_to_node=True)
    assert allocated([binding], claim(Wish("r", "c")))["nodeSelector"] == ONLY_NODE


def test_administrators_get_devices_in_use():
    taken = Taken(frozenset({DeviceId("d", "p", "a")}))
    [result] = allocated([device("a")], claim(Wish("r", "c", admin=True)), taken=taken)["devices"]["results"]
    assert result["adminAccess"] is True


def outcome(pools: list[Pool], wish: Wish) -> object:
    return solve(prepare([claim(wish)], pools, {"c": DeviceClass("c")}, selects, NODE, {}), Taken())[0]


def test_claims_that_no_node_can_serve_are_errors():
    valid, invalid = Pool("d", "p", (device("a"),)), Pool("d", "q", problem="device x is published twice")
    assert isinstance(outcome([valid], Wish("r", "c", count=2)), Refused)
    with pytest.raises(ClaimError, match="request r: no device class other"):
        outcome([valid], Wish("r", "other"))
    with pytest.raises(ClaimError, match="asks for all devices; pool d/q"):
        outcome([valid, invalid], Wish("r", "c", count=None))
    with pytest.raises(ClaimError, match="33 devices are more than 32"):
        outcome([valid], Wish("r", "c", count=33))


def test_failing_selector_matters_only_where_its_device_is_tried():
    two = [Pool("d", "p", (device("a"), device("b")))]
    assert isinstance(outcome(two, Wish("r", "c", ("a",))), tuple)
    with pytest.raises(ClaimError, match="claim claim, request r: no such key: fails"):
        outcome(two, Wish("r", "c", ("fails",)))
