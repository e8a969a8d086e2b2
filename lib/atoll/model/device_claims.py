"""DeviceClasses, ResourceClaims and their templates (resource.k8s.io/v1): requests for devices, read once.

The API server has checked shapes and bounds: at most 32 requests, constraints and results a claim, 8 alternatives a
request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from atoll.model import keys
from atoll.model.devices import Toleration

Json = Mapping[str, Any]
MOST_RESULTS: Final = 32
"""Devices that one claim may have."""


CLASS_SUFFIX: Final = ".deviceclass.resource.k8s.io/devices"
"""Of the resource names by which Kubernetes' quotas count devices of a class."""


class UnsupportedClaim(ValueError):
    """A claim or class asks in a way that this version does not know; the message names the place."""


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """Devices that an administrator gives one name."""

    name: str
    selectors: tuple[str, ...] = ()
    """CEL expressions; all must match."""
    config: tuple[Json, ...] = ()
    extended_resource: str = ""
    """The resource name by which pods may ask for the class without a claim, as `keys.CLASS_BY_RESOURCE` allows: quotas
    by class do not count it.
    """

    @classmethod
    def of(cls, raw: Json) -> DeviceClass:
        """Read one.

        Raises:
            UnsupportedClaim: a selector is not in CEL.
        """
        name, spec = raw["metadata"]["name"], raw.get("spec") or {}
        counted = (raw["metadata"].get("annotations") or {}).get(keys.CLASS_BY_RESOURCE) == "counted"
        return cls(
            name,
            _selectors(spec, f"class {name}"),
            tuple(spec.get("config") or ()),
            (spec.get("extendedResourceName") or "") if counted else "",
        )


def by_resource(classes: Mapping[str, DeviceClass]) -> dict[str, str]:
    """Resource by which pods may ask for devices without a claim -> class."""
    return {each.extended_resource: name for name, each in sorted(classes.items()) if each.extended_resource}


def class_resource(name: str) -> str:
    """The resource that stands for devices of a class, in quotas and figures of members."""
    return f"{name}{CLASS_SUFFIX}"


@dataclass(frozen=True, slots=True)
class Wish:
    """One way to satisfy a request; several of a `firstAvailable`, the preferred one first."""

    name: str
    """`request`, or `request/alternative`."""
    device_class: str
    selectors: tuple[str, ...] = ()
    count: int | None = 1
    """None for all that match (allocationMode All)."""
    admin: bool = False
    """Whether devices in use are given as well, to look after them."""
    tolerations: tuple[Toleration, ...] = ()
    capacity: tuple[tuple[str, str], ...] = ()
    """Names and quantities that a share must have."""
    raw_tolerations: tuple[Json, ...] = ()
    stated: int | None = None
    """Of all that match, their number as the claim states it; a node with another number does not serve."""

    @property
    def number(self) -> int | None:
        """Devices that it is charged; None where that is not stated."""
        return self.stated if self.count is None else self.count


@dataclass(frozen=True, slots=True)
class Request:
    """Devices that serve one purpose."""

    name: str
    wishes: tuple[Wish, ...]


@dataclass(frozen=True, slots=True)
class Constraint:
    """Over the devices of several requests; over all where none is named."""

    requests: tuple[str, ...]
    attribute: str
    distinct: bool = False
    """Whether values must differ; else they must be the same."""

    def applies(self, wish: Wish) -> bool:
        """A constraint names a request, or one alternative of it."""
        return not self.requests or wish.name in self.requests or wish.name.split("/")[0] in self.requests


@dataclass(frozen=True, slots=True)
class Claim:
    """A ResourceClaim, or what a ResourceClaimTemplate makes."""

    name: str
    requests: tuple[Request, ...]
    constraints: tuple[Constraint, ...] = ()
    config: tuple[Json, ...] = ()

    @classmethod
    def of(cls, raw: Json) -> Claim:
        """Read a claim or a template.

        Raises:
            UnsupportedClaim: it uses fields that are not known here.
        """
        name, devices = raw["metadata"]["name"], stated(raw).get("devices") or {}
        return cls(
            name,
            tuple(_request(each, name) for each in devices.get("requests") or ()),
            tuple(_constraint(each, name) for each in devices.get("constraints") or ()),
            tuple(devices.get("config") or ()),
        )


def charge(claim: Claim) -> dict[str, int]:
    """Devices by class that a claim is charged: of alternatives the most of each class, as Kubernetes' quotas count.

    Raises:
        UnsupportedClaim: it asks for all devices and does not state their number.
    """
    found: dict[str, int] = {}
    for request in claim.requests:
        most: dict[str, int] = {}
        for wish in request.wishes:
            if wish.admin:
                continue
            if wish.number is None:
                raise UnsupportedClaim(
                    f"claim {claim.name}, request {wish.name}: allocationMode All is charged by the number that"
                    f' annotation {keys.ALL_DEVICES} states: write `{keys.ALL_DEVICES}: "8"`, or {wish.name}=8 for'
                    " this request, where a node has 8, into metadata.annotations of a ResourceClaim, or"
                    " spec.metadata.annotations of a ResourceClaimTemplate"
                )
            most[wish.device_class] = max(wish.number, most.get(wish.device_class, 0))
        for name, count in most.items():
            found[class_resource(name)] = found.get(class_resource(name), 0) + count
    return found


