"""JSON patches (RFC 6902) as API servers carry them out: add, remove and replace.

The parent of a place must exist; so must a removed or replaced value. A negative index counts from the end.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class PatchError(ValueError):
    """An operation can't be carried out; the message says which and why."""


class Operation(NamedTuple):
    """One step of a patch."""

    op: str
    path: str
    value: Any = None


def steps(pointer: str) -> list[str]:
    """The parts of a JSON pointer (RFC 6901); none for the whole document.

    Raises:
        PatchError: it does not begin with a slash.
    """
    if pointer and not pointer.startswith("/"):
        raise PatchError(f"path {pointer!r} does not begin with a slash")
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def pointer(parts: Iterable[str | int]) -> str:
    """The JSON pointer of these parts."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def get(document: Any, path: str) -> Any:
    """What a pointer leads to.

    Raises:
        PatchError: nothing is there.
    """
    value = document
    for step in steps(path):
        value = _inside(value, step, path)
    return value


def apply(document: Any, operations: Iterable[Operation]) -> Any:
    """A copy of the document with all operations carried out, in order.

    Raises:
        PatchError: one of them can't be.
    """
    result = copy.deepcopy(document)
    for each in operations:
        result = _carry_out(result, each)
    return result


def _carry_out(document: Any, operation: Operation) -> Any:
    op, path, value = operation
    parts = steps(path)
    if not parts:
        if op == "remove":
            raise PatchError("the whole object can't be removed")
        return copy.deepcopy(value)
    *parents, last = parts
    place = document
    for step in parents:
        place = _inside(place, step, path)
    if isinstance(place, list):
        _in_list(place, last, operation)
    elif isinstance(place, dict):
        if op != "add" and last not in place:
            raise PatchError(f"{op} {path}: there is no {last!r}")
        if op == "remove":
            del place[last]
        else:
            place[last] = copy.deepcopy(value)
    else:
        raise PatchError(f"{op} {path}: what is to hold {last!r} is neither an object nor a list")
    return document


def _in_list(place: list[Any], last: str, operation: Operation) -> None:
    op, path, value = operation
    if op == "add":
        index = len(place) if last == "-" else _index(last, len(place) + 1, path)
        place.insert(index, copy.deepcopy(value))
        return
    index = _index(last, len(place), path)
    if op == "remove":
        del place[index]
    else:
        place[index] = copy.deepcopy(value)


def _inside(value: Any, step: str, path: str) -> Any:
    if isinstance(value, list):
        return value[_index(step, len(value), path)]
    if isinstance(value, Mapping) and step in value:
        return value[step]
    raise PatchError(f"path {path}: there is no {step!r}")


def _index(step: str, length: int, path: str) -> int:
    try:
        index = int(step)
    except ValueError:
        raise PatchError(f"path {path}: {step!r} is no index of a list") from None
    if not -length <= index < length:
        raise PatchError(f"path {path}: the list has no item {index}")
    return index + length if index < 0 else index
