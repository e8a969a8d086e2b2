"""Devices of nodes and claims for them, as the core of a member hears of them."""

from __future__ import annotations

from typing import Any

import orjson

from atoll.agent.devices import decode_device_class, decode_resource_claim, decode_slice, decode_taint_rule
from atoll.agent.scheduler.core import MemberCore
from atoll.agent.scheduler.core.events import DeviceClassSet, ResourceClaimSet, SliceSet, TaintRuleSet
from tests.agent.builders import make_node
from tests.agent.telling import core_of

Json = dict[str, Any]
DRIVER = "gpu.example.com"
ROOT = "resource.kubernetes.io/pcieRoot"
PAIR = {
    "requests": [{"name": kind, "exactly": {"deviceClassName": kind}} for kind in ("gpu", "nic")],
    "constraints": [{"matchAttribute": ROOT}],
}
GPU = {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}


def publish(core: MemberCore, node: str, *devices: tuple[str, str], everywhere: bool = False) -> None:
    """Devices of a node by kind and PCIe root, named by their order."""
    made = [
        {"name": f"{kind}-{number}", "attributes": {"kind": {"string": kind}, ROOT: {"string": root}}}
        for number, (kind, root) in enumerate(devices)
    ]
    spec: Json = {"driver": DRIVER, "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}, "devices": made}
    spec |= {"allNodes": True} if everywhere else {"nodeName": node}
    core.handle(SliceSet(decode_slice(orjson.dumps({"metadata": {"name": f"s-{node}"}, "spec": spec}))))


COUNTED = {"atoll.sh/extended-resource": "counted"}


def with_classes(core: MemberCore, **resources: str) -> MemberCore:
    """`resources`: extended resource of a class."""
    for kind in ("gpu", "nic"):
        selector = {"cel": {"expression": f"device.attributes['{DRIVER}'].kind == '{kind}'"}}
        named = {"extendedResourceName": resources[kind]} if kind in resources else {}
        made = {"metadata": {"name": kind, "annotations": COUNTED}, "spec": {"selectors": [selector], **named}}
        core.handle(DeviceClassSet(decode_device_class(orjson.dumps(made))))
    return core


def taint(core: MemberCore, name: str, **selector: str) -> None:
    """An administrator's rule."""
    spec = {"deviceSelector": selector, "taint": {"key": "broken", "effect": "NoSchedule"}}
    core.handle(TaintRuleSet(decode_taint_rule(orjson.dumps({"metadata": {"name": name}, "spec": spec}))))


def claim(core: MemberCore, name: str, devices: Json, pod: str = "", stated: str = "", **status: Any) -> None:
    """With a pod: made for it. `stated`: of all devices, their number."""
    meta: Json = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": "1"}
    if stated:
        meta["annotations"] = {"atoll.sh/all-devices": stated}
    if pod:
        meta["ownerReferences"] = [{"kind": "Pod", "name": pod, "uid": f"uid-{pod}", "controller": True}]
    body = {"metadata": meta, "spec": {"devices": devices}, "status": status}
    core.handle(ResourceClaimSet(decode_resource_claim(orjson.dumps(body))))


def reserved(pod: str) -> list[Json]:
    return [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"}]


def allocation(node: str, *devices: str) -> Json:
    results = [{"request": "gpu", "driver": DRIVER, "pool": node, "device": each} for each in devices]
    return {"devices": {"results": results}, "nodeSelector": named(node)}


def named(node: str) -> Json:
    return {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]}


def two_nodes() -> MemberCore:
    core = with_classes(core_of(make_node("a"), make_node("b")))
    for node in "ab":
        publish(core, node, ("gpu", "0"), ("nic", "0"), ("gpu", "1"), ("nic", "1"))
    return core
