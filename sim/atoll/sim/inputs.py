"""Reading input files: plain or .xz, and errors that say the file, where in it, and what to do."""

from __future__ import annotations

import csv
import io
import lzma
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml

from atoll.model import quantity

T = TypeVar("T")


class InputError(ValueError):
    """A file or an option can't be used; the message says where and what to do."""


def text_of(path: Path) -> str:
    """The content of a file, unpacked where its name ends in .xz.

    Raises:
        InputError: it can't be read.
    """
    try:
        if path.suffix == ".xz":
            with lzma.open(path, "rt", encoding="utf-8") as file:
                return file.read()
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; check the path") from error
    except (OSError, UnicodeDecodeError, lzma.LZMAError) as error:
        raise InputError(f"{path}: can't be read: {error}") from error


def documents(path: Path) -> list[dict[str, Any]]:
    """The YAML documents of a file; a List, as a list, stands for its items.

    Raises:
        InputError: not YAML, or a document that is no mapping.
    """
    try:
        found = [document for document in yaml.safe_load_all(text_of(path)) if document is not None]
    except yaml.YAMLError as error:
        raise InputError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    result: list[dict[str, Any]] = []
    for number, document in enumerate(found, start=1):
        for item in document if isinstance(document, list) else [document]:
            if not isinstance(item, dict):
                raise InputError(f"{path}, document {number}: expected a mapping, found {type(item).__name__}")
            result += item["items"] if isinstance(item.get("items"), list) else [item]
    return result


def rows(path: Path, required: tuple[str, ...]) -> Iterator[tuple[str, dict[str, str]]]:
    """(place for messages, row) of a CSV with a header.

    Raises:
        InputError: a required column is missing.
    """
    reader = csv.DictReader(io.StringIO(text_of(path)))
    missing = [name for name in required if name not in (reader.fieldnames or ())]
    if missing:
        found = ", ".join(reader.fieldnames or ()) or "nothing"
        raise InputError(f"{path}, line 1: no column {', '.join(missing)}; the header has: {found}")
    for number, row in enumerate(reader, start=2):
        yield f"{path}, line {number}", {key: value or "" for key, value in row.items() if key is not None}


class Fields:
    """One mapping of an input; every access checks, and `done` refuses what nobody asked for."""

    def __init__(self, content: Mapping[str, Any], place: str) -> None:
        """Wrap a mapping.

        Raises:
            InputError: it is none.
        """
        if not isinstance(content, Mapping):
            raise InputError(f"{place}: expected a mapping, found {type(content).__name__}")
        self._content = content
        self._read: set[str] = set()
        self.place = place

    def take(self, name: str, convert: Callable[[Any], T], default: T | None = None) -> T:
        """The field, converted; required where there is no default. An empty text counts as absent.

        Raises:
            InputError: it is missing or can't be converted.
        """
        self._read.add(name)
        value = self._content.get(name)
        if value is None or value == "":
            if default is None:
                raise InputError(f"{self.place}: field {name} is missing")
            return default
        try:
            return convert(value)
        except (ValueError, TypeError, AttributeError) as error:
            raise InputError(f"{self.place}, field {name}: {value!r} can't be used: {error}") from error

    def maybe(self, name: str, convert: Callable[[Any], T]) -> T | None:
        """The field, converted; None where it is absent."""
        if self._content.get(name) in (None, ""):
            self._read.add(name)
            return None
        return self.take(name, convert)

    def done(self) -> None:
        """All fields must have been asked for.

        Raises:
            InputError: naming those that were not, and those that exist.
        """
        unknown = sorted(str(name) for name in self._content if name not in self._read)
        if unknown:
            raise InputError(
                f"{self.place}: unknown field {', '.join(unknown)}; known are {', '.join(sorted(self._read))}"
            )


def whole(value: Any) -> int:
    """A number without a fraction, 0 or more."""
    number = int(value)
    if number < 0 or number != float(value):
        raise ValueError("expected a whole number that is not negative")
    return number


def seconds(value: Any) -> float:
    """A length of time, 0 or more."""
    number = float(value)
    if not 0 <= number < float("inf"):
        raise ValueError("expected seconds, 0 or more")
    return number


def truth(value: Any) -> bool:
    """True or false, as YAML or as text."""
    if isinstance(value, bool):
        return value
    known = {"true": True, "false": False, "1": True, "0": False}
    if str(value).lower() not in known:
        raise ValueError("expected true or false")
    return known[str(value).lower()]


def requests(value: Any) -> dict[str, int]:
    """Resources of a pod: a mapping, or text such as `cpu=4;nvidia.com/gpu=8`; rounded up."""
    return quantity.requests(_resources(value))


def capacity(value: Any) -> dict[str, int]:
    """Resources of a node, in the same forms; rounded down."""
    return quantity.capacity(_resources(value))


def _resources(value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    result = {}
    for item in filter(None, (part.strip() for part in str(value).replace(",", ";").split(";"))):
        name, equals, amount = item.partition("=")
        if not equals:
            raise ValueError("expected resources such as cpu=4;nvidia.com/gpu=8")
        result[name.strip()] = amount.strip()
    return result
