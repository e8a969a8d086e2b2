"""Declarations of functions: signature, implementation and cost of each overload."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from atoll.cel.types import Type, parse_types
from atoll.cel.values import size

Cost = Callable[[Sequence[Any]], int]


@dataclass(frozen=True, slots=True, eq=False)
class Overload:
    """One signature of a function."""

    member: bool
    args: tuple[Type, ...]
    result: Type
    run: Callable[..., Any]
    cost: int | Cost
    #: The implementation takes the meter first, to charge for work that the sizes of its arguments don't bound.
    metered: bool


FUNCTIONS: dict[str, list[Overload]] = {}


def declare(
    name: str, args: str, result: str, run: Callable[..., Any], cost: int | Cost = 1, *, metered: bool = False
) -> None:
    """Add an overload; a name that begins with a dot is a method, and its first argument the receiver."""
    [type_] = parse_types(result)
    overload = Overload(name.startswith("."), parse_types(args), type_, run, cost, metered)
    FUNCTIONS.setdefault(name.lstrip("."), []).append(overload)


def per_length(factor: float, *which: int) -> Cost:
    """Cost by the sizes of some arguments, a tenth for each character as a rule."""
    return lambda args: math.ceil(sum(size(args[each]) for each in which) * factor)


def by_pattern(args: Sequence[Any]) -> int:
    """Cost of a regular expression: text times pattern."""
    return math.ceil((1 + size(args[0])) * 0.1) * math.ceil(size(args[1]) * 0.25)
