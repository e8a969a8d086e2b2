"""`atollctl job events`: what happened to a workload on the host, and to its pods in all its members."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import orjson
import typer

from atoll.cli.lookup import binding_of, find
from atoll.cli.options import DataOutput, NoHeaders, settings
from atoll.cli.printing import show_data, show_table
from atoll.cli.workloads import Name

if TYPE_CHECKING:
    from atoll.kube.transport import ApiServer

Json = dict[str, Any]

HEADERS = ("LAST", "CLUSTER", "TYPE", "REASON", "OBJECT", "MESSAGE")


def events(ctx: typer.Context, name: Name, output: DataOutput = None, no_headers: NoHeaders = False) -> None:
    """Show the Events of a job on the host and of its pods in its members, the oldest first."""
    from atoll.cli.connection import call

    options = settings(ctx)
    found, missing = call(options, lambda host: gather(host, name, options.one_namespace))
    if output is not None:
        show_data({"events": found, "missing": missing}, output)
        return
    show_table(HEADERS, [row(each, time.time()) for each in found], no_headers=no_headers)
    for text in missing:
        typer.echo(text, err=True)


async def gather(host: ApiServer, workload: str, namespace: str) -> tuple[list[Json], list[str]]:
    """(Events with their cluster in the order of their time, why others are missing)."""
    resource, found = await find(host, workload, namespace)
    binding = await binding_of(host, resource, found)
    subjects = [found, *([binding] if binding is not None else [])]
    events: list[Json] = []
    missing: list[str] = []
    for each in subjects:
        events += [{"cluster": "host", **event} for event in await about(host, each)]
    if binding is not None and (binding.get("spec") or {}).get("clusters"):
        told, missing = await from_members(host, binding, "events")
        events += told
    return sorted(events, key=lambda event: (last(event), event["metadata"]["name"])), missing


async def from_members(host: ApiServer, binding: Json, what: str) -> tuple[list[Json], list[str]]:
    """(objects that the members of a binding tell, why others are missing).

    Args:
        host: the API server.
        binding: with members.
        what: subresource of verdicts: `events` or `pods`.
    """
    from atoll.kube.errors import ApiError
    from atoll.model.apiresource import VERDICTS

    meta, text = binding["metadata"], b""
    missing: list[str] = []
    try:
        async for chunk in host.stream(VERDICTS, VERDICTS.path(meta["namespace"], meta["name"], what), {}):
            text += chunk
    except ApiError as error:
        missing.append(f"those of its members can't be told: {error.said}")
    lines = text.splitlines()
    missing += [line.decode(errors="replace") for line in lines if not line.startswith(b"{")]
    return [orjson.loads(line) for line in lines if line.startswith(b"{")], missing


async def about(host: ApiServer, found: Json) -> list[Json]:
    """Events of the host about an object."""
    from atoll.model.apiresource import EVENTS

    meta = found["metadata"]
    return await host.list(EVENTS, meta.get("namespace"), field_selector=f"regarding.uid={meta['uid']}")


def row(event: Json, now: float) -> list[str]:
    """Of the table."""
    from atoll.model.ages import age

    about = event.get("regarding") or {}
    return [
        age(last(event) or None, now),
        event["cluster"],
        event.get("type") or "",
        event.get("reason") or "",
        f"{about.get('kind', '').lower()}/{about.get('name', '')}",
        " ".join((event.get("note") or "").split()),
    ]


def last(event: Json) -> str:
    """When it happened last, in RFC 3339; empty if that is not known."""
    series = event.get("series") or {}
    return str(
        series.get("lastObservedTime")
        or event.get("deprecatedLastTimestamp")
        or event.get("eventTime")
        or event["metadata"].get("creationTimestamp")
        or ""
    )
