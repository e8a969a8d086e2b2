"""One model of devices, whoever publishes them: GPUs, NICs, parts of them, and the parts in use.

The terms are the terms of resource.k8s.io/v1. Importers turn the objects of each system into this model
(`resource_slices` reads DRA's); allocation reads nothing else. Amounts are exact fractions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final, NamedTuple

from atoll.model import quantity
from atoll.model.node_affinity import selects

Json = Mapping[str, Any]

_PREVENTING: Final = ("NoSchedule", "NoExecute")
"""Effects of taints that keep devices from claims; `None` and unknown ones don't."""


class DeviceId(NamedTuple):
    """A device of the cluster; its name is unique in its pool."""

    driver: str
    pool: str
    name: str

    def __str__(self) -> str:
        return "/".join(self)


class Attribute(NamedTuple):
    """Values of one type; several where the driver publishes a list."""

    type: str
    """bool, int, string or version."""
    values: tuple[bool | int | str, ...]
    is_list: bool = False

    @property
    def members(self) -> frozenset[tuple[str, bool | int | str]]:
        """The values with their type, so that 1, "1" and true differ."""
        return frozenset((self.type, value) for value in self.values)


class Taint(NamedTuple):
    """Of a device."""

    key: str
    value: str
    effect: str
    since: str = ""
    """RFC 3339; API servers set it, and it is empty where they did not."""

    @property
    def prevents(self) -> bool:
        """Whether only claims that tolerate it get the device."""
        return self.effect in _PREVENTING


class Toleration(NamedTuple):
    """Of a request."""

    key: str
    operator: str
    value: str
    effect: str
    seconds: int | None = None
    """For which a `NoExecute` taint is tolerated; None for any time."""

    @classmethod
    def of(cls, raw: Json) -> Toleration:
        """Read one."""
        key, operator, value, effect = (raw.get(each) or "" for each in ("key", "operator", "value", "effect"))
        return cls(key, operator, value, effect, raw.get("tolerationSeconds"))

    def tolerates(self, taint: Taint) -> bool:
        """An absent key or effect stands for all; an unknown operator tolerates nothing."""
        if (self.effect and self.effect != taint.effect) or (self.key and self.key != taint.key):
            return False
        return self.operator == "Exists" or (self.operator in ("", "Equal") and self.value == taint.value)


class Capacity(NamedTuple):
    """An amount of a device, and the amounts of it that one share may have; quantities as the driver wrote them."""

    value: str
    default: str | None = None
    valid_values: tuple[str, ...] = ()
    """Ascending."""
    minimum: str | None = None
    maximum: str | None = None
    step: str | None = None
    ranged: bool = False
    """Whether a range is given; its bounds may be absent."""


