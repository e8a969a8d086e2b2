"""Numbers of things as people write them."""

from __future__ import annotations


def counted(number: int, one: str) -> str:
    """`1 job`, `2 jobs`."""
    return f"{number} {one}" if number == 1 else f"{number} {one}s"
