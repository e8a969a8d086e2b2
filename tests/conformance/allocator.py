"""Cases of Kubernetes' allocator of devices: the same devices per request, or an error of the same class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from atoll.fit.devices import ClaimError, Refused, Undecided, allocation_results, prepare, solve
from atoll.fit.devices.selection import Selection
from atoll.model import quantity
from atoll.model.device_claims import Claim, DeviceClass
from atoll.model.devices import DeviceId, Taken
from atoll.model.resource_slices import ResourceSlices

Json = dict[str, Any]


def allocation(case: Json) -> list[str]:
    """Cases of `dra`: each node by itself; where upstream is wrong on a node, its answer must not come here."""
    slices = ResourceSlices(case["resourceSlices"])
    classes = {each["metadata"]["name"]: DeviceClass.of(each) for each in case["deviceClasses"]}
    claims = [Claim.of(each) for each in case["claims"]]
    taken = _taken(case)
    selects = Selection(list_attributes=case["features"].get("DRAListTypeAttributes", False))
    wrong_upstream = case.get("upstreamBug", {}).get("nodes", ())
    differing = []
    for node in case["nodes"]:
        name, labels = node["name"], node.get("labels") or {}

        def answer(name: str = name, labels: Json = labels) -> list[Json] | Refused | Undecided:
            problem = prepare(claims, slices.pools(name, labels), classes, selects, name, labels)
            found, _ = solve(problem, taken)
            return found if isinstance(found, (Refused, Undecided)) else allocation_results(problem, found, name)

        found, wanted = _found(answer), _wanted(case["expect"][name])
        same = {key: found.get(key) for key in wanted} == wanted
        if same is (name in wrong_upstream):
            differing.append(f"{name}: {found}, {'as upstream, wrongly' if same else f'expected {wanted}'}")
    return differing


def _found(answer: Callable[[], list[Json] | Refused | Undecided]) -> Json:
    try:
        found = answer()
    except ClaimError as error:
        return {"class": "Fatal", "message": str(error)}
    match found:
        case Undecided(steps):
            return {"undecided": steps}
        case Refused(reason):
            return {"allocatable": False, "reason": reason}
        case _:
            return {"allocatable": True, "allocations": [_comparable(each) for each in found]}


def _taken(case: Json) -> Taken:
    def device(each: Json) -> DeviceId:
        return DeviceId(each["driver"], each["pool"], each["device"])

    return Taken(
        frozenset(map(device, case.get("allocatedDevices") or ())),
        {
            device(each): {name: quantity.parse(amount) for name, amount in each["consumedCapacity"].items()}
            for each in case.get("consumedCapacity") or ()
        },
    )


def _wanted(expected: Json) -> Json:
    if "error" in expected and expected["error"]["class"] != "Node":
        return {"class": expected["error"]["class"]}
    # A node with an invalid pool is one without enough devices.
    if not expected.get("allocatable"):
        return {"allocatable": False}
    return {"allocatable": True, "allocations": [_comparable(each) for each in expected["allocations"]]}


def _comparable(result: Json) -> Json:
    """Quantities by value, share ids as one word."""
    devices = [
        {
            **each,
            **({"shareID": "SHARE"} if "shareID" in each else {}),
            "consumedCapacity": {
                name: quantity.parse(amount) for name, amount in (each.get("consumedCapacity") or {}).items()
            },
        }
        for each in result["devices"].get("results") or ()
    ]
    return {**result, "devices": {**result["devices"], "results": devices}}
