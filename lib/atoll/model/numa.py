"""The NUMA nodes of a node: what of CPUs and devices is in each, and where a pod's containers would get theirs.

As the kubelet's topology manager decides it: each of a container's amounts gives hints, the sets of NUMA nodes that
hold it; one is *preferred* where no smaller set could ever hold the amount. Policy `restricted` takes a pod where all
amounts of a container prefer the same set, `single-numa-node` where that is one NUMA node, `best-effort` and `none`
take every pod. Containers come one after the other (scope `container`), or the pod's amounts at once (scope `pod`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from itertools import combinations
from typing import Any, Final, NamedTuple

from atoll.model import quantity

CPU: Final = "cpu"
MOST_CELLS: Final = 8
"""NUMA nodes of a node; the kubelet takes no more either."""
_MOST_PODS = 256
"""Pods of a node, of which more are not counted."""

Asks = tuple[tuple[tuple[str, int], ...], ...]
"""Per container its amounts, sorted: whole CPUs that are its own, and devices."""
Amounts = tuple[tuple[int, ...], ...]
"""Per NUMA node, an amount for each resource."""


class Policy(StrEnum):
    """Of the kubelet's topology manager."""

    NONE = "none"
    BEST_EFFORT = "best-effort"
    RESTRICTED = "restricted"
    SINGLE = "single-numa-node"

    @property
    def strict(self) -> bool:
        """Whether it rejects pods."""
        return self in (Policy.RESTRICTED, Policy.SINGLE)


class Together(StrEnum):
    """What devices of a container are to be in together: annotation `atoll.sh/devices-in` of a pod."""

    NUMA_NODE = "numa-node"
    ISLAND = "nvlink-island"
    """Devices of one node that are joined by links of their own."""


class Cells(NamedTuple):
    """The NUMA nodes of one node; CPUs in whole ones, devices in pieces."""

    policy: Policy
    resources: tuple[str, ...]
    """Those that are known by NUMA node, sorted; `cpu` where CPUs may be a container's own."""
    free: Amounts
    total: Amounts
    by_pod: bool = False
    """Whether the amounts of a pod's containers are looked at together (scope `pod`)."""

    def wants(self, asks: Asks) -> Asks:
        """What of this is looked at here: containers with none of it are left out."""
        return _known(self.resources, asks, self.by_pod)

    def room(self, asks: Asks, *, narrow: bool = False) -> int:
        """How many such pods it takes, by NUMA nodes alone.

        Args:
            asks: of a pod.
            narrow: count those alone whose containers get the fewest NUMA nodes that could ever hold their amounts.
        """
        policy = Policy.RESTRICTED if narrow and not self.policy.strict else self.policy
        return _room(self._replace(policy=policy), asks)

    def room_together(self, asks: Asks) -> int:
        """How many such pods it takes with the devices of each container in one of the cells, which the kubelet
        prefers unless its policy is `none`; 0 where it is not known of all of these devices where they are.
        """
        devices = tuple(tuple((name, amount) for name, amount in container if name != CPU) for container in asks)
        if self.policy is Policy.NONE or not all(name in self.resources for each in devices for name, _ in each):
            return 0
        return self._replace(policy=Policy.SINGLE, by_pod=False).room(tuple(filter(None, devices)))

    def leads(self, asks: Asks) -> tuple[frozenset[int], bool]:
        """(NUMA nodes from which the kubelet takes what containers of such a pod ask for, whether it rejects the pod
        otherwise); none where it aligns nothing.
        """
        found, cells = set[int](), self
        for container in self.wants(asks) if self.policy is not Policy.NONE else ():
            found.update(_merged(cells, cells.rows(container))[0])
            cells = _given(cells, container)[0]
        return frozenset(found), self.policy.strict

    def rows(self, container: tuple[tuple[str, int], ...]) -> list[tuple[int, int]]:
        """(index of the resource, amount) of each amount of a container."""
        return [(self.resources.index(name), amount) for name, amount in container]

    def empty(self) -> Cells:
        """With all free that there is."""
        return self._replace(free=self.total)

    def ever(self, asks: Asks, policy: str, together: str) -> bool:
        """Whether it could take such a pod while it has no others.

        Args:
            asks: of the pod.
            policy: that it asks for; empty for any.
            together: what its devices must be in (`Together`); islands are not known here.
        """
        empty = self.empty()
        if policy and (policy != self.policy or CPU not in self.resources):
            return False
        if together == Together.NUMA_NODE and not empty.room_together(asks):
            return False
        return not self.policy.strict or empty.room(asks) > 0

    def after(self, asks: Asks) -> Cells:
        """With one such pod more; amounts that are not there are taken where most is left, and end below zero."""
        cells = self
        for container in self.wants(asks):
            cells = _given(cells, container)[0]
        return cells

    def with_free(self, free: Sequence[Sequence[int]]) -> Cells:
        """With these amounts free."""
        return self._replace(free=tuple(map(tuple, free)))


