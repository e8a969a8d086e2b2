"""Koordinator's `Device` objects: the devices of a node one by one, and the annotation by which koordlet gives them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from atoll.model import quantity
from atoll.model.cards import CARD, MEMORY, MOST_CARDS, SHARE
from atoll.model.gpu_shares import BYTES, CORE, KOORDINATOR, RATIO
from atoll.model.joint import GPU, RESOURCES

_NAMES: Final = (KOORDINATOR, CORE, RATIO, BYTES)
VENDORS: Final = ("nvidia.com/gpu", "amd.com/gpu", "dcu.com/gpu")
"""Resources of whole GPUs, which Koordinator gives one by one as well."""
_MOST_VFS: Final = 256
"""Of a device; more are not used."""


class Vf(NamedTuple):
    """A virtual function of a NIC."""

    bus: str
    minor: int
    labels: Mapping[str, str]


class Device(NamedTuple):
    """A healthy one."""

    uuid: str = ""
    memory: int = 0
    """Bytes of a GPU; 0 where the object does not tell."""
    root: str = ""
    """Its PCIe root; empty where the object does not tell."""
    numa: int = -1
    """Its NUMA node; -1 likewise."""
    labels: Mapping[str, str] = {}
    vfs: tuple[Vf, ...] = ()


class Part(NamedTuple):
    """Of a device that is no GPU."""

    kind: str
    minor: int
    units: int
    """Of `joint.WHOLE`."""
    bus: str = ""
    """Of its virtual function; empty for none."""
    vf: int = 0


Devices = Mapping[str, Mapping[int, Device]]
"""Type -> minor -> device, of one node; without types of which it has none."""


class _Topology(msgspec.Struct, frozen=True):
    node: int = msgspec.field(name="nodeID", default=-1)
    root: str = msgspec.field(name="pcieID", default="")


class _Vf(msgspec.Struct, frozen=True):
    bus: str = msgspec.field(name="busID", default="")
    minor: int = 0


class _Group(msgspec.Struct, frozen=True):
    labels: dict[str, str] | None = None
    vfs: list[_Vf] | None = None


class _Said(msgspec.Struct, frozen=True, rename="camel"):
    type: str
    minor: int = 0
    id: str | None = None
    health: bool = False
    labels: dict[str, str] | None = None
    resources: dict[str, Any] | None = None
    topology: _Topology | None = None
    vf_groups: list[_Group] | None = None


def devices(spec: Mapping[str, Any]) -> Devices:
    """Of the spec of a Device; without ones that are not healthy, or can't be read."""
    found: dict[str, dict[int, Device]] = {}
    for each in spec.get("devices") or ():
        try:
            said = msgspec.convert(each, _Said)
        except msgspec.ValidationError:
            continue
        if not said.health or said.type not in (GPU, *RESOURCES) or not 0 <= said.minor < MOST_CARDS:
            continue
        try:
            memory = quantity.floor_units(BYTES, (said.resources or {}).get(BYTES, 0))
        except quantity.QuantityError:
            memory = 0
        vfs = [Vf(vf.bus, vf.minor, group.labels or {}) for group in said.vf_groups or () for vf in group.vfs or ()]
        where = said.topology or _Topology()
        found.setdefault(said.type, {})[said.minor] = Device(
            said.id or "",
            max(memory, 0),
            where.root,
            where.node,
            said.labels or {},
            tuple(sorted(vfs[:_MOST_VFS], key=lambda vf: vf.bus)),
        )
    return found


def offered(there: Devices) -> dict[str, int]:
    """Amounts that their node offers to pods with parts of GPUs."""
    gpus = there.get(GPU)
    if not gpus:
        return {}
    return {SHARE: len(gpus) * CARD, MEMORY: len(gpus) * min(each.memory for each in gpus.values())}


def counted(requests: Mapping[str, int]) -> Mapping[str, int]:
    """Requests of a pod on a node with a Device: whole GPUs under the names of their vendors are cards as well."""
    whole = 0 if SHARE in requests else sum(requests.get(name, 0) for name in VENDORS)
    return {**requests, SHARE: whole * CARD} if whole else requests


