"""`atollctl job move`: workloads that wait go to another queue."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli.errors import CommandError
from atoll.cli.lookup import binding_of, parts_of, title
from atoll.cli.suggestions import queue_names
from atoll.cli.workloads import Names, Selected, each

if TYPE_CHECKING:
    from atoll.kube.transport import ApiServer
    from atoll.model.apiresource import ApiResource

Json = dict[str, Any]

_FOLLOWS_S = 10.0
"""Seconds for the binding to follow its workload."""

Queue = Annotated[str, typer.Option("--queue", "-q", help="Where to.", autocompletion=queue_names)]


def move(ctx: typer.Context, queue: Queue, names: Names = None, selector: Selected = None) -> None:
    """Move jobs that wait to another queue, with their age; what is dispatched stays in the queue that pays for it."""

    async def work(host: ApiServer, resource: ApiResource, found: Json) -> str:
        return await moved(host, resource, found, queue)

    each(ctx, names, selector, work)


async def moved(host: ApiServer, resource: ApiResource, found: Json, queue: str) -> str:
    """Move a workload, and say what became of it.

    Args:
        host: the API server.
        resource: of the workload.
        found: the workload.
        queue: where to.

    Raises:
        CommandError: it has ended, is dispatched, or is of a kind that can't be moved.
    """
    from atoll.cli import vcctl_commands
    from atoll.kinds import BY_RESOURCE, known
    from atoll.model.apiresource import BINDINGS
    from atoll.view.seen import seen

    meta, name = found["metadata"], title(resource, found["metadata"]["name"])
    if (kind := BY_RESOURCE.get(resource)) is None:
        titles = " and ".join(f"{each.words.title}s" for each in known())
        raise CommandError(f"{name}: only {titles} can be moved")
    found = {"apiVersion": resource.api_version, "kind": resource.kind, **found}
    before = kind.queue_of(found)
    if before == queue:
        return f"{name} is in queue {queue} already"
    if outcome := kind.finished(found.get("status") or {}):
        raise CommandError(f"{name} has ended ({outcome.value}): there is nothing to move")
    binding = await binding_of(host, resource, found)
    told = seen(binding) if binding is not None else None
    if told is not None and (told.decision.phase.charged or told.decision.phase.going):
        raise CommandError(_stays(name, before, told.decision.phase.going))
    patch = kind.moved(found, queue)
    for part in parts_of(resource, found):
        patch = {**patch, "metadata": {**patch.get("metadata", {}), "uid": part["uid"]}}
        await host.merge_patch(resource, part["name"], patch, part["namespace"], field_manager="atollctl")
    await _warn(host, queue)
    if binding is None:
        return f"{name} moved to queue {queue}"

    def followed(each: Json) -> bool:
        view = seen(each)
        return view is not None and view.gang is not None and view.gang.queue == queue

    try:
        async with asyncio.timeout(_FOLLOWS_S):
            await vcctl_commands.seen(host, BINDINGS, binding, followed)
    except TimeoutError:
        raise CommandError(
            f"{name} names queue {queue}, and is not there after {_FOLLOWS_S:.0f} s: it was dispatched in that"
            f" moment and stays in queue {before} while it runs, or atoll-control does not run (`atollctl explain"
            f" {meta['name']}`)"
        ) from None
    return f"{name} moved to queue {queue}"


def _stays(name: str, queue: str, going: bool) -> str:
    short = name.rpartition("/")[2] if name.startswith("job.batch.volcano.sh/") else name
    if going:
        return f"{name} is being evicted, and queue {queue} pays for it until its pods are gone: try again then"
    return (
        f"{name} is dispatched, and queue {queue} pays for it: evict it first (`atollctl job hold {short}`), move"
        f" it once it waits, and release it (`atollctl job release {short}`)"
    )


async def _warn(host: ApiServer, queue: str) -> None:
    from atoll.kube.errors import ApiError, NotFound
    from atoll.model.apiresource import QUEUES

    try:
        await host.get(QUEUES, queue)
    except NotFound:
        print(f"Warning: there is no queue {queue} yet; what names it waits until there is", file=sys.stderr)
    except ApiError:
        # The move is done; this is only advice.
        return
