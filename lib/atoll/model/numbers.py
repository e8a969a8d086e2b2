"""Whole numbers in annotations and labels, where anybody may have written anything.

`str.isdigit` is no test for what `int` takes: it lets through superscripts, and thousands of digits, which `int`
refuses.
"""

from __future__ import annotations

INT32 = 2**31 - 1
"""The most that most whole numbers in Kubernetes objects can be."""
_DIGITS = 18
MOST = 10**_DIGITS - 1
"""The most that `whole` reads; below 2^63."""


def whole(text: str | None) -> int | None:
    """The number that a text of ASCII digits says; None for none and for anything else."""
    return int(text) if text and len(text) <= _DIGITS and text.isascii() and text.isdigit() else None
