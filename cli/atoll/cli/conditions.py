"""Conditions of objects, as Kubernetes has them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Json = dict[str, Any]


def condition(item: Json, type_: str) -> Json:
    """The condition of this type; empty where there is none."""
    conditions: Iterable[Json] = (item.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each.get("type") == type_), {})


def is_true(found: Json) -> bool:
    """Whether a condition holds."""
    return found.get("status") == "True"
