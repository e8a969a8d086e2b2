"""What makes a queue a valid part of its tree: the one arithmetic of admission and of the dispatcher.

Both look at one queue and its neighbours: where every queue fits those below it, the whole tree does.
"""

from __future__ import annotations

from collections.abc import Mapping

from atoll.model import vector
from atoll.model.quantity import format_units
from atoll.model.vector import Vector


def reserved(guarantee: Mapping[str, int], capability: Mapping[str, int]) -> Vector:
    """What a queue takes from its siblings: its guarantee, as far as it may use it at all."""
    amounts = {name: min(value, capability.get(name, value)) for name, value in guarantee.items()}
    return {name: value for name, value in amounts.items() if value > 0}


def over_capability(guarantee: Mapping[str, int], capability: Mapping[str, int]) -> str:
    """How a queue is guaranteed more than it may use, `cpu 4, more than the 2`; empty when it is not."""
    return _figures(vector.shortage({}, guarantee, capability))


def over_guarantee(pledged: Mapping[str, int], guarantee: Mapping[str, int]) -> str:
    """How the queues below are guaranteed more than the queue itself; a resource without guarantee has none to give.

    Args:
        pledged: the sum of `reserved` of the queues below.
        guarantee: the queue's own.
    """
    return _figures(vector.shortage({}, pledged, {**dict.fromkeys(pledged, 0), **guarantee}))


def over_total(guarantee: Mapping[str, int], total: Mapping[str, int]) -> str:
    """How a queue is guaranteed more than the members have that it may use; empty where that is not known."""
    return _figures(vector.shortage({}, guarantee, total))


def _figures(over: tuple[str, int, int] | None) -> str:
    if over is None:
        return ""
    resource, asked, available = over
    return f"{resource} {format_units(resource, asked)}, more than the {format_units(resource, available)}"
