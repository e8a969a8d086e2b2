"""Operators and conversions of numbers, text and bytes, with the bounds of 64 bits."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from atoll.cel.declarations import declare, per_length
from atoll.cel.syntax import UInt
from atoll.cel.types import Type
from atoll.cel.values import Meter, equal, kind

_INT, _UINT = range(-(2**63), 2**63), range(2**64)
_ORDERED = ("bool", "int", "uint", "double", "string", "bytes", "timestamp", "duration")
_NUMBERS = ("int", "uint", "double")


def whole(value: int) -> int:
    """The integer, if 64 bits hold it."""
    if value not in _INT:
        raise ValueError("the integer is beyond 64 bits")
    return value


def unsigned(value: int) -> UInt:
    """The unsigned integer, if 64 bits hold it."""
    if value not in _UINT:
        raise ValueError("the unsigned integer is beyond 64 bits")
    return UInt(value)


def _divide(left: int, right: int) -> int:
    if right == 0:
        raise ValueError("division by zero")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _remainder(left: int, right: int) -> int:
    return left - right * _divide(left, right)


def _divide_doubles(left: float, right: float) -> float:
    if right:
        return left / right
    return math.nan if left == 0 or math.isnan(left) else math.copysign(math.inf, left) * math.copysign(1, right)


def _parse_int(text: str) -> int:
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"{text[:64]!r} is no integer")
    # A number of thousands of digits would be read for long, or not at all.
    return int(text) if len(digits.lstrip("0")) <= 20 else 2**64


def _parse_double(text: str) -> float:
    if not text.isascii() or "_" in text or text != text.strip():
        raise ValueError(f"{text[:64]!r} is no number")
    number = float(text)
    if math.isinf(number) and "inf" not in text.lower():
        raise ValueError(f"{text[:64]!r} is beyond 64 bits")
    return number


def _truncate(number: float) -> int:
    if not math.isfinite(number):
        raise ValueError(f"{number} is no integer")
    return int(number)


def _int_of_double(number: float) -> int:
    value = _truncate(number)
    # Upstream refuses the bounds themselves, where a double can't tell them from what lies beyond.
    if not -(2**63) < value < 2**63 - 1:
        raise ValueError("the integer is beyond 64 bits")
    return value


def _parse_bool(text: str) -> bool:
    if text in ("1", "t", "T", "true", "TRUE", "True"):
        return True
    if text in ("0", "f", "F", "false", "FALSE", "False"):
        return False
    raise ValueError(f"{text[:64]!r} is no bool")


def text_of_double(number: float) -> str:
    """A double as Go prints it: an exponent below 10^-4 and from 10^21 on."""
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else "+Inf" if number > 0 else "-Inf"
    digits = repr(number)
    mantissa, _, exponent = digits.partition("e")
    if not exponent and (abs(number) >= 1e-4 or number == 0) and abs(number) < 1e21:
        return digits.removesuffix(".0")
    if exponent and 1e-4 <= abs(number) < 1e21:
        return f"{number:.0f}"
    sign = "-" if int(exponent or 0) < 0 else "+"
    return f"{mantissa.removesuffix('.0')}e{sign}{abs(int(exponent)):02}"


def _in_order(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def ordered(left: Any, right: Any) -> bool:
        if left != left or right != right:
            raise ValueError("NaN has no order")
        return compare(left, right)

    return ordered


def _contains(meter: Meter, element: Any, values: tuple[Any, ...]) -> bool:
    return any(equal(meter, each, element) for each in values)


def _together(meter: Meter, left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
    meter.toil(len(left) + len(right))
    return left + right


def _shorter(args: Any) -> int:
    return math.ceil(min(len(args[0]), len(args[1])) * 0.1)


for _mark, _compare in (("<", operator.lt), ("<=", operator.le), (">", operator.gt), (">=", operator.ge)):
    for _type in _ORDERED:
        declare(
            f"_{_mark}_",
            f"{_type}, {_type}",
            "bool",
            _in_order(_compare),
            _shorter if _type in ("string", "bytes") else 1,
        )
    for _type in _NUMBERS:
        for _other in _NUMBERS:
            if _type != _other:
                declare(f"_{_mark}_", f"{_type}, {_other}", "bool", _in_order(_compare))
# The order of overloads is upstream's: the first one gives a free variable its type, as in `[].map(x, x + x)`.
declare("_+_", "bytes, bytes", "bytes", operator.add, per_length(0.1, 0, 1))
for _mark, _run in (("+", operator.add), ("-", operator.sub), ("*", operator.mul)):
    declare(f"_{_mark}_", "double, double", "double", _run)
    declare(f"_{_mark}_", "int, int", "int", lambda left, right, run=_run: whole(run(left, right)))
    declare(f"_{_mark}_", "uint, uint", "uint", lambda left, right, run=_run: unsigned(run(int(left), int(right))))
declare("_+_", "list(A), list(A)", "list(A)", _together, metered=True)
declare("_+_", "string, string", "string", operator.add, per_length(0.1, 0, 1))
declare("_/_", "double, double", "double", _divide_doubles)
declare("_/_", "int, int", "int", lambda left, right: whole(_divide(left, right)))
declare("_/_", "uint, uint", "uint", lambda left, right: UInt(_divide(left, right)))
declare("_%_", "int, int", "int", _remainder)
declare("_%_", "uint, uint", "uint", lambda left, right: UInt(_remainder(int(left), int(right))))
declare("-_", "double", "double", operator.neg)
declare("-_", "int", "int", lambda value: whole(-value))
declare("!_", "bool", "bool", operator.not_)
declare("@in", "A, list(A)", "bool", _contains, lambda args: len(args[1]), metered=True)
declare("@in", "A, map(A, B)", "bool", lambda key, value: value.contains(key))
for _name in ("size", ".size"):
    declare(_name, "bytes", "int", len)
    declare(_name, "list(A)", "int", len)
    declare(_name, "map(A, B)", "int", lambda value: len(value.data))
    declare(_name, "string", "int", len)

declare("type", "A", "type(A)", lambda value: Type(kind(value)))
declare("dyn", "A", "dyn", lambda value: value)
for _type in ("bool", "bytes", "double", "int", "uint", "string"):
    declare(_type, _type, _type, lambda value: value)
declare("bool", "string", "bool", _parse_bool)
declare("bytes", "string", "bytes", str.encode, per_length(0.1, 0))
declare("double", "int", "double", float)
declare("double", "uint", "double", float)
declare("double", "string", "double", _parse_double)
declare("int", "uint", "int", lambda value: whole(int(value)))
declare("int", "double", "int", _int_of_double)
declare("int", "string", "int", lambda text: whole(_parse_int(text)))
declare("uint", "int", "uint", unsigned)
declare("uint", "double", "uint", lambda number: unsigned(_truncate(number)))
declare("uint", "string", "uint", lambda text: unsigned(_parse_int(text if text[:1] not in ("+", "-") else "")))
declare("string", "bool", "string", lambda value: str(value).lower())
declare("string", "bytes", "string", bytes.decode, per_length(0.1, 0))
declare("string", "double", "string", text_of_double)
declare("string", "int", "string", str)
declare("string", "uint", "string", str)