def asks_of(said: Iterable[Mapping[str, int]]) -> Asks:
    """As a task says it (`Task.aligned`)."""
    return tuple([tuple(sorted(container.items())) for container in said if container])


def aligned(spec: Mapping[str, Any]) -> list[dict[str, int]]:
    """What of a pod's containers the kubelet may align, container by container: whole CPUs of a pod of class
    Guaranteed, and devices. Init containers that end give theirs on, so that sidecars and containers count.
    """
    own = is_guaranteed(spec)
    found = []
    for container in _running(spec):
        amounts = {}
        for name, amount in quantity.requests(_resources(container)).items():
            if name == CPU:
                if own and amount and amount % 1000 == 0:
                    amounts[CPU] = amount // 1000
            elif amount and quantity.is_device(name):
                amounts[name] = amount
        if amounts:
            found.append(amounts)
    return found


def is_guaranteed(spec: Mapping[str, Any]) -> bool:
    """Whether a pod is of class Guaranteed: every container has limits of CPU and memory, and requests no less."""
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    for container in containers:
        resources = container.get("resources") or {}
        limits = quantity.requests(resources.get("limits"))
        asked = quantity.requests(resources.get("requests"))
        for name in (CPU, "memory"):
            if not limits.get(name) or asked.get(name, limits[name]) != limits[name]:
                return False
    return bool(containers)


def _resources(container: Mapping[str, Any]) -> dict[str, Any]:
    resources = container.get("resources") or {}
    return {**(resources.get("limits") or {}), **(resources.get("requests") or {})}


def _running(spec: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    yield from (each for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always")
    yield from spec.get("containers") or ()


@lru_cache(maxsize=4096)
def _known(resources: tuple[str, ...], asks: Asks, by_pod: bool) -> Asks:
    found = [tuple((name, amount) for name, amount in container if name in resources) for container in asks]
    if by_pod:
        total: dict[str, int] = {}
        for name, amount in (each for container in found for each in container):
            total[name] = total.get(name, 0) + amount
        found = [tuple(sorted(total.items()))]
    return tuple(container for container in found if container)


@lru_cache(maxsize=65536)
def _room(cells: Cells, asks: Asks) -> int:
    wanted, count = cells.wants(asks), 0
    if not wanted:
        return _MOST_PODS
    while count < _MOST_PODS:
        for container in wanted:
            cells, admitted = _given(cells, container)
            if not admitted:
                return count
        count += 1
    return count


@lru_cache(maxsize=65536)
def _given(cells: Cells, container: tuple[tuple[str, int], ...]) -> tuple[Cells, bool]:
    """(the rest once the container has its amounts, whether the policy takes it)."""
    asked = cells.rows(container)
    enough = all(sum(cell[row] for cell in cells.free) >= amount for row, amount in asked)
    chosen, preferred = _merged(cells, asked)
    admitted = enough and (
        preferred and (cells.policy is not Policy.SINGLE or len(chosen) == 1) if cells.policy.strict else True
    )
    free = [list(cell) for cell in cells.free]
    for row, amount in asked:
        # Inside the set first, there the fullest gap that holds it, else the largest and go on; then anywhere.
        for group in (chosen, [each for each in range(len(free)) if each not in chosen]):
            while amount > 0 and (left := [each for each in group if free[each][row] > 0]):
                holding = [each for each in left if free[each][row] >= amount]
                cell = min(holding, key=lambda c: free[c][row]) if holding else max(left, key=lambda c: free[c][row])
                taken = min(amount, free[cell][row])
                free[cell][row] -= taken
                amount -= taken
        if amount > 0:
            free[0][row] -= amount
    return cells.with_free(free), admitted


def _merged(cells: Cells, asked: Sequence[tuple[int, int]]) -> tuple[tuple[int, ...], bool]:
    """(the set of NUMA nodes that the hints of all amounts lead to, whether all of them prefer it).

    The smallest set that all prefer, of these the first as the kubelet numbers them; where there is none, the smallest
    that holds all amounts, else all NUMA nodes.
    """
    count = len(cells.free)
    # Of one size the kubelet takes the lowest bit mask: nodes 1 and 2 come before 0 and 3.
    sets = [each for size in range(1, count + 1) for each in sorted(combinations(range(count), size), key=_mask)]
    least = [
        next((len(each) for each in sets if sum(cells.total[cell][row] for cell in each) >= amount), count + 1)
        for row, amount in asked
    ]
    smallest: tuple[int, ...] | None = None
    for each in sets:
        if all(sum(cells.free[cell][row] for cell in each) >= amount for row, amount in asked):
            if all(len(each) == size for size in least):
                return each, True
            smallest = smallest or each
    return smallest or tuple(range(count)), False


def _mask(numbers: tuple[int, ...]) -> int:
    return sum(1 << number for number in numbers)
