"""JSONPath templates as kubectl reads them: `{range .items[*]}{.metadata.name}{", "}{end}`.

A template is text with actions in braces; an action is a path, a quoted text, a number, or `range PATH` up to `end`.
A field that is missing gives nothing, as with kubectl; an index beyond a list is an error. tests/cli/test_jsonpath.py
compares every construct with kubectl itself.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'"}
_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}
_NUMBER: Final = re.compile(r"[-+]?\d+(\.\d+)?")
_WORD: Final = re.compile(r"[A-Za-z_]\w*")
_INDEX: Final = re.compile(r"(?P<start>-?\d*)(?P<rest>:(?P<stop>-?\d*)(:(?P<step>-?\d*))?)?")
_KEY: Final = re.compile(r"'([^']*)'")
_CONDITION: Final = re.compile(r"([^!<>=]+)([!<>=]+)(.+)", re.DOTALL)
_RELAXED: Final = re.compile(r"\{\.?([^{}]+)\}|\.?([^{}]+)")
_FIELD_ENDS: Final = " \t\n[]{}.,&|$@"


class JsonPathError(ValueError):
    """A template can't be read, or can't be applied to these objects; the message says why."""


class Step(Protocol):
    """One step of a path."""

    def select(self, values: list[Any]) -> list[Any]:
        """From values found so far to the ones that this step finds in them."""


Path = Sequence[Step]


def render(template: str, content: Any) -> str:
    """The template filled in from an object.

    Raises:
        JsonPathError: the template can't be read, or indexes beyond a list.
    """
    return "".join(_filled(_parsed(template), content))


def find(path: Path, content: Any) -> list[Any]:
    """All values to which a path leads."""
    values = [content]
    for step in path:
        values = step.select(values)
    return values


def relaxed(text: str) -> Path:
    """A path as columns and sort keys are written: `.metadata.name`, `metadata.name` or `{.metadata.name}`.

    Raises:
        JsonPathError: it can't be read.
    """
    match = _RELAXED.fullmatch(text)
    if match is None:
        raise JsonPathError(f"{text!r} is no path: write .metadata.name, or {{.metadata.name}}")
    return _Reader(f"{{.{match[1] or match[2]}}}").only_path()


# -- the steps of a path -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Field:
    name: str

    def select(self, values: list[Any]) -> list[Any]:
        return [each[self.name] for each in values if isinstance(each, dict) and self.name in each]


@dataclass(frozen=True, slots=True)
class _Wildcard:
    def select(self, values: list[Any]) -> list[Any]:
        return [inner for each in values for inner in _inside(each)]


@dataclass(frozen=True, slots=True)
class _Anywhere:
    """The value and everything below it."""

    def select(self, values: list[Any]) -> list[Any]:
        return [below for each in values for below in _all_below(each)]


@dataclass(frozen=True, slots=True)
class _Slice:
    start: int | None
    stop: int | None
    step: int | None
    single: bool = False

    def select(self, values: list[Any]) -> list[Any]:
        return [item for each in values if each is not None for item in self._of(each)]

    def _of(self, items: Any) -> list[Any]:
        if not isinstance(items, list):
            raise JsonPathError(f"{_kind(items)} is no list and has no index")
        length = len(items)
        start = self.start or 0
        start += length if start < 0 else 0
        if self.single:
            stop = start + 1
        else:
            stop = length if self.stop is None else self.stop
            stop += length if stop < 0 else 0
        if start == stop:
            return []
        for index in (start, stop - 1):
            if not 0 <= index < length:
                raise JsonPathError(f"array index out of bounds: index {index}, length {length}")
        if start > stop:
            raise JsonPathError(f"starting index {start} is greater than ending index {stop}")
        if self.step is not None and self.step <= 0:
            raise JsonPathError("step must be > 0")
        return items[start : stop : self.step or 1]


@dataclass(frozen=True, slots=True)
class _Union:
    paths: tuple[Path, ...]

    def select(self, values: list[Any]) -> list[Any]:
        return [found for path in self.paths for each in [_from(path, values)] for found in each]


@dataclass(frozen=True, slots=True)
class _Filter:
    left: Path
    compare: str
    """Empty: there is something at all."""
    right: Path = ()

    def select(self, values: list[Any]) -> list[Any]:
        found = []
        for items in values:
            if not isinstance(items, list):
                raise JsonPathError(f"{_kind(items)} is no list and cannot be filtered")
            found += [item for item in items if self._holds(item)]
        return found

    def _holds(self, item: Any) -> bool:
        left = find(self.left, item)
        if not self.compare:
            return bool(left)
        right = find(self.right, item)
        if not left or not right:
            return False
        if len(left) > 1 or len(right) > 1:
            raise JsonPathError("can only compare one element at a time")
        if _kind(left[0]) != _kind(right[0]):
            raise JsonPathError(f"{_kind(left[0])} can't be compared with {_kind(right[0])}")
        return _COMPARE[self.compare](left[0], right[0])


@dataclass(frozen=True, slots=True)
class _Literal:
    value: Any

    def select(self, values: list[Any]) -> list[Any]:
        return [self.value for _ in values]


def _from(path: Path, values: list[Any]) -> list[Any]:
    for step in path:
        values = step.select(values)
    return values


def _inside(value: Any) -> Sequence[Any]:
    if isinstance(value, dict):
        return [value[name] for name in sorted(value)]
    return value if isinstance(value, list) else ()


def _all_below(value: Any) -> Iterator[Any]:
    yield value
    for inner in _inside(value):
        yield from _all_below(inner)


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "a truth value"
    names = {dict: "an object", list: "a list", str: "a text", int: "a number", float: "a number"}
    return names.get(type(value), "nothing")


# -- templates ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Range:
    path: Path


class _End:
    """The end of a range."""


Node = str | Path | _Range | _End


def _filled(nodes: Sequence[Node], content: Any) -> list[str]:
    done, at = [], 0
    while at < len(nodes):
        node = nodes[at]
        at += 1
        if isinstance(node, str):
            done.append(node)
        elif isinstance(node, _End):
            raise JsonPathError("not in range, nothing to end")
        elif isinstance(node, _Range):
            end = _end_of(nodes, at)
            for each in find(node.path, content):
                done += _filled(nodes[at:end], each)
            at = end + 1
        else:
            done.append(" ".join(map(_text, find(node, content))))
    return done


def _end_of(nodes: Sequence[Node], start: int) -> int:
    depth = 1
    for at in range(start, len(nodes)):
        depth += isinstance(nodes[at], _Range) - isinstance(nodes[at], _End)
        if not depth:
            return at
    return len(nodes)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)


def _parsed(template: str) -> list[Node]:
    nodes: list[Node] = []
    reader = _Reader(template)
    while not reader.done:
        if text := reader.text():
            nodes.append(text)
        if not reader.done:
            nodes.append(reader.action())
    return nodes


class _Reader:
    """Reads a template from left to right."""

    def __init__(self, source: str) -> None:
        self._source, self._at = source, 0

    @property
    def done(self) -> bool:
        return self._at >= len(self._source)

    @property
    def _rest(self) -> str:
        return self._source[self._at :]

    def text(self) -> str:
        """All up to the next action."""
        start = self._at
        found = self._source.find("{", start)
        self._at = len(self._source) if found < 0 else found
        return self._source[start : self._at]

    def only_path(self) -> Path:
        """The one path of a template that has nothing else."""
        path = self.action()
        if not self.done or isinstance(path, str | _Range | _End):
            raise self._wrong("is no path")
        return path

    def action(self) -> Node:
        """What stands in the next braces."""
        self._at += 1
        path: list[Step] = []
        ranged = False
        while True:
            self._at += len(self._rest) - len(self._rest.lstrip())
            if self.done:
                raise self._wrong("unclosed action")
            first = self._source[self._at]
            if first == "}":
                self._at += 1
                return _Range(path) if ranged else path
            if first in "@$":
                self._at += 1
            elif first == ".":
                path += self._fields()
            elif first == "[":
                path.append(self._bracket())
            elif first in "\"'":
                path.append(_Literal(self._quoted(first)))
            elif match := _NUMBER.match(self._source, self._at):
                self._at = match.end()
                path.append(_Literal(float(match[0]) if match[1] else int(match[0])))
            elif match := _WORD.match(self._source, self._at):
                self._at = match.end()
                if match[0] in ("true", "false"):
                    path.append(_Literal(match[0] == "true"))
                elif match[0] == "end":
                    self._close()
                    return _End()
                elif match[0] == "range":
                    ranged = True
                else:
                    raise self._wrong(f"unrecognized identifier {match[0]}: a field begins with a dot (.{match[0]})")
            else:
                raise self._wrong(f"unrecognized character in action: {first!r}")

    def _close(self) -> None:
        if not self._rest.lstrip().startswith("}"):
            raise self._wrong("nothing may follow `end`")
        self._at = self._source.index("}", self._at) + 1

    def _fields(self) -> list[Step]:
        self._at += 1
        found: list[Step] = []
        if self._rest.startswith("."):
            self._at += 1
            found.append(_Anywhere())
        name = ""
        while not self.done and (each := self._source[self._at]) not in _FIELD_ENDS:
            if each == "\\" and self._at + 1 < len(self._source):
                self._at += 1
                each = self._source[self._at]
            name += each
            self._at += 1
        if name:
            found.append(_Wildcard() if name == "*" else _Field(name))
        return found

    def _quoted(self, quote: str) -> str:
        self._at += 1
        text = ""
        while not self.done and (each := self._source[self._at]) != quote:
            if each == "\\":
                self._at += 1
                escaped = self._source[self._at : self._at + 1]
                if escaped not in _ESCAPES:
                    raise self._wrong(f"\\{escaped} in a quoted text means nothing")
                each = _ESCAPES[escaped]
            text += each
            self._at += 1
        if self.done:
            raise self._wrong("unterminated quoted string")
        self._at += 1
        return text

    def _bracket(self) -> Step:
        inside = self._inside_bracket()
        if inside.startswith("?("):
            if not inside.endswith(")"):
                raise self._wrong('unclosed filter: write [?(@.name=="x")]')
            return self._filter(inside[2:-1])
        parts = inside.split(",")
        if len(parts) > 1:
            return _Union(tuple(self._part(part.strip()) for part in parts))
        [only] = self._part(inside) if not _KEY.fullmatch(inside) else [_Union((self._part(inside),))]
        return only

    def _part(self, text: str) -> Path:
        if text == "*":
            return [_Wildcard()]
        if key := _KEY.fullmatch(text):
            # As with kubectl, a dot in the key is one of a path unless it is escaped.
            return _Reader(f"{{.{key[1]}}}").only_path()
        match = _INDEX.fullmatch(text)
        if match is None or not text or (not match["rest"] and match["start"] in ("", "-")):
            raise self._wrong(f"invalid array index {text}")
        try:
            start, stop, step = (int(match[name]) if match[name] else None for name in ("start", "stop", "step"))
        except ValueError:
            raise self._wrong(f"invalid array index {text}") from None
        return [_Slice(start, stop, step, single=not match["rest"])]

    def _filter(self, text: str) -> _Filter:
        match = _CONDITION.fullmatch(text)
        if match is None:
            return _Filter(_Reader(f"{{{text}}}").only_path(), "")
        if match[2] not in _COMPARE:
            raise self._wrong(f"unrecognized filter operator {match[2]}")
        left, right = (_Reader(f"{{{side.strip()}}}").only_path() for side in (match[1], match[3]))
        return _Filter(left, match[2], right)

    def _inside_bracket(self) -> str:
        start, quote, depth = self._at + 1, "", 0
        for at in range(self._at, len(self._source)):
            each = self._source[at]
            if quote:
                quote = "" if each == quote else quote
            elif each in "\"'":
                quote = each
            else:
                depth += (each == "[") - (each == "]")
                if not depth:
                    self._at = at + 1
                    return self._source[start:at].strip()
        raise self._wrong("unterminated array")

    def _wrong(self, why: str) -> JsonPathError:
        return JsonPathError(f"{self._source}: {why}")
