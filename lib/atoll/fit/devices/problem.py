"""The claims of a pod beside the pools of a node: which devices could serve which request, whoever has them now.

It depends on slices, classes and claims alone, so that it is made once and solved as often as devices come free.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from atoll.fit.devices.sharing import consumption
from atoll.model.device_claims import Claim, Constraint, DeviceClass, Request, Wish
from atoll.model.devices import Device, Pool
from atoll.model.labels import SelectorError

Members = frozenset[tuple[str, bool | int | str]]
"""Values of an attribute, with their type."""


class DevicesError(Exception):
    """No allocation; `None` of them says that devices are in use."""


class ClaimError(DevicesError):
    """A claim or class is wrong wherever the pod goes: Kubernetes gives up on the pod."""


class SelectionError(ValueError):
    """A selector that is no CEL, or that fails on a device."""


Selects = Callable[[str, Device], bool]
"""Whether a CEL expression selects a device; raises SelectionError where there is no answer."""


@dataclass(frozen=True, slots=True, eq=False)
class Option:
    """A device that may serve a wish."""

    number: int
    """In `Problem.devices`."""
    device: Device
    amounts: Mapping[str, str] | None = None
    """Quantities that a share consumes; None where the device is given as a whole."""
    tainted: bool = False
    """Whether a taint keeps it from this wish."""
    fault: str = ""
    """Why there is no answer whether it serves; trying it ends in an error."""


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """One way to satisfy a request, with its devices in the order in which they are tried."""

    claim: int
    wish: Wish
    options: tuple[Option, ...]
    constraints: tuple[int, ...]
    """In `Problem.constraints`."""
    unequal: str = ""
    """Why not all devices are given: their number is not the stated one. There are no options then."""


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Requests of all claims one after the other, each with its ways."""

    claims: Sequence[Claim]
    classes: Mapping[str, DeviceClass]
    pools: Sequence[Pool]
    devices: Sequence[Device]
    """Of all usable pools."""
    pool_of: Sequence[int]
    """Per device, its pool."""
    requests: Sequence[Sequence[Ask]]
    claim_of: Sequence[int]
    """Per request, its claim."""
    constraints: Sequence[Constraint]
    """Of all claims."""
    values: Sequence[Sequence[Members | None]]
    """Per constraint and device: the values of its attribute, None where the device lacks it."""
    kinds: Sequence[int]
    """Per device: equal numbers mean that either serves as well as the other. By order of appearance."""
    shape: object
    """Equal where all but names of devices is: one node's solution by numbers is the other's."""
    certain: bool
    """Whether no order of trying can end in an error."""


def prepare(
    claims: Sequence[Claim], pools: Sequence[Pool], classes: Mapping[str, DeviceClass], selects: Selects,
    node: str, labels: Mapping[str, str],
) -> Problem:  # fmt: skip
    """What allocation searches.

    Raises:
        ClaimError: a claim can be allocated nowhere.
    """
    return _Preparation(claims, pools, classes, selects, node, labels).problem()


