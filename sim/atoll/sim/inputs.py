"""Reading input files: plain or .xz, and errors that say the file, where in it, and what to do."""

from __future__ import annotations

import csv
import io
import lzma
import math
import re
from collections.abc import Callable, Hashable, Iterator, Mapping
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any, TypeVar

import yaml

from atoll.dispatcher.capacity import is_resource
from atoll.model import quantity
from atoll.model.documents import BadDocument, read_yaml_file
from atoll.model.gang import MOST_UNITS
from atoll.model.numbers import INT32

T = TypeVar("T")

MOST_SECONDS = 1e10
"""Of a length of time: three centuries; dates have an end."""
_SHOWN = 100
"""Characters of a value that a message shows."""
_LONGEST_QUANTITY = 64
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
MAX_UNPACKED = 512 * 2**20
"""Bytes that a trace may have once it is unpacked."""
_XZ_MEMORY = 256 * 2**20


class InputError(ValueError):
    """A file or an option can't be used; the message says where and what to do."""


# -- files -------------------------------------------------------------------------------------------------------------


def is_csv(path: Path) -> bool:
    """Whether its name says that it is a CSV, packed or not."""
    return path.name.lower().removesuffix(".xz").endswith(".csv")


def _unpacked(path: Path, content: bytes) -> bytes:
    """Some kilobytes of .xz can stand for all the memory that there is."""
    unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)
    found = unpacker.decompress(content, MAX_UNPACKED + 1)
    if len(found) > MAX_UNPACKED:
        raise InputError(f"{path}: more than {MAX_UNPACKED // 2**20} MiB once unpacked; cut the trace into parts")
    if not unpacker.eof:
        raise lzma.LZMAError("it ends too early")
    return found


def text_of(path: Path) -> str:
    """The content of a file, unpacked where its name ends in .xz; a byte order mark is left out.

    Raises:
        InputError: it can't be read, or holds nothing.
    """
    try:
        content = path.read_bytes()
        if path.suffix.lower() == ".xz":
            content = _unpacked(path, content)
        text = content.decode("utf-8-sig")
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; check the path") from error
    except OSError as error:
        raise InputError(f"{path}: can't be read: {error.strerror}") from error
    except lzma.LZMAError as error:
        raise InputError(f"{path}: not a whole .xz file: {error}") from error
    except UnicodeDecodeError as error:
        byte = f"byte {error.object[error.start]:#04x} at offset {error.start}"
        raise InputError(f"{path}: not UTF-8: {byte}; save it as text in UTF-8") from error
    if not text.strip():
        raise InputError(f"{path}: is empty; check that it is the right file")
    return text


class _Loader(yaml.SafeLoader):
    """YAML in which no field is there twice, as kubectl reads it."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value} is there twice", key.start_mark)
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else None)
        return super().construct_mapping(node, deep=deep)


def documents(path: Path) -> list[dict[str, Any]]:
    """The YAML documents of a file; a List, as a list, stands for its items.

    Raises:
        InputError: not YAML, or a document that is no mapping.
    """
    text = text_of(path)
    try:
        found = [document for document in read_yaml_file(text, _Loader) if document is not None]
    except BadDocument as error:
        said = str(error).replace('in "<unicode string>", ', "at ")
        raise InputError(f"{path}: {said}") from error
    if not found:
        raise InputError(f"{path}: is empty, comments aside; check that it is the right file")
    result: list[dict[str, Any]] = []
    for number, document in enumerate(found, start=1):
        place = f"{path}, document {number}"
        if isinstance(document, str):
            raise InputError(f"{place}: expected a mapping, found text; a CSV must have a name that ends in .csv")
        for item in document if isinstance(document, list) else [document]:
            for each in Fields(item, place).take("items", listed, [item]):
                Fields(each, place)
                result.append(each)
    return result


def rows(path: Path, required: tuple[str, ...]) -> Iterator[tuple[str, dict[str, str]]]:
    """(place for messages, row) of a CSV with a header; blanks around values and blank lines don't count.

    Raises:
        InputError: a required column is missing, columns are named alike, or a row has not one value for each.
    """
    reader = csv.reader(io.StringIO(text_of(path), newline=None), skipinitialspace=True, strict=True)
    header: list[str] | None = None
    try:
        for line in reader:
            place = f"{path}, line {reader.line_num}"
            values = [value.strip() for value in line]
            if values in ([], [""]):
                continue
            if header is None:
                header = values
                _check_header(header, required, place)
                continue
            if len(values) != len(header):
                raise InputError(
                    f"{place}: {len(values)} values for the {len(header)} columns of the header: leave a value empty "
                    'where there is none, and put one with commas in double quotes, such as "cpu=4,nvidia.com/gpu=1"'
                )
            yield place, dict(zip(header, values, strict=True))
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: not CSV: {error}; check the double quotes above") from error


def _check_header(header: list[str], required: tuple[str, ...], place: str) -> None:
    missing = [name for name in required if name not in header]
    if missing:
        raise InputError(f"{place}: no column {', '.join(missing)}; the header has: {_cut(', '.join(header))}")
    if "" in header:
        raise InputError(f"{place}: column {header.index('') + 1} has no name: name it or leave it out")
    if twice := [name for name in header if header.count(name) > 1]:
        raise InputError(f"{place}: column {twice[0]} is there twice: leave one out")


# -- fields ------------------------------------------------------------------------------------------------------------


class Fields:
    """One mapping of an input; every access checks, and `done` refuses what nobody asked for."""

    def __init__(self, content: Mapping[str, Any], place: str) -> None:
        """Wrap a mapping.

        Raises:
            InputError: it is none.
        """
        if not isinstance(content, Mapping):
            raise InputError(f"{place}: expected a mapping, found {_shown(content)}")
        self._content = content
        self._read: set[str] = set()
        self.place = place

    def take(self, name: str, convert: Callable[[Any], T], default: T | None = None) -> T:
        """The field, converted; required where there is no default. An empty text counts as absent.

        Args:
            name: of the field.
            convert: raises ValueError with the expected form.
            default: for an absent one.

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
        except ValueError as error:
            raise InputError(f"{self.place}, field {name}: {_shown(value)} can't be used: {error}") from error

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
                f"{self.place}: unknown field {_cut(', '.join(unknown))}; known are {', '.join(sorted(self._read))}"
            )


