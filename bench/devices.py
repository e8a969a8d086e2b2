"""Devices for a gang in one process, no API server: nodes of GPUs and NICs under common PCIe roots, claims with pairs
of them and CEL selectors.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from atoll.fit.constraints import Cards
from atoll.fit.devices import Fleet, Problem, Refused, Undecided, prepare
from atoll.fit.devices.selection import Selection
from atoll.fit.koordinator import Reported
from atoll.fit.koordinator import Taken as NodeTaken
from atoll.model import cards, joint, koordinator
from atoll.model.device_claims import Claim, DeviceClass
from atoll.model.devices import DeviceId, Taken
from atoll.model.gang import DeviceWish, Task
from atoll.model.resource_slices import ResourceSlices
from bench.place import profile
from bench.report import Progress, Report, median, progress, run, sizes

NAME = "devices"
DESCRIPTION = (
    "Milliseconds to place and to refuse a gang whose pods claim pairs of a GPU and a NIC under one PCIe root."
)
BOUND = "a count of the free devices of each node, without classes, selectors, roots or a choice"
FULL: dict[str, Any] = {"nodes": 1000, "devices": 8, "pods": 64, "repeats": 15}
QUICK: dict[str, Any] = {"nodes": 20, "devices": 8, "pods": 8, "repeats": 2}
_SEED = 20_260_101
_GPU, _NIC = "gpu.example.com", "nic.example.com"
_PER_ROOT = 2
"""GPUs under one PCIe root, and NICs."""
_LIMIT_MS = 50
Json = dict[str, Any]


def options(parser: argparse.ArgumentParser) -> None:
    """The sizes."""
    parser.add_argument("--nodes", type=int, help="each with its GPUs and NICs")
    parser.add_argument("--devices", type=int, help="GPUs of a node, and NICs")
    parser.add_argument("--pods", type=int, help="of the gang; each claims a pair per GPU of a node")
    parser.add_argument("--repeats", type=int, help="each warm figure is the median of so many")
    parser.add_argument("--profile", action="store_true", help="print the hot spots on standard error")


def measure(chosen: argparse.Namespace, told: Progress = progress) -> Report:
    """Run it."""
    params = sizes(chosen, QUICK, FULL)
    nodes, devices, pods = params["nodes"], params["devices"], params["pods"]
    report = Report(NAME, {**params, "bound": BOUND})
    rng = random.Random(_SEED)
    straight, crossed = ([_slices(node, devices, crossed) for node in range(nodes)] for crossed in (False, True))
    half = _some_of_each(rng, [node for node in range(nodes) if rng.random() < 0.5], devices)
    # One node too few is wholly free.
    nearly = _some_of_each(rng, rng.sample(range(nodes), nodes - pods + 1), devices)
    cases = {
        "placed, half of the nodes partly in use": (straight, half, True),
        "refused, one node too few is wholly free": (straight, nearly, False),
        "refused, all is free but a NIC of each node is under another root": (crossed, Taken(), False),
    }
    for case, (slices, taken, placed) in cases.items():
        told(f"{case}: {nodes} nodes")
        _measure(report, case, slices, taken, params, placed=placed, profiled=chosen.profile)
    annotated = {
        "Koordinator: placed, half of the nodes partly in use": nodes // 2,
        "Koordinator: refused, one node too few is wholly free": pods - 1,
    }
    for case, free in annotated.items():
        told(f"{case}: {nodes} nodes")
        _koordinator(report, case, params, free)
    slow = [case for case in (*cases, *annotated) if report.value(case, "warm") > _LIMIT_MS]
    report.remarks += [f"{case}: more than {_LIMIT_MS} ms" for case in slow]
    return report


def _measure(
    report: Report, case: str, slices: Sequence[Sequence[Json]], taken: Taken, params: Mapping[str, Any], *,
    placed: bool, profiled: bool,
) -> None:  # fmt: skip
    pods, claim = params["pods"], _claim(params["devices"])
    began = time.process_time()
    known = ResourceSlices(each for of_node in slices for each in of_node)
    report.add(case, "read", (time.process_time() - began) * 1000, "ms")
    began = time.process_time()
    problems = _problems(known, claim, params["nodes"])
    report.add(case, "prepare", (time.process_time() - began) * 1000, "ms")
    fleet = Fleet(problems)

    def once() -> float:
        start = time.process_time()
        found = fleet.place(pods, taken)
        spent = (time.process_time() - start) * 1000
        if isinstance(found, Undecided) or isinstance(found, Refused) is placed:
            raise RuntimeError(f"{case}: {found}")
        return spent

    report.add(case, "cold", once(), "ms")
    warm = median(once() for _ in range(params["repeats"]))
    report.add(case, "warm", warm, "ms", median(_count(problems, taken) for _ in range(params["repeats"])))
    if profiled:
        profile(case, lambda: fleet.place(pods, taken), 1.0)


def _koordinator(report: Report, case: str, params: Mapping[str, Any], free: int) -> None:
    """The same pairs by Koordinator's annotation; `free` nodes are wholly free."""
    nodes, devices, pods = params["nodes"], params["devices"], params["pods"]
    rng, whole = random.Random(_SEED), np.full((nodes, devices), cards.CARD, np.int64)
    said = [
        {"type": kind, "minor": number, "health": True, "topology": {"nodeID": 0, "pcieID": str(number // _PER_ROOT)}}
        for kind in (joint.GPU, joint.RDMA)
        for number in range(devices)
    ]
    there, taken = koordinator.devices({"devices": said}), {node: NodeTaken() for node in range(nodes)}
    for node in range(free, nodes):
        for number in rng.sample(range(devices), rng.randint(1, devices)):
            whole[node, number], taken[node][joint.RDMA, number, ""] = 0, joint.WHOLE
    asked = {"nvidia.com/gpu": devices, joint.RESOURCES[joint.RDMA]: joint.WHOLE * devices}
    task = Task("worker", pods, pods, asked, joint=DeviceWish([joint.GPU, joint.RDMA], same_root=True))
    first = Cards(whole, None, {node: Reported(there, 0) for node in range(nodes)}, taken, {})

    def once() -> float:
        start, found = time.process_time(), first.copy()
        room = found.room(task, nodes)
        assert room is not None
        fitting = np.flatnonzero(room)[:pods].tolist()
        if len(fitting) != min(free, pods):
            raise RuntimeError(f"{case}: {len(fitting)} pods fit")
        for node in fitting if free >= pods else ():
            found.take(task, node, 1)
        return (time.process_time() - start) * 1000

    report.add(case, "cold", once(), "ms")
    report.add(case, "warm", median(once() for _ in range(params["repeats"])), "ms")


def _count(problems: Mapping[str, Problem], taken: Taken) -> float:
    began = time.process_time()
    for problem in problems.values():
        sum(device.id not in taken.devices for device in problem.devices)
    return (time.process_time() - began) * 1000


def _problems(slices: ResourceSlices, claim: Claim, nodes: int) -> dict[str, Problem]:
    classes = {
        name: DeviceClass(name, (f'device.driver == "{driver}"',)) for name, driver in (("gpu", _GPU), ("nic", _NIC))
    }
    selects = Selection()
    return {
        name: prepare([claim], slices.pools(name, {}), classes, selects, name, {}) for name in map(_node, range(nodes))
    }


def _node(number: int) -> str:
    return f"node-{number:04}"


def _claim(pairs: int) -> Claim:
    def request(name: str, kind: str, expression: str) -> Json:
        selectors = [{"cel": {"expression": expression}}]
        return {"name": name, "exactly": {"deviceClassName": kind, "selectors": selectors}}

    fast = f'device.attributes["{_NIC}"].linkSpeed >= 200'
    large = f'device.capacity["{_GPU}"].memory.compareTo(quantity("80Gi")) >= 0'
    requests = [
        request(f"{kind}{number}", kind, expression)
        for number in range(pairs)
        for kind, expression in (("gpu", large), ("nic", fast))
    ]
    constraints = [
        {"requests": [f"gpu{number}", f"nic{number}"], "matchAttribute": "resource.kubernetes.io/pcieRoot"}
        for number in range(pairs)
    ]
    spec = {"devices": {"requests": requests, "constraints": constraints}}
    return Claim.of({"metadata": {"name": "pairs"}, "spec": spec})


def _slices(node: int, devices: int, crossed: bool) -> list[Json]:
    """Of both drivers; attributes that no claim reads differ from device to device, as on real nodes."""
    name = _node(node)

    def slice_(driver: str, found: list[Json]) -> Json:
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": driver, "pool": pool, "nodeName": name, "devices": found}
        return {"metadata": {"name": f"{name}-{driver}"}, "spec": spec}

    def device(kind: str, number: int, **more: Any) -> Json:
        root = number // _PER_ROOT
        if crossed and kind == "nic" and number == 0:
            root += 1
        attributes = {
            "uuid": {"string": f"{kind}-{node}-{number}"},
            "index": {"int": number},
            "resource.kubernetes.io/pcieRoot": {"string": f"pci{node % 16:04x}:{root:02x}"},
            **more.pop("attributes", {}),
        }
        return {"name": f"{kind}-{number}", "attributes": attributes, **more}

    gpus = [device("gpu", number, capacity={"memory": {"value": "80Gi"}}) for number in range(devices)]
    nics = [device("nic", number, attributes={"linkSpeed": {"int": 400}}) for number in range(devices)]
    return [slice_(_GPU, gpus), slice_(_NIC, nics)]


def _some_of_each(rng: random.Random, nodes: Sequence[int], devices: int) -> Taken:
    """One to all of the pairs of these nodes are in use."""
    return Taken(
        frozenset(
            DeviceId(driver, _node(node), f"{kind}-{number}")
            for node in nodes
            for number in rng.sample(range(devices), rng.randint(1, devices))
            for driver, kind in ((_GPU, "gpu"), (_NIC, "nic"))
        )
    )


if __name__ == "__main__":
    run(NAME, DESCRIPTION, options, measure)