class _Preparation:
    def __init__(
        self, claims: Sequence[Claim], pools: Sequence[Pool], classes: Mapping[str, DeviceClass], selects: Selects,
        node: str, labels: Mapping[str, str],
    ) -> None:  # fmt: skip
        self._claims, self._pools, self._classes, self._selects = claims, pools, classes, selects
        self._node, self._labels = node, labels
        usable = [(number, device) for number, pool in enumerate(pools) if pool.usable for device in pool.devices]
        self._devices = [device for _, device in usable]
        self._pool_of = [number for number, _ in usable]
        self._constraints: list[Constraint] = []
        self._known: dict[object, tuple[Option, ...]] = {}

    def problem(self) -> Problem:
        requests: list[tuple[Ask, ...]] = []
        claim_of: list[int] = []
        for number, claim in enumerate(self._claims):
            first = len(self._constraints)
            self._constraints += claim.constraints
            for request in claim.requests:
                requests.append(tuple(self._ask(number, wish, first) for wish in request.wishes))
                claim_of.append(number)
        rows = {
            name: [_members(device, name) for device in self._devices]
            for name in dict.fromkeys(each.attribute for each in self._constraints)
        }
        asks = [ask for request in requests for ask in request]
        keys = self._keys(asks, list(rows.values()))
        known: dict[object, int] = {}
        return Problem(
            self._claims, self._classes, self._pools, self._devices, self._pool_of, requests, claim_of,
            self._constraints, [rows[each.attribute] for each in self._constraints],
            kinds=[known.setdefault(key, len(known)) for key in keys],
            shape=(
                tuple(keys), tuple(self._pool_of), tuple(frozenset(pool.counters.items()) for pool in self._pools),
                tuple((claim.name, *map(_asked, claim.requests), *claim.constraints) for claim in self._claims),
                tuple(ask.unequal for ask in asks),
            ),
            certain=not any(
                (ask.wish.count is None and ask.constraints) or any(option.fault for option in ask.options)
                for ask in asks
            ),
        )  # fmt: skip

    def _ask(self, claim: int, wish: Wish, first: int) -> Ask:
        where = f"claim {self._claims[claim].name}, request {wish.name}"
        if wish.device_class not in self._classes:
            raise ClaimError(f"{where}: no device class {wish.device_class}")
        if wish.count is None and (pool := next((each for each in self._pools if not each.usable), None)):
            why = pool.problem or "slices of it are missing"
            raise ClaimError(f"{where}: asks for all devices; pool {pool.driver}/{pool.name}: {why}")
        options = self._options(wish)
        if wish.count is None and (fault := next((each.fault for each in options if each.fault), "")):
            raise ClaimError(f"{where}: {fault}")
        constraints = self._claims[claim].constraints
        applying = tuple(first + number for number, each in enumerate(constraints) if each.applies(wish))
        if wish.stated not in (None, len(options)):
            unequal = f"{where}: {len(options)} devices match, and the claim states {wish.stated}"
            return Ask(claim, wish, (), applying, unequal)
        return Ask(claim, wish, options, applying)

    def _options(self, wish: Wish) -> tuple[Option, ...]:
        """Requests that differ in name or count alone have the same ones."""
        key = (wish.device_class, wish.selectors, wish.capacity, wish.tolerations, wish.count is None)
        if key not in self._known:
            self._known[key] = tuple(filter(None, (self._option(wish, *each) for each in enumerate(self._devices))))
        return self._known[key]

    def _option(self, wish: Wish, number: int, device: Device) -> Option | None:
        try:
            if not self._selected(device, (*self._classes[wish.device_class].selectors, *wish.selectors)):
                return None
        except (SelectionError, SelectorError) as error:
            return Option(number, device, fault=str(error))
        amounts = consumption(dict(wish.capacity), device.capacity)
        tainted = any(
            taint.prevents and not any(each.tolerates(taint) for each in wish.tolerations) for taint in device.taints
        )
        # One of all devices is asked for though it is tainted: none is given then.
        if amounts is None or (tainted and wish.count is not None):
            return None
        return Option(number, device, amounts if device.shared else None, tainted)

    def _selected(self, device: Device, expressions: Sequence[str]) -> bool:
        return all(self._selects(each, device) for each in expressions) and (
            not device.own_nodes or device.nodes.include(self._node, self._labels)
        )

    def _keys(self, asks: Sequence[Ask], rows: Sequence[Sequence[Members | None]]) -> list[object]:
        """Per device, all that allocation looks at; `rows` has its values of each attribute of a constraint."""
        serves: list[list[object]] = [[] for _ in self._devices]
        for number, ask in enumerate(asks):
            for option in ask.options:
                serves[option.number].append((number, option.tainted, option.fault))
        # Values by order of appearance: nodes whose PCIe roots have other names get equal keys.
        named: list[dict[object, int]] = [{} for _ in rows]
        return [
            (
                tuple(serves[number]),
                tuple(
                    tuple(names.setdefault(each, len(names)) for each in sorted(row[number] or ()))
                    for names, row in zip(named, rows, strict=True)
                ),
                (self._pool_of[number], frozenset(device.counters.items())) if device.counters else None,
                frozenset(device.capacity.items()) if device.shared else None,
            )
            for number, device in enumerate(self._devices)
        ]


def _asked(request: Request) -> tuple[object, ...]:
    """What of it decides which of the devices that could serve it are given."""
    return tuple((wish.name, wish.device_class, wish.count, wish.admin, wish.capacity) for wish in request.wishes)


def _members(device: Device, attribute: str) -> Members | None:
    found = device.attribute(attribute)
    return (found.members or None) if found is not None else None
