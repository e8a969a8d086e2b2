"""`atollctl queue`: make, look at, close, open and delete queues."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli.errors import USAGE, CommandError
from atoll.cli.options import Format, NoHeaders, Output, settings
from atoll.cli.printing import age, show_objects, show_table

if TYPE_CHECKING:
    from atoll.cli.bindings import QueueUse
    from atoll.kube.transport import ApiServer

Json = dict[str, Any]

app = typer.Typer(no_args_is_help=True, help="Queues: quota and order of workloads.")

HEADERS = ("NAME", "STATE", "PRIORITY", "PENDING", "RUNNING", "USED", "CAPABILITY", "AGE")
WIDE = ("WEIGHT", "PARENT")

_GROUP = "scheduling.volcano.sh"
_COMMAND_NAMESPACE = "default"
_WAIT_S = 10.0
_STATES = {"CloseQueue": ("Closed", "Closing"), "OpenQueue": ("Open",)}

Name = Annotated[str, typer.Argument(help="Name of the queue.")]
Wait = Annotated[bool, typer.Option(help="Return only once the queue's state has followed (at most 10 s).")]


def resources(text: str | None, option: str) -> dict[str, str]:
    """`cpu=64,nvidia.com/gpu=16` as a ResourceList.

    Raises:
        CommandError: not of that form, or not a quantity.
    """
    from atoll.model.quantity import QuantityError, parse

    result: dict[str, str] = {}
    for part in (text or "").split(","):
        if not part.strip():
            continue
        name, equals, amount = (piece.strip() for piece in part.partition("="))
        if not (name and equals and amount):
            raise CommandError(f"{option} {part.strip()!r}: write resource=quantity, such as cpu=64,memory=1Ti", USAGE)
        if name in result:
            raise CommandError(f"{option}: {name} is given twice", USAGE)
        try:
            if parse(amount) < 0:
                raise CommandError(f"{option} {name}={amount}: must not be negative", USAGE)
        except QuantityError as error:
            raise CommandError(f"{option} {name}: {error}", USAGE) from error
        result[name] = amount
    return result


def queue_object(
    name: str, *, capability: str | None, deserved: str | None, weight: int, priority: int | None, parent: str | None
) -> Json:
    """The Queue that these options ask for; what is not given is left out."""
    spec: Json = {"weight": weight}
    for key, value in (
        ("capability", resources(capability, "--capability")),
        ("deserved", resources(deserved, "--deserved")),
        ("parent", parent),
    ):
        if value:
            spec[key] = value
    if priority is not None:
        spec["priority"] = priority
    return {"apiVersion": f"{_GROUP}/v1beta1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


@app.command(
    epilog="Example: atollctl queue create research --capability cpu=64,nvidia.com/gpu=16 --weight 2 --priority 10"
)
def create(
    ctx: typer.Context,
    name: Name,
    capability: Annotated[str | None, typer.Option(help="Most that it may use, such as cpu=64,memory=1Ti.")] = None,
    deserved: Annotated[str | None, typer.Option(help="What it is entitled to, in the same form.")] = None,
    weight: Annotated[int, typer.Option(min=1, max=65535, help="Share among its siblings.")] = 1,
    priority: Annotated[int | None, typer.Option(min=0, help="Higher is served first.")] = None,
    parent: Annotated[str | None, typer.Option(help="Queue above it.")] = None,
    output: Output = None,
) -> None:
    """Create a queue."""
    wanted = queue_object(
        name, capability=capability, deserved=deserved, weight=weight, priority=priority, parent=parent
    )
    from atoll.cli.connection import call
    from atoll.model.apiresource import QUEUES

    made = call(settings(ctx), lambda host: host.create(QUEUES, wanted, field_manager="atollctl"))
    if output is None or output is Format.WIDE:
        print(f"queue.{_GROUP}/{name} created")
    else:
        show_objects([made], output, one=True, group=_GROUP)


@app.command("list", epilog="Example: atollctl queue list -o wide")
def list_(ctx: typer.Context, output: Output = None, no_headers: NoHeaders = False) -> None:
    """List all queues with what they hold."""
    _show(ctx, None, output, no_headers)


@app.command(epilog="Example: atollctl queue get research -o yaml")
def get(ctx: typer.Context, name: Name, output: Output = None, no_headers: NoHeaders = False) -> None:
    """Show one queue."""
    _show(ctx, name, output, no_headers)


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

    if name in (keys.DEFAULT_QUEUE, keys.ROOT_QUEUE):
        raise CommandError(f"queue {name} is built in and can't be deleted; close it instead")
    call(settings(ctx), lambda host: _delete(host, name, force))
    print(f"queue.{_GROUP}/{name} deleted")


def rows(queues: list[Json], use: Mapping[str, QueueUse], now: float, *, wide: bool) -> list[list[object]]:
    """The table's rows, in the order of names.

    Args:
        queues: as the API server gave them.
        use: by name, as `atoll.cli.bindings.use_by_queue` counts it.
        now: seconds since the epoch.
        wide: with the columns of `-o wide`.
    """
    result = []
    for queue in sorted(queues, key=lambda item: str(item["metadata"]["name"])):
        spec, status, name = queue.get("spec") or {}, queue.get("status") or {}, queue["metadata"]["name"]
        held = use.get(name)
        row: list[object] = [
            name,
            status.get("state") or "Open",
            spec.get("priority") or 0,
            held.pending if held else 0,
            held.running if held else 0,
            _amounts(held.used, spec.get("capability") or {}) if held else "",
            ",".join(f"{key}={value}" for key, value in sorted((spec.get("capability") or {}).items())),
            age(queue["metadata"].get("creationTimestamp"), now),
        ]
        if wide:
            row += [spec.get("weight", 1), spec.get("parent") or ""]
        result.append(row)
    return result


def _amounts(used: Mapping[str, int], capability: Mapping[str, object]) -> str:
    """What is used; pods only where they are limited, as every workload has some."""
    from atoll.model.quantity import format_units

    return ",".join(
        f"{name}={format_units(name, used[name])}" for name in sorted(used) if name != "pods" or name in capability
    )


def _show(ctx: typer.Context, name: str | None, output: Format | None, no_headers: bool) -> None:
    from atoll.cli.connection import call
    from atoll.model.apiresource import BINDINGS, QUEUES

    data = output not in (None, Format.WIDE)

    async def read(host: ApiServer) -> tuple[list[Json], list[Json]]:
        queues = [await host.get(QUEUES, name)] if name else await host.list(QUEUES)
        return queues, [] if data else await host.list(BINDINGS)

    queues, bindings = call(settings(ctx), read)
    if output is not None and data:
        show_objects(queues, output, one=name is not None, group=_GROUP)
        return
    from atoll.cli.bindings import use_by_queue, views

    wide = output is Format.WIDE
    table = rows(queues, use_by_queue(views(bindings)), time.time(), wide=wide)
    show_table(HEADERS + (WIDE if wide else ()), table, no_headers=no_headers)


async def _delete(host: ApiServer, name: str, force: bool) -> None:
    from atoll.cli.bindings import use_by_queue, views
    from atoll.model.apiresource import BINDINGS, QUEUES

    queue = await host.get(QUEUES, name)
    held = use_by_queue(views(await host.list(BINDINGS))).get(name)
    if held and not force:
        raise CommandError(
            f"queue {name} holds {held.pending} waiting and {held.running} running workloads: close it and let them"
            " finish, or use --force (they would then wait with reason QueueNotFound)"
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
    from atoll.model.apiresource import COMMANDS, QUEUES

    queue = await host.get(QUEUES, name)
    target = {"apiVersion": QUEUES.api_version, "kind": QUEUES.kind, "name": name, "uid": queue["metadata"]["uid"]}
    # As vcctl does it: the Command lives in `default`, and goes with its queue if nobody takes it.
    await host.create(
        COMMANDS,
        {
            "apiVersion": COMMANDS.api_version,
            "kind": COMMANDS.kind,
            "metadata": {
                "generateName": f"{name}-{action.lower()}-",
                "namespace": _COMMAND_NAMESPACE,
                "ownerReferences": [{**target, "controller": True}],
            },
            "action": action,
            "target": {**target, "controller": True},
        },
        field_manager="atollctl",
    )
    if not wait:
        return ""
    try:
        async with asyncio.timeout(_WAIT_S):
            return await _state(host, queue, _STATES[action])
    except TimeoutError:
        wanted = _STATES[action][0]
        raise CommandError(
            f"queue {name} is not {wanted.lower()} after {_WAIT_S:.0f} s; the command stays:"
            f" is atoll-control running? (kubectl get commands -n {_COMMAND_NAMESPACE})"
        ) from None


async def _state(host: ApiServer, queue: Json, wanted: tuple[str, ...]) -> str:
    """Wait until a queue is in one of these states."""
    import orjson

    from atoll.model.apiresource import QUEUES

    meta = queue["metadata"]
    state = str((queue.get("status") or {}).get("state") or "")
    if state in wanted:
        return state
    async for line in host.watch(
        QUEUES, resource_version=meta["resourceVersion"], field_selector=f"metadata.name={meta['name']}"
    ):
        event = orjson.loads(line)
        if event["type"] == "DELETED":
            break
        state = str((event["object"].get("status") or {}).get("state") or "")
        if event["type"] != "BOOKMARK" and state in wanted:
            return state
    raise CommandError(f"queue {meta['name']} was deleted, or the watch of it ended")
