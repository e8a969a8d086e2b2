"""Queues by their objects: states, counts and charges, as written by the dispatcher and control."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from atoll.model import keys
from atoll.model.conditions import condition

Json = dict[str, Any]

OPEN = "Open"
COUNTS = ("pending", "inqueue", "running")


def mapping(value: Any) -> Json:
    """What should be a mapping, and need not be one in an object that is older than the checks of its CRD."""
    return value if isinstance(value, dict) else {}


def own_state(queue: Json) -> str:
    """The state of a queue itself, without its ancestors."""
    if queue["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return str(mapping(queue.get("status")).get("state") or OPEN)


def parent_of(queue: Json) -> str:
    """The queue above it; empty where that is the root, or nothing."""
    parent = mapping(queue.get("spec")).get("parent")
    name = queue["metadata"]["name"]
    return parent if isinstance(parent, str) and parent != keys.ROOT_QUEUE and name != keys.ROOT_QUEUE else ""


def said_problem(queue: Json) -> str:
    """Why the dispatcher says that a queue is not part of a valid tree; empty where it is."""
    valid = condition(queue, "Valid")
    return str(valid.get("message") or valid.get("reason") or "") if valid.get("status") == "False" else ""


def states(queues: Sequence[Json], problem: Callable[[Json], str] = said_problem) -> dict[str, str]:
    """Queue -> its state; of one that is open and takes nothing all the same, why that is in brackets.

    Args:
        queues: all Queue objects.
        problem: why a queue is not part of a valid tree.
    """
    by_name = {queue["metadata"]["name"]: queue for queue in queues}
    return {name: _state(queue, by_name, problem) for name, queue in by_name.items()}


def _state(queue: Json, by_name: Mapping[str, Json], problem: Callable[[Json], str]) -> str:
    if (own := own_state(queue)) != OPEN:
        return own
    if problem(queue):
        return f"{OPEN} (invalid)"
    for above in path_of(queue, by_name)[1:]:
        if (state := own_state(above)) != OPEN:
            return f"{OPEN} ({above['metadata']['name']} is {state})"
    return OPEN


def path_of(queue: Json, by_name: Mapping[str, Json]) -> list[Json]:
    """A queue and those above it as far as they exist, the root included where it is an object."""
    found, names = [queue], {queue["metadata"]["name"]}
    while (above := by_name.get(parent_of(found[-1]))) is not None and above["metadata"]["name"] not in names:
        found.append(above)
        names.add(above["metadata"]["name"])
    root = by_name.get(keys.ROOT_QUEUE)
    return [*found, root] if root is not None and keys.ROOT_QUEUE not in names else found


def counts(queue: Json) -> dict[str, int]:
    """Workloads of the queue and all below it by field of its status."""
    status = mapping(queue.get("status"))
    return {name: int(status.get(name) or 0) for name in COUNTS}


def allocated(queue: Json) -> dict[str, str]:
    """Charges of the queue and all below it; pods only where they are limited, as every workload has some."""
    found = mapping(mapping(queue.get("status")).get("allocated"))
    capability = mapping(mapping(queue.get("spec")).get("capability"))
    return {
        name: str(found[name])
        for name in sorted(found)
        if (name != "pods" or name in capability) and str(found[name]) != "0"
    }
