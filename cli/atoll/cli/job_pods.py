"""`atollctl job pods`: where the pods of a workload are, in all its members, as the host was told.

The host has counts and nodes, not the pods themselves: a name for each pod would be a write of the binding for each one
that comes or goes. Members tell names when they are asked for output or Events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from atoll.cli.lookup import binding_of, find, not_ready
from atoll.cli.options import DataOutput, NoHeaders, settings
from atoll.cli.printing import show_data
from atoll.cli.workloads import Name

if TYPE_CHECKING:
    from atoll.kube.transport import ApiServer

Json = dict[str, Any]


def pods(ctx: typer.Context, name: Name, output: DataOutput = None, no_headers: NoHeaders = False) -> None:
    """Show on which nodes of which members the pods of a job are, and how many run, wait or have ended there."""
    from atoll.cli.connection import call
    from atoll.view import pods as pods_view

    options = settings(ctx)
    data = call(options, lambda host: gather(host, name, options.one_namespace))
    if output is not None:
        show_data(data, output)
    else:
        print(pods_view.text(data, no_headers=no_headers))


async def gather(host: ApiServer, workload: str, namespace: str) -> Json:
    """What the host knows of the pods of a workload, and what this user may see of it, as data."""
    from atoll.cli.unseen import Unseen
    from atoll.view import pods as pods_view

    resource, found = await find(host, workload, namespace)
    found = {"apiVersion": resource.api_version, "kind": resource.kind, **found}
    unseen = Unseen()
    binding = await unseen.allowed("in which members they are: its binding", binding_of(host, resource, found))
    silent = await not_ready(host) if binding is not None else {}
    return pods_view.describe(resource, found, binding, silent, unseen.lines)
