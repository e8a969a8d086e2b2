"""Functions of lists, sets and optional values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from atoll.cel.declarations import declare
from atoll.cel.numbers import unsigned, whole
from atoll.cel.syntax import UInt
from atoll.cel.values import NONE, Duration, Map, Meter, Optional, equal, kind, size

_COMPARABLE = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
_MOST_INCLUDED = 48
"""Kubernetes' bound of the values of one list attribute."""
List = tuple[Any, ...]


def _traversal(args: Sequence[Any]) -> int:
    # Of lists in the list only the size: lists that share their elements would be gone through without end.
    return sum(1 if size(each) == 1 and not isinstance(each, str) else size(each) // 10 for each in args[0])


def _alike(values: List) -> List:
    if len({kind(each) for each in values}) > 1:
        raise ValueError("the list is of mixed types")
    return values


def _sum(zero: Any, keep: Callable[[Any], Any]) -> Callable[[List], Any]:
    return lambda values: keep(
        sum(map(int, values)) if zero == 0 and not isinstance(zero, float) else sum(values, zero)
    )


def _extreme(choose: Callable[[List], Any]) -> Callable[[List], Any]:
    def extreme(values: List) -> Any:
        if not values:
            raise ValueError("the list is empty")
        return choose(_alike(values))

    return extreme


def _is_sorted(values: List) -> bool:
    _alike(values)
    return not any(left > right for left, right in pairwise(values))


def _index(meter: Meter, values: List, element: Any) -> int:
    return next((at for at, each in enumerate(values) if equal(meter, each, element)), -1)


def _last_index(meter: Meter, values: List, element: Any) -> int:
    return next((at for at in reversed(range(len(values))) if equal(meter, values[at], element)), -1)


def _distinct(meter: Meter, values: List) -> List:
    found: list[Any] = []
    for each in values:
        if not any(equal(meter, other, each) for other in found):
            found.append(each)
    return tuple(found)


def _flatten(meter: Meter, values: List, depth: int = 1) -> List:
    if depth < 0:
        raise ValueError("the depth must not be negative")
    found: list[Any] = []
    for each in values:
        found.extend(_flatten(meter, each, depth - 1) if isinstance(each, tuple) and depth else (each,))
    meter.toil(1 + len(found))
    return tuple(found)


def _slice(values: List, start: int, end: int) -> List:
    if not 0 <= start <= end <= len(values):
        raise ValueError(f"a list of {len(values)} has no part from {start} to {end}")
    return values[start:end]


def _includes(meter: Meter, target: Any, element: Any) -> bool:
    if not isinstance(target, tuple):
        return equal(meter, target, element)
    if any(equal(meter, each, element) for each in target[:_MOST_INCLUDED]):
        return True
    if len(target) > _MOST_INCLUDED:
        raise ValueError(f"includes takes at most {_MOST_INCLUDED} values")
    return False


def _contains_all(meter: Meter, whole_list: List, part: List) -> bool:
    return all(any(equal(meter, each, other) for other in whole_list) for each in part)


def _equivalent(meter: Meter, left: List, right: List) -> bool:
    return _contains_all(meter, left, right) and _contains_all(meter, right, left)


def _intersects(meter: Meter, left: List, right: List) -> bool:
    return any(equal(meter, each, other) for each in left for other in right)


def _self_compare(args: Sequence[Any]) -> int:
    values = args[0]
    return 11 + int(len(values) ** 2 * (2.1 if values and isinstance(values[0], str | bytes) else 2))


def _each_with_each(args: Sequence[Any]) -> int:
    return 1 + len(args[0]) * len(args[1])


def _value(optional: Optional) -> Any:
    if not optional.present:
        raise ValueError("the optional value is absent")
    return optional.value


def _non_zero(value: Any) -> Optional:
    empty = not value.data if isinstance(value, Map) else not getattr(value, "nanos", value)
    return NONE if empty else Optional(True, value)


for _type in _COMPARABLE:
    declare(".isSorted", f"list({_type})", "bool", _is_sorted, _traversal)
    declare(".max", f"list({_type})", _type, _extreme(max), _traversal)
    declare(".min", f"list({_type})", _type, _extreme(min), _traversal)
    declare(".sort", f"list({_type})", f"list({_type})", lambda values: tuple(sorted(_alike(values))), _self_compare)
declare(".sum", "list(int)", "int", _sum(0, whole), _traversal)
declare(".sum", "list(uint)", "uint", _sum(UInt(0), unsigned), _traversal)
declare(".sum", "list(double)", "double", _sum(0.0, float), _traversal)
declare(
    ".sum", "list(duration)", "duration", lambda values: Duration(whole(sum(each.nanos for each in values))), _traversal
)  # fmt: skip
declare(".indexOf", "list(A), A", "int", _index, _traversal, metered=True)
declare(".lastIndexOf", "list(A), A", "int", _last_index, _traversal, metered=True)
declare(".distinct", "list(T)", "list(T)", _distinct, _self_compare, metered=True)
declare(".reverse", "list(T)", "list(T)", lambda values: values[::-1], lambda args: 11 + len(args[0]))
declare(".slice", "list(T), int, int", "list(T)", _slice, lambda args: 11 + max(0, args[2] - args[1]))
declare(".flatten", "list(list(T))", "list(T)", _flatten, lambda args: 11 + len(args[0]), metered=True)
declare(
    ".flatten", "list(dyn), int", "list(dyn)", _flatten, lambda args: 11 + len(args[0]) * max(0, args[1]), metered=True
)
declare("lists.range", "int", "list(int)", lambda count: tuple(range(count)), lambda args: 11 + max(0, args[0]))
declare(".includes", "dyn, dyn", "bool", _includes, metered=True)
declare("sets.contains", "list(T), list(T)", "bool", _contains_all, _each_with_each, metered=True)
declare(
    "sets.equivalent",
    "list(T), list(T)",
    "bool",
    _equivalent,
    lambda args: 1 + 2 * len(args[0]) * len(args[1]),
    metered=True,
)
declare("sets.intersects", "list(T), list(T)", "bool", _intersects, _each_with_each, metered=True)
declare("optional.of", "V", "optional(V)", lambda value: Optional(True, value))
declare("optional.ofNonZeroValue", "V", "optional(V)", _non_zero)
declare("optional.none", "", "optional(V)", lambda: NONE)
declare(".value", "optional(V)", "V", _value)
declare(".hasValue", "optional(V)", "bool", lambda optional: optional.present)
