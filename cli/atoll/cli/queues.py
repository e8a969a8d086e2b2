"""`atollctl queue`: make, change, look at, close, open and delete queues."""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli import queue_changes
from atoll.cli.errors import FAILED, USAGE, CommandError
from atoll.cli.options import DataOutput, NoHeaders, Output, Selector, SortBy, Watch, settings, shape
from atoll.cli.printing import show_data, show_objects, show_table
from atoll.cli.suggestions import queue_names
from atoll.cli.workloads import do_all, one_way
from atoll.model import keys
from atoll.view.queues import HEADERS, WIDE, rows

if TYPE_CHECKING:
    from atoll.kube.transport import ApiServer

Json = dict[str, Any]

app = typer.Typer(no_args_is_help=True, help="Queues: quota and order of workloads.")


_GROUP = "scheduling.volcano.sh"
_WAIT_S = 10.0
_STATES = {"CloseQueue": ("Closed", "Closing"), "OpenQueue": ("Open",)}

Name = queue_changes.Name
Names = Annotated[
    list[str] | None, typer.Argument(metavar="[name...]", help="Names of queues.", autocompletion=queue_names)
]
Selected = Annotated[
    str | None, typer.Option("--selector", "-l", help="Instead of names: all queues with such labels.")
]
All = Annotated[bool, typer.Option("--all-queues", help="Instead of names: all queues.")]
Wait = Annotated[bool, typer.Option(help="Return only once the queue's state has followed (at most 10 s).")]

app.command(
    epilog="Example: atollctl queue create research --capability cpu=64,nvidia.com/gpu=16 --weight 2 --priority 10;"
    " atollctl queue create research --dry-run=server -o yaml"
)(queue_changes.create)
app.command(epilog="Example: atollctl queue update research --capability cpu=128 --namespaces 'team in (a,b)'")(
    queue_changes.update
)
app.command(epilog="Example: atollctl queue edit research; EDITOR=nano atollctl queue edit research")(
    queue_changes.edit
)


@app.command(epilog="Example: atollctl queue describe research; atollctl queue describe --all-queues -o json")
def describe(
    ctx: typer.Context,
    names: Names = None,
    selector: Selected = None,
    all_queues: All = False,
    output: DataOutput = None,
) -> None:
    """Show what queues and those below them may use and do use, which queue borrows from which, what runs, and why
    the rest waits.
    """
    from atoll.cli.connection import call
    from atoll.cli.unseen import Unseen
    from atoll.model.apiresource import BINDINGS, CAPACITIES, CLUSTERS, NAMESPACES, QUEUES
    from atoll.view import fair_shares, queue_description

    options = settings(ctx)
    one_way("queues", names, selector, all_queues)

    async def read(host: ApiServer) -> list[Json]:
        queues, unseen = await host.list(QUEUES), Unseen()
        chosen = await _chosen(host, names, selector)
        bindings = await unseen.allowed("workloads of other namespaces", host.list(BINDINGS))
        partial = bindings is None
        if bindings is None:
            own = options.one_namespace
            bindings = await unseen.allowed(f"workloads of namespace {own}", host.list(BINDINGS, own))
        clusters = await unseen.allowed("which members serve it", host.list(CLUSTERS))
        capacities = await unseen.allowed("what its members have", host.list(CAPACITIES)) or ()
        namespaces: Sequence[Json] = ()
        if any(map(fair_shares.weighs, chosen)):
            namespaces = await unseen.allowed("the weights of namespaces", host.list(NAMESPACES)) or ()
        federation = queue_description.read(
            # One that was chosen may be younger than the list.
            [*({each["metadata"]["name"]: each for each in [*queues, *chosen]}).values()],
            bindings or [],
            clusters=clusters,
            capacities=capacities,
            namespaces=namespaces,
            partial=partial,
            unseen=unseen.lines,
        )
        return [queue_description.describe(queue, federation, time.time()) for queue in chosen]

    found = call(options, read)
    if output is not None:
        show_data(found[0] if names and len(names) == 1 else found, output)
    else:
        print("\n\n".join(map(queue_description.text, found)))


