"""Cases of Kubernetes' own library: quantities, and what labels and taints match."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from atoll.fit import Profile
from atoll.fit.scores import node_affinity as preferred
from atoll.model import labels, node_affinity, quantity, selectors
from atoll.model.gang import Task
from tests.conformance.interpreter import NotCompared

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
    """Cases of `matching`, by the functions that filter and score nodes, and that select pods, namespaces and devices.

    Raises:
        NotCompared: the API server answers before Atoll does.
    """
    expect = case["expect"]
    if case["op"] == "selectorString":
        raise NotCompared("selectors in text: the API server reads them")
    if "error" in expect and case["op"] != "nodeSelector":
        raise NotCompared("what the API server refuses, Atoll never reads")
    found = _matched(case)
    return [
        f"{name}: {value}, expected {expect.get(name)}" for name, value in found.items() if expect.get(name) != value
    ]


def _matched(case: Json) -> Json:
    match case["op"]:
        case "labelSelector":
            return {"matches": selectors.label_selector_matches(case["selector"], case["labels"])}
        case "nodeSelector":
            terms = case["nodeSelector"]["nodeSelectorTerms"]
            try:
                return {"matches": node_affinity.selects(terms, *_node(case))}
            except labels.SelectorError:
                assert "error" in case["expect"], "upstream takes it"
                return {"matches": False}
        case "requiredNodeAffinity":
            spec = case["podSpec"]
            task = Task("", 1, 1, {}, spec.get("nodeSelector") or {}, selectors.required_node_terms(spec))
            node, name = _node(case)
            return {"matches": Profile(node).accepts(task, name)}
        case "preferredNodeAffinity":
            return {"score": preferred.weight(case["terms"], *_node(case))}
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
