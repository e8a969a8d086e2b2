"""`atollctl queue`: make, change, look at, close, open and delete queues."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli import queue_objects
from atoll.cli.errors import CommandError
from atoll.cli.options import DataOutput, Format, NoHeaders, Output, Watch, settings
from atoll.cli.printing import age, show_data, show_objects, show_table

if TYPE_CHECKING:
    from atoll.kube.transport import ApiServer

Json = dict[str, Any]

app = typer.Typer(no_args_is_help=True, help="Queues: quota and order of workloads.")

HEADERS = ("NAME", "STATE", "PRIORITY", "PENDING", "INQUEUE", "RUNNING", "USED", "CAPABILITY", "AGE")
WIDE = ("WEIGHT", "PARENT")

_GROUP = "scheduling.volcano.sh"
_WAIT_S = 10.0
_STATES = {"CloseQueue": ("Closed", "Closing"), "OpenQueue": ("Open",)}

Name = Annotated[str, typer.Argument(help="Name of the queue.")]
Capability = Annotated[str | None, typer.Option(help="Most that it may use, such as cpu=64,memory=1Ti.")]
Deserved = Annotated[str | None, typer.Option(help="What it is entitled to, in the same form.")]
Guarantee = Annotated[str | None, typer.Option(help="What is never lent to others, in the same form.")]
Priority = Annotated[int | None, typer.Option(min=0, help="Higher is served first.")]
Namespaces = Annotated[
    str | None, typer.Option(help="Label selector of the namespaces that may use it, such as team=a; '' for all.")
]


Parent = Annotated[str | None, typer.Option(help="Queue above it; '' for none.")]
Reclaimable = Annotated[
    bool | None, typer.Option("--reclaimable/--no-reclaimable", help="Whether others may take back what it borrowed.")
]
Clusters = Annotated[
    str | None, typer.Option(help="Label selector of the members that serve it, such as size=large; '' for all.")
]
Members = Annotated[
    list[str] | None,
    typer.Option(help="A member that serves it, if given with a ceiling: east, or east:cpu=64; may be repeated."),
]
Estimate = Annotated[str | None, typer.Option(help="How long its workloads run if they don't say, such as 2h.")]
Sla = Annotated[
    str | None, typer.Option(help="How long its workloads may wait before room is kept for them, such as 30m.")
]
ReadyTimeout = Annotated[
    str | None,
    typer.Option(
        "--ready-timeout",
        help="How long after they are bound its workloads may take to run before they are taken back, such as 30m.",
    ),
]
EvictTimeout = Annotated[
    str | None,
    typer.Option(
        "--evict-timeout",
        help="How long pods that were told to go may take until their quota is back, such as 10m (of the queue above"
        " where none is set).",
    ),
]
ProtectedFor = Annotated[
    str | None,
    typer.Option(
        help="How long after its start a workload is not taken back for others, such as 10m (1m where none is set)."
    ),
]
DefaultPolicy = Annotated[
    str | None,
    typer.Option(
        metavar="[NAMESPACE/]NAME", help="Policy of its workloads that none selects: cluster-wide, or of a namespace."
    ),
]
Type = Annotated[str | None, typer.Option("--type", help="Free label for the kind of queue.")]


class Strategy(StrEnum):
    """Values of `--strategy`."""

    FIFO = "fifo"
    TRAVERSE = "traverse"
    BACKFILL = "backfill"


Strategies = Annotated[Strategy | None, typer.Option(help="What may pass a workload that does not fit.")]
Wait = Annotated[bool, typer.Option(help="Return only once the queue's state has followed (at most 10 s).")]


@app.command(
    epilog="Example: atollctl queue create research --capability cpu=64,nvidia.com/gpu=16 --weight 2 --priority 10"
)
def create(
    ctx: typer.Context,
    name: Name,
    capability: Capability = None,
    deserved: Deserved = None,
    guarantee: Guarantee = None,
    weight: Annotated[int, typer.Option(min=1, max=65535, help="Share among its siblings.")] = 1,
    priority: Priority = None,
    parent: Parent = None,
    reclaimable: Reclaimable = None,
    strategy: Strategies = None,
    namespaces: Namespaces = None,
    clusters: Clusters = None,
    member: Members = None,
    estimate: Estimate = None,
    sla: Sla = None,
    protected_for: ProtectedFor = None,
    ready_timeout: ReadyTimeout = None,
    evict_timeout: EvictTimeout = None,
    default_policy: DefaultPolicy = None,
    type_: Type = None,
    output: Output = None,
) -> None:
    """Create a queue."""
    from atoll.cli.connection import call
    from atoll.cli.queue_spec import queue_object
    from atoll.model.apiresource import QUEUES

    wanted = queue_object(name, **asked(ctx))

    async def work(host: ApiServer) -> Json:
        made = await host.create(QUEUES, wanted, field_manager="atollctl")
        await _warn(host, made)
        return made

    made = call(settings(ctx), work)
    if output is None or output is Format.WIDE:
        print(f"queue.{_GROUP}/{name} created")
    else:
        show_objects([made], output, one=True)


@app.command(epilog="Example: atollctl queue update research --capability cpu=128 --namespaces 'team in (a,b)'")
def update(
    ctx: typer.Context,
    name: Name,
    capability: Capability = None,
    deserved: Deserved = None,
    guarantee: Guarantee = None,
    weight: Annotated[int | None, typer.Option(min=1, max=65535, help="Share among its siblings.")] = None,
    priority: Priority = None,
    parent: Parent = None,
    reclaimable: Reclaimable = None,
    strategy: Strategies = None,
    namespaces: Namespaces = None,
    clusters: Clusters = None,
    member: Members = None,
    estimate: Estimate = None,
    sla: Sla = None,
    protected_for: ProtectedFor = None,
    ready_timeout: ReadyTimeout = None,
    evict_timeout: EvictTimeout = None,
    default_policy: DefaultPolicy = None,
    type_: Type = None,
) -> None:
    """Change a queue; a list of resources replaces the whole list, an empty one ('') removes it."""
    from atoll.cli import queue_spec
    from atoll.cli.connection import call
    from atoll.model.apiresource import QUEUES

    wishes = asked(ctx)

    async def work(host: ApiServer) -> bool:
        before = await host.get(QUEUES, name)
        patch = queue_spec.update(before, **wishes)
        after = await host.merge_patch(QUEUES, name, patch, field_manager="atollctl")
        if wishes.get("member") or wishes.get("clusters") or wishes.get("default_policy"):
            await _warn(host, after)
        return bool(after["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"])

    changed = call(settings(ctx), work)
    print(f"queue.{_GROUP}/{name} {'updated' if changed else 'unchanged'}")


def asked(ctx: typer.Context) -> Json:
    """What the options of `create` and `update` ask for, as `atoll.cli.queue_spec` takes it."""
    given = {key: value for key, value in ctx.params.items() if key not in ("name", "output")}
    return {key.rstrip("_"): list(value) if isinstance(value, tuple) else value for key, value in given.items()}


async def _warn(host: ApiServer, queue: Json) -> None:
    """Say on stderr which members and which policy of a queue do not exist, to who may list them."""
    from atoll.cli import queue_spec
    from atoll.kube.errors import ApiError
    from atoll.model import keys
    from atoll.model.apiresource import CLUSTER_POLICIES, CLUSTERS, POLICIES

    annotations = queue["metadata"].get("annotations") or {}
    policy, policies, clusters = annotations.get(keys.DEFAULT_POLICY, ""), None, []
    try:
        if policy:
            namespace, slash, _ = policy.rpartition("/")
            found = await host.list(POLICIES if slash else CLUSTER_POLICIES, namespace or None)
            policies = [f"{namespace}{slash}{each['metadata']['name']}" for each in found]
        if keys.CLUSTER_AFFINITY in annotations or queue["spec"].get("extendClusters"):
            clusters = await host.list(CLUSTERS)
    except ApiError:
        # The queue is as it was asked for; this is only advice.
        return
    for line in queue_spec.warnings(queue, clusters, policies):
        print(f"Warning: {line}", file=sys.stderr)


@app.command(epilog="Example: atollctl queue describe research")
def describe(ctx: typer.Context, name: Name, output: DataOutput = None) -> None:
    """Show what a queue and those below it may use and do use, who borrows from whom, what runs, and why the rest
    waits.
    """
    from atoll.cli import queue_description
    from atoll.cli.connection import call
    from atoll.cli.unseen import Unseen
    from atoll.model.apiresource import BINDINGS, CAPACITIES, CLUSTERS, QUEUES

    options = settings(ctx)

    async def read(host: ApiServer) -> Json:
        queue, queues, unseen = await host.get(QUEUES, name), await host.list(QUEUES), Unseen()
        bindings = await unseen.allowed("workloads of other namespaces", host.list(BINDINGS))
        partial = bindings is None
        if bindings is None:
            own = options.one_namespace
            bindings = await unseen.allowed(f"workloads of namespace {own}", host.list(BINDINGS, own))
        return queue_description.describe(
            queue,
            queues,
            bindings or [],
            time.time(),
            clusters=await unseen.allowed("which members serve it", host.list(CLUSTERS)),
            capacities=await unseen.allowed("what its members have", host.list(CAPACITIES)) or (),
            partial=partial,
            unseen=unseen.lines,
        )

    data = call(options, read)
    if output is not None:
        show_data(data, output)
    else:
        print(queue_description.text(data))


@app.command("list", epilog="Example: atollctl queue list -o wide")
def list_(ctx: typer.Context, output: Output = None, no_headers: NoHeaders = False, watch: Watch = False) -> None:
    """List all queues with what they hold."""
    _show(ctx, None, output, no_headers, watch)


@app.command(epilog="Example: atollctl queue get research -o yaml")
def get(
    ctx: typer.Context, name: Name, output: Output = None, no_headers: NoHeaders = False, watch: Watch = False
) -> None:
    """Show one queue."""
    _show(ctx, name, output, no_headers, watch)


@app.command(epilog="Example: atollctl queue close research   # what runs goes on, nothing new starts")
def close(ctx: typer.Context, name: Name, wait: Wait = True) -> None:
    """Close a queue: it admits nothing until it is opened again."""
    _operate(ctx, name, "CloseQueue", wait)


@app.command("open", epilog="Example: atollctl queue open research")
def open_(ctx: typer.Context, name: Name, wait: Wait = True) -> None:
    """Open a closed queue."""
    _operate(ctx, name, "OpenQueue", wait)


@app.command(epilog="Example: atollctl queue delete research")
def delete(
    ctx: typer.Context,
    name: Name,
    force: Annotated[bool, typer.Option(help="Although workloads are in it; they will wait for a queue.")] = False,
) -> None:
    """Delete a queue that holds no workloads."""
    from atoll.cli.connection import call
    from atoll.model import keys

    if name == keys.DEFAULT_QUEUE:
        raise CommandError(f"queue {name} is built in and can't be deleted; close it instead")
    call(settings(ctx), lambda host: _delete(host, name, force))
    print(f"queue.{_GROUP}/{name} deleted")


def rows(queues: list[Json], now: float, *, wide: bool) -> list[list[object]]:
    """The table's rows, in the order of names; each queue with what is below it.

    Args:
        queues: all of them, as the API server gave them.
        now: seconds since the epoch.
        wide: with the columns of `-o wide`.
    """
    result, states = [], queue_objects.states(queues)
    for queue in sorted(queues, key=lambda item: str(item["metadata"]["name"])):
        spec, name = queue_objects.mapping(queue.get("spec")), queue["metadata"]["name"]
        capability, counts = queue_objects.mapping(spec.get("capability")), queue_objects.counts(queue)
        row: list[object] = [
            name,
            states[name],
            spec.get("priority") or 0,
            *counts.values(),
            _amounts(queue_objects.allocated(queue)),
            _amounts(capability),
            age(queue["metadata"].get("creationTimestamp"), now),
        ]
        if wide:
            row += [spec.get("weight", 1), spec.get("parent") or ""]
        result.append(row)
    return result


def _amounts(amounts: Mapping[str, object]) -> str:
    return ",".join(f"{name}={amounts[name]}" for name in sorted(amounts))


def _show(ctx: typer.Context, name: str | None, output: Format | None, no_headers: bool, watch: bool) -> None:
    from atoll.cli.connection import call
    from atoll.model.apiresource import QUEUES

    wide = output is Format.WIDE
    headers = HEADERS + (WIDE if wide else ())
    if watch:
        from atoll.cli import watching

        def table(queues: list[Json], _: list[Json]) -> dict[str, list[object]]:
            return {str(row[0]): row for row in rows(queues, time.time(), wide=wide) if name in (None, row[0])}

        watching.check_output(output)
        # The state of one is that of those above it as well, so all are watched.
        watching.watch(settings(ctx), (QUEUES,), None, None, table, headers, bindings_in="", no_headers=no_headers)
        return
    data = output not in (None, Format.WIDE)

    async def read(host: ApiServer) -> list[Json]:
        found = [await host.get(QUEUES, name)] if name else []
        return found if data and name else await host.list(QUEUES)

    queues = call(settings(ctx), read)
    if output is not None and data:
        show_objects(queues, output, one=name is not None)
        return
    found = rows(queues, time.time(), wide=wide)
    show_table(headers, [row for row in found if name in (None, row[0])], no_headers=no_headers)


async def _delete(host: ApiServer, name: str, force: bool) -> None:
    from atoll.cli.bindings import use_by_queue, views
    from atoll.model.apiresource import BINDINGS, QUEUES

    queue = await host.get(QUEUES, name)
    held = use_by_queue(views(await host.list(BINDINGS))).get(name)
    if held and not force:
        raise CommandError(
            f"queue {name} holds {held.pending} waiting and {held.dispatched} running workloads: close it"
            " and let them finish, or use --force (they would then wait with reason QueueNotFound)"
        )
    await host.delete(QUEUES, name, uid=queue["metadata"]["uid"])


def _operate(ctx: typer.Context, name: str, action: str, wait: bool) -> None:
    from atoll.cli.connection import call

    state = call(settings(ctx), lambda host: operate(host, name, action, wait=wait))
    print(f"queue.{_GROUP}/{name} {state.lower() if state else 'told: ' + action}")


async def operate(host: ApiServer, name: str, action: str, *, wait: bool) -> str:
    """Send a queue a Command and, with `wait`, give the state that it led to (else an empty string).

    Raises:
        NotFound: no such queue.
        CommandError: the state did not follow in time.
    """
    from atoll.cli import commands
    from atoll.model.apiresource import QUEUES

    queue, wanted = await host.get(QUEUES, name), _STATES[action]
    await commands.send(host, QUEUES, queue, action)
    if not wait:
        return ""
    after = await commands.followed(
        host, QUEUES, queue, lambda seen: _state(seen) in wanted, seconds=_WAIT_S, wanted=wanted[0].lower()
    )
    return _state(after)


def _state(queue: Json) -> str:
    return str((queue.get("status") or {}).get("state") or "")
