"""What makes a queue a valid part of its tree: the one arithmetic of admission and of the dispatcher; and what a queue
says for those below it.

Both look at one queue and its neighbours: where every queue fits those below it, the whole tree does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Final

from atoll.model import duration, keys, vector
from atoll.model.quantity import format_units
from atoll.model.vector import Vector

EVICT_TIMEOUT: Final = 1200.0
"""Seconds after which the quota of what was taken back is returned though its pods have not gone, where no queue says
otherwise.
"""


class Strategy(StrEnum):
    """Workloads that may pass a blocked head of a queue."""

    FIFO = "fifo"
    """Nothing."""
    TRAVERSE = "traverse"
    """Whatever fits."""
    BACKFILL = "backfill"
    """Whatever does not delay the head."""


def most_grace(name: str, find: Callable[[str], tuple[Mapping[str, str], str] | None]) -> int:
    """Seconds that the pods of a queue may take to end: as long as what was taken back may take to go.

    Args:
        name: of the queue.
        find: (annotations, parent) of a queue, None where there is none.
    """
    said = nearest(name, find, keys.EVICT_TIMEOUT)
    return max(1, int(EVICT_TIMEOUT if said is None else said))


def nearest(name: str, find: Callable[[str], tuple[Mapping[str, str], str] | None], key: str) -> float | None:
    """Seconds that an annotation of a queue says, or of the nearest one above it that has it; None where none has."""
    said = (duration.parse_or_none(notes.get(key)) for notes in upwards(name, find))
    return next((seconds for seconds in said if seconds is not None), None)


def upwards(name: str, find: Callable[[str], tuple[Mapping[str, str], str] | None]) -> Iterator[Mapping[str, str]]:
    """The annotations of a queue, of the one above it, and so on to the root."""
    seen = {keys.ROOT_QUEUE, ""}
    while name not in seen and (found := find(name)) is not None:
        seen.add(name)
        notes, name = found
        yield notes
    root = find(keys.ROOT_QUEUE)
    if root is not None:
        yield root[0]


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


def truth(text: str) -> bool:
    """An annotation that is `true` or `false`.

    Raises:
        ValueError: it is neither.
    """
    if text not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text == "true"
