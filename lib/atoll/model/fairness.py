"""What queues and namespaces say of fair shares: one reader for admission, dispatcher and lists."""

from __future__ import annotations

import math
from enum import StrEnum

from atoll.model import duration


class Order(StrEnum):
    """Which workload of a queue goes first, within a priority class; the older one where that is equal. Annotation
    `atoll.sh/order` of the queue.
    """

    PRIORITY = "priority"
    """The oldest."""
    FAIR_NAMESPACES = "fair-namespaces"
    """That of the namespace with the least dominant share of the queue by its weight."""
    FAIR_JOBS = "fair-jobs"
    """The one with the least dominant share of the queue itself."""


def order(text: str) -> Order:
    """The order of a queue.

    Raises:
        ValueError: there is no such order.
    """
    if text not in list(Order):
        *several, last = Order
        raise ValueError(f"{text!r} is not an order; use {', '.join(several)} or {last}")
    return Order(text)


def half_life(text: str) -> float:
    """Seconds in which past use counts half as much.

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
