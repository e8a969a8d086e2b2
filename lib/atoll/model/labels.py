"""Labels and expressions on them, with all checks of Kubernetes.

`selectors` reads what an API server has checked already and is lenient.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LONGEST_PREFIX = 253
_INTEGER = re.compile(r"[+-]?[0-9]+")
_VALUES = {
    "In": "at least one value",
    "NotIn": "at least one value",
    "Exists": "no values",
    "DoesNotExist": "no values",
    "Gt": "exactly one value",
    "Lt": "exactly one value",
}
"""Operator -> how many values it takes."""


class SelectorError(ValueError):
    """It is no selector; the message names the wrong part, and a right form."""


def check_key(key: str) -> None:
    """Refuse text that is no key of a label.

    Raises:
        SelectorError: saying what a key looks like.
    """
    prefix, slash, name = key.rpartition("/")
    well = bool(_NAME.fullmatch(name)) and (not slash or (bool(_PREFIX.fullmatch(prefix))))
    if not well or len(prefix) > _LONGEST_PREFIX:
        raise SelectorError(
            f"{key!r} is no key of a label: [prefix/]name, the name of at most 63 letters, digits, '-', '_' and '.', "
            "the prefix a DNS name"
        )


def check_value(key: str, value: str) -> None:
    """Refuse text that is no value of a label.

    Raises:
        SelectorError: saying what a value looks like.
    """
    if not _VALUE.fullmatch(value):
        raise SelectorError(
            f"{key}: {value!r} is no value of a label: at most 63 letters, digits, '-', '_' and '.', "
            "beginning and ending with a letter or digit, or nothing"
        )


def check_expression(expression: Mapping[str, Any]) -> None:
    """Refuse an expression of a node selector that Kubernetes would not take.

    Raises:
        SelectorError: the key or a value is no label's, or the operator takes another number of values.
    """
    key, operator, values = expression.get("key", ""), expression.get("operator"), expression.get("values") or []
    if operator not in _VALUES:
        raise SelectorError(f"{key}: unknown operator {operator!r}; there are {', '.join(_VALUES)}")
    check_key(key)
    fits = {"at least one value": bool(values), "no values": not values, "exactly one value": len(values) == 1}
    if not fits[_VALUES[operator]]:
        raise SelectorError(f"{key}: {operator} needs {_VALUES[operator]}")
    if operator in ("Gt", "Lt") and int64(values[0]) is None:
        raise SelectorError(f"{key}: {operator} needs an integer of 64 bits, not {values[0]!r}")
    for value in values:
        check_value(key, value)


def int64(text: str) -> int | None:
    """The integer that a text is, None where it is none or needs more than 64 bits."""
    if not _INTEGER.fullmatch(text):
        return None
    value = int(text)
    return value if -(2**63) <= value < 2**63 else None
