"""GPUs of nodes that HAMi's device plug-in manages: its records of them, and the annotations that it reads.

Formats as of HAMi 2.4 to 2.9 (`pkg/device/devices.go`, `pkg/device/nvidia/device.go`, `pkg/util/nodelock/nodelock.go`).
Each GPU is a card of thousandths, as for Koordinator: a pod takes the largest of its parts of memory, of cores and of
splits, so that no card holds more of any than HAMi's own scheduler would allow.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from atoll.model.cards import CARD, IMPOSSIBLE, MOST_CARDS
from atoll.model.needs import HAMI

WHOLE: Final = "nvidia.com/gpu"
REGISTER: Final = "hami.io/node-nvidia-register"
LOCK: Final = "hami.io/mutex.lock"
"""Of a node: the only pod that its device plug-in may serve now."""
TO_ALLOCATE: Final = "hami.io/vgpu-devices-to-allocate"
ALLOCATED: Final = "hami.io/vgpu-devices-allocated"
CORDONED: Final = "hami.io/device-cordon"
"""Of a node: UUIDs of GPUs that no new pod gets."""
_NODE, _PHASE, *_TIMES = (f"hami.io/{name}" for name in ("vgpu-node", "bind-phase", "vgpu-time", "bind-time"))
WRITTEN: Final = (TO_ALLOCATE, ALLOCATED, _NODE, _PHASE, *_TIMES)
"""Annotations of pods that the placer alone writes."""
WISHES: Final = (
    *(f"nvidia.com/{name}" for name in ("use-gputype", "nouse-gputype", "use-gpuuuid", "nouse-gpuuuid")),
    *("nvidia.com/numa-bind", "nvidia.com/vgpu-mode", "hami.io/gpu-scheduler-policy", "hami.io/node-scheduler-policy"),
)
"""Annotations of pods at which HAMi's own scheduler looks, and Atoll's placer does not."""
_MEMORY, _PERCENT, _CORES = HAMI
_MOST_READ: Final = 65_536
_MOST_NUMBER: Final = 2**31 - 1
_UUID: Final = re.compile(r"[\w.-]{1,128}", re.ASCII)
_OLD_FIELDS: Final = (7, 9)


class Gpu(NamedTuple):
    """A registered one."""

    uuid: str
    splits: int
    """Pods that may share it."""
    memory: int
    """MiB, as HAMi scales it."""
    cores: int
    """Percent, as HAMi scales them; 0 for unlimited."""
    model: str = ""
    numa: int = 0
    mode: str = "hami-core"
    """How its parts are kept apart: hami-core, mps, mig."""
    healthy: bool = True


class Container(NamedTuple):
    """What a container asks for, in the order of a pod's: init containers first."""

    cards: int = 0
    memory: int = 0
    """MiB of each; 0 for unsaid."""
    percent: int = 0
    """Of the memory of each; likewise."""
    cores: int = 0
    """Percent of each; likewise."""
    ends: bool = False
    """Whether it ends before the next one starts: an init container that is no sidecar."""


Gpus = Mapping[int, Gpu]
"""Number of a card -> GPU, of one node."""


class _Registered(msgspec.Struct, frozen=True):
    id: str
    index: int = 0
    """Left out where 0."""
    count: int = 0
    memory: int = msgspec.field(name="devmem", default=0)
    cores: int = msgspec.field(name="devcore", default=0)
    type: str = ""
    numa: int = 0
    mode: str = "hami-core"
    health: bool = False


_decode = msgspec.json.Decoder(list[Any]).decode


def registered(text: str) -> dict[int, Gpu]:
    """The GPUs of a node's annotation, by their index in the driver; by their UUIDs where it has none.

    What can't be read, or no GPU can be, is left out: the text is written by a program of the member.
    """
    if len(text) > _MOST_READ:
        return {}
    found = {each.id: each for each in _read(text) if _plausible(each)}
    if len(found) > MOST_CARDS:
        return {}
    numbers = {each.index for each in found.values()}
    distinct = len(numbers) == len(found) and all(0 <= number < MOST_CARDS for number in numbers)
    return {
        each.index if distinct else at: Gpu(
            each.id, each.count, each.memory, each.cores, each.type[:64], each.numa, each.mode[:16], each.health
        )
        for at, each in enumerate(sorted(found.values(), key=lambda each: each.id))
    }


def _read(text: str) -> list[_Registered]:
    found = []
    if text.startswith("["):
        try:
            records = _decode(text)
        except msgspec.MsgspecError:
            return []
    else:
        # Before 2.8; fields eight and nine came with 2.5.
        names = ("id", "count", "devmem", "devcore", "type", "numa", "health", "index", "mode")
        split = (record.split(",") for record in text.split(":"))
        records = [dict(zip(names, each, strict=False)) for each in split if len(each) in _OLD_FIELDS]
    for each in records[: 2 * MOST_CARDS]:
        try:
            found.append(msgspec.convert(each, _Registered, strict=False))
        except msgspec.ValidationError:
            continue
    return found


def _plausible(gpu: _Registered) -> bool:
    amounts = (gpu.count, gpu.memory, gpu.cores)
    return bool(_UUID.fullmatch(gpu.id)) and min(amounts) >= 0 and max(amounts) <= _MOST_NUMBER


