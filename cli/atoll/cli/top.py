"""`atollctl top`: how full queues and members are, the fullest first."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli import queue_objects
from atoll.cli.options import NoHeaders, settings
from atoll.cli.printing import show_table

if TYPE_CHECKING:
    from atoll.kube.transport import ApiServer

Json = dict[str, Any]

EPILOG = "Example: atollctl top queues; atollctl top members"


class What(StrEnum):
    """What is shown."""

    QUEUES = "queues"
    MEMBERS = "members"


def top(
    ctx: typer.Context,
    what: Annotated[What, typer.Argument(help="Queues or members.")] = What.QUEUES,
    no_headers: NoHeaders = False,
) -> None:
    """Show how full queues (of their capability) or members (of what their nodes have) are, the fullest first."""
    from atoll.cli.connection import call

    async def look(host: ApiServer) -> list[list[object]]:
        if what is What.MEMBERS:
            from atoll.cli import clusters

            return member_rows(await clusters.gather(host))
        from atoll.model.apiresource import QUEUES

        return queue_rows(await host.list(QUEUES))

    head = ("MEMBER", "PLACER", "NODES") if what is What.MEMBERS else ("QUEUE", "RUNNING", "PENDING")
    show_table((*head, "RESOURCE", "USED", "OF", "%"), call(settings(ctx), look), no_headers=no_headers)


def queue_rows(queues: Sequence[Json]) -> list[list[object]]:
    """A row per resource of each queue that uses or limits it, one for a queue without any."""
    from atoll.model import quantity

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
    from atoll.model import quantity

    found = []
    for member in members:
        for line in member["resources"]:
            total, free = (quantity.ceil_units(line["resource"], line[field]) for field in ("total", "free"))
            used = quantity.format_units(line["resource"], total - free)
            row = [member["name"], member["placer"], member["nodes"]]
            row += [line["resource"], used, line["total"], f"{line['used']:.0%}"]
            found.append((float(line["used"]), row))
    return [row for _, row in sorted(found, key=lambda each: -each[0])]
