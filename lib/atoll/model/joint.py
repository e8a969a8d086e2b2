"""Koordinator's wishes for the devices of a pod: which types go together, and which devices of each, by annotation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from atoll.model import cards, quantity, selectors
from atoll.model.gang import DeviceHint as Hint
from atoll.model.gang import DeviceWish as Wish
from atoll.model.gang import GpuPartitionSpec

JOINT: Final = "scheduling.koordinator.sh/device-joint-allocate"
HINT: Final = "scheduling.koordinator.sh/device-allocate-hint"
PARTITION: Final = "scheduling.koordinator.sh/gpu-partition-spec"
WISHES: Final = (JOINT, HINT, PARTITION)
GPU, RDMA, FPGA = "gpu", "rdma", "fpga"
RESOURCES: Final = {RDMA: "koordinator.sh/rdma", FPGA: "koordinator.sh/fpga"}
"""Device type -> resource of which each device has `WHOLE`."""
WHOLE: Final = 100
FOR_ALL, AS_COUNT = "ApplyForAll", "RequestsAsCount"
DEVICE_ALONE, ROOT_ALONE = "DeviceLevel", "PCIeLevel"
SCOPES: Final = ("Node", "NUMANode", "PCIe", "Device")
"""From the widest to the narrowest."""
_MOST_TEXT: Final = 4096
_Type = Literal["gpu", "rdma", "fpga"]
_LEGAL_JOINT: Final = (
    '; legal is {"deviceTypes": ["gpu", "rdma", "fpga"], "requiredScope": "SamePCIe"}: some of these types, each once,'
    " gpu first; a scope, or none"
)
_LEGAL_HINT: Final = (
    "; legal are, by type (gpu, rdma, fpga), selector, exclusivePolicy (DeviceLevel, PCIeLevel); of gpu"
    f" requiredTopologyScope ({', '.join(SCOPES)}); of the others vfSelector, allocateStrategy ({FOR_ALL}, {AS_COUNT})"
)


_LEGAL_PARTITION: Final = (
    "; legal are allocatePolicy (Restricted, BestEffort) and ringBusBandwidth, a quantity such as 200Gi that"
    " a partition has at least"
)


class BadWish(ValueError):
    """No node gives that; the message has the legal values."""


class _Joint(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    device_types: list[_Type] = []
    required_scope: Literal["", "SamePCIe"] = ""


class _Partition(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    allocate_policy: Literal["", "Restricted", "BestEffort"] = ""
    ring_bus_bandwidth: str | int | None = None


_joint = msgspec.json.Decoder(_Joint)
_hints = msgspec.json.Decoder(dict[_Type, Hint])
_partition = msgspec.json.Decoder(_Partition)


def of(annotations: Mapping[str, Any], requests: Mapping[str, int]) -> Wish | None:
    """The wish of a pod; None for one that has none, and asks for GPUs alone.

    Raises:
        BadWish: it can't be read, or no node gives it.
    """
    joint, hint, partition = (str(annotations.get(key) or "") for key in WISHES)
    amounts = {name: requests[name] for name in RESOURCES.values() if requests.get(name)}
    if not (joint or hint or partition or amounts):
        return None
    for name, amount in amounts.items():
        if amount > WHOLE and amount % WHOLE:
            raise BadWish(f"{name}: {amount} is above {WHOLE} and no multiple of it; {WHOLE} is a device")
    if (partition or not amounts) and not any("gpu" in name for name in requests):
        text = "name devices, and the pod asks for none; ask for nvidia.com/gpu, koordinator.sh/gpu,"
        raise BadWish(f"annotations {', '.join(WISHES)}: {text} {' or '.join(RESOURCES.values())}")
    if partition and (0 < requests.get(cards.SHARE, 0) < cards.CARD or requests.get(cards.MEMORY)):
        raise BadWish(f"annotation {PARTITION}: parts of GPUs are in no partition; ask for whole ones, or leave it out")
    found = _read_joint(joint) if joint else _Joint()
    return Wish(
        [*found.device_types],
        bool(found.required_scope),
        _read_hints(hint) if hint else {},
        _read_partition(partition) if partition else None,
    )


def known(annotations: Mapping[str, Any], requests: Mapping[str, int]) -> Wish | None:
    """As `of`, with the problem instead of an error."""
    try:
        return of(annotations, requests)
    except BadWish as error:
        return Wish(problem=str(error))


def _read_joint(text: str) -> _Joint:
    try:
        found = _joint.decode(_bounded(text))
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadWish(f"annotation {JOINT}: {error}{_LEGAL_JOINT}") from error
    types = found.device_types
    if not types or len(set(types)) < len(types) or GPU in types[1:]:
        raise BadWish(f"annotation {JOINT}: deviceTypes {types} name none, one twice, or gpu not first{_LEGAL_JOINT}")
    return found


def _read_hints(text: str) -> dict[str, Hint]:
    try:
        found = _hints.decode(_bounded(text))
        for hint in found.values():
            for selector in (hint.selector, hint.vf_selector):
                if selector is not None:
                    selectors.parse(msgspec.json.encode(selector).decode())
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadWish(f"annotation {HINT}: {error}{_LEGAL_HINT}") from error
    for kind, hint in found.items():
        wrong = (
            (hint.vf_selector is not None or hint.allocate_strategy) if kind == GPU else hint.required_topology_scope
        )
        if wrong:
            raise BadWish(f"annotation {HINT}: {kind} has a field that is not for it{_LEGAL_HINT}")
    return {str(kind): hint for kind, hint in found.items()}


def _read_partition(text: str) -> GpuPartitionSpec:
    try:
        found = _partition.decode(_bounded(text))
        bandwidth = int(quantity.parse(found.ring_bus_bandwidth or 0))
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadWish(f"annotation {PARTITION}: {error}{_LEGAL_PARTITION}") from error
    return GpuPartitionSpec(found.allocate_policy == "Restricted", max(bandwidth, 0))


def _bounded(text: str) -> str:
    if len(text) > _MOST_TEXT:
        raise ValueError(f"has {len(text)} characters, and {_MOST_TEXT} is the most")
    return text