def usable(there: Gpus, cordoned: str = "") -> dict[int, Gpu]:
    """The GPUs that pods may get: healthy ones, without MIG, whose profiles HAMi's own scheduler chooses."""
    aside = {each.strip() for each in cordoned[:_MOST_READ].split(",")}
    fit = {at: each for at, each in there.items() if each.healthy and each.mode != "mig" and each.uuid not in aside}
    return {at: each for at, each in fit.items() if each.splits and each.memory}


def offered(there: Gpus) -> dict[str, int]:
    """Amounts of HAMi's names that usable GPUs have, which no kubelet reports."""
    return left(there, [CARD] * (max(there, default=-1) + 1))


def left(there: Gpus, free: Sequence[int]) -> dict[str, int]:
    """The same, of these free thousandths of each card, with the vGPUs (`WHOLE`) that they are at most."""
    parts = [(each, free[at] if at < len(free) else 0) for at, each in there.items()]
    return {
        WHOLE: sum(each.splits * part // CARD for each, part in parts),
        _MEMORY: sum(each.memory * part // CARD for each, part in parts),
        _PERCENT: sum(100 * part // CARD for _, part in parts),
        _CORES: sum((each.cores or 100) * part // CARD for each, part in parts),
    }


def asked(requests: Mapping[str, int], there: Gpus) -> tuple[int, int]:
    """(thousandths of each card, cards) that a pod gets of a node; (0, 0) for none.

    Requests of a pod add up its containers: each of its cards has the sum, which is more than one container needs.
    """
    count = requests.get(WHOLE, 0)
    if count <= 0 or not there:
        return 0, 0
    memory, percent, cores = (requests.get(name, 0) for name in HAMI)
    parts = [_part(each, memory, min(percent, 100), min(cores, 100)) for each in there.values()]
    return max(parts), min(count, MOST_CARDS + 1)


def _part(gpu: Gpu, memory: int, percent: int, cores: int) -> int:
    """Thousandths of a GPU."""
    if not memory and not percent:
        return IMPOSSIBLE if 0 < gpu.cores < cores else CARD
    return min(
        max(
            -(-memory * CARD // gpu.memory),
            percent * CARD // 100,
            -(-cores * CARD // gpu.cores) if gpu.cores else 0,
            -(-CARD // gpu.splits),
        ),
        IMPOSSIBLE,
    )


def mixed(containers: Iterable[Container]) -> bool:
    """Whether some containers of a pod say how much memory of their GPUs they need, and others take them whole."""
    return len({bool(each.memory or each.percent) for each in containers if each.cards}) > 1


def container(requests: Mapping[str, int], *, ends: bool = False) -> Container:
    """The container of these requests."""
    memory, percent, cores = (requests.get(name, 0) for name in HAMI)
    return Container(requests.get(WHOLE, 0), memory, percent, cores, ends)


def allocated(there: Gpus, which: Sequence[int], containers: Sequence[Container], node: str) -> dict[str, str]:
    """Annotations by which the device plug-in gives a pod its GPUs; `bound` has the rest.

    Args:
        there: GPUs of its node.
        which: cards that it has.
        containers: of the pod, all of them.
        node: name of its node.
    """
    text, begin = "", 0
    for each in containers:
        mine = which[begin : begin + each.cards]
        begin += 0 if each.ends else each.cards
        text += "".join(_entry(there[card], each) for card in mine if card in there) + ";"
    return {TO_ALLOCATE: text, ALLOCATED: text, _NODE: node, _PHASE: "allocating"}


def _entry(gpu: Gpu, asks: Container) -> str:
    memory = asks.memory or gpu.memory * (asks.percent or 100) // 100
    # A card without a part of its memory is the pod's alone, as HAMi's webhook has it.
    cores = asks.cores or (0 if asks.memory or 0 < asks.percent < 100 else 100)
    return f"{gpu.uuid},NVIDIA,{memory},{cores}:"


def bound(seconds: int) -> dict[str, str]:
    """Annotations of a pod that is bound at this Unix time."""
    return dict.fromkeys(_TIMES, str(seconds))


def given(text: str, there: Gpus) -> tuple[int, tuple[int, ...]]:
    """(thousandths of each card, cards) of a pod with this annotation, whoever placed it; no cards for none."""
    numbers = {each.uuid: at for at, each in there.items()}
    amounts: dict[int, list[int]] = {}
    for entry in re.split("[:;]", text[:_MOST_READ]):
        uuid, *fields = entry.split(",")
        if uuid in numbers and len(fields) >= 3 and all(_is_number(each) for each in fields[1:3]):
            have = amounts.setdefault(numbers[uuid], [0, 0, 0])
            for at, more in enumerate((int(fields[1]), int(fields[2]), 1)):
                have[at] += more
    parts = [
        max(_part(there[at], memory, 0, min(cores, 100)), -(-splits * CARD // max(there[at].splits, 1)))
        for at, (memory, cores, splits) in amounts.items()
    ]
    return min(max(parts, default=0), CARD), tuple(amounts)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 10


def locked(text: str) -> tuple[str, str]:
    """(RFC 3339, `namespace/name` of the pod) of a node's lock; empty where it names none."""
    moment, _, pod = text.partition(",")
    return moment, pod.replace(",", "/", 1)
