"""Koordinator's `Device` objects: the GPUs of a node one by one, and the annotation that its koordlet gives them by."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from atoll.model import quantity
from atoll.model.cards import CARD, MEMORY, MOST_CARDS, SHARE
from atoll.model.gpu_shares import BYTES, CORE, KOORDINATOR, RATIO

_NAMES: Final = (KOORDINATOR, CORE, RATIO, BYTES)


class Gpu(NamedTuple):
    """A healthy one."""

    uuid: str
    memory: int
    """Bytes; 0 where the object does not tell."""


def gpus(spec: Mapping[str, Any]) -> dict[int, Gpu]:
    """Minor -> GPU, of the spec of a Device; without ones that are not healthy, or can't be read."""
    found = {}
    for each in spec.get("devices") or ():
        if not isinstance(each, Mapping) or each.get("type") != "gpu" or each.get("health") is not True:
            continue
        minor, resources = each.get("minor", 0), each.get("resources")
        if isinstance(minor, int) and 0 <= minor < MOST_CARDS:
            try:
                memory = quantity.floor_units(BYTES, (resources or {}).get(BYTES, 0))
            except (quantity.QuantityError, AttributeError):
                memory = 0
            found[minor] = Gpu(str(each.get("id") or ""), max(memory, 0))
    return found


def offered(there: Mapping[int, Gpu]) -> dict[str, int]:
    """Amounts that their node offers to pods with parts of them."""
    if not there:
        return {}
    return {SHARE: len(there) * CARD, MEMORY: len(there) * min(each.memory for each in there.values())}


def allocated(there: Mapping[int, Gpu], which: Collection[int], part: int, requests: Mapping[str, int]) -> str:
    """The annotation for a pod.

    Args:
        there: GPUs of its node.
        which: of these it gets.
        part: thousandths of each.
        requests: of the pod.
    """
    named = any(requests.get(name) for name in _NAMES)
    whole, percent = requests.get(KOORDINATOR, 0), max(part * 100 // CARD, 1)
    entries = []
    for minor in which:
        gpu = there.get(minor, Gpu("", 0))
        resources = {}
        if core := (requests.get(CORE, 0) or whole) // len(which) if named else percent:
            resources[CORE] = core
        if wanted := requests.get(MEMORY, 0):
            ratio, memory = wanted * 100 // gpu.memory if gpu.memory else 0, wanted
        else:
            ratio = (requests.get(RATIO, 0) or whole) // len(which) if named else percent
            memory = gpu.memory * ratio // 100 if named else gpu.memory * part // CARD
        resources |= {RATIO: ratio, BYTES: memory}
        entry = {"minor": minor, "resources": {name: str(amount) for name, amount in resources.items()}}
        entries.append(entry | ({"id": gpu.uuid} if gpu.uuid else {}))
    return msgspec.json.encode({"gpu": entries}).decode()


def minors(annotation: str) -> tuple[int, ...]:
    """The GPUs that an annotation names; empty where it names none that can be read."""
    try:
        read = msgspec.json.decode(annotation, type=_Allocated)
    except msgspec.MsgspecError:
        return ()
    found = tuple(dict.fromkeys(each.minor for each in read.gpu))
    return found if all(0 <= minor < MOST_CARDS for minor in found) else ()


class _Entry(msgspec.Struct, frozen=True):
    minor: int = 0


class _Allocated(msgspec.Struct, frozen=True):
    gpu: list[_Entry] = []
