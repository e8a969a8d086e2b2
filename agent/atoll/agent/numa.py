"""NUMA nodes of a member's nodes, as others write them, one object for each node: Numatopology by Volcano's resource
exporter, NodeResourceTopology by Node Feature Discovery.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from atoll.model import quantity
from atoll.model.numa import CPU, MOST_CELLS, Amounts, Asks, Cells, Policy
from atoll.model.objects import Slim

ISLAND = "NVLink"
"""Type of the zones of a NodeResourceTopology that are islands of devices."""
_NUMBER = re.compile(r"\d{1,4}$", re.ASCII)


class _Resource(msgspec.Struct, frozen=True, gc=False):
    allocatable: str = ""


class _Cpu(msgspec.Struct, frozen=True, gc=False):
    numa: int = 0


class _Container(msgspec.Struct, frozen=True):
    allocations: dict[str, str] = {}


class _PodAllocation(msgspec.Struct, frozen=True, rename="camel"):
    uid: str = ""
    container_allocations: list[_Container] = []


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    policies: dict[str, str] = {}
    res_reserved: dict[str, str] = {}
    numares: dict[str, _Resource] = {}
    cpu_detail: dict[str, _Cpu] = {}
    pod_allocations: list[_PodAllocation] = []


class _Raw(Slim, frozen=True):
    spec: _Spec = _Spec()


class NumaTopology(Slim, frozen=True):
    """Report about one node; its name is the node's."""

    cells: Cells = Cells(Policy.NONE, (), (), ())
    """Free as it was when it was written: pods that came since are not in it."""
    used: dict[str, int] = msgspec.field(default_factory=dict)
    """What pods had for their own then."""
    islands: NumaTopology | None = None
    """The same of islands of devices; None where nothing tells of them."""
    pods: dict[str, tuple[int, ...]] = msgspec.field(default_factory=dict)
    """UID of a pod -> its CPUs by NUMA node; of reported pods."""
    offered: Amounts = ()
    """What pods may have of what there is; empty for all of it, as far as it is known."""

    def emptied(self) -> Cells:
        """All that pods may have there."""
        return self.cells._replace(total=self.offered or self.cells.total).empty()

    def now(self, pinned: Mapping[Asks, int], then: Mapping[Asks, int], gone: Sequence[tuple[str, Asks]] = ()) -> Cells:
        """Free amounts with these pods on the node.

        Pods that its figures can't contain yet are put where the kubelet would put them. Of what pods that go give back
        only that counts of which it tells where it is.

        Args:
            pinned: use of a pod -> number of such pods, in the order in which they came.
            then: the same of pods present when the figures came: no others can be in them.
            gone: (UID, its use) of pods that go, which are not in `pinned`.
        """
        free, left = [list(cell) for cell in self.cells.free], Counter(self.used)
        for uid, asks in gone:
            left -= _total(self.cells.wants(asks))
            for cell, count in enumerate(self.pods.get(uid, ())):
                if CPU in self.cells.resources:
                    free[cell][self.cells.resources.index(CPU)] += count
        cells = self.cells.with_free(free)
        for asks, count in pinned.items():
            for number in range(count if cells.wants(asks) else 0):
                wanted = _total(cells.wants(asks))
                if number < then.get(asks, 0) and wanted <= left:
                    left -= wanted
                else:
                    cells = cells.after(asks)
        return cells


def _total(asks: Asks) -> Counter[str]:
    found: Counter[str] = Counter()
    for name, amount in (each for container in asks for each in container):
        found[name] += amount
    return found


_decoder = msgspec.json.Decoder(_Raw)


def decode_numa(raw: bytes | msgspec.Raw) -> NumaTopology:
    """What a Numatopology says of its node.

    Raises:
        msgspec.MsgspecError: it is none, or names CPUs in another way than the kernel does.
    """
    said = _decoder.decode(raw)
    spec = said.spec
    try:
        policy = Policy(spec.policies.get("TopologyManagerPolicy") or Policy.NONE)
        where = {int(cpu): each.numa for cpu, each in spec.cpu_detail.items()}
        free = cpus(spec.numares[CPU].allocatable) if CPU in spec.numares else set[int]()
        reserved = math.ceil(quantity.ceil_units(CPU, spec.res_reserved.get(CPU) or "0") / 1000)
        allocated = {
            each.uid: [cpu for one in each.container_allocations for cpu in cpus(one.allocations.get(CPU, ""))]
            for each in spec.pod_allocations
        }
    except ValueError as error:
        raise msgspec.ValidationError(f"Numatopology {said.metadata.name}: {error}") from error
    numbers = sorted(set(where.values()))
    if len(numbers) > MOST_CELLS:
        raise msgspec.ValidationError(f"Numatopology {said.metadata.name}: {len(numbers)} NUMA nodes are too many")
    # Without CPUs of containers' own the kubelet aligns none; nothing is known where no CPU has a NUMA node.
    static = spec.policies.get("CPUManagerPolicy") == "static"
    resources = (CPU,) if static and CPU in spec.numares and numbers else ()

    def by_cell(some: Sequence[int] | set[int]) -> tuple[int, ...]:
        count = Counter(where[cpu] for cpu in some if cpu in where)
        return tuple(count[number] for number in numbers)

    def amounts(some: Sequence[int] | set[int]) -> tuple[tuple[int, ...], ...]:
        return tuple((count,) if resources else () for count in by_cell(some))

    cells = Cells(policy, resources, amounts(free), amounts(list(where)))
    used = max(0, len(where) - len(free & where.keys()) - reserved)
    return NumaTopology(
        said.metadata, cells, {CPU: used}, None, {uid: by_cell(some) for uid, some in allocated.items()}
    )