def _shown(value: Any) -> str:
    """A value in a message."""
    try:
        return _cut(repr(value))
    except ValueError:
        return "a number of thousands of digits"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


# -- values: each raises ValueError with the expected form ----------------------------------------------------------


def text(value: Any) -> str:
    """A name or a word; YAML may have read it as a whole number."""
    if isinstance(value, str | int) and not isinstance(value, bool):
        return str(value)
    raise ValueError("expected a text; put it in quotes")


def listed(value: Any) -> list[Any]:
    """A list, of anything."""
    if isinstance(value, list):
        return value
    raise ValueError("expected a list")


def number(value: Any, expected: str, least: float, most: float) -> float:
    """A number within bounds, in YAML or as text."""
    if isinstance(value, str):
        value = float(value) if _NUMBER.fullmatch(value) else math.nan
    if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"expected {expected}")
    return float(value)


def whole(value: Any, least: int = 0, most: int = INT32) -> int:
    """A number without a fraction, such as 4 or, as spreadsheets write it, 4.0; both bounds are below 2^53."""
    expected = f"a whole number from {least} to {most}"
    found = number(value, expected, least, most)
    if not found.is_integer():
        raise ValueError(f"expected {expected}")
    return int(found)


def seconds(value: Any) -> float:
    """A length of time."""
    return number(value, f"seconds from 0 to {MOST_SECONDS:.0f}", 0, MOST_SECONDS)


def moment(value: Any) -> float:
    """A date and time as seconds since the epoch, in UTC where it does not say otherwise."""
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        elif isinstance(value, date) and not isinstance(value, datetime):
            value = datetime.combine(value, time())
        if isinstance(value, datetime):
            return (value if value.tzinfo is not None else value.replace(tzinfo=UTC)).timestamp()
    except ValueError:
        pass
    raise ValueError("expected a time such as 2026-01-31T12:00:00Z")


def truth(value: Any) -> bool:
    """True or false, as YAML or as text."""
    known = {"true": True, "false": False, "1": True, "0": False}
    if str(value).lower() not in known:
        raise ValueError("expected true or false")
    return known[str(value).lower()]


def names(value: Any) -> tuple[str, ...]:
    """A list of names, or text such as `a;b`."""
    if isinstance(value, str):
        value = _parts(value)
    if not isinstance(value, list) or not all(isinstance(each, str | int) for each in value):
        raise ValueError("expected names, as a list or such as a;b")
    return tuple(text(each) for each in value)


def labels(value: Any) -> dict[str, str]:
    """A mapping of texts, or text such as `model=h100;zone=a`."""
    found = _pairs(value, "labels, as a mapping of texts or such as model=h100;zone=a")
    try:
        return {key: text(each) for key, each in found.items()}
    except ValueError as error:
        raise ValueError("expected labels whose values are texts; put them in quotes") from error


def requests(value: Any) -> dict[str, int]:
    """Resources of a pod: a mapping, or text such as `cpu=4;nvidia.com/gpu=8`; rounded up."""
    return _units(value, quantity.ceil_units)


def capacity(value: Any) -> dict[str, int]:
    """Resources of a node, in the same forms; rounded down."""
    return _units(value, quantity.floor_units)


def _units(value: Any, convert: Callable[[str, str], int]) -> dict[str, int]:
    result = {}
    for name, amount in _pairs(value, "resources, as a mapping or such as cpu=4;nvidia.com/gpu=8").items():
        if not is_resource(name):
            raise ValueError(f"expected names of resources such as cpu or nvidia.com/gpu, found {_shown(name)}")
        expected = f"expected for {name} a quantity from 0 to 1Ei, such as 500m, 2 or 8Gi"
        shown = str(amount)
        if not isinstance(amount, str | int | float) or isinstance(amount, bool) or len(shown) > _LONGEST_QUANTITY:
            raise ValueError(expected)
        try:
            result[name] = convert(name, shown)
        except quantity.QuantityError as error:
            raise ValueError(expected) from error
        if not 0 <= result[name] <= MOST_UNITS:
            raise ValueError(expected)
    return result


def _pairs(value: Any, expected: str) -> dict[str, Any]:
    if isinstance(value, str):
        pairs = [[part.strip() for part in item.partition("=")] for item in _parts(value)]
        if not all(name and equals for name, equals, _ in pairs):
            raise ValueError(f"expected {expected}")
        result = {name: each for name, _, each in pairs}
        if len(result) < len(pairs):
            raise ValueError(f"expected {expected}, each once")
        return result
    if not isinstance(value, Mapping) or not all(isinstance(name, str) and name for name in value):
        raise ValueError(f"expected {expected}")
    return dict(value)


def _parts(value: str) -> list[str]:
    """Of a text that stands for a list, separated by semicolons or commas."""
    return [part.strip() for part in value.replace(",", ";").split(";") if part.strip()]
