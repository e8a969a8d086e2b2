"""Cases of Kubernetes' own library: quantities."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from atoll.model import quantity

Json = dict[str, Any]
_LARGEST = quantity.parse(2**63 - 1)
_DOUBTFUL = {"overflow", "no-digits", "value-bug", "milliValue-bug"}


def quantities(case: Json) -> list[str]:
    """Cases of `quantity`; results that upstream is known to have wrong are not compared, nor is spelling."""
    if _DOUBTFUL.intersection(case["tags"]):
        return []
    expect = case["expect"]
    if case["op"] == "parse":
        return _parsed(case["input"], expect)
    a = quantity.parse(case["a"])
    match case["op"]:
        case "cmp":
            b = quantity.parse(case["b"])
            found: Any = (a > b) - (a < b)
        case "add":
            found, expect = a + quantity.parse(case["b"]), quantity.parse(expect)
        case "sub":
            found, expect = a - quantity.parse(case["b"]), quantity.parse(expect)
        case "scaledValue":
            found = _away_from_zero(a / Fraction(10) ** case["scale"])
            if abs(found) >= 2**63:
                return []
        case "roundUp":
            unit = Fraction(10) ** case["scale"]
            found, expect = _away_from_zero(a / unit) * unit, quantity.parse(expect["canonical"])
    # What upstream prints may be above the largest that it reads.
    found = max(-_LARGEST, min(found, _LARGEST))
    return [] if found == expect else [f"{found}, expected {expect}"]


def _parsed(text: str, expect: Json) -> list[str]:
    try:
        value = quantity.parse(text)
    except quantity.QuantityError as error:
        return [] if "error" in expect else [f"{error}, expected {expect}"]
    if "error" in expect:
        return [f"{value}, expected an error: {expect['error']}"]
    found: Json = {
        "value": _away_from_zero(value),
        "milliValue": _away_from_zero(value * 1000),
        "sign": (value > 0) - (value < 0),
        "isZero": value == 0,
        "canonical": value,
    }
    if abs(found["milliValue"]) >= 2**63:
        # Upstream's integer wraps.
        del found["milliValue"]
    wanted = {**{name: expect[name] for name in found}, "canonical": quantity.parse(expect["canonical"])}
    return [f"{name}: {found[name]}, expected {wanted[name]}" for name in found if found[name] != wanted[name]]


def _away_from_zero(value: Fraction) -> int:
    return math.ceil(value) if value >= 0 else math.floor(value)