@app.command("list", epilog="Example: atollctl queue list -o wide; atollctl queue list --sort-by .spec.priority")
def list_(
    ctx: typer.Context,
    output: Output = None,
    no_headers: NoHeaders = False,
    selector: Selector = None,
    sort_by: SortBy = None,
    watch: Watch = False,
) -> None:
    """List all queues with what they hold, each below its parent; with --sort-by in the order of a field."""
    _show(ctx, None, output, no_headers, watch, selector=selector, sort_by=sort_by)


@app.command(epilog="Example: atollctl queue get research -o yaml")
def get(
    ctx: typer.Context, name: Name, output: Output = None, no_headers: NoHeaders = False, watch: Watch = False
) -> None:
    """Show one queue."""
    _show(ctx, name, output, no_headers, watch)


@app.command(epilog="Example: atollctl queue close research   # what runs goes on, nothing new starts")
def close(
    ctx: typer.Context, names: Names = None, selector: Selected = None, all_queues: All = False, wait: Wait = True
) -> None:
    """Close queues: they admit nothing until they are opened again."""
    _operate(ctx, names, selector, all_queues, "CloseQueue", wait)


@app.command("open", epilog="Example: atollctl queue open research; atollctl queue open --all-queues")
def open_(
    ctx: typer.Context, names: Names = None, selector: Selected = None, all_queues: All = False, wait: Wait = True
) -> None:
    """Open closed queues."""
    _operate(ctx, names, selector, all_queues, "OpenQueue", wait)


@app.command(epilog="Example: atollctl queue delete research")
def delete(
    ctx: typer.Context,
    names: Names = None,
    selector: Selected = None,
    force: Annotated[bool, typer.Option(help="Although workloads wait in it, unless some are dispatched.")] = False,
) -> None:
    """Delete queues that hold no workloads."""
    one_way("queues", names, selector, all_allowed=False)

    async def work(host: ApiServer, name: str) -> str:
        await _delete(host, name, force)
        return f"queue.{_GROUP}/{name} deleted"

    _each(ctx, names, selector, work)


async def _chosen(host: ApiServer, names: Sequence[str] | None, selector: str | None) -> list[Json]:
    from atoll.model.apiresource import QUEUES

    if names:
        return [await host.get(QUEUES, name) for name in names]
    return await host.list(QUEUES, label_selector=selector or "")


def _show(
    ctx: typer.Context,
    name: str | None,
    output: str | None,
    no_headers: bool,
    watch: bool,
    *,
    selector: str | None = None,
    sort_by: str | None = None,
) -> None:
    from atoll.cli.connection import call
    from atoll.kube.errors import NotFound
    from atoll.model.apiresource import QUEUES

    wanted = shape(output)
    headers = HEADERS + (WIDE if wanted.wide else ())
    if watch:
        from atoll.cli import watching

        def table(queues: list[Json], _: list[Json]) -> dict[str, list[object]]:
            one = None if name is None else [each for each in queues if each["metadata"]["name"] == name]
            return {str(row[0]).strip(): row for row in rows(queues, time.time(), wide=wanted.wide, chosen=one)}

        watching.check(output, sort_by)
        if selector is not None:
            raise CommandError("--watch follows all queues; leave out -l", USAGE)
        # The state of one is that of those above it as well, so all are watched.
        watching.watch(settings(ctx), {QUEUES: ""}, None, None, table, headers, bindings_in="", no_headers=no_headers)
        return

    async def read(host: ApiServer) -> tuple[list[Json], list[Json]]:
        elsewhere = await not_the_host(host)
        try:
            chosen = await _chosen(host, [name] if name else None, selector)
        except NotFound:
            if not elsewhere:
                raise
            chosen = []
        if elsewhere and not chosen:
            raise CommandError(elsewhere)
        if elsewhere:
            print(f"note: {elsewhere}; these are the cluster's own", file=sys.stderr)
        everything = selector is None and name is None
        return chosen, chosen if everything or not wanted.table else await host.list(QUEUES)

    chosen, queues = call(settings(ctx), read)
    if sort_by is not None:
        from atoll.cli import columns

        chosen = columns.ordered(chosen, sort_by)
    if not wanted.table:
        show_objects(chosen, wanted, one=name is not None, no_headers=no_headers)
        return
    if not chosen:
        print(f"No queues found{f' with labels {selector}' if selector else ''}.", file=sys.stderr)
        return
    found = rows(queues, time.time(), wide=wanted.wide, chosen=chosen, flat=sort_by is not None)
    show_table(headers, found, no_headers=no_headers)


