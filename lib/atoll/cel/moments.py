"""Timestamps and durations."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

from atoll.cel.declarations import declare
from atoll.cel.numbers import text_of_double, whole
from atoll.cel.values import Duration, Timestamp

_NANOS = 10**9
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?(Z|[+-]\d\d:\d\d)", re.ASCII)
_SPAN = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_UNITS = {
    "ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": _NANOS, "m": 60 * _NANOS, "h": 3600 * _NANOS,
}  # fmt: skip


def _timestamp(nanos: int) -> Timestamp:
    if not -62135596800 * _NANOS <= nanos < 253402300800 * _NANOS:
        raise ValueError("the timestamp is beyond the years 1 to 9999")
    return Timestamp(nanos)


def _parse_timestamp(text: str) -> Timestamp:
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:64]!r} is no timestamp such as 2026-01-31T00:00:00Z")
    moment = datetime.fromisoformat(match.group(1) + match.group(3).replace("Z", "+00:00"))
    return _timestamp(
        int((moment - _EPOCH) / timedelta(seconds=1)) * _NANOS + int((match.group(2) or "0").ljust(9, "0"))
    )


def parse_duration(text: str) -> Duration:
    """A duration such as `1h30m`, as Go reads it."""
    body = text[1:] if text[:1] in ("+", "-") else text
    if body == "0":
        return Duration(0)
    if not body or len(body) > 256 or not re.fullmatch(rf"(?:{_SPAN.pattern})+", body, re.ASCII):
        raise ValueError(f"{text[:64]!r} is no duration such as 1h30m")
    nanos = int(sum(Fraction(amount.rstrip(".")) * _UNITS[unit] for amount, unit in _SPAN.findall(body)))
    return Duration(whole(-nanos if text[0] == "-" else nanos))


def _text(moment: Timestamp) -> str:
    seconds, nanos = divmod(moment.nanos, _NANOS)
    fraction = f".{nanos:09}".rstrip("0") if nanos else ""
    return (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0") + fraction + "Z"


def _zone(name: str) -> tzinfo:
    if match := re.fullmatch(r"([+-]?)(\d\d):(\d\d)", name, re.ASCII):
        sign = -1 if match.group(1) == "-" else 1
        return timezone(sign * timedelta(hours=int(match.group(2)), minutes=int(match.group(3))))
    try:
        return ZoneInfo(name)
    except (OSError, LookupError) as error:
        raise ValueError(f"{name[:64]!r} is no time zone") from error


def _part(read: Callable[[datetime], int]) -> Callable[..., int]:
    def part(moment: Timestamp, zone: str = "UTC") -> int:
        return read((_EPOCH + timedelta(microseconds=moment.nanos // 1000)).astimezone(_zone(zone)))

    return part


for _name, _read in {
    "getFullYear": lambda day: day.year,
    "getMonth": lambda day: day.month - 1,
    "getDayOfYear": lambda day: day.timetuple().tm_yday - 1,
    "getDayOfMonth": lambda day: day.day - 1,
    "getDate": lambda day: day.day,
    "getDayOfWeek": lambda day: day.isoweekday() % 7,
    "getHours": lambda day: day.hour,
    "getMinutes": lambda day: day.minute,
    "getSeconds": lambda day: day.second,
    "getMilliseconds": lambda day: day.microsecond // 1000,
}.items():
    declare(f".{_name}", "timestamp", "int", _part(_read))
    declare(f".{_name}", "timestamp, string", "int", _part(_read))


def _whole_units(unit: int) -> Callable[[Duration], int]:
    return lambda span: int(Fraction(span.nanos, unit))


declare(".getHours", "duration", "int", _whole_units(3600 * _NANOS))
declare(".getMinutes", "duration", "int", _whole_units(60 * _NANOS))
declare(".getSeconds", "duration", "int", _whole_units(_NANOS))
declare(".getMilliseconds", "duration", "int", lambda span: int(Fraction(span.nanos, 10**6)) % 1000)


def _arithmetic(make: Callable[[int], Any], run: Callable[[int, int], int]) -> Callable[[Any, Any], Any]:
    return lambda left, right: make(run(left.nanos, right.nanos))


def _span(nanos: int) -> Duration:
    return Duration(whole(nanos))


declare("_+_", "duration, duration", "duration", _arithmetic(_span, operator.add))
declare("_+_", "duration, timestamp", "timestamp", _arithmetic(_timestamp, operator.add))
declare("_+_", "timestamp, duration", "timestamp", _arithmetic(_timestamp, operator.add))
declare("_-_", "duration, duration", "duration", _arithmetic(_span, operator.sub))
declare("_-_", "timestamp, duration", "timestamp", _arithmetic(_timestamp, operator.sub))
declare("_-_", "timestamp, timestamp", "duration", _arithmetic(_span, operator.sub))
declare("timestamp", "timestamp", "timestamp", lambda value: value)
declare("timestamp", "int", "timestamp", lambda seconds: _timestamp(seconds * _NANOS))
declare("timestamp", "string", "timestamp", _parse_timestamp)
declare("duration", "duration", "duration", lambda value: value)
declare("duration", "int", "duration", lambda seconds: _span(seconds * _NANOS))
declare("duration", "string", "duration", parse_duration)
declare("int", "timestamp", "int", lambda moment: moment.nanos // _NANOS)
declare("int", "duration", "int", lambda span: span.nanos)
declare("string", "timestamp", "string", _text)
declare("string", "duration", "string", lambda span: f"{text_of_double(span.nanos / _NANOS)}s")
