"""`atollctl init` and `atollctl join`: real clusters become a federation."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli.errors import USAGE, CommandError
from atoll.cli.options import settings

if TYPE_CHECKING:
    from atoll.kube.transport import ApiServer

Out = Annotated[Path, typer.Option(help="Folder for the kubeconfigs.", file_okay=False)]
_OUT = Path("atoll-credentials")


def init(
    ctx: typer.Context,
    out: Out = _OUT,
    webhook_url: Annotated[
        str | None, typer.Option(help="https URL at which the host's API server reaches atoll-webhook.")
    ] = None,
    webhook_service: Annotated[
        str, typer.Option(help="Service of atoll-webhook as namespace/name:port, if no URL is given.")
    ] = "atoll-system/atoll-webhook:443",
) -> None:
    """Make a cluster the host of a federation: CRDs, accounts, default queue. Starts no process; safe to repeat."""
    address = client_config(webhook_url, webhook_service)
    from atoll.cli.connection import call
    from atoll.control import install

    options = settings(ctx)

    async def work(host: ApiServer) -> None:
        at = await install.endpoint(options.kubeconfig, options.context)
        await install.init(host, at, out=out, webhook_client_config=address, progress=print)

    call(options, work)
    print("\nThe host is ready. Start on it:")
    for process in install.PROCESSES:
        print(f"  atoll-{process} --kubeconfig={shlex.quote(str(install.kubeconfig_of(out, process)))}")
    print("and add members with: atollctl join NAME --member-kubeconfig FILE")


def join(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the member: a DNS label of at most 48 characters.")],
    member_kubeconfig: Annotated[
        Path, typer.Option(help="Administrator's kubeconfig of the member.", exists=True, dir_okay=False)
    ],
    member_context: Annotated[str | None, typer.Option(help="Context in that kubeconfig.")] = None,
    out: Out = _OUT,
    label: Annotated[list[str] | None, typer.Option("--label", help="key=value, may be repeated.")] = None,
    region: Annotated[str, typer.Option(help="Where it is.")] = "",
    provider: Annotated[str, typer.Option(help="Who runs it.")] = "",
    zone: Annotated[list[str] | None, typer.Option("--zone", help="Failure zone, may be repeated.")] = None,
) -> None:
    """Join a member cluster to the federation. Starts no process; safe to repeat."""
    labels = key_values(label or [])
    from atoll.cli.connection import call
    from atoll.control import install
    from atoll.kube.transport import ApiServer

    options = settings(ctx)

    async def work(host: ApiServer) -> list[str]:
        async with await ApiServer.from_kubeconfig(member_kubeconfig, member_context, user_agent="atollctl") as member:
            return await install.join(
                host,
                member,
                name,
                host_at=await install.endpoint(options.kubeconfig, options.context),
                member_at=await install.endpoint(member_kubeconfig, member_context),
                out=out,
                facts=install.MemberFacts(labels, region, provider, tuple(zone or ())),
                progress=print,
            )

    install.check_name(name)
    command = call(options, work)
    print(f"\nMember {name} is joined. Start its agent:\n  {shlex.join(command)}")


def client_config(url: str | None, service: str) -> dict[str, Any]:
    """Where the API server finds the webhook, in the form of a webhook configuration.

    Raises:
        CommandError: neither a https URL nor namespace/name:port.
    """
    if url is not None:
        if not url.startswith("https://"):
            raise CommandError(f"--webhook-url {url!r}: an API server calls webhooks by https only", USAGE)
        return {"url": url.rstrip("/")}
    namespace, slash, rest = service.partition("/")
    name, _, port = rest.partition(":")
    if not (namespace and slash and name) or not (port or "443").isdigit():
        raise CommandError(f"--webhook-service {service!r}: write namespace/name:port", USAGE)
    return {"service": {"namespace": namespace, "name": name, "port": int(port or "443")}}


def key_values(pairs: list[str]) -> dict[str, str]:
    """`key=value` options as a dict.

    Raises:
        CommandError: one is not of that form.
    """
    result = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise CommandError(f"--label {pair!r}: write key=value", USAGE)
        result[key] = value
    return result
