"""`atollctl job logs`: what the containers of a workload wrote, in whichever members they ran.

The host's API server decides who may read and writes it to its audit log; the agents of the members send the text over
the connections that they keep to the host.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from atoll.cli.errors import CommandError
from atoll.cli.lookup import binding_of, find
from atoll.cli.options import settings
from atoll.cli.workloads import Name

if TYPE_CHECKING:
    from atoll.kube.transport import ApiServer


def logs(
    ctx: typer.Context,
    name: Name,
    task: Annotated[str, typer.Option("--task", help="Only pods of this task.")] = "",
    index: Annotated[int | None, typer.Option("--index", min=0, help="Only the pod with this index.")] = None,
    container: Annotated[str, typer.Option("--container", "-c", help="Of pods with several containers.")] = "",
    tail: Annotated[int, typer.Option("--tail", min=1, help="Last lines of each pod.")] = 100,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the pods end.")] = False,
    previous: Annotated[
        bool, typer.Option("--previous", "-p", help="Of the containers before their last restart.")
    ] = False,
) -> None:
    """Show what the pods of a job write, in all its members; several pods with their names before each line."""
    from atoll.cli.connection import call

    options = settings(ctx)
    query = {"tail": str(tail), "task": task, "container": container}
    query |= {"index": str(index)} if index is not None else {}
    query |= {"follow": "true"} if follow else {}
    query |= {"previous": "true"} if previous else {}
    wanted = {key: value for key, value in query.items() if value}
    call(options, lambda host: _copy(host, name, options.one_namespace, wanted))


async def _copy(host: ApiServer, workload: str, namespace: str, query: dict[str, str]) -> None:
    from atoll.model.apiresource import VERDICTS

    resource, found = await find(host, workload, namespace)
    binding = await binding_of(host, resource, found)
    if binding is None:
        raise CommandError(f"{workload} has no binding yet: it has no pods; `atollctl explain {workload}` says why")
    meta = binding["metadata"]
    async for chunk in host.stream(VERDICTS, VERDICTS.path(meta["namespace"], meta["name"], "log"), query):
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
