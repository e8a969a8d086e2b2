"""`atollctl nodes`: nodes of all members by state, and free amounts, as `sinfo` shows them for one cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli.options import DataOutput, NoHeaders, settings
from atoll.cli.printing import show_data, show_table

if TYPE_CHECKING:
    from atoll.kube.transport import ApiServer

Json = dict[str, Any]

EPILOG = "Example: atollctl nodes; atollctl nodes -r cpu; atollctl nodes -o json   # with the domains of each member"


def nodes(
    ctx: typer.Context,
    resource: Annotated[
        str, typer.Option("--resource", "-r", help="Of which to show amounts; by default devices, else CPUs.")
    ] = "",
    output: DataOutput = None,
    no_headers: NoHeaders = False,
) -> None:
    """Show nodes of members (idle, mixed, full), free amounts, the most on one node and in one lowest domain, and the
    queues that reach them.
    """
    from atoll.cli.connection import call
    from atoll.view import nodes as view

    documents = call(settings(ctx), lambda host: _gather(host, resource))
    if output is not None:
        show_data(documents, output)
    else:
        show_table(view.HEADERS, view.rows(documents), no_headers=no_headers)


async def _gather(host: ApiServer, resource: str) -> list[Json]:
    from atoll.model.apiresource import CAPACITIES, CLUSTERS, QUEUES
    from atoll.view import nodes as view
    from atoll.view import queue_tree

    clusters, capacities, queues = [await host.list(each) for each in (CLUSTERS, CAPACITIES, QUEUES)]
    return view.documents(clusters, capacities, queue_tree.build(queues, (), clusters, capacities), resource)
