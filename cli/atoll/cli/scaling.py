"""`atollctl job scale`: another number of pods for a task of a Volcano Job.

A scale subresource can't: its path may not name one task in a list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli.errors import CommandError
from atoll.cli.lookup import title
from atoll.cli.workloads import Names, Selected, each

if TYPE_CHECKING:
    from atoll.kube.transport import ApiServer
    from atoll.model.apiresource import ApiResource

Json = dict[str, Any]


def scale(
    ctx: typer.Context,
    replicas: Annotated[int, typer.Option("--replicas", min=0, help="Pods of the task from now on.")],
    names: Names = None,
    task: Annotated[str, typer.Option("--task", help="Which one; may be left out where there is only one.")] = "",
    selector: Selected = None,
) -> None:
    """Change how many pods a task of Volcano Jobs has.

    A task that needs all of its pods needs all of them afterwards; one that needs fewer needs as many as before, or all
    where that is less. The minimum of the Job follows.
    """

    async def work(host: ApiServer, resource: ApiResource, found: Json) -> str:
        return await scaled(host, resource, found, task, replicas)

    each(ctx, names, selector, work)


async def scaled(host: ApiServer, resource: ApiResource, found: Json, task: str, replicas: int) -> str:
    """Scale a task of a Job, and say so.

    Args:
        host: the API server.
        resource: of the workload.
        found: the workload.
        task: its name; empty for the only one.
        replicas: pods of it from now on.

    Raises:
        CommandError: it is no Volcano Job, or has no such task.
        ApiError: the host refused it.
    """
    from atoll.kinds import BY_RESOURCE
    from atoll.model.plurals import counted

    meta = found["metadata"]
    name = title(resource, meta["name"])
    scaling = BY_RESOURCE[resource].scaling
    if scaling is None:
        raise CommandError(f"{name}: only tasks of Volcano Jobs are scaled so; `kubectl scale` knows other kinds")
    try:
        made = scaling(found, task, replicas)
    except ValueError as error:
        raise CommandError(f"{name}: {error}") from error
    if not made.patch:
        return f"{name}: task {made.task} has {counted(replicas, 'pod')} already"
    await host.json_patch(resource, meta["name"], list(made.patch), meta["namespace"], field_manager="atollctl")
    return f"{name}: task {made.task} has {counted(replicas, 'pod')} (had {made.had}), {made.needed} of them are needed"
