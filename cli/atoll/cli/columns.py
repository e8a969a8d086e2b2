"""`-o custom-columns=` and `--sort-by`, as kubectl has them: fields of objects by their paths."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from atoll.cli import jsonpath
from atoll.cli.errors import USAGE, CommandError

Json = dict[str, Any]

_FORM = "write HEADER:PATH, such as NAME:.metadata.name,QUEUE:.spec.queue"
_RUNS = re.compile(r"(\d+)")


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns of each object."""

    headers: tuple[str, ...]
    paths: tuple[jsonpath.Path, ...]

    def row(self, item: Json) -> list[str]:
        """The cells of an object; an empty one where it has no such field.

        Raises:
            CommandError: a path indexes beyond a list.
        """
        try:
            return [",".join(map(_cell, jsonpath.find(path, item))) for path in self.paths]
        except jsonpath.JsonPathError as error:
            raise CommandError(f"-o custom-columns: {error}") from error


def parse(text: str) -> Columns:
    """The columns of `NAME:.metadata.name,QUEUE:.spec.queue`.

    Raises:
        CommandError: not of that form.
    """
    headers, paths = [], []
    for part in text.split(","):
        header, colon, path = part.partition(":")
        if not (header and colon and path):
            raise CommandError(f"-o custom-columns: {part!r} is no column: {_FORM}", USAGE)
        headers.append(header)
        paths.append(_path(path, "-o custom-columns"))
    return Columns(tuple(headers), tuple(paths))


def ordered(objects: Sequence[Json], by: str | None) -> list[Json]:
    """The objects by a field: numbers and quantities by their size, texts with numbers in them as people count; those
    without the field come first.

    Args:
        objects: in their order now, which those of equal value keep.
        by: a path; None for the order as it is.

    Raises:
        CommandError: the path can't be read, or no object has such a field.
    """
    if by is None:
        return list(objects)
    path = _path(by, "--sort-by")
    try:
        found = [jsonpath.find(path, item) for item in objects]
    except jsonpath.JsonPathError as error:
        raise CommandError(f"--sort-by: {error}") from error
    if objects and not any(found):
        raise CommandError(f"--sort-by: none of them has a field {by}", USAGE)
    values = [each[0] if each else None for each in found]
    amounts = [_amount(value) for value in values]
    if all(amount is not None or value is None for amount, value in zip(amounts, values, strict=True)):
        keys: list[Any] = [(amount is not None, amount or 0) for amount in amounts]
    else:
        keys = [(value is not None, _natural(value)) for value in values]
    return [objects[index] for index in sorted(range(len(objects)), key=lambda index: keys[index])]


def _path(text: str, option: str) -> jsonpath.Path:
    try:
        return jsonpath.relaxed(text)
    except jsonpath.JsonPathError as error:
        raise CommandError(f"{option}: {error}", USAGE) from error


def _amount(value: Any) -> Fraction | None:
    from atoll.model import quantity

    if isinstance(value, int | float):
        return Fraction(value)
    try:
        return quantity.parse(value) if isinstance(value, str) else None
    except quantity.QuantityError:
        return None


def _natural(value: Any) -> list[tuple[bool, Decimal, str]]:
    parts = _RUNS.split("" if value is None else _cell(value))
    return [(part.isdecimal(), Decimal(part) if part.isdecimal() else Decimal(), part) for part in parts if part]


def _cell(value: Any) -> str:
    """A value as kubectl's columns print it: maps and lists in the words of its language, which scripts know."""
    if isinstance(value, dict):
        return f"map[{' '.join(f'{name}:{_cell(value[name])}' for name in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(_cell, value))}]"
    if value is None:
        return "<nil>"
    return str(value).lower() if isinstance(value, bool) else str(value)
