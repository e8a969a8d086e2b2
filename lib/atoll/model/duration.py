"""Durations as Kubernetes APIs write them (Go's `time.ParseDuration`): `90s`, `2h`, `1h30m`."""

from __future__ import annotations

import re

_NUMBER, _UNIT = r"(?:\d+(?:\.\d*)?|\.\d+)", "(?:ns|us|µs|ms|s|m|h)"
_DURATION = re.compile(f"(?:{_NUMBER}{_UNIT})+", re.ASCII)
_PART = re.compile(f"({_NUMBER})({_UNIT})", re.ASCII)
BOUNDED = re.compile(rf"(?:\d{{1,9}}(?:\.\d{{0,9}})?{_UNIT}){{1,6}}", re.ASCII)
"""Durations that a member may report: no number in them is too large for anybody."""
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


class DurationError(ValueError):
    """The text is not a duration."""


def parse(text: str) -> float:
    """Seconds.

    Raises:
        DurationError: not a duration, or a negative one.
    """
    if not _DURATION.fullmatch(text):
        raise DurationError(f"{text!r} is not a duration: use numbers with units, such as 90s, 2h or 1h30m")
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))


def parse_or_none(text: str | None) -> float | None:
    """As `parse`; None for none and for nonsense, where a wish that can't be read is no wish."""
    try:
        return parse(text) if text else None
    except DurationError:
        return None