def cpus(text: str) -> set[int]:
    """The CPUs of a list as the kernel writes it, such as `0-3,8`.

    Raises:
        ValueError: it is none.
    """
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


class _Attribute(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    value: str = ""


class _Amounts(msgspec.Struct, frozen=True, gc=False):
    name: str
    capacity: str | int | float = 0
    allocatable: str | int | float = 0
    available: str | int | float = 0


class _Zone(msgspec.Struct, frozen=True):
    name: str = ""
    type: str = ""
    resources: list[_Amounts] = []


class _RawZones(Slim, frozen=True, rename="camel"):
    topology_policies: list[str] = msgspec.field(default_factory=list)
    attributes: list[_Attribute] = msgspec.field(default_factory=list)
    zones: list[_Zone] = msgspec.field(default_factory=list)


_zones_decoder = msgspec.json.Decoder(_RawZones)
_OLD_POLICIES = {
    "SingleNUMANode": Policy.SINGLE,
    "Restricted": Policy.RESTRICTED,
    "BestEffort": Policy.BEST_EFFORT,
    "None": Policy.NONE,
}


def decode_zones(raw: bytes | msgspec.Raw) -> NumaTopology:
    """What a NodeResourceTopology says of its node: CPUs and devices by NUMA node, and the scope of its kubelet.

    Raises:
        msgspec.MsgspecError: it is none, or an amount is no quantity.
    """
    said = _zones_decoder.decode(raw)
    about = {each.name: each.value for each in said.attributes}
    old = next(iter(said.topology_policies), "None")
    by_pod = about.get("topologyManagerScope", "pod" if old.endswith("PodLevel") else "container") == "pod"
    try:
        policy = Policy(about["topologyManagerPolicy"]) if "topologyManagerPolicy" in about else _old_policy(old)
        numa = _cells(_in_order(each for each in said.zones if each.type == "Node"), policy, cpus=True)
        # What chooses among devices of one NUMA node is their plug-in, whatever the policy.
        islands = _cells([each for each in said.zones if each.type == ISLAND], Policy.BEST_EFFORT, cpus=False)
    except ValueError as error:
        raise msgspec.ValidationError(f"NodeResourceTopology {said.metadata.name}: {error}") from error
    cells, used, offered = numa
    joined = NumaTopology(said.metadata, *islands[:2]) if islands[0].free else None
    return NumaTopology(said.metadata, cells._replace(by_pod=by_pod), used, joined, offered=offered)


def _in_order(zones: Iterable[_Zone]) -> list[_Zone]:
    """By the number that their names end in, such as `node-1`."""
    return sorted(zones, key=lambda zone: int(found[0]) if (found := _NUMBER.search(zone.name)) else 0)


def _cells(zones: Sequence[_Zone], policy: Policy, *, cpus: bool) -> tuple[Cells, dict[str, int], Amounts]:
    """(amounts in each of these zones, use of them by pods, limits of pods).

    Raises:
        ValueError: an amount is no quantity, or they are too many.
    """
    if len(zones) > MOST_CELLS:
        raise ValueError(f"{len(zones)} zones are too many")
    found = {each.name for zone in zones for each in zone.resources}
    known = sorted(name for name in found if quantity.is_device(name) or (cpus and name == CPU))

    def amounts(field: str) -> tuple[tuple[int, ...], ...]:
        each_zone = [{each.name: getattr(each, field) for each in zone.resources} for zone in zones]
        return tuple(tuple(_whole(each.get(name, 0)) for name in known) for each in each_zone)

    free, offered, total = (amounts(field) for field in ("available", "allocatable", "capacity"))
    used = {
        name: max(0, sum(cell[row] for cell in offered) - sum(cell[row] for cell in free))
        for row, name in enumerate(known)
    }
    return Cells(policy, tuple(known), free, total), used, offered


def _old_policy(said: str) -> Policy:
    name = said.removesuffix("ContainerLevel").removesuffix("PodLevel")
    if name not in _OLD_POLICIES:
        raise ValueError(f"topologyPolicies: {said!r} is not known")
    return _OLD_POLICIES[name]


def _whole(text: str | int | float) -> int:
    """In whole CPUs, or pieces, rounded down."""
    return int(quantity.exact(text))
