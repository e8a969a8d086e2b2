"""What queues and namespaces say of fair shares: one reader for admission, dispatcher and lists."""

from __future__ import annotations

import math
from typing import Final

from atoll.model import duration

ORDERS: Final = ("priority", "fair-namespaces", "fair-jobs")
"""Values of annotation `atoll.sh/order` of a queue."""


def order(text: str) -> str:
    """The order of a queue.

    Raises:
        ValueError: there is no such order.
    """
    if text not in ORDERS:
        raise ValueError(f"{text!r} is not an order; use {', '.join(ORDERS[:-1])} or {ORDERS[-1]}")
    return text


def half_life(text: str) -> float:
    """Seconds in which what was used counts half as much.

    Raises:
        ValueError: it is no duration, or none.
    """
    seconds = duration.parse(text)
    if seconds <= 0:
        raise ValueError(f"{text!r} must be longer than nothing; leave it out to count only what is used now")
    return seconds


def weight(text: str) -> float:
    """The weight of a namespace.

    Raises:
        ValueError: it is no number, or none above 0.
    """
    try:
        found = float(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a number; write a weight such as 2 or 0.5") from error
    if not (math.isfinite(found) and 1e-3 <= found <= 1e6):
        raise ValueError(f"{text!r} is not a weight; use 0.001 to 1000000")
    return found


def weight_or_one(text: str | None) -> float:
    """The weight of a namespace; 1 where it says none, or nothing that can be read."""
    try:
        return weight(text) if text else 1.0
    except ValueError:
        return 1.0
