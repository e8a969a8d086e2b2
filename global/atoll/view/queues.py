"""Queues: a row for each, below its parent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from atoll.model import keys
from atoll.model.ages import age
from atoll.view import queue_objects

Json = dict[str, Any]

HEADERS = ("NAME", "STATE", "PRIORITY", "PENDING", "INQUEUE", "RUNNING", "USED", "DESERVED", "CAPABILITY", "AGE")
WIDE = ("WEIGHT", "PARENT", "GUARANTEE")


def tree(queues: Sequence[Json]) -> list[tuple[int, Json]]:
    """(depth, queue): each below its parent, siblings by their names; one whose parent is not here is at the top."""
    by_name = {str(queue["metadata"]["name"]): queue for queue in queues}
    children: dict[str, list[str]] = {}
    for name, queue in sorted(by_name.items()):
        above = queue_objects.parent_of(queue) or (keys.ROOT_QUEUE if name != keys.ROOT_QUEUE else "")
        children.setdefault(above if above in by_name else "", []).append(name)
    found: list[tuple[int, Json]] = []

    def add(name: str, depth: int) -> None:
        found.append((depth, by_name.pop(name)))
        for each in children.get(name, ()):
            if each in by_name:
                add(each, depth + 1)

    for name in children.get("", ()):
        add(name, 0)
    # Queues that are below themselves: nothing is above them.
    while by_name:
        add(min(by_name), 0)
    return found


def rows(
    queues: Sequence[Json], now: float, *, wide: bool, chosen: Sequence[Json] | None = None, flat: bool = False
) -> list[list[object]]:
    """The table's rows, each with the contents of the queue and its descendants.

    Args:
        queues: all of them, as the API server gave them.
        now: seconds since the epoch.
        wide: with the columns of `-o wide`.
        chosen: only these of them.
        flat: in their order, and not as a tree.
    """
    result, states = [], queue_objects.states(queues)
    shown = queues if chosen is None else chosen
    for depth, queue in [(0, each) for each in shown] if flat else tree(shown):
        spec, name = queue_objects.mapping(queue.get("spec")), queue["metadata"]["name"]
        guarantee = queue_objects.mapping(queue_objects.mapping(spec.get("guarantee")).get("resource"))
        row: list[object] = [
            "  " * depth + name,
            states[name],
            spec.get("priority") or 0,
            *queue_objects.counts(queue).values(),
            _amounts(queue_objects.allocated(queue)),
            _amounts(queue_objects.mapping(spec.get("deserved"))),
            _amounts(queue_objects.mapping(spec.get("capability"))),
            age(queue["metadata"].get("creationTimestamp"), now),
        ]
        if wide:
            row += [spec.get("weight", 1), spec.get("parent") or "", _amounts(guarantee)]
        result.append(row)
    return result


def _amounts(amounts: Mapping[str, object]) -> str:
    return ",".join(f"{name}={amounts[name]}" for name in sorted(amounts))
