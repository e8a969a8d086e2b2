"""Lengths of time as kubectl words them."""

from __future__ import annotations

from datetime import datetime


def age(created: str | None, now: float) -> str:
    """Time since then, as kubectl words it: `42s`, `5m30s`, `3h`, `2d4h`."""
    if not created:
        return "<unknown>"
    return duration(max(0.0, now - datetime.fromisoformat(created).timestamp()))


def duration(seconds: float) -> str:
    """A length of time with two units at most, the smaller one dropped once it says little."""
    whole = int(seconds)
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if whole < 120:
        return f"{whole}s"
    if minutes < 10:
        return _two(minutes, "m", whole % 60, "s")
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    return f"{days // 365}y"


def _two(large: int, first: str, small: int, second: str) -> str:
    return f"{large}{first}{small}{second}" if small else f"{large}{first}"
