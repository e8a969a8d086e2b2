"""RFC 3339 and seconds since the epoch, converted in one place."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache


@lru_cache(maxsize=256)
def rfc3339(seconds: float) -> str:
    """UTC with milliseconds, as decisions carry it: a few times are written again and again."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def rfc3339_seconds(seconds: float) -> str:
    """UTC with whole seconds, as `metav1.Time` wants it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").removesuffix("+00:00") + "Z"


def rfc3339_micro(seconds: float) -> str:
    """UTC with microseconds, as `metav1.MicroTime` wants it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def to_seconds(text: str) -> float:
    """Seconds since the epoch.

    Raises:
        ValueError: not RFC 3339.
    """
    return datetime.fromisoformat(text).timestamp()


def seconds_or(text: str, otherwise: float) -> float:
    """As `to_seconds`, of a time that may not be said."""
    return to_seconds(text) if text else otherwise


def is_time(text: str) -> bool:
    """Whether it is one that can be computed with."""
    try:
        return to_seconds(text) > 0
    except (ValueError, OverflowError):
        return False
