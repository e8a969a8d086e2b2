"""Numbers of things as people write them."""

from __future__ import annotations

from collections.abc import Sequence


def counted(number: int, one: str) -> str:
    """`1 job`, `2 jobs`."""
    return f"{number} {one}" if number == 1 else f"{number} {one}s"


def listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
