"""Kubernetes quantities as exact integers.

Accounting must never drift, so quantities become integers at the edge: CPU in thousandths, everything else in whole
base units (bytes, devices, pods). The rounding is the caller's: requests round up, capacity rounds down, so that a
rounded comparison never claims room that is not there. Grammar: Kubernetes' documentation of `resource.Quantity`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

_SUFFIX: dict[str, Fraction] = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1),
    "k": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12),
    "P": Fraction(10**15), "E": Fraction(10**18),
    "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30), "Ti": Fraction(2**40),
    "Pi": Fraction(2**50), "Ei": Fraction(2**60),
}  # fmt: skip
_NANO = 10**9
_DIGITS = 64
"""More than any quantity has on either side of its point."""
_LARGEST = Fraction(2**63 - 1)
_QUANTITY = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:([eE][+-]?\d{1,9})|([numkMGTPE]|[KMGTPE]i)?)", re.ASCII)


class QuantityError(ValueError):
    """The text is not a Kubernetes quantity."""


def exact(text: str | int | float) -> Fraction:
    """What a quantity says, without the bounds of `parse`.

    Raises:
        QuantityError: not a quantity.
    """
    match = _QUANTITY.fullmatch(str(text))
    if match is None:
        raise QuantityError(f"{text!r} is not a quantity: use a number with an optional suffix, such as 500m, 2 or 8Gi")
    number, exponent, suffix = match.groups()
    if not exponent:
        return Fraction(Decimal(number)) * _SUFFIX[suffix or ""]
    # Beyond these any value but 0 is the largest or the smallest one, and its digits would fill the memory.
    bound = len(number) + _DIGITS
    return Fraction(Decimal(number)) * Fraction(10) ** max(-bound, min(int(exponent[1:]), bound))


@lru_cache(maxsize=65536)
def parse(text: str | int | float) -> Fraction:
    """The value of a quantity such as `100m`, `1.5Gi`, `2e3` or `8`.

    As in Kubernetes, digits beyond 10^-9 are rounded away from zero and nothing is larger than 2^63 - 1.

    Raises:
        QuantityError: not a quantity.
    """
    value = exact(text)
    if (value * _NANO).denominator > 1:
        nanos = math.ceil(value * _NANO) if value > 0 else math.floor(value * _NANO)
        value = Fraction(nanos, _NANO)
    return max(-_LARGEST, min(value, _LARGEST))


def is_device(resource: str) -> bool:
    """Whether it is an extended resource, such as nvidia.com/gpu."""
    domain, slash, _ = resource.partition("/")
    return bool(slash) and domain != "kubernetes.io" and not domain.endswith(".kubernetes.io")


def is_whole(resource: str, value: Fraction) -> bool:
    """Whether Kubernetes takes a pod that asks for so much: devices and pods are counted in whole numbers."""
    return value.denominator == 1 or not (is_device(resource) or resource == "pods")


def scale_of(resource: str) -> int:
    """Units per whole: CPU counts in thousandths, everything else in ones."""
    return 1000 if resource == "cpu" else 1


@lru_cache(maxsize=16384)
def ceil_units(resource: str, text: str | int | float) -> int:
    """A request in integer units of the resource, rounded up."""
    return -((-parse(text) * scale_of(resource)) // 1)


@lru_cache(maxsize=16384)
def floor_units(resource: str, text: str | int | float) -> int:
    """A capacity in integer units of the resource, rounded down."""
    return (parse(text) * scale_of(resource)) // 1


def requests(quantities: Mapping[str, str | int | float] | None) -> dict[str, int]:
    """A ResourceList of requests in integer units (rounded up)."""
    return {name: ceil_units(name, value) for name, value in (quantities or {}).items()}


def capacity(quantities: Mapping[str, str | int | float] | None) -> dict[str, int]:
    """A ResourceList of limits or free amounts in integer units (rounded down)."""
    return {name: floor_units(name, value) for name, value in (quantities or {}).items()}


def resource_list(text: str) -> dict[str, str]:
    """`cpu=64,nvidia.com/gpu=16` as a ResourceList.

    Raises:
        ValueError: not of that form, or not a quantity.
    """
    result: dict[str, str] = {}
    for part in filter(str.strip, text.split(",")):
        name, equals, amount = (piece.strip() for piece in part.partition("="))
        if not (name and equals and amount):
            raise ValueError(f"{part.strip()!r}: write resource=quantity, such as cpu=64,memory=1Ti")
        if name in result:
            raise ValueError(f"{name} is given twice")
        if parse(amount) < 0:
            raise ValueError(f"{name}={amount}: must not be negative")
        if not is_whole(name, parse(amount)):
            raise ValueError(f"{name}={amount}: is counted in whole numbers; use 1, 2, ...")
        result[name] = amount
    return result


def format_units(resource: str, value: int) -> str:
    """Integer units as a quantity that people read and that `parse` reads back to the same value."""
    if resource == "cpu":
        return str(value // 1000) if value % 1000 == 0 else f"{value}m"
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        for suffix in ("Ti", "Gi", "Mi", "Ki"):
            unit = int(_SUFFIX[suffix])
            if value and value % unit == 0:
                return f"{value // unit}{suffix}"
    return str(value)


def for_people(text: str) -> str:
    """A quantity as people write it: thousandths of ten and more as a decimal (`98981500m` is `98981.5`)."""
    if text.endswith("m") and text[:-1].isdigit() and len(text) > 5:
        whole, rest = divmod(int(text[:-1]), 1000)
        return f"{whole}.{rest:03}".rstrip("0").rstrip(".")
    return text
