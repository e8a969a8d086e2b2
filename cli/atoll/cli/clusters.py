"""`atollctl cluster`: the members, what they have and do; labels, taints, and none of new work for a while."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli.errors import FAILED, USAGE, CommandError
from atoll.cli.options import DataOutput, NoHeaders, Output, Selector, SortBy, settings, shape
from atoll.cli.printing import show_data, show_objects, show_table
from atoll.cli.suggestions import cluster_names
from atoll.cli.workloads import do_all, one_way
from atoll.model.keys import CORDONED, DRAINED
from atoll.model.timestamps import rfc3339_seconds
from atoll.view.clusters import HEADERS, WIDE, rows, summary, text

if TYPE_CHECKING:
    from atoll.kube.transport import ApiServer

Json = dict[str, Any]

app = typer.Typer(no_args_is_help=True, help="Members: what they have and do; labels, taints, cordon.")

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_LOOK_S = 1.0
"""Seconds between two looks at a member that empties."""
_TAINT = re.compile(r"(?P<key>[^=:]+)(?:=(?P<value>[^:]*))?(?::(?P<effect>\w+))?")

Name = Annotated[str, typer.Argument(help="Name of the member.", autocompletion=cluster_names)]
Names = Annotated[
    list[str] | None, typer.Argument(metavar="[name...]", help="Names of members.", autocompletion=cluster_names)
]
Selected = Annotated[
    str | None, typer.Option("--selector", "-l", help="Instead of names: all members with such labels.")
]


@app.command("list", epilog="Example: atollctl cluster list -o wide; atollctl cluster list -l gpu=h100 -o name")
def list_(
    ctx: typer.Context,
    output: Output = None,
    no_headers: NoHeaders = False,
    selector: Selector = None,
    sort_by: SortBy = None,
) -> None:
    """List the members: nodes, GPUs and CPUs (free of all), Works that are not applied yet of all, the last report."""
    from atoll.cli.connection import call

    wanted = shape(output)

    async def look(host: ApiServer) -> tuple[list[Json], list[Json]]:
        from atoll.cli import columns
        from atoll.model.apiresource import CLUSTERS

        clusters = columns.ordered(await host.list(CLUSTERS, label_selector=selector or ""), sort_by)
        return clusters, await gather(host, clusters) if wanted.table else []

    clusters, found = call(settings(ctx), look)
    if not wanted.table:
        show_objects(clusters, wanted, one=False, no_headers=no_headers)
        return
    lines = rows(found, time.time(), wide=wanted.wide)
    show_table(HEADERS + (WIDE if wanted.wide else ()), lines, no_headers=no_headers)


@app.command(epilog="Example: atollctl cluster describe east; atollctl cluster describe -l gpu=h100")
def describe(ctx: typer.Context, names: Names = None, selector: Selected = None, output: DataOutput = None) -> None:
    """Show members: conditions, taints, what they have of each resource, and what was sent there."""
    from atoll.cli.connection import call

    one_way("members", names, selector)

    async def look(host: ApiServer) -> list[Json]:
        from atoll.model.apiresource import CLUSTERS

        if names:
            return await gather(host, [await host.get(CLUSTERS, name) for name in names])
        return await gather(host, await host.list(CLUSTERS, label_selector=selector or ""))

    found = call(settings(ctx), look)
    if output is not None:
        show_data(found[0] if names and len(names) == 1 else found, output)
    else:
        print("\n\n".join(text(each, time.time()) for each in found))


@app.command(epilog="Example: atollctl cluster label east gpu=h100 old-")
def label(
    ctx: typer.Context,
    name: Name,
    labels: Annotated[list[str], typer.Argument(help="key=value sets, key- removes.")],
) -> None:
    """Set labels of a member, by which queues and policies select it."""
    wanted: dict[str, str | None] = {}
    for each in labels:
        key, equals, value = each.partition("=")
        if not equals and not each.endswith("-"):
            raise CommandError(f"{each!r}: write key=value, or key- to remove it", USAGE)
        wanted[key if equals else each[:-1]] = value if equals else None
    _patch(ctx, [name], None, lambda _: {"metadata": {"labels": wanted}}, "labeled")


@app.command(epilog="Example: atollctl cluster taint east maintenance=today:NoSchedule; atollctl cluster taint east a-")
def taint(
    ctx: typer.Context,
    name: Name,
    taints: Annotated[list[str], typer.Argument(help="key[=value]:Effect sets, key[:Effect]- removes.")],
) -> None:
    """Set taints of a member, which keep away what does not tolerate them."""
    wanted = [parse_taint(each) for each in taints]
    _patch(ctx, [name], None, lambda cluster: {"spec": {"taints": dated(cluster, wanted)}}, "tainted")


@app.command(epilog="Example: atollctl cluster cordon east   # what runs goes on, nothing new is sent there")
def cordon(ctx: typer.Context, names: Names = None, selector: Selected = None) -> None:
    """Send nothing new to members until they are uncordoned."""
    wanted = parse_taint(f"{CORDONED}:NoSchedule")
    _patch(ctx, names, selector, lambda cluster: {"spec": {"taints": tainted(cluster, [wanted])}}, "cordoned")


@app.command(epilog="Example: atollctl cluster uncordon east west; atollctl cluster uncordon -l gpu=h100")
def uncordon(ctx: typer.Context, names: Names = None, selector: Selected = None) -> None:
    """Let members get work again."""
    wanted = [parse_taint(f"{CORDONED}-"), parse_taint(f"{DRAINED}-")]
    _patch(ctx, names, selector, lambda cluster: {"spec": {"taints": tainted(cluster, wanted)}}, "uncordoned")


@app.command(
    epilog="Example: atollctl cluster drain east; atollctl cluster drain east --one-by-one --deadline 30m"
    "   # stop watching with Ctrl-C: it goes on; again: go on watching; uncordon ends it"
)
def drain(
    ctx: typer.Context,
    name: Name,
    one_by_one: Annotated[
        bool, typer.Option("--one-by-one", help="Each workload once the one before is gone; without it, all at once.")
    ] = False,
    deadline: Annotated[
        str | None, typer.Option(help="With --one-by-one: after so long, such as 30m, all that is left goes at once.")
    ] = None,
    timeout: Annotated[str, typer.Option(help="How long to watch; the drain goes on after that.")] = "1h",
) -> None:
    """Empty a member: its workloads go back to their queues, whole and with their age; nothing new is sent there."""
    from atoll.cli.connection import call
    from atoll.model import drains, duration

    try:
        seconds = duration.parse(deadline) if deadline is not None else None
        patience = duration.parse(timeout)
    except duration.DurationError as error:
        raise CommandError(f"--deadline, --timeout: {error}", USAGE) from None
    if seconds is not None and not one_by_one:
        raise CommandError("--deadline goes with --one-by-one: without it all goes at once", USAGE)
    how = drains.value(one_by_one=one_by_one, seconds=seconds)
    wanted = [parse_taint(f"{CORDONED}:NoSchedule"), parse_taint(f"{DRAINED}={how}:NoExecute")]

    def marked(cluster: Json) -> Json:
        taints = (cluster.get("spec") or {}).get("taints") or ()
        if any((each["key"], each.get("value")) == (DRAINED, how) for each in taints):
            # It is under way: its deadline counts from its beginning.
            return {}
        return {"spec": {"taints": dated(cluster, wanted)}}

    _patch(ctx, [name], None, marked, "is drained")
    if call(settings(ctx), lambda host: watched(host, name, patience)):
        raise CommandError(f"{name} is not empty after {timeout}: the drain goes on, repeat the command to watch it")


async def watched(host: ApiServer, name: str, patience: float) -> int:
    """Print the rest in a member whenever that is less or more, until it is empty; how much is left at the end."""
    import asyncio

    from atoll.model.apiresource import WORKS
    from atoll.model.keys import execution_namespace
    from atoll.model.plurals import counted

    end, last = time.monotonic() + patience, -1
    while True:
        works = await host.list(WORKS, execution_namespace(name))
        if len(works) != last:
            last = len(works)
            going = sum(bool(each["metadata"].get("deletionTimestamp")) for each in works)
            print(f"{name}: {counted(last, 'workload')} left, {going} of them going" if last else f"{name}: empty")
        if not last or time.monotonic() >= end:
            return last
        await asyncio.sleep(_LOOK_S)


@app.command(epilog="Example: atollctl cluster ceiling east nvidia.com/gpu=16,cpu=200   # none takes it away")
def ceiling(
    ctx: typer.Context,
    name: Name,
    amounts: Annotated[str, typer.Argument(help="resource=quantity, separated by commas; `none` takes it away.")],
) -> None:
    """Believe and use no more of a member than so much, whatever it publishes; what runs there goes on."""
    from atoll.cli.queue_spec import resources
    from atoll.model import keys

    wanted = None if amounts == "none" else ",".join(f"{k}={v}" for k, v in resources(amounts, "AMOUNTS").items())
    if wanted == "":
        raise CommandError("AMOUNTS: write resource=quantity, or none", USAGE)
    _patch(
        ctx,
        [name],
        None,
        lambda _: {"metadata": {"annotations": {keys.CEILING: wanted}}},
        "given a ceiling" if wanted else "without a ceiling",
    )


def parse_taint(text: str) -> tuple[Json, bool]:
    """A taint as kubectl writes it, and whether it is to be there.

    Raises:
        CommandError: not of that form.
    """
    off = text.endswith("-")
    match = _TAINT.fullmatch(text.removesuffix("-"))
    if match is None or not (off or match["effect"]):
        raise CommandError(f"{text!r}: write key[=value]:Effect, or key[:Effect]- to remove it", USAGE)
    if match["effect"] and match["effect"] not in _EFFECTS:
        raise CommandError(f"{text!r}: {match['effect']} is none of {', '.join(_EFFECTS)}", USAGE)
    found = {"key": match["key"], "value": match["value"], "effect": match["effect"]}
    return {field: value for field, value in found.items() if value}, not off


def tainted(cluster: Json, wanted: Sequence[tuple[Json, bool]]) -> list[Json]:
    """The taints of a member with these changes."""
    found = [*((cluster.get("spec") or {}).get("taints") or ())]
    for item, there in wanted:
        found = [
            each
            for each in found
            if each["key"] != item["key"] or ("effect" in item and each.get("effect") != item["effect"])
        ]
        if there:
            found.append(item)
    return found


def dated(cluster: Json, wanted: Sequence[tuple[Json, bool]]) -> list[Json]:
    """As `tainted`; those with effect NoExecute say since when they are there, for tolerations count from then."""
    known = {(each["key"], each.get("value")): each.get("timeAdded") for each in tainted(cluster, [])}
    now = rfc3339_seconds(time.time())
    return [
        {**each, "timeAdded": known.get((each["key"], each.get("value"))) or now}
        if each.get("effect") == "NoExecute"
        else each
        for each in tainted(cluster, wanted)
    ]


def _patch(
    ctx: typer.Context, names: Sequence[str] | None, selector: str | None, change: Callable[[Json], Json], done: str
) -> None:
    from atoll.cli.connection import call
    from atoll.model.apiresource import CLUSTERS

    one_way("members", names, selector)

    async def patched(host: ApiServer, name: str) -> str:
        before = await host.get(CLUSTERS, name)
        patch = change(before)
        # Lists are replaced whole: another's change in between must not be lost.
        patch.setdefault("metadata", {})["resourceVersion"] = before["metadata"]["resourceVersion"]
        after = await host.merge_patch(CLUSTERS, name, patch, field_manager="atollctl")
        changed = after["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]
        return f"cluster.cluster.karmada.io/{name} {done}{'' if changed else ' already'}"

    async def work(host: ApiServer) -> bool:
        targets = names or [
            each["metadata"]["name"] for each in await host.list(CLUSTERS, label_selector=selector or "")
        ]
        if not targets:
            print(f"No members found with labels {selector}.", file=sys.stderr)
        return await do_all(targets, lambda name: patched(host, name))

    if call(settings(ctx), work):
        raise SystemExit(FAILED)


# -- what there is -----------------------------------------------------------------------------------------------------


async def gather(host: ApiServer, clusters: Sequence[Json] | None = None) -> list[Json]:
    """Members as data: these Clusters, or all in the order of their names."""
    from atoll.cli.unseen import Unseen
    from atoll.model.apiresource import CAPACITIES, CLUSTERS, LEASES, WORKS

    unseen = Unseen()
    if clusters is None:
        clusters = await host.list(CLUSTERS)
    capacities = await unseen.allowed("what members have", host.list(CAPACITIES)) or []
    works = await unseen.allowed("Works", host.list(WORKS)) or []
    leases = await unseen.allowed("reports", host.list(LEASES)) or []
    return [summary(each, capacities, works, leases) for each in clusters]