class Nodes(NamedTuple):
    """The nodes that reach a device: one of the three is set."""

    name: str | None = None
    everywhere: bool = False
    terms: tuple[Json, ...] | None = None
    """Of a node selector."""

    def include(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether a node is one of them.

        Raises:
            SelectorError: no term matches, and one is not readable.
        """
        if self.name is not None:
            return self.name == name
        return self.everywhere or (self.terms is not None and selects(self.terms, labels, name))


NOWHERE: Final = Nodes()
Counter = tuple[str, str]
"""A counter set and the name of a counter in it."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Device:
    """A device as its driver publishes it."""

    id: DeviceId
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    """By qualified name; names that the driver left unqualified have the driver's domain."""
    capacity: Mapping[str, Capacity] = field(default_factory=dict)
    """By the name that the driver wrote, by which claims ask for it."""
    counters: Mapping[Counter, Fraction] = field(default_factory=dict)
    """Amounts of the pool's shared counters that it consumes while it is allocated."""
    taints: tuple[Taint, ...] = ()
    shared: bool = False
    """Whether several claims may each have a part of its capacity (allowMultipleAllocations)."""
    nodes: Nodes = NOWHERE
    own_nodes: bool = False
    """Whether `nodes` is of the device itself and not of its whole slice (perDeviceNodeSelection)."""
    binds_to_node: bool = False
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()

    def attribute(self, name: str) -> Attribute | None:
        """By qualified name."""
        return self.attributes.get(name)

    @property
    def healthy(self) -> bool:
        """Whether no taint keeps it from claims: drivers and administrators taint broken devices."""
        return not any(taint.prevents for taint in self.taints)


@dataclass(frozen=True, slots=True)
class Pool:
    """The devices of one driver's pool that a node reaches, in the driver's order."""

    driver: str
    name: str
    devices: tuple[Device, ...] = ()
    elsewhere: tuple[Device, ...] = ()
    """Devices of the pool that the node does not reach: those in use consume counters all the same."""
    counters: Mapping[Counter, Fraction] = field(default_factory=dict)
    incomplete: bool = False
    """Whether slices are missing, as while a driver replaces them: none of its devices is allocated."""
    problem: str = ""
    """Why the pool is invalid: none of its devices is allocated."""

    @property
    def usable(self) -> bool:
        """Whether its devices may be allocated."""
        return not self.incomplete and not self.problem

    @property
    def waits_for_binding(self) -> bool:
        """Whether pods wait for conditions of devices of it; such pools are used last."""
        return any(device.binding_conditions for device in self.devices)


class Held(NamedTuple):
    """A device, or a share of one, that a claim holds."""

    device: DeviceId
    amounts: Mapping[str, Fraction] | None = None
    """Capacity that a share consumes; None of a whole device."""


def held_by(allocation: Json) -> list[Held]:
    """What the allocation of a ResourceClaim holds; access for administration holds nothing."""
    found = []
    for result in (allocation.get("devices") or {}).get("results") or ():
        if not result.get("adminAccess"):
            device = DeviceId(result["driver"], result["pool"], result["device"])
            amounts = {name: quantity.parse(each) for name, each in (result.get("consumedCapacity") or {}).items()}
            found.append(Held(device, amounts if result.get("shareID") else None))
    return found


class Taken:
    """Devices that claims hold, and capacity that shares of devices consume."""

    __slots__ = ("consumed", "devices")

    def __init__(
        self, devices: Iterable[DeviceId] = (), consumed: Mapping[DeviceId, Mapping[str, Fraction]] | None = None
    ) -> None:
        #: held as a whole
        self.devices = set(devices)
        #: by device and name of the capacity
        self.consumed = {device: dict(each) for device, each in (consumed or {}).items()}

    @classmethod
    def of(cls, claims: Iterable[Json]) -> Taken:
        """What the statuses of ResourceClaims hold."""
        found = cls()
        for claim in claims:
            found.hold_all(held_by((claim.get("status") or {}).get("allocation") or {}))
        return found

    def copy(self) -> Taken:
        """An independent one."""
        return Taken(self.devices, self.consumed)

    def holds(self, device: DeviceId) -> bool:
        """Whether a claim holds it, or a share of it."""
        return device in self.devices or device in self.consumed

    def hold(self, device: DeviceId, amounts: Mapping[str, Fraction] | None = None) -> None:
        """A claim gets a device, or these amounts of one."""
        if amounts is None:
            self.devices.add(device)
            return
        mine = self.consumed.setdefault(device, {})
        for name, amount in amounts.items():
            mine[name] = mine.get(name, Fraction()) + amount

    def hold_all(self, held: Iterable[Held]) -> None:
        """As `hold` of each."""
        for each in held:
            self.hold(*each)

    def release_all(self, held: Iterable[Held]) -> None:
        """As `release` of each."""
        for each in held:
            self.release(*each)

    def release(self, device: DeviceId, amounts: Mapping[str, Fraction] | None = None) -> None:
        """The inverse of `hold`; of a share the last one that is held."""
        if amounts is None:
            self.devices.discard(device)
            return
        mine = self.consumed.get(device, {})
        for name, amount in amounts.items():
            mine[name] = mine.get(name, Fraction()) - amount
        if not any(mine.values()):
            self.consumed.pop(device, None)
