"""`atollctl hooks`: what the hooks of the Helm charts run in pods."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from atoll.cli.errors import USAGE, CommandError
from atoll.cli.options import settings

if TYPE_CHECKING:
    from atoll.kube.transport import ApiServer

app = typer.Typer(no_args_is_help=True, help="Steps that the Helm charts' hooks run in pods. Safe to repeat.")

Member = Annotated[
    str | None, typer.Option(help="The cluster is the member of this name; without it, the host.", metavar="NAME")
]
WebhookUrl = Annotated[str | None, typer.Option(help="https URL at which the host's API server reaches atoll-webhook.")]
WebhookService = Annotated[str | None, typer.Option(help="Or its Service, as namespace/name:port.")]
Timeout = Annotated[float, typer.Option(min=1, help="Seconds to wait at most.")]


@app.command(epilog="Example: atollctl hooks prepare; atollctl hooks prepare --member east --no-crds")
def prepare(
    ctx: typer.Context,
    member: Member = None,
    crds: Annotated[bool, typer.Option("--crds/--no-crds", help="Install or update the CRDs.")] = True,
    webhook_url: WebhookUrl = None,
    webhook_service: WebhookService = None,
) -> None:
    """Check versions, write the CRDs and what the processes need to become ready."""
    from atoll.cli.connection import call
    from atoll.cli.installing import client_config
    from atoll.install import chart_hooks

    address = client_config(webhook_url, webhook_service)

    async def work(api: ApiServer) -> None:
        if member is not None:
            await chart_hooks.prepare_member(api, member, crds=crds, progress=print)
        else:
            await chart_hooks.prepare_host(api, address, crds=crds, progress=print)

    call(settings(ctx), work)


@app.command(
    epilog="""Example: atollctl hooks embed '{"namespace": "atoll-host", "image": "registry.example.org/atoll"}'"""
)
def embed(
    ctx: typer.Context,
    values: Annotated[str, typer.Argument(help="Block host.embedded of a values file, as JSON.", metavar="JSON")],
) -> None:
    """Keep the values of an embedded host, and make or renew its Secrets."""
    import msgspec

    from atoll.cli.connection import call
    from atoll.install import EmbeddedValues, embedding

    try:
        given = msgspec.to_builtins(msgspec.json.decode(values, type=EmbeddedValues))
    except msgspec.DecodeError as error:
        raise CommandError(f"host.embedded: {error}", USAGE) from error
    call(settings(ctx), lambda carrier: embedding.prepare(carrier, given, print))


@app.command(epilog="Example: atollctl hooks complete --webhook-service atoll-system/atoll-webhook:443")
def complete(
    ctx: typer.Context,
    webhook_url: WebhookUrl = None,
    webhook_service: WebhookService = None,
    timeout: Timeout = 240.0,
) -> None:
    """Register the webhook once the API server reaches it, and make the default queue."""
    from atoll.cli.connection import call
    from atoll.cli.installing import client_config
    from atoll.install import chart_hooks

    address = client_config(webhook_url, webhook_service)
    call(settings(ctx), lambda host: chart_hooks.complete_host(host, address, timeout=timeout, progress=print))


@app.command(epilog="Example: atollctl hooks check")
def check(ctx: typer.Context) -> None:
    """Fail unless control and dispatcher have leaders and the webhook is registered."""
    from atoll.cli.connection import call
    from atoll.install import chart_hooks

    if missing := call(settings(ctx), chart_hooks.check_host):
        raise CommandError(missing)
    print("control and dispatcher lead, and the webhook is registered")


@app.command(epilog="Example: atollctl hooks leave; atollctl hooks leave --member east --host-kubeconfig host.yaml")
def leave(
    ctx: typer.Context,
    member: Member = None,
    host_kubeconfig: Annotated[Path | None, typer.Option(help="With --member: credentials of its agent.")] = None,
    timeout: Timeout = 120.0,
) -> None:
    """Refuse while work runs; then stop the processes and remove objects that are not the chart's."""
    from atoll.cli.connection import call
    from atoll.install import chart_hooks
    from atoll.kube.transport import ApiServer

    async def work(api: ApiServer) -> None:
        if member is None:
            await chart_hooks.leave_host(api, timeout=timeout, progress=print)
        elif host_kubeconfig is None or not host_kubeconfig.exists():
            # atollctl unjoin takes the Secret along.
            await chart_hooks.leave_member(api, None, member, timeout=timeout, progress=print)
        else:
            async with await ApiServer.from_kubeconfig(host_kubeconfig, None, user_agent="atollctl") as host:
                await chart_hooks.leave_member(api, host, member, timeout=timeout, progress=print)

    call(settings(ctx), work)
