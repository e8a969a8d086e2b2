"""What a core still remembers, whatever its attributes are called."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import numpy as np

_CODE = (type, ModuleType, FunctionType, BuiltinFunctionType, CodeType, FrameType)
"""What belongs to the program, and not to what it was told."""


def reachable(thing: object) -> Iterator[Any]:
    """Every object that this one refers to, itself first, each once."""
    seen: set[int] = set()
    waiting: list[Any] = [thing]
    while waiting:
        each = waiting.pop()
        if id(each) in seen or isinstance(each, _CODE):
            continue
        seen.add(id(each))
        yield each
        waiting.extend(gc.get_referents(each))


def remembered(thing: object, names: Iterable[str]) -> list[str]:
    """Which of these names or UIDs are still somewhere in it."""
    wanted = set(names)
    return sorted(wanted.intersection(each for each in reachable(thing) if isinstance(each, str)))


def size(thing: object) -> int:
    """How many values its tables, lists, sets and arrays hold together."""
    return sum(
        each.size if isinstance(each, np.ndarray) else len(each)
        for each in reachable(thing)
        if isinstance(each, dict | list | set | frozenset | tuple | np.ndarray)
    )
