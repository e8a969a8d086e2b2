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
    from atoll.kinds.volcano_job.tasks import task_minimum, task_name, task_replicas
    from atoll.model.apiresource import JOBS
    from atoll.model.words import counted

    meta = found["metadata"]
    name, tasks = title(resource, meta["name"]), (found.get("spec") or {}).get("tasks") or []
    if resource != JOBS:
        raise CommandError(f"{name}: only tasks of Volcano Jobs are scaled so; `kubectl scale` knows other kinds")
    known = [task_name(each, number) for number, each in enumerate(tasks)]
    if task not in known and not (len(known) == 1 and not task):
        raise CommandError(f"{name}: choose one of its tasks with --task: {', '.join(known)}")
    position = known.index(task) if task else 0
    had, needed = task_replicas(tasks[position]), task_minimum(tasks[position])
    if had == replicas:
        return f"{name}: task {known[position]} has {counted(replicas, 'pod')} already"
    least = replicas if needed == had else min(needed, replicas)
    at = f"/spec/tasks/{position}"
    patch: list[Json] = [
        {"op": "test", "path": "/metadata/uid", "value": meta["uid"]},
        {"op": "test", "path": "/spec/tasks", "value": tasks},
        {"op": "add", "path": f"{at}/replicas", "value": replicas},
        {"op": "add", "path": f"{at}/minAvailable", "value": least},
    ]
    minimum = found["spec"].get("minAvailable")
    if minimum is not None:
        patch.append({"op": "add", "path": "/spec/minAvailable", "value": max(minimum + least - needed, 0)})
    await host.json_patch(resource, meta["name"], patch, meta["namespace"], field_manager="atollctl")
    return f"{name}: task {known[position]} has {counted(replicas, 'pod')} (had {had}), {least} of them are needed"