def left(free: dict[str, int], cards: Collection[int]) -> None:
    """Lower the free amounts of a node to the ones that its cards have, of which each has so many free thousandths."""
    whole = sum(each == CARD for each in cards)
    for name in (SHARE, *VENDORS):
        if name in free:
            free[name] = min(free[name], sum(cards) if name == SHARE else whole)


def allocated(
    there: Devices, which: Collection[int], part: int, requests: Mapping[str, int], others: Iterable[Part] = ()
) -> str:
    """The annotation for a pod.

    Args:
        there: devices of its node.
        which: GPUs that it gets.
        part: thousandths of each.
        requests: of the pod.
        others: devices of other types.
    """
    named = any(requests.get(name) for name in _NAMES)
    whole, percent = requests.get(KOORDINATOR, 0), max(part * 100 // CARD, 1)
    found: dict[str, list[dict[str, Any]]] = {}
    for minor in which:
        gpu = there.get(GPU, {}).get(minor, Device())
        resources = {}
        if core := (requests.get(CORE, 0) or whole) // len(which) if named else percent:
            resources[CORE] = core
        if wanted := requests.get(MEMORY, 0):
            ratio, memory = wanted * 100 // gpu.memory if gpu.memory else 0, wanted
        else:
            ratio = (requests.get(RATIO, 0) or whole) // len(which) if named else percent
            memory = gpu.memory * ratio // 100 if named else gpu.memory * part // CARD
        resources |= {RATIO: ratio, BYTES: memory}
        found.setdefault(GPU, []).append(_entry(minor, resources, gpu))
    for each in others:
        entry = _entry(
            each.minor, {RESOURCES[each.kind]: each.units}, there.get(each.kind, {}).get(each.minor, Device())
        )
        if each.bus:
            vf = {"busID": each.bus} | ({"minor": each.vf} if each.vf else {})
            entry["extension"] = {"vfs": [vf]}
        found.setdefault(each.kind, []).append(entry)
    return msgspec.json.encode(found).decode()


def _entry(minor: int, amounts: Mapping[str, int], device: Device) -> dict[str, Any]:
    entry = {"minor": minor, "resources": {name: str(amount) for name, amount in amounts.items()}}
    return entry | ({"id": device.uuid} if device.uuid else {})


def minors(annotation: str) -> tuple[int, ...]:
    """The GPUs that an annotation names; empty where it names none that can be read."""
    found = tuple(dict.fromkeys(each.minor for each in _read(annotation).gpu))
    return found if all(0 <= minor < MOST_CARDS for minor in found) else ()


def others(annotation: str) -> tuple[Part, ...]:
    """Devices of other types that it names; likewise."""
    read, found = _read(annotation), list[Part]()
    for kind, entries in (("rdma", read.rdma), ("fpga", read.fpga)):
        for each in entries:
            try:
                units = quantity.floor_units(RESOURCES[kind], each.resources.get(RESOURCES[kind], 0))
            except quantity.QuantityError:
                units = 0
            vfs = (each.extension or _Extension()).vfs or [_Vf()]
            found += (
                Part(kind, each.minor, units if number == 0 else 0, vf.bus, vf.minor) for number, vf in enumerate(vfs)
            )
    return tuple(found)


class _Extension(msgspec.Struct, frozen=True):
    vfs: list[_Vf] | None = None


class _Entry(msgspec.Struct, frozen=True):
    minor: int = 0
    resources: dict[str, Any] = {}
    extension: _Extension | None = None


class _Allocated(msgspec.Struct, frozen=True):
    gpu: list[_Entry] = []
    rdma: list[_Entry] = []
    fpga: list[_Entry] = []


_decoder = msgspec.json.Decoder(_Allocated)


def _read(annotation: str) -> _Allocated:
    try:
        return _decoder.decode(annotation)
    except msgspec.MsgspecError:
        return _Allocated()
