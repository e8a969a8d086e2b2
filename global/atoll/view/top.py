"""How full queues and members are: a row for each resource, the fullest first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from atoll.model import quantity
from atoll.view import queue_objects

Json = dict[str, Any]


def queue_rows(queues: Sequence[Json]) -> list[list[object]]:
    """A row per resource of each queue that uses or limits it, one for a queue without any."""
    found: list[tuple[float, list[object]]] = []
    for queue in queues:
        used, counts = queue_objects.allocated(queue), queue_objects.counts(queue)
        capability = queue_objects.mapping(queue_objects.mapping(queue.get("spec")).get("capability"))
        for name in sorted({*used, *capability}) or [""]:
            limit = quantity.parse(capability[name]) if name in capability else None
            share = float(quantity.parse(used.get(name, "0")) / limit) if limit else None
            running = counts["inqueue"] + counts["running"]
            row = [queue["metadata"]["name"], running, counts["pending"], name]
            shown = "" if share is None else f"{share:.0%}"
            found.append(
                (
                    -1.0 if share is None else share,
                    [*row, used.get(name, "0" if name else ""), capability.get(name, ""), shown],
                )
            )
    return [row for _, row in sorted(found, key=lambda each: -each[0])]


def member_rows(members: Sequence[Json]) -> list[list[object]]:
    """A row per resource of each member."""
    found = []
    for member in members:
        for line in member["resources"]:
            total, free = (quantity.ceil_units(line["resource"], line[field]) for field in ("total", "free"))
            used = quantity.format_units(line["resource"], total - free)
            row = [member["name"], member["placer"], member["nodes"]]
            row += [line["resource"], used, line["total"], f"{line['used']:.0%}"]
            found.append((float(line["used"]), row))
    return [row for _, row in sorted(found, key=lambda each: -each[0])]
