"""`atollctl job pods`: where the pods of a workload are, in all its members, as the host was told.

The host has counts and nodes, not the pods themselves: a name for each pod would be a write of the binding for each one
that comes or goes. With `--each` the members tell their pods by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli.job_events import from_members
from atoll.cli.lookup import binding_of, find, not_ready
from atoll.cli.options import DataOutput, NoHeaders, settings
from atoll.cli.printing import show_data, show_table
from atoll.cli.workloads import Name

if TYPE_CHECKING:
    from atoll.kube.transport import ApiServer

Json = dict[str, Any]


def pods(
    ctx: typer.Context,
    name: Name,
    each: Annotated[
        bool, typer.Option("--each", help="A row for each pod: its node, rack, state, restarts and reason.")
    ] = False,
    output: DataOutput = None,
    no_headers: NoHeaders = False,
) -> None:
    """Show on which nodes of which members the pods of a job are, and how many run, wait or have ended there."""
    from atoll.cli.connection import call
    from atoll.view import pods as pods_view

    options = settings(ctx)
    if each:
        found, missing = call(options, lambda host: gather_each(host, name, options.one_namespace))
        if output is not None:
            show_data({"pods": found, "missing": missing}, output)
            return
        show_table(pods_view.EACH, pods_view.each_rows(found), no_headers=no_headers)
        for text in missing:
            typer.echo(text, err=True)
        return
    data = call(options, lambda host: gather(host, name, options.one_namespace))
    if output is not None:
        show_data(data, output)
    else:
        print(pods_view.text(data, no_headers=no_headers))


async def gather_each(host: ApiServer, workload: str, namespace: str) -> tuple[list[Json], list[str]]:
    """(pods of a workload as its members tell them, why others are missing)."""
    resource, found = await find(host, workload, namespace)
    binding = await binding_of(host, resource, found)
    if binding is None or not (binding.get("spec") or {}).get("clusters"):
        return [], ["it is in no member: it has no pods"]
    return await from_members(host, binding, "pods")


async def gather(host: ApiServer, workload: str, namespace: str) -> Json:
    """What the host knows of the pods of a workload, and what this user may see of it, as data."""
    from atoll.cli.unseen import Unseen
    from atoll.view import pods as pods_view

    resource, found = await find(host, workload, namespace)
    unseen = Unseen()
    binding = await unseen.allowed("in which members they are: its binding", binding_of(host, resource, found))
    silent = await not_ready(host) if binding is not None else {}
    return pods_view.describe(resource, found, binding, silent, unseen.lines)
