"""`atollctl available`: what a namespace may use of each member, for users who see neither members nor their nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli.options import DataOutput, NoHeaders, settings
from atoll.cli.printing import show_data, show_table

if TYPE_CHECKING:
    from atoll.kube.transport import ApiServer

Json = dict[str, Any]

EPILOG = "Example: atollctl available -n research; atollctl available --queue research -r nvidia.com/gpu"


def available(
    ctx: typer.Context,
    queue: Annotated[str, typer.Option("--queue", "-q", help="Only the members and amounts of this queue.")] = "",
    resource: Annotated[str, typer.Option("--resource", "-r", help="Only this one.")] = "",
    output: DataOutput = None,
    no_headers: NoHeaders = False,
) -> None:
    """Show what the namespace may use now: free devices of each member (CPUs where it has none), the largest gangs
    that fit, as pods x devices, in the member and in one lowest domain, and the amounts left in its queues.
    """
    from atoll.cli.connection import call
    from atoll.view import available as view

    options = settings(ctx)
    items = call(options, lambda host: gather(host, options.one_namespace, queue))
    if output is not None:
        show_data(items, output)
        return
    show_table(view.HEADERS, view.rows(items, resource), no_headers=no_headers)
    for note in view.notes(items):
        print(note)


async def gather(host: ApiServer, namespace: str, queue: str = "") -> list[Json]:
    """The Availability of each member; with a queue, of its members.

    Raises:
        CommandError: no dispatcher answers, or the queue takes nothing of the namespace.
        ApiError: the host refuses.
    """
    import orjson

    from atoll.cli.errors import CommandError, no_dispatcher
    from atoll.cli.lookup import check_queue
    from atoll.kube import errors
    from atoll.model.apiresource import AVAILABILITIES

    found: list[Json] = []
    params = {"queue": queue} if queue else {}
    while True:
        try:
            page = orjson.loads(await host.request("GET", AVAILABILITIES.path(namespace), params=params))
        except (errors.NotFound, errors.Busy) as error:
            raise no_dispatcher("no dispatcher answers", error) from error
        found += page["items"]
        if not (after := page["metadata"].get("continue")):
            break
        params["continue"] = after
    if queue:
        found = [each for each in found if each["status"].get("queues")]
        if not found:
            await check_queue(host, queue)
            text = f"queue {queue} takes nothing from namespace {namespace} now: atollctl queue describe {queue}"
            raise CommandError(text)
    return found