def stated(raw: Json) -> Json:
    """The spec of a claim, or of the claims that a template makes; `count` of each request for all devices is the
    number that `keys.ALL_DEVICES` states. The API server admits no count there.

    Raises:
        UnsupportedClaim: the annotation can't be read, or states a number that no request has.
    """
    spec: Json = raw.get("spec") or {}
    metadata: Json = raw["metadata"]
    if "spec" in spec:
        metadata, spec = {**(spec.get("metadata") or {}), "name": metadata["name"]}, spec["spec"] or {}
    text = (metadata.get("annotations") or {}).get(keys.ALL_DEVICES)
    if text is None:
        return spec
    where = f"claim {metadata['name']}: annotation {keys.ALL_DEVICES}"
    numbers = _numbers(text, where)
    devices = spec.get("devices") or {}
    unused = set(numbers)
    requests = [_with_number(each, numbers, unused) for each in devices.get("requests") or ()]
    if unused:
        names = ", ".join(sorted(filter(None, unused))) or "any request"
        raise UnsupportedClaim(f"{where} names {names}, without allocationMode All")
    return {**spec, "devices": {**devices, "requests": requests}}


def _numbers(text: str, where: str) -> dict[str, int]:
    """By name of a request or alternative; with an empty name for all."""
    found: dict[str, int] = {}
    for part in text.split(","):
        name, _, number = part.strip().rpartition("=")
        if not re.fullmatch(r"[1-9]\d?", number, re.ASCII) or int(number) > MOST_RESULTS or name in found:
            raise UnsupportedClaim(
                f"{where}: {text[:80]!r} is neither a number from 1 to {MOST_RESULTS}, nor such numbers by request:"
                " gpu=8,nic=4"
            )
        found[name] = int(number)
    return found


def _with_number(request: Json, numbers: Mapping[str, int], unused: set[str]) -> Json:
    """The request with its numbers, which leave `unused`."""
    name = request["name"]

    def way(raw: Json, own: str) -> Json:
        key = own if own in numbers else ""
        if raw.get("allocationMode") != "All" or key not in numbers:
            return raw
        unused.discard(key)
        return {**raw, "count": numbers[key]}

    if alternatives := request.get("firstAvailable"):
        return {**request, "firstAvailable": [way(each, f"{name}/{each['name']}") for each in alternatives]}
    return {**request, "exactly": way(request["exactly"], name)} if request.get("exactly") else request


def _request(raw: Json, claim: str) -> Request:
    name = raw["name"]
    if alternatives := raw.get("firstAvailable"):
        return Request(name, tuple(_wish(each, f"{name}/{each['name']}", claim) for each in alternatives))
    if not raw.get("exactly"):
        raise UnsupportedClaim(f"claim {claim}, request {name}: neither exactly nor firstAvailable")
    return Request(name, (_wish(raw["exactly"], name, claim),))


def _wish(raw: Json, name: str, claim: str) -> Wish:
    where = f"claim {claim}, request {name}"
    mode = raw.get("allocationMode") or "ExactCount"
    if mode not in ("ExactCount", "All"):
        raise UnsupportedClaim(f"{where}: unknown allocation mode {mode}")
    if not raw.get("deviceClassName"):
        raise UnsupportedClaim(f"{where}: no device class")
    tolerations = tuple(raw.get("tolerations") or ())
    return Wish(
        name,
        raw["deviceClassName"],
        _selectors(raw, where),
        None if mode == "All" else raw.get("count") or 1,
        bool(raw.get("adminAccess")),
        tuple(map(Toleration.of, tolerations)),
        tuple(sorted(((raw.get("capacity") or {}).get("requests") or {}).items())),
        tolerations,
        raw.get("count") if mode == "All" else None,
    )


def _selectors(raw: Json, where: str) -> tuple[str, ...]:
    found = []
    for number, each in enumerate(raw.get("selectors") or ()):
        if not each.get("cel"):
            raise UnsupportedClaim(f"{where}, selector {number}: not in CEL")
        found.append(each["cel"]["expression"])
    return tuple(found)


def _constraint(raw: Json, claim: str) -> Constraint:
    requests = tuple(raw.get("requests") or ())
    if raw.get("matchAttribute"):
        return Constraint(requests, raw["matchAttribute"])
    if raw.get("distinctAttribute"):
        return Constraint(requests, raw["distinctAttribute"], distinct=True)
    raise UnsupportedClaim(f"claim {claim}: a constraint of an unknown kind")
