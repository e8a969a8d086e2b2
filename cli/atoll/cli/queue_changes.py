"""`atollctl queue create|update|edit`: what a queue is to be."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli.options import Dry, DryRun, Output, settings, shape
from atoll.cli.printing import show_objects
from atoll.cli.queue_options import with_queue_options
from atoll.cli.suggestions import queue_names

if TYPE_CHECKING:
    from atoll.kube.transport import ApiServer

Json = dict[str, Any]

_GROUP = "scheduling.volcano.sh"
_DRY = {DryRun.NONE: "", DryRun.CLIENT: " (dry run)", DryRun.SERVER: " (server dry run)"}

NewName = Annotated[str, typer.Argument(metavar="name", help="Name of the queue.")]
Name = Annotated[str, typer.Argument(metavar="name", help="Name of the queue.", autocompletion=queue_names)]


@with_queue_options(weight=1)
def create(ctx: typer.Context, name: NewName, *, dry_run: Dry = DryRun.NONE, output: Output = None, **_: Any) -> None:
    """Create a queue."""
    from atoll.cli.connection import call
    from atoll.cli.errors import CommandError
    from atoll.cli.queue_spec import queue_object
    from atoll.kube.errors import AlreadyExists
    from atoll.model.apiresource import QUEUES

    wanted, form = queue_object(name, **asked(ctx)), shape(output)

    async def work(host: ApiServer) -> Json:
        try:
            return await host.create(QUEUES, wanted, field_manager="atollctl", dry_run=dry_run is DryRun.SERVER)
        except AlreadyExists as error:
            raise CommandError(f"queue {name} exists already: `atollctl queue update {name}` changes it") from error

    made = wanted if dry_run is DryRun.CLIENT else call(settings(ctx), work)
    if form.table:
        print(f"queue.{_GROUP}/{name} created{_DRY[dry_run]}")
    else:
        show_objects([made], form, one=True)


@with_queue_options()
def update(ctx: typer.Context, name: Name, **_: Any) -> None:
    """Change a queue. Of a list of resources the named ones change: cpu=64 sets one, cpu- removes one, others stay, and
    '' removes the list. --member and --flavor replace all members and all flavors.
    """
    from atoll.cli import queue_spec
    from atoll.cli.connection import call
    from atoll.model.apiresource import QUEUES

    wishes = asked(ctx)

    async def work(host: ApiServer) -> tuple[Json, Json]:
        before = await host.get(QUEUES, name)
        patch = queue_spec.update(before, **wishes)
        after = await host.merge_patch(QUEUES, name, patch, field_manager="atollctl")
        return before, after

    before, after = call(settings(ctx), work)
    state = "unchanged" if _wishes(after) == _wishes(before) else "updated"
    amounts = queue_spec.lists(after, wishes)
    print(f"queue.{_GROUP}/{name} {state}{f' ({amounts})' if amounts else ''}")
    for line in queue_spec.dropped(before, after):
        print(f"Warning: {line}", file=sys.stderr)


def _wishes(queue: Json) -> list[Any]:
    """What users say in a queue; its status changes meanwhile."""
    return [queue.get("spec"), *(queue["metadata"].get(field) for field in ("labels", "annotations"))]


def edit(ctx: typer.Context, name: Name) -> None:
    """Change a queue in an editor ($KUBE_EDITOR, $EDITOR, else vi); what is refused is opened again with the reason."""
    from atoll.cli import editing
    from atoll.cli.connection import call
    from atoll.cli.errors import describe, no_right
    from atoll.kube.errors import Forbidden, Invalid
    from atoll.model.apiresource import QUEUES

    options = settings(ctx)
    before = call(options, lambda host: host.get(QUEUES, name))
    meta = before["metadata"]
    shown = {field: meta[field] for field in ("name", "labels", "annotations") if meta.get(field)}
    content = {
        "apiVersion": QUEUES.api_version,
        "kind": QUEUES.kind,
        "metadata": shown,
        "spec": before.get("spec") or {},
    }

    def submit(patch: Json) -> None:
        patch = {**patch, "metadata": {**(patch.get("metadata") or {}), "uid": meta["uid"]}}

        async def work(host: ApiServer) -> None:
            await host.merge_patch(QUEUES, name, patch, field_manager="atollctl")

        try:
            call(options, work)
        except (Invalid, Forbidden) as error:
            if no_right(error):
                raise
            raise editing.Refused(describe(error)[0]) from error

    if editing.edit(content, submit):
        print(f"queue.{_GROUP}/{name} edited")


def asked(ctx: typer.Context) -> Json:
    """What the options of `create` and `update` ask for, as `atoll.cli.queue_spec` takes it."""
    given = {key: value for key, value in ctx.params.items() if key not in ("name", "output", "dry_run")}
    return {key.rstrip("_"): list(value) if isinstance(value, tuple) else value for key, value in given.items()}
