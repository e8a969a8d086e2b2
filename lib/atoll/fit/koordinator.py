"""Devices of one node for a pod, as Koordinator chooses them: GPUs packed by topology, NICs and FPGAs beside them.

Where the GPUs that it would take have no NIC beside them, which ends its search, others are tried: a node is refused
only where no GPUs with NICs under their roots are free.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from atoll.model import cards, gpu_partitions, selectors
from atoll.model.gang import DeviceWish
from atoll.model.gpu_partitions import GpuPartitions
from atoll.model.joint import (
    AS_COUNT,
    DEVICE_ALONE,
    FOR_ALL,
    GPU,
    RESOURCES,
    ROOT_ALONE,
    SCOPES,
    WHOLE,
)
from atoll.model.koordinator import VENDORS, Device, Devices, Part, counted
from atoll.model.numa import Asks, Cells

Taken = Counter[tuple[str, int, str]]
"""(type, minor, "") -> units that are taken of it; (type, minor, bus) -> whether this virtual function is. No GPUs."""
MOST_PODS = 128
"""Of one task that a node is asked for at most."""
_NO_SCOPE: Final = "no GPUs of one scope are free"
_NO_PARTITION: Final = "no partition of so many GPUs is free"


class Found(NamedTuple):
    """Devices for a pod."""

    gpus: tuple[int, ...]
    others: tuple[Part, ...]


class Reported(NamedTuple):
    """The devices of a node."""

    devices: Devices
    kind: int
    """The same for nodes whose devices differ in their UUIDs alone."""
    partitions: GpuPartitions = gpu_partitions.NONE


class Node(NamedTuple):
    """A node with a `Device` object."""

    devices: Devices
    free: Sequence[int]
    """Thousandths of each GPU."""
    taken: Taken
    memory: int = 0
    """Bytes of each GPU."""
    partitions: GpuPartitions = gpu_partitions.NONE
    cells: Cells | None = None
    """Its NUMA nodes, numbered as `Device.numa`; None where nothing tells of them."""
    inside: frozenset[int] = frozenset()
    """NUMA nodes of the GPUs that a pod may have; empty for all."""


def hold(taken: Taken, parts: Iterable[Part], times: int = 1) -> None:
    """Take parts, or give them back with -1."""
    for each in parts:
        taken[each.kind, each.minor, ""] += each.units * times
        if each.bus:
            taken[each.kind, each.minor, each.bus] += times


def find(node: Node, requests: Mapping[str, int], wish: DeviceWish, asks: Asks = ()) -> Found | str:
    """The devices that a pod gets, or why it gets none.

    GPUs are of the NUMA nodes from which the kubelet takes the CPUs of the pod: of no others where its policy rejects
    pods, and it aligns these GPUs itself; else as far as they are free there.

    Args:
        node: that it is on.
        requests: of the pod.
        wish: of the pod.
        asks: of its containers, of NUMA nodes.
    """
    inside, strict = node.cells.leads(asks) if node.cells is not None else (frozenset[int](), False)
    if inside:
        assert node.cells is not None
        near = _find(node._replace(inside=inside), requests, wish)
        if not isinstance(near, str) or (strict and _kubelet_knows_gpus(node.cells, asks)):
            return near
    return _find(node, requests, wish)


def _kubelet_knows_gpus(cells: Cells, asks: Asks) -> bool:
    return any(name in VENDORS for container in cells.wants(asks) for name, _ in container)


def _find(node: Node, requests: Mapping[str, int], wish: DeviceWish) -> Found | str:
    if wish.problem:
        return wish.problem
    part, number = cards.asked(counted(requests), node.memory)
    asked = {GPU: (part, number)} if part else {}
    for kind, name in RESOURCES.items():
        if amount := requests.get(name, 0):
            asked[kind] = _number(node, kind, amount, wish)
    if not asked:
        return "it asks for none of the devices that Koordinator gives"
    usable = {kind: _usable(node, kind, units, wish) for kind, (units, _) in asked.items()}
    for kind, (_, wanted) in asked.items():
        if not 0 < wanted <= len(usable[kind]):
            return f"{len(usable[kind])} of the {max(wanted, 1)} {kind} devices that it asks for are free"
    together = [each for each in wish.types if each in asked and wish.hint(each).allocate_strategy != FOR_ALL]
    if not together or together[0] != wish.types[0]:
        together = []
    refused = _NO_PARTITION if _by_partition(node, asked, wish) else _NO_SCOPE
    for first in _firsts(node, asked, usable, together, wish):
        found = _beside(node, asked, usable, together, first, wish)
        if isinstance(found, str):
            refused = found
            continue
        others = [
            Part(kind, minor, asked[kind][0], *_vf(node, kind, minor, wish))
            for kind, some in found.items()
            for minor in sorted(some)
            if kind != GPU
        ]
        return Found(tuple(found.get(GPU, ())), tuple(others))
    return refused


def count(node: Node, requests: Mapping[str, int], wish: DeviceWish, asks: Asks = ()) -> int:
    """Pods that get devices there, one after the other; arguments as of `find`."""
    free, taken = list(node.free), node.taken.copy()
    for number in range(MOST_PODS):
        node = node._replace(free=free, taken=taken)
        found = find(node, requests, wish, asks)
        if isinstance(found, str):
            return number
        take(free, taken, found, cards.asked(counted(requests), node.memory)[0])
        node = node._replace(cells=node.cells.after(asks) if node.cells is not None else None)
    return MOST_PODS


def take(free: list[int], taken: Taken, found: Found, part: int) -> None:
    """Take the devices of a pod."""
    for card in found.gpus:
        free[card] -= part
    hold(taken, found.others)


def _number(node: Node, kind: str, amount: int, wish: DeviceWish) -> tuple[int, int]:
    """(units of each device, devices) for so much of a resource."""
    hint = wish.hint(kind)
    if amount > WHOLE:
        return WHOLE, amount // WHOLE
    if hint.allocate_strategy == FOR_ALL:
        return amount, len(_selected(node.devices, kind, wish))
    if hint.allocate_strategy == AS_COUNT:
        return (WHOLE if hint.exclusive_policy == DEVICE_ALONE else 1), amount
    return amount, 1


def _selected(there: Devices, kind: str, wish: DeviceWish) -> list[int]:
    selector = wish.hint(kind).selector
    return [
        minor
        for minor, each in sorted(there.get(kind, {}).items())
        if selector is None or selectors.label_selector_matches(selector, each.labels)
    ]


def _usable(node: Node, kind: str, units: int, wish: DeviceWish) -> list[int]:
    """Devices that have so much free and keep to the hint."""
    there, policy = node.devices.get(kind, {}), wish.hint(kind).exclusive_policy
    used = {minor for minor in there if _free(node, kind, minor) < (cards.CARD if kind == GPU else WHOLE)}
    if policy == ROOT_ALONE:
        roots = {there[minor].root for minor in used}
        used |= {minor for minor, each in there.items() if each.root in roots}
    return [
        minor
        for minor in _selected(node.devices, kind, wish)
        if _free(node, kind, minor) >= units
        and not (policy and minor in used)
        and (wish.hint(kind).vf_selector is None or _vf(node, kind, minor, wish))
        and (kind != GPU or not node.inside or there[minor].numa in (*node.inside, -1))
    ]


def _free(node: Node, kind: str, minor: int) -> int:
    if kind == GPU:
        return node.free[minor] if minor < len(node.free) else 0
    return WHOLE - node.taken[kind, minor, ""]


def _vf(node: Node, kind: str, minor: int, wish: DeviceWish) -> tuple[str, int] | tuple[()]:
    """(bus, minor) of the free virtual function that a pod gets; empty for none."""
    selector = wish.hint(kind).vf_selector
    if selector is None:
        return ()
    for vf in node.devices[kind][minor].vfs:
        if not node.taken[kind, minor, vf.bus] and selectors.label_selector_matches(selector, vf.labels):
            return vf.bus, vf.minor
    return ()


def _firsts(
    node: Node,
    asked: Mapping[str, tuple[int, int]],
    usable: Mapping[str, list[int]],
    together: list[str],
    wish: DeviceWish,
) -> Iterable[list[int]]:
    """Choices of the devices that the others go beside, the preferred one first: Koordinator's; the same of roots at
    which there are others; the ones that meet the most roots.
    """
    first = together[0] if together else GPU
    if first not in asked:
        yield []
        return
    number = asked[first][1]
    there, scope = node.devices[first], wish.hint(first).required_topology_scope

    def packed(among: list[int]) -> Iterable[list[int]]:
        if first == GPU:
            yield from _gpus(node, asked, among, wish)
        elif len(chosen := _in_turn(node, first, among, ())[:number]) == number:
            yield chosen

    yield from packed(usable[first])
    if wish.same_root and len(together) > 1:
        roots = set.intersection(*({node.devices[kind][each].root for each in usable[kind]} for kind in together[1:]))
        with_others = [each for each in usable[first] if there[each].root in roots]
        yield from packed(with_others)
        loose = SCOPES.index(scope or SCOPES[0]) == 0 and not (first == GPU and _by_partition(node, asked, wish))
        if len(with_others) >= number and loose:
            each_kind = [Counter(node.devices[kind][each].root for each in usable[kind]) for kind in together[1:]]
            order = sorted(roots, key=lambda root: (-min(each[root] for each in each_kind), root))
            yield sorted(_in_turn(node, first, with_others, order)[:number])


def _beside(
    node: Node,
    asked: Mapping[str, tuple[int, int]],
    usable: Mapping[str, list[int]],
    together: list[str],
    first: list[int],
    wish: DeviceWish,
) -> dict[str, list[int]] | str:
    """All devices of a pod that gets these first, or why there are too few beside them."""
    found: dict[str, list[int]] = {}
    roots: list[str] = []
    if first:
        kind = together[0] if together else GPU
        found[kind] = first
        roots = list(dict.fromkeys(node.devices[kind][each].root for each in first)) if len(together) > 1 else []
        if "" in roots:
            return f"the PCIe root of its {kind} devices is not known"
    for kind, (_, number) in asked.items():
        if kind in found:
            continue
        if kind == GPU:
            found[kind] = next(_gpus(node, asked, usable[kind], wish), [])
            if not found[kind]:
                return _NO_PARTITION if _by_partition(node, asked, wish) else _NO_SCOPE
            continue
        near = roots if kind in together else []
        least = max(number, len(near)) if wish.same_root else number
        chosen = _in_turn(node, kind, usable[kind], near)[: max(least, len(near))]
        if len(chosen) < least or (
            near and wish.same_root and {node.devices[kind][m].root for m in chosen} != set(near)
        ):
            return f"its {together[0]} devices and enough {kind} devices are not free under the same PCIe roots"
        found[kind] = chosen
    return found


def _in_turn(node: Node, kind: str, among: Sequence[int], roots: Sequence[str]) -> list[int]:
    """Devices one of each of these roots after the other, other roots last; the emptiest of a root first."""
    there, rounds, before = node.devices[kind], list[tuple[bool, int, int, int, int]](), Counter[str]()
    for minor in sorted(among, key=lambda minor: (-_free(node, kind, minor), minor)):
        root = there[minor].root
        near = root in roots
        at = roots.index(root) if near else 0
        rounds.append((not near, before[root] if near else 0, at, -_free(node, kind, minor), minor))
        before[root] += 1
    return [minor for *_, minor in sorted(rounds)]


def _by_partition(node: Node, asked: Mapping[str, tuple[int, int]], wish: DeviceWish) -> bool:
    """Whether the GPUs of a pod must be a partition; parts of GPUs never are."""
    whole = GPU in asked and asked[GPU][0] == cards.CARD
    return whole and (node.partitions.honoured or wish.partition is not None)


def _gpus(
    node: Node, asked: Mapping[str, tuple[int, int]], among: Collection[int], wish: DeviceWish
) -> Iterator[list[int]]:
    """Sets of GPUs of these for a pod, the preferred one first: partitions, then the choice by topology."""
    part, number = asked[GPU]
    scope = wish.hint(GPU).required_topology_scope
    narrowest = SCOPES.index(scope) if scope else 0
    there = node.devices[GPU]
    if part == cards.CARD:
        idle = [minor for minor in there if _free(node, GPU, minor) == cards.CARD]
        for partition in node.partitions.ordered(number, idle, wish.partition):
            if set(partition.minors).issubset(among):
                shared = set.intersection(*(set(_scopes(minor, there[minor])) for minor in partition.minors))
                if any(level[0] >= narrowest for level in shared):
                    yield [*partition.minors]
    if not _by_partition(node, asked, wish) and (found := _packed(node, asked[GPU], among, narrowest)):
        yield found


def _packed(node: Node, asked: tuple[int, int], among: Collection[int], narrowest: int) -> list[int]:
    """GPUs of these in the narrowest scope that has enough, of such scopes the one most in use; empty for none."""
    part, number = asked
    there = node.devices[GPU]
    fitting: dict[_Scope, list[int]] = {}
    used: set[_Scope] = set()
    for minor, each in sorted(there.items()):
        for level in _scopes(minor, each):
            if _free(node, GPU, minor) < cards.CARD:
                used.add(level)
            if minor in among:
                fitting.setdefault(level, []).append(minor)

    def rank(level: _Scope) -> tuple[int, int, int, int]:
        one = fitting[level][0]
        busy = sum(each in used for each in _scopes(one, there[one]) if each[0] <= level[0])
        return -level[0], -busy, _free(node, GPU, one) if part < cards.CARD else 0, one

    enough = [level for level, some in fitting.items() if len(some) >= number and level[0] >= narrowest]
    return fitting[min(enough, key=rank)][:number] if enough else []


_Scope = tuple[int, int, str]
"""(index in `SCOPES`, NUMA node or minor, PCIe root)."""


def _scopes(minor: int, device: Device) -> list[_Scope]:
    """The scopes that a GPU is in, from the widest."""
    found: list[_Scope] = [(0, 0, "")]
    if device.numa >= 0:
        found.append((1, device.numa, ""))
    if device.root:
        found.append((2, device.numa, device.root))
    return [*found, (3, minor, "")]
