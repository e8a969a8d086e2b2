"""`atollctl member`: a cluster joins by an invitation, and no administrator needs the keys of both sides."""

from __future__ import annotations

import asyncio
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli.errors import USAGE, CommandError
from atoll.cli.installing import CredentialsOption, by_certificate, key_values, member_facts
from atoll.cli.options import NoHeaders, settings
from atoll.cli.printing import show_table
from atoll.cli.rebalancing import rebalance
from atoll.model import keys
from atoll.model.reports import readable

if TYPE_CHECKING:
    from atoll import install
    from atoll.kube.transport import ApiServer

Json = dict[str, Any]

app = typer.Typer(no_args_is_help=True, help="Members: joining by an invitation, rebalancing of their nodes.")

app.command(
    epilog="Example: atollctl member rebalance --dry-run --member-kubeconfig east.yaml --policy"
    " volcano-system/volcano-descheduler --prometheus http://localhost:9090"
)(rebalance)

NewName = Annotated[str, typer.Argument(help="Name of the member: a DNS label of at most 48 characters.")]
Labels = Annotated[list[str] | None, typer.Option("--label", help="key=value of its Cluster, may be repeated.")]
Region = Annotated[str | None, typer.Option(help="Where it is; '' for nothing.")]
Provider = Annotated[str | None, typer.Option(help="Who runs it; '' for nothing.")]
Zones = Annotated[list[str] | None, typer.Option("--zone", help="Failure zone, may be repeated; '' for none.")]


@app.command(
    epilog="Example: atollctl member invite east --host-url https://host.example:6443; atollctl member invite east"
    " --approve UID --label gpu=h100"
)
def invite(
    ctx: typer.Context,
    name: NewName,
    host_url: Annotated[
        str | None,
        typer.Option(help="URL at which the member finds the host. Default: as in the kubeconfig.", show_default=False),
    ] = None,
    approve: Annotated[
        str | None,
        typer.Option(
            metavar="UID",
            help="Approve in advance the cluster whose namespace kube-system has this UID; no other may ask.",
            show_default=False,
        ),
    ] = None,
    label: Labels = None,
    region: Region = None,
    provider: Provider = None,
    zone: Zones = None,
    again: Annotated[bool, typer.Option(help="Although it is joined: its agent has lost its credentials.")] = False,
    credentials: CredentialsOption = None,
) -> None:
    """Invite a cluster for an hour: print a token that can ask to join under this name, and do nothing else."""
    facts = member_facts(label, region, provider, zone)
    if approve is None and any(each is not None for each in (label, region, provider, zone)):
        raise CommandError(
            "--label, --region, --provider and --zone go with --approve, or with `member approve`", USAGE
        )
    from dataclasses import replace

    from atoll import install
    from atoll.cli.connection import call

    options = settings(ctx)
    install.check_name(name)

    async def work(host: ApiServer) -> install.Invitation:
        at = await install.endpoint(options.kubeconfig, options.context)
        if host_url is not None:
            at = replace(at, url=host_url.rstrip("/"))
        return await install.invite(
            host,
            name,
            at,
            only=approve or "",
            facts=facts,
            again=again,
            by_certificate=by_certificate(credentials),
            progress=_tell,
        )

    made = call(options, work)
    values = {"--host-url": made.url, "--host-ca-hash": made.ca_hash, "--token": made.token}
    given = " ".join(f"{flag}={shlex.quote(value)}" for flag, value in values.items() if value)
    print(f"{name} may ask to join until {made.expires}. Its administrator runs, with a kubeconfig of that cluster:")
    print(f"  atollctl member request {name} --member-kubeconfig=FILE {given}")
    print("or, with its agent in pods there (image.repository: your registry):")
    values = {"cluster": name, "host.url": made.url, "host.caHash": made.ca_hash, "host.token": made.token}
    given = " ".join(f"--set={key}={shlex.quote(value)}" for key, value in values.items() if value)
    print(f"  helm install atoll-agent deploy/charts/atoll-agent -n {keys.SYSTEM_NAMESPACE} --create-namespace {given}")
    if approve is None:
        print(f"then approve it here: atollctl member approve {name}")


@app.command("requests", epilog="Example: atollctl member requests")
def requests_(ctx: typer.Context, no_headers: NoHeaders = False) -> None:
    """List invitations and requests of this hour; older ones are gone."""
    from atoll import install
    from atoll.cli.connection import call

    found = call(settings(ctx), install.requests)
    lines = [
        (
            each["metadata"]["name"],
            _state(each),
            (each.get("status") or {}).get("id", ""),
            readable((each.get("status") or {}).get("askedAt", ""), 32),
            each["spec"]["expires"],
        )
        for each in found
    ]
    show_table(("NAME", "STATE", "UID", "ASKED", "EXPIRES"), lines, no_headers=no_headers)


@app.command(epilog="Example: atollctl member offers")
def offers(ctx: typer.Context, no_headers: NoHeaders = False) -> None:
    """List clusters of inventories on the host (ClusterProfiles of other managers) that `join` may take."""
    from atoll import install
    from atoll.cli.connection import call

    lines = [
        (each.profile, each.manager, each.version, each.healthy, ",".join(each.providers), each.member)
        for each in call(settings(ctx), install.offers)
    ]
    show_table(("PROFILE", "MANAGER", "VERSION", "HEALTHY", "PROVIDERS", "MEMBER"), lines, no_headers=no_headers)


