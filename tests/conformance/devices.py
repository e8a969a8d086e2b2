"""Cases of Kubernetes' dynamic resource allocation: CEL selectors over a device."""

from __future__ import annotations

from typing import Any

from atoll import cel

Json = dict[str, Any]
_ANY_ORDER = {"cel-1503", "cel-1688"}
"""Their cost depends on the order in which upstream goes through a map, which is random."""


def selector(case: Json) -> list[str]:
    """Cases of `dra-cel` and `dra-cel-random`: answer or class of error, and the cost where the set pins it."""
    lists = bool((case.get("features") or {}).get("DRAListTypeAttributes"))
    device = cel.DeviceView(case["driver"], case["device"], list_attributes=lists)
    expect = case["expect"]
    wanted = expect["error"]["class"] if expect.get("error") else expect["matches"]
    found: bool | str
    try:
        found, cost = cel.compile(case["expression"], list_attributes=lists).evaluate(device)
    except cel.CompileError as error:
        return [] if wanted == "Compile" else [f"{error}, expected {wanted}"]
    except cel.EvaluationError as error:
        return [] if wanted == "Runtime" else [f"{error}, expected {wanted}"]
    if found is not wanted:
        return [f"{found}, expected {wanted}"]
    pinned = case["id"].startswith("cel-") and case["id"] not in _ANY_ORDER
    return [f"cost {cost}, expected {expect['cost']}"] if pinned and cost != expect["cost"] else []
