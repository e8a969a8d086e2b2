"""What each node offers, and how much of it pods and reservations take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from atoll.agent.scheduler.core.device_book import DeviceBook
from atoll.agent.scheduler.core.gpu_book import GpuBook
from atoll.model import ports, vector
from atoll.model.gang import Task
from atoll.model.numa import Asks
from atoll.model.ports import HostPort
from atoll.model.vector import MOST_ON_NODE, Vector


class Charge(msgspec.Struct, frozen=True, gc=False):
    """One pod on a node."""

    uid: str
    node: str
    requests: Vector
    binding_uid: str
    task: str
    index: int | None
    """Of the pod in its task; None where it has none."""
    ports: list[HostPort]
    counts: bool
    """Whether the pod is there or bound by us at this moment; not while another scheduler has still to bind it."""
    labels: Mapping[str, str]
    leaving: bool
    """Whether the pod was deleted."""
    asks: Asks
    """Use of NUMA nodes by its containers."""


class NodeAmounts:
    """Of all nodes in use, in integer units; devices have their own books."""

    def __init__(self, devices: DeviceBook, gpus: GpuBook) -> None:
        self._devices, self._gpus = devices, gpus
        self._offered: dict[str, Vector] = {}
        #: node -> sum of its charges and reservations; without zeros
        self._used: dict[str, Vector] = {}
        #: node -> the part of `_used` that is kept for pods that go there once others have left; without zeros
        self._awaited: dict[str, Vector] = {}
        #: node -> port -> how many took it, by charges and reservations; without zeros
        self._ports: dict[str, dict[HostPort, int]] = {}

    def offer(self, node: str, offered: Vector | None) -> None:
        """A node offers this; None for one that is gone."""
        self._offered.pop(node, None)
        if offered is not None:
            self._offered[node] = offered

    def take(self, node: str, requests: Vector, wanted: Sequence[HostPort], times: int) -> None:
        """So many more pods with these requests and ports are there; fewer for a negative number."""
        vector.add_each(self._used, {node: requests}, times)
        if wanted:
            vector.add_each(self._ports, {node: Counter(wanted)}, times)

    def keep(self, node: str, requests: Vector, times: int) -> None:
        """So many more of the taken pods go there once others have left; fewer for a negative number."""
        vector.add_each(self._awaited, {node: requests}, times)

    def offered(self, node: str) -> Vector:
        """Amounts of the node, taken or not; do not change them."""
        return self._offered[node]

    def total(self) -> Vector:
        """Amounts of all nodes together, taken or not."""
        return vector.total(self._offered.values())

    def free(self, node: str, back: Mapping[str, int] | None = None, cards: Sequence[int] | None = None) -> Vector:
        """Amounts left on a node; negative where others overbooked it.

        Args:
            node: its name.
            back: requests of pods there that count as gone.
            cards: free thousandths of each of its GPUs without them.
        """
        used = self._used.get(node, {})
        if back:
            used = dict(used)
            vector.add(used, back, -1)
        if devices := self._devices.used(node):
            used = {
                # Pods that ask without a claim hold devices by one all the same.
                name: max(used.get(name, 0), devices.get(name, 0))
                if self._devices.class_of(name)
                else used.get(name, 0) + devices.get(name, 0)
                for name in used.keys() | devices.keys()
            }
        found = {name: max(amount - used.get(name, 0), -MOST_ON_NODE) for name, amount in self._offered[node].items()}
        self._gpus.limit(found, node, cards)
        return found

    def overbooked(self, node: str, task: Task) -> bool:
        """True if more is taken than the node has of a resource that pods of the task, which are there, ask for;
        awaited amounts do not count.
        """
        have, used, awaited = (each.get(node, {}) for each in (self._offered, self._used, self._awaited))
        if any(used.get(name, 0) - awaited.get(name, 0) > have.get(name, 0) for name in task.requests):
            return True
        others = Counter(self._ports.get(node, {}))
        others.subtract(task.ports)
        return ports.conflict(task.ports, +others)

    def ports(self, node: str) -> Mapping[HostPort, int]:
        """Port -> how many took it on a node."""
        return self._ports.get(node, {})

    def ports_without(self, away: Iterable[Charge]) -> dict[str, Mapping[HostPort, int]]:
        """Node -> port -> how many took it, as if these pods were gone."""
        left: dict[str, Mapping[HostPort, int]] = dict(self._ports)
        for charge in away:
            if charge.ports:
                left[charge.node] = Counter(left[charge.node]) - Counter(charge.ports)
        return left