@app.command(epilog="Example: atollctl member approve east; atollctl member approve east --label gpu=h100 --yes")
def approve(
    ctx: typer.Context,
    name: NewName,
    label: Labels = None,
    region: Region = None,
    provider: Provider = None,
    zone: Zones = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Show the request of a cluster, and take it as a member. Labels and places given here win over its own."""
    facts = member_facts(label, region, provider, zone)
    from atoll import install
    from atoll.cli.connection import call

    options = settings(ctx)
    request = call(options, lambda host: install.pending(host, name))
    print("\n".join(_described(request)))
    if not yes:
        if not sys.stdin.isatty():
            raise CommandError("there is no terminal to confirm this: look at the request, then give --yes", USAGE)
        typer.confirm(f"Take this cluster as member {name}?", abort=True)
    call(options, lambda host: install.approve(host, request, facts, _tell))
    print(f"Member {name} is approved: its agent gets its credentials.")


@app.command(epilog="Example: atollctl member deny east --message 'ask the platform team first'")
def deny(
    ctx: typer.Context,
    name: NewName,
    message: Annotated[str, typer.Option(help="Reason for the other side.")] = "",
) -> None:
    """Deny the request of a cluster, or withdraw an unused invitation."""
    from atoll import install
    from atoll.cli.connection import call

    call(settings(ctx), lambda host: install.deny(host, name, message))
    print(f"{name} is denied.")


@app.command(
    epilog="Example: atollctl member request east --member-kubeconfig east.yaml --host-url https://host.example:6443"
    " --host-ca-hash sha256:... --token ..."
)
def request(
    name: NewName,
    host_url: Annotated[str, typer.Option(help="URL of the host, from the invitation.")],
    token: Annotated[str, typer.Option(help="Token of the invitation.", envvar="ATOLL_JOIN_TOKEN")],
    host_ca_hash: Annotated[
        str, typer.Option(help="Hash of the host's certificate authority, from the invitation.", show_default=False)
    ] = "",
    host_ca_file: Annotated[
        Path | None,
        typer.Option(help="The authority itself, for a host that answers no strangers.", exists=True, dir_okay=False),
    ] = None,
    host_proxy: Annotated[str | None, typer.Option(help="URL of a proxy on the way to the host.")] = None,
    member_kubeconfig: Annotated[
        Path | None,
        typer.Option(
            help="Administrator's kubeconfig of this cluster. Default: $KUBECONFIG.", exists=True, dir_okay=False
        ),
    ] = None,
    member_context: Annotated[str | None, typer.Option(help="Context in that kubeconfig.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the agent's kubeconfig of this cluster.", file_okay=False)] = (
        Path("atoll-credentials")
    ),
    label: Labels = None,
    region: Region = None,
    provider: Provider = None,
    zone: Zones = None,
    placer: Annotated[
        str | None, typer.Option(help="Who places pods here: atoll, kube-scheduler, volcano, kueue, or auto.")
    ] = None,
    member_queue: Annotated[
        str | None, typer.Option(help="Queue of Volcano, or LocalQueue of Kueue, for everything that is sent here.")
    ] = None,
    nodes: Annotated[
        str | None, typer.Option(help="Label selector of nodes that are Atoll's alone; '' for all.")
    ] = None,
    accept_namespace: Annotated[
        list[str] | None,
        typer.Option(help="Namespace of this cluster's own that work from the host may enter; may be repeated."),
    ] = None,
    allow_exec: Annotated[
        bool | None,
        typer.Option(
            "--allow-exec/--no-allow-exec",
            help="Users of the host may run commands in their pods here. Default: as before; at first not.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """In the cluster that is to join: prepare it, ask the host by an invitation, and wait for the approval."""
    from atoll import install
    from atoll.agent import joining
    from atoll.kube.transport import ApiServer

    facts = {
        "labels": key_values(label or []),
        "region": region,
        "provider": provider,
        "zones": [*filter(None, zone or ())],
        "placer": placer,
        "memberQueue": member_queue,
        "nodes": nodes,
    }
    invitation = joining.Invitation(
        host_url, token, host_ca_hash, host_ca_file.read_bytes() if host_ca_file else None, host_proxy
    )

    async def work() -> list[str]:
        at = await install.endpoint(member_kubeconfig, member_context)
        async with await ApiServer.from_kubeconfig(member_kubeconfig, member_context, user_agent="atollctl") as member:
            await install.prepare_invited(
                member,
                name,
                placing=install.PlacingWish(placer, member_queue, nodes),
                accept=tuple(accept_namespace or ()),
                allow_exec=allow_exec,
                progress=_tell,
            )
            await joining.join(member, name, invitation, {**facts, "apiEndpoint": at.url}, _tell)
            return await install.agent_of_invited(member, name, at, out, _tell)

    try:
        command = asyncio.run(work())
    except joining.NotJoined as error:
        raise CommandError(f"{name} has not joined: {error}") from error
    print(f"\nThis cluster is member {name}. Start its agent:\n  {shlex.join(command)}")


def _described(request: Json) -> list[str]:
    asked = request["status"]
    labels = ", ".join(f"{key}={value}" for key, value in sorted((asked.get("labels") or {}).items()))
    said = {
        "Member": request["metadata"]["name"],
        "UID of kube-system": asked["id"],
        "Asked": asked["askedAt"],
        "Kubernetes": asked.get("version"),
        "API server": asked.get("apiEndpoint") or "known to its own pods only",
        "Labels": labels or "none",
        "Region": asked.get("region"),
        "Provider": asked.get("provider"),
        "Zones": ", ".join(asked.get("zones") or ()),
        "Placer": asked.get("placer"),
        "Queue there": asked.get("memberQueue"),
        "Nodes": asked.get("nodes"),
        "Invitation ends": request["spec"]["expires"],
    }
    return [f"{title}: {readable(str(value))}" for title, value in said.items() if value]


def _state(request: Json) -> str:
    if answer := request["spec"].get("decision"):
        return str(answer)
    return "Asked" if request.get("status") else "Invited"


def _tell(line: str) -> None:
    print(line, flush=True)