async def not_the_host(api: ApiServer) -> str:
    """Why the federation's queues are not to be found in a cluster, and where they are; empty of a host."""
    from atoll.kube.errors import Forbidden, NotFound
    from atoll.model.apiresource import CLUSTERS, NAMESPACES

    try:
        async for _ in api.pages(CLUSTERS, metadata_only=True, page_size=1):
            return ""
    except Forbidden:
        return ""
    except NotFound:
        pass
    try:
        await api.get(NAMESPACES, keys.SYSTEM_NAMESPACE)
    except (Forbidden, NotFound):
        return "this is no host of Atoll: it has no Clusters; choose another with --kubeconfig or --context"
    return (
        "this is a member, and the federation's queues are on its host: name the host's kubeconfig with --kubeconfig,"
        " --context or $KUBECONFIG (`atollctl local status` prints it for a federation on this machine)"
    )


def _each(
    ctx: typer.Context,
    names: Sequence[str] | None,
    selector: str | None,
    work: Callable[[ApiServer, str], Awaitable[str]],
) -> None:
    from atoll.cli.connection import call

    async def all_of_them(host: ApiServer) -> bool:
        targets = names or [each["metadata"]["name"] for each in await _chosen(host, None, selector)]
        if not targets:
            print(f"No queues found with labels {selector}.", file=sys.stderr)
        return await do_all(targets, lambda name: work(host, name))

    if call(settings(ctx), all_of_them):
        raise SystemExit(FAILED)


async def _delete(host: ApiServer, name: str, force: bool) -> None:
    from atoll.model.apiresource import BINDINGS, QUEUES
    from atoll.view.bindings import use_by_queue, views

    if name == keys.DEFAULT_QUEUE:
        raise CommandError(f"queue {name} is built in and can't be deleted; close it instead")
    queue = await host.get(QUEUES, name)
    held = None if force else use_by_queue(views(await host.list(BINDINGS))).get(name)
    if held:
        # Admission refuses it then, with --force as well.
        forced = "" if held.dispatched else ", or use --force (they would then wait with reason QueueNotFound)"
        raise CommandError(
            f"queue {name} holds {held.pending} waiting and {held.dispatched} running workloads: close it"
            f" and let them finish, or delete them{forced}"
        )
    await host.delete(QUEUES, name, uid=queue["metadata"]["uid"])


def _operate(
    ctx: typer.Context,
    names: Sequence[str] | None,
    selector: str | None,
    all_queues: bool,
    action: str,
    wait: bool,
) -> None:
    one_way("queues", names, selector, all_queues)

    async def work(host: ApiServer, name: str) -> str:
        state = await operate(host, name, action, wait=wait)
        if action == "OpenQueue":
            await _warn_of_closed(host, name)
        return f"queue.{_GROUP}/{name} {state.lower() if state else 'told: ' + action}"

    _each(ctx, names, selector, work)


async def _warn_of_closed(host: ApiServer, name: str) -> None:
    """Say on stderr that a queue above is closed, below which nothing starts."""
    from atoll.cli.connection import warn
    from atoll.model.apiresource import QUEUES
    from atoll.view.queue_objects import path_of

    queues = {each["metadata"]["name"]: each for each in await host.list(QUEUES)}
    for above in path_of(queues[name], queues)[1:] if name in queues else ():
        if (state := _state(above)) in _STATES["CloseQueue"]:
            closed = above["metadata"]["name"]
            warn(
                f"queue {closed} above it is {state}, so queue {name} takes no workloads: atollctl queue open {closed}"
            )
            return


async def operate(host: ApiServer, name: str, action: str, *, wait: bool) -> str:
    """Send a queue a Command and, with `wait`, give the state that it led to (else an empty string).

    Raises:
        NotFound: no such queue.
        CommandError: the state did not follow in time.
    """
    from atoll.cli import vcctl_commands
    from atoll.model.apiresource import QUEUES

    queue, wanted = await host.get(QUEUES, name), _STATES[action]
    await vcctl_commands.send(host, QUEUES, queue, action)
    if not wait:
        return ""
    after = await vcctl_commands.followed(
        host, QUEUES, queue, lambda seen: _state(seen) in wanted, seconds=_WAIT_S, wanted=wanted[0].lower()
    )
    return _state(after)


def _state(queue: Json) -> str:
    return str((queue.get("status") or {}).get("state") or "")
