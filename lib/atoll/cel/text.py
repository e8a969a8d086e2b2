"""Functions of text, patterns among them: RE2 takes time linear in the text, whatever a tenant writes."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import re2

from atoll.cel.declarations import by_pattern, declare, per_length
from atoll.cel.numbers import text_of_double
from atoll.cel.values import Duration, Map, Meter, Timestamp, kind, size

_LONGEST_PATTERN = 10 * 1024
_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_UPPER = str.maketrans(string.ascii_lowercase, string.ascii_uppercase)
# What Go takes as space; Python has four control characters more.
_SPACE = "".join(each for each in map(chr, range(0x3001)) if each.isspace() and not "\x1c" <= each <= "\x1f")


@lru_cache(maxsize=128)
def pattern(text: str) -> Any:
    """A compiled pattern.

    Raises:
        ValueError: no pattern, or a longer one than any that helps.
    """
    if len(text) > _LONGEST_PATTERN:
        raise ValueError(f"the pattern has {len(text)} characters; the most is {_LONGEST_PATTERN}")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = 1 << 20
    try:
        return re2.compile(text, options)
    except re2.error as error:
        raise ValueError(f"the pattern is not valid: {error.args[0].decode(errors='replace')}") from error


def _prepared(meter: Meter, text: str, expression: str) -> Any:
    """The pattern, its work charged: once to compile it, and each time its size for each character of the text."""
    compiled = pattern(expression)
    if expression not in meter.patterns:
        meter.patterns.add(expression)
        meter.toil(1000 + compiled.programsize)
    meter.toil(len(text) * compiled.programsize // 100)
    return compiled


def _matches(meter: Meter, text: str, expression: str) -> bool:
    return bool(_prepared(meter, text, expression).search(text))


def _find(meter: Meter, text: str, expression: str) -> str:
    match = _prepared(meter, text, expression).search(text)
    return match.group() if match else ""


def _find_all(meter: Meter, text: str, expression: str, most: int = -1) -> tuple[str, ...]:
    found: list[str] = []
    for match in _prepared(meter, text, expression).finditer(text):
        if len(found) == most:
            break
        found.append(match.group())
    return tuple(found)


def _within(at: int, most: int) -> int:
    if not 0 <= at <= most:
        raise ValueError(f"{at} is beyond the text of {most} characters")
    return at


def _substring(text: str, start: int, end: int | None = None) -> str:
    end = len(text) if end is None else end
    if start > end:
        raise ValueError(f"a part can't start at {start} and end at {end}")
    return text[_within(start, len(text)) : _within(end, len(text))]


def _index(text: str, part: str, start: int = 0) -> int:
    if not part:
        return start
    if start < 0:
        raise ValueError(f"{start} is no place in a text")
    return text.find(part, start)


def _last_index(meter: Meter, text: str, part: str, start: int | None = None) -> int:
    # Python searches backwards in the product of the lengths.
    meter.toil(len(text) * len(part) // 1000)
    if start is None:
        return text.rfind(part)
    if not part:
        return start
    if start < 0:
        raise ValueError(f"{start} is no place in a text")
    return text.rfind(part, 0, start + len(part)) if start < len(text) else -1


def _replace(meter: Meter, text: str, old: str, new: str, most: int = -1) -> str:
    count = text.count(old) if most < 0 else min(most, text.count(old))
    meter.toil(count * len(new) // 10)
    return text.replace(old, new, most)


def _split(text: str, by: str, most: int = -1) -> tuple[str, ...]:
    if most == 0:
        return ()
    if by:
        return tuple(text.split(by, most - 1 if most > 0 else -1))
    if most < 0 or most >= len(text):
        return tuple(text)
    return (*text[: most - 1], text[most - 1 :])


def _join(meter: Meter, parts: tuple[Any, ...], by: str = "") -> str:
    if not all(type(each) is str for each in parts):
        raise ValueError("join takes a list of strings")
    meter.toil(_joined(parts, by) // 10)
    return by.join(parts)


def _joined(parts: Sequence[Any], by: str = "") -> int:
    return sum(map(size, parts)) + len(by) * max(0, len(parts) - 1)


def _shown(meter: Meter, value: Any) -> str:
    meter.toil(1 + size(value) // 10)
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "null"
    if isinstance(value, float):
        return text_of_double(value)
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, tuple):
        return f"[{', '.join(_shown(meter, each) for each in value)}]"
    if isinstance(value, Map):
        entries = sorted((_shown(meter, key), _shown(meter, value.find(key)[1])) for key in value.keys())  # noqa: SIM118
        return f"{{{', '.join(f'{key}: {each}' for key, each in entries)}}}"
    if isinstance(value, Timestamp | Duration):
        from_text = text_of_double(value.nanos / 10**9)
        return f"{from_text}s"
    raise ValueError(f"%s does not take {kind(value)}")


def _number(value: Any, verb: str, precision: int) -> str:
    of = kind(value)
    if verb in "fe" and of in ("double", "int", "uint"):
        return f"{value:.{precision}{verb}}"
    if verb == "d" and of in ("int", "uint"):
        return str(int(value))
    if verb in "bo" and of in ("int", "uint", "bool"):
        return f"{int(value):{verb}}"
    if verb in "xX":
        if of in ("int", "uint"):
            return f"{int(value):{verb}}"
        if of in ("string", "bytes"):
            digits = (value.encode() if isinstance(value, str) else value).hex()
            return digits.upper() if verb == "X" else digits
    raise ValueError(f"%{verb} does not take {of}")


def _format(meter: Meter, text: str, args: tuple[Any, ...]) -> str:
    made: list[str] = []
    at = used = 0
    while at < len(text):
        place = text.find("%", at)
        if place < 0:
            break
        made.append(text[at:place])
        at, precision = place + 1, 6
        if text[at : at + 1] == "%":
            made.append("%")
            at += 1
            continue
        if text[at : at + 1] == ".":
            end = at + 1
            while text[end : end + 1].isdigit() and end - at <= 4:
                end += 1
            precision, at = int(text[at + 1 : end] or "-1"), end
            if not 0 <= precision <= 1000:
                raise ValueError("the precision is not valid")
        verb = text[at : at + 1]
        at += 1
        if verb not in ("s", "d", "f", "e", "b", "o", "x", "X"):
            raise ValueError(f"%{verb} is no verb of format")
        if used >= len(args):
            raise ValueError(f"format has {len(args)} values, too few")
        made.append(_shown(meter, args[used]) if verb == "s" else _number(args[used], verb, precision))
        meter.toil(1 + len(made[-1]) // 10)
        used += 1
    return "".join([*made, text[at:]])


_ONCE, _TWICE = per_length(0.1, 0), per_length(0.2, 0)


def _traversal(args: Sequence[Any]) -> int:
    return len(args[0].encode(errors="replace")) // 10


declare(".startsWith", "string, string", "bool", str.startswith, _ONCE)
declare(".endsWith", "string, string", "bool", str.endswith, _ONCE)
declare(
    ".contains", "string, string", "bool", str.__contains__,
    lambda args: math.ceil(len(args[0]) * 0.1) * math.ceil(len(args[1]) * 0.1),
)  # fmt: skip
declare("matches", "string, string", "bool", _matches, by_pattern, metered=True)
declare(".matches", "string, string", "bool", _matches, by_pattern, metered=True)
declare(".find", "string, string", "string", _find, by_pattern, metered=True)
declare(".findAll", "string, string", "list(string)", _find_all, by_pattern, metered=True)
declare(".findAll", "string, string, int", "list(string)", _find_all, by_pattern, metered=True)
declare(".charAt", "string, int", "string", lambda text, at: text[_within(at, len(text)) : at + 1])
declare(".indexOf", "string, string", "int", _index, _traversal)
declare(".indexOf", "string, string, int", "int", _index, _traversal)
declare(".lastIndexOf", "string, string", "int", _last_index, _traversal, metered=True)
declare(".lastIndexOf", "string, string, int", "int", _last_index, _traversal, metered=True)
declare(".lowerAscii", "string", "string", lambda text: text.translate(_LOWER), _ONCE)
declare(".upperAscii", "string", "string", lambda text: text.translate(_UPPER), _ONCE)
declare(".replace", "string, string, string", "string", _replace, _TWICE, metered=True)
declare(".replace", "string, string, string, int", "string", _replace, _TWICE, metered=True)
declare(".split", "string, string", "list(string)", _split, _TWICE)
declare(".split", "string, string, int", "list(string)", _split, _TWICE)
declare(".substring", "string, int", "string", _substring, _ONCE)
declare(".substring", "string, int, int", "string", _substring, _ONCE)
declare(".trim", "string", "string", lambda text: text.strip(_SPACE), _ONCE)
declare(".join", "list(string)", "string", _join, lambda args: math.ceil(_joined(*args) * 0.2), metered=True)
declare(".join", "list(string), string", "string", _join, lambda args: math.ceil(_joined(*args) * 0.2), metered=True)
declare(".format", "string, list(dyn)", "string", _format, _ONCE, metered=True)
