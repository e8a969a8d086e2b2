"""NUMA nodes of a member's nodes, as Volcano's resource exporter writes them (Numatopology, one for each node)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from atoll.model import quantity
from atoll.model.numa import CPU, MOST_CELLS, Asks, Cells, Policy
from atoll.model.objects import Slim


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
    """What is said of one node; its name is the node's."""

    cells: Cells = Cells(Policy.NONE, (), (), ())
    """Free as it was when it was written: pods that came since are not in it."""
    used: int = 0
    """CPUs that pods had for their own then."""
    pods: dict[str, tuple[int, ...]] = msgspec.field(default_factory=dict)
    """UID of a pod -> its CPUs by NUMA node; of those that it tells of."""

    def now(self, pinned: Mapping[Asks, int], gone: Sequence[tuple[str, Asks]] = ()) -> Cells:
        """What is free with these pods on the node.

        Pods that its figures can't contain yet are put where the kubelet would put them. Of what pods that go give back
        only that counts of which it tells where it is.

        Args:
            pinned: what pods have -> how many have that, in the order in which they came.
            gone: (UID, what it had) of pods that go, which are not in `pinned`.
        """
        free, left = [list(cell) for cell in self.cells.free], self.used
        for uid, asks in gone:
            left = max(0, left - _cpus(self.cells.wants(asks)))
            for cell, count in enumerate(self.pods.get(uid, ())):
                if CPU in self.cells.resources:
                    free[cell][self.cells.resources.index(CPU)] += count
        cells = self.cells.with_free(free)
        for asks, count in pinned.items():
            for _ in range(count if cells.wants(asks) else 0):
                wanted = _cpus(cells.wants(asks))
                if wanted <= left:
                    left -= wanted
                else:
                    cells = cells.after(asks)
        return cells


def _cpus(asks: Asks) -> int:
    return sum(amount for container in asks for name, amount in container if name == CPU)


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
    # Without CPUs of containers' own the kubelet aligns none.
    resources = (CPU,) if spec.policies.get("CPUManagerPolicy") == "static" and CPU in spec.numares else ()

    def by_cell(some: Sequence[int] | set[int]) -> tuple[int, ...]:
        count = Counter(where[cpu] for cpu in some if cpu in where)
        return tuple(count[number] for number in numbers)

    def amounts(some: Sequence[int] | set[int]) -> tuple[tuple[int, ...], ...]:
        return tuple((count,) if resources else () for count in by_cell(some))

    cells = Cells(policy, resources, amounts(free), amounts(list(where)))
    used = max(0, len(where) - len(free & where.keys()) - reserved)
    return NumaTopology(said.metadata, cells, used, {uid: by_cell(some) for uid, some in allocated.items()})


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
