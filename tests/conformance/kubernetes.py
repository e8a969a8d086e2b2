"""Cases of Kubernetes' own library: quantities, and what labels and taints match."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from atoll.model import labels, node_affinity, quantity, selectors

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


def matching(case: Json) -> list[str]:
    """Cases of `matching`; of errors only whether there is one is compared."""
    expect = case["expect"]
    try:
        found = _matched(case)
    except ValueError as error:
        return [] if "error" in expect else [f"{error}, expected {expect}"]
    if "error" in expect and found.get("matches") is not True:
        return [f"{found}, expected an error: {expect['error']}"]
    return [
        f"{name}: {found.get(name)}, expected {value}" for name, value in expect.items() if found.get(name) != value
    ]


def _matched(case: Json) -> Json:
    match case["op"]:
        case "labelSelector" | "selectorString":
            read = labels.of_api if case["op"] == "labelSelector" else labels.parse
            selector = read(case["selector"])
            return {"matches": selector.matches(case["labels"]), "string": str(selector)}
        case "nodeSelector":
            return {
                "matches": node_affinity.node_selector(case["nodeSelector"]["nodeSelectorTerms"]).matches(*_node(case))
            }
        case "requiredNodeAffinity":
            return {"matches": node_affinity.required_affinity(case["podSpec"]).matches(*_node(case))}
        case "preferredNodeAffinity":
            return {"score": node_affinity.preferred_score(case["terms"], *_node(case))}
        case "tolerations":
            return _tolerated(case)
        case other:
            raise ValueError(f"unknown op {other!r}")


def _node(case: Json) -> tuple[dict[str, str], str]:
    return case["node"].get("labels") or {}, case["node"].get("name", "")


def _tolerated(case: Json) -> Json:
    taints, tolerations = case["taints"], case["tolerations"]
    compare = case["enableComparisonOperators"]
    first = selectors.untolerated(taints, tolerations, compare=compare)
    found: Json = {
        "toleratesTaint": [selectors.tolerated(taint, tolerations, compare=compare) for taint in taints],
        "untolerated": first is not None,
    }
    return found if first is None else {**found, "firstUntoleratedTaint": first}
