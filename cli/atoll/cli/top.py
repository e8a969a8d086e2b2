"""`atollctl top`: how full queues and members are, the fullest first."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli.options import NoHeaders, settings
from atoll.cli.printing import show_table

if TYPE_CHECKING:
    from atoll.kube.transport import ApiServer

Json = dict[str, Any]

EPILOG = "Example: atollctl top queues; atollctl top members"


class What(StrEnum):
    """Shown objects."""

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
            from atoll.view.top import member_rows

            return member_rows(await clusters.gather(host))
        from atoll.model.apiresource import QUEUES
        from atoll.view.top import queue_rows

        return queue_rows(await host.list(QUEUES))

    head = ("MEMBER", "PLACER", "NODES") if what is What.MEMBERS else ("QUEUE", "RUNNING", "PENDING")
    # Members publish free amounts rounded down, so the use there is this or a little less.
    used = "USED AT MOST" if what is What.MEMBERS else "USED"
    show_table((*head, "RESOURCE", used, "OF", "%"), call(settings(ctx), look), no_headers=no_headers)
