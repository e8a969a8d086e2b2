"""`atollctl init`, `join`, `unjoin` and `uninstall`: real clusters become a federation, and leave it."""

from __future__ import annotations

import contextlib
import shlex
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli import embedding
from atoll.cli.errors import USAGE, CommandError
from atoll.cli.options import Settings, settings
from atoll.model import keys
from atoll.model.namespaces import LABELLED

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from atoll.install import MemberFacts, Rehearsal
    from atoll.kube.transport import ApiServer


class DryFormat(StrEnum):
    """Values of `--output`."""

    YAML = "yaml"


class HostKind(StrEnum):
    """What a host is."""

    HOST = "host"
    KARMADA = "karmada"


class CredentialKind(StrEnum):
    """Credentials of an agent for the host."""

    TOKEN = "token"
    CERTIFICATE = "certificate"


CredentialsOption = Annotated[
    CredentialKind | None,
    typer.Option(
        help="Of the agent for the host: a token for a year, or a client certificate for 30 days, which the host's"
        " signer must issue. The agent renews either. Default: as before; at first a token.",
        show_default=False,
    ),
]
DryRunFlag = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Write nothing and issue no credentials: print a line per object, which the API server judges. Not tried:"
        " whether it reaches a new address.",
    ),
]
DryOutput = Annotated[
    DryFormat | None,
    typer.Option("--output", "-o", help="With --dry-run: the objects, without Secrets.", show_default=False),
]
Out = Annotated[Path, typer.Option(help="Folder for the kubeconfigs.", file_okay=False)]
_OUT = Path("atoll-credentials")


def by_certificate(kind: CredentialKind | None) -> bool | None:
    """As `install.join` takes it."""
    return None if kind is None else kind is CredentialKind.CERTIFICATE


def init(
    ctx: typer.Context,
    out: Out = _OUT,
    webhook_url: Annotated[
        str | None, typer.Option(help="https URL at which the host's API server reaches atoll-webhook.")
    ] = None,
    webhook_service: Annotated[
        str | None,
        typer.Option(
            help="Or its Service, as namespace/name:port. Default: as before; at first atoll-system/atoll-webhook:443."
        ),
    ] = None,
    query_outside: Annotated[
        str | None,
        typer.Option(
            help="Address at which the host's API server reaches atoll-dispatcher, if that does not run in the host; ''"
            " if it does. Default: as before."
        ),
    ] = None,
    enable_namespace: Annotated[
        list[str] | None,
        typer.Option(
            help="Opt this namespace in: workloads there go through queues; NAME=labelled: those that name one. May be"
            " repeated; default: none."
        ),
    ] = None,
    on: Annotated[
        HostKind | None,
        typer.Option(
            help="What the host is: a cluster of Atoll's own, or a Karmada's API server, whose bindings of policies"
            " with schedulerName: atoll are then queued and placed by Atoll. Default: as before; at first host."
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option(help="Write a new address although the host's API server does not reach it.")
    ] = False,
    credentials: Annotated[
        bool, typer.Option("--credentials/--no-credentials", help="Write kubeconfigs of the processes into --out.")
    ] = True,
    embedded: Annotated[
        bool,
        typer.Option(
            "--embedded",
            help="Bring a host into this cluster as pods, in a namespace of its own (-n, default atoll-host): etcd, API"
            " server, controllers, Atoll's processes.",
        ),
    ] = False,
    image: Annotated[
        str | None, typer.Option(help="With --embedded: Atoll's image in your registry. Default: as before.")
    ] = None,
    values: Annotated[
        str | None,
        typer.Option("--values", "-f", metavar="FILE", help="With --embedded: YAML with block host.embedded."),
    ] = None,
    only_certificates: Annotated[
        bool, typer.Option("--only-certificates", help="With --embedded: renew those near their end, nothing else.")
    ] = False,
    print_kubeconfig: Annotated[
        bool, typer.Option("--print-kubeconfig", help="With --embedded: print the administrator's kubeconfig.")
    ] = False,
    timeout: Annotated[float, typer.Option(min=1, help="With --embedded: seconds for the pods of each step.")] = 600.0,
    dry_run: DryRunFlag = False,
    output: DryOutput = None,
) -> None:
    """Make a cluster the host of a federation: CRDs, accounts, default queue. Starts no process, but with --embedded.

    Safe to repeat: what no flag names stays as it is.
    """
    address = client_config(webhook_url, webhook_service)
    _check_output(dry_run, output)
    options = settings(ctx)
    wishes = embedding.Wishes(values, image, only_certificates, print_kubeconfig, timeout)
    if embedded:
        if address or query_outside is not None or enable_namespace or on or force:
            raise CommandError("flags about addresses, namespaces and --on don't go with --embedded", USAGE)
        if dry_run:
            if only_certificates or print_kubeconfig:
                raise CommandError("--dry-run does not go with --only-certificates and --print-kubeconfig", USAGE)
            _rehearse_embedded(options, wishes, output)
        else:
            embedding.bring(options, wishes)
        return
    if (image, values, only_certificates, print_kubeconfig) != (None, None, False, False):
        raise CommandError("--image, --values, --only-certificates and --print-kubeconfig go with --embedded", USAGE)
    from atoll import install
    from atoll.cli.connection import call

    async def work(host: ApiServer) -> bool:
        at = await install.endpoint(options.kubeconfig, options.context)
        return await install.init(
            host,
            at,
            out=out if credentials and not dry_run else None,
            webhook_client_config=address,
            query_outside=query_outside,
            enable=enable_namespace or (),
            on_karmada=None if on is None else on is HostKind.KARMADA,
            # The probe of a new address is a write.
            force=force or dry_run,
            progress=_silent if dry_run else print,
        )

    if dry_run:

        async def rehearse(host: install.Rehearsal) -> dict[str, install.Rehearsal]:
            await work(host)
            return {"host": host}

        _show(call(options, rehearse, install.Rehearsal), output)
        return
    on_karmada = call(options, work)
    if not credentials:
        return
    print("\nThe host is ready. Start on it:")
    for process in install.PROCESSES:
        said = " --on=karmada" if on_karmada and process == "control" else ""
        print(f"  atoll-{process} --kubeconfig={shlex.quote(str(install.kubeconfig_of(out, process)))}{said}")
    if on_karmada:
        print("Members are Karmada's. Policies with spec.schedulerName: atoll leave their workloads to Atoll.")
        return
    print("and add members with: atollctl join NAME --member-kubeconfig FILE")
    print(f"Namespaces opt in with: kubectl label namespace NAME {keys.ENABLED}=true")
    print(f"or, where only what names a queue is to be Atoll's, with {keys.ENABLED}={LABELLED}")


def _rehearse_embedded(options: Settings, wishes: embedding.Wishes, output: DryFormat | None) -> None:
    from atoll import install
    from atoll.cli.connection import call

    async def rehearse(carrier: install.Rehearsal) -> dict[str, install.Rehearsal]:
        await embedding.rehearse(options, wishes, carrier)
        return {"carrier": carrier}

    _show(call(options, rehearse, install.Rehearsal), output)


def join(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the member: a DNS label of at most 48 characters.")],
    member_kubeconfig: Annotated[
        Path | None,
        typer.Option(help="Administrator's kubeconfig of the member.", exists=True, dir_okay=False, show_default=False),
    ] = None,
    member_context: Annotated[str | None, typer.Option(help="Context in that kubeconfig.")] = None,
    cluster_profile: Annotated[
        str | None,
        typer.Option(
            metavar="NAMESPACE/NAME",
            help="Instead of --member-kubeconfig: the member's address, from this ClusterProfile on the host.",
            show_default=False,
        ),
    ] = None,
    access_provider: Annotated[
        str | None,
        typer.Option(help="Of status.accessProviders. Default: the only one.", show_default=False),
    ] = None,
    access_command: Annotated[
        str | None,
        typer.Option(
            help="With --cluster-profile: exec plug-in that prints an administrator's ExecCredential. Nothing that an"
            " inventory names is executed.",
            show_default=False,
        ),
    ] = None,
    out: Out = _OUT,
    label: Annotated[list[str] | None, typer.Option("--label", help="key=value, may be repeated.")] = None,
    region: Annotated[str | None, typer.Option(help="Where it is; '' for nothing.")] = None,
    provider: Annotated[str | None, typer.Option(help="Who runs it; '' for nothing.")] = None,
    zone: Annotated[
        list[str] | None, typer.Option("--zone", help="Failure zone, may be repeated; '' for none.")
    ] = None,
    placer: Annotated[
        str | None,
        typer.Option(
            help="Who places pods in the member: atoll, kube-scheduler, volcano, kueue, or auto (what runs there)."
        ),
    ] = None,
    member_queue: Annotated[
        str | None, typer.Option(help="Queue of Volcano, or LocalQueue of Kueue, for everything that is sent there.")
    ] = None,
    nodes: Annotated[
        str | None,
        typer.Option(
            help="Label selector of nodes that are Atoll's alone: they get a taint, no others are used; '' for all."
        ),
    ] = None,
    beside_host: Annotated[
        bool | None,
        typer.Option(
            "--beside-host/--no-beside-host",
            help="The agent is to run beside the host: the member's credentials go into a Secret there. Default: as"
            " before; at first not.",
            show_default=False,
        ),
    ] = None,
    accept_namespace: Annotated[
        list[str] | None,
        typer.Option(
            help="Namespace of the member's own that work from the host's namespace of that name may enter, with its"
            " Secrets and accounts; may be repeated."
        ),
    ] = None,
    allow_exec: Annotated[
        bool | None,
        typer.Option(
            "--allow-exec/--no-allow-exec",
            help="Users of the host may run commands in their pods there and connect to their ports. Default: as"
            " before; at first not.",
            show_default=False,
        ),
    ] = None,
    credentials: CredentialsOption = None,
    host_proxy: Annotated[
        str | None,
        typer.Option(help="URL of a proxy on the agent's way to the host. Default: proxy-url of the kubeconfig."),
    ] = None,
    dry_run: DryRunFlag = False,
    output: DryOutput = None,
) -> None:
    """Join a member cluster to the federation. Starts no process.

    Safe to repeat: what no flag names stays as it is.
    """
    facts = member_facts(label, region, provider, zone)
    _check_output(dry_run, output)
    if dry_run and beside_host is not None:
        raise CommandError("--dry-run issues no credentials, and --beside-host is about these: leave it out", USAGE)
    if (member_kubeconfig is None) == (cluster_profile is None):
        raise CommandError("give either --member-kubeconfig or --cluster-profile", USAGE)
    command_words = shlex.split(access_command or "")
    if (cluster_profile is None) != (not command_words):
        raise CommandError("--cluster-profile and --access-command go together", USAGE)
    if cluster_profile is not None and not all(cluster_profile.partition("/")):
        raise CommandError(f"--cluster-profile {cluster_profile!r}: write NAMESPACE/NAME", USAGE)
    if cluster_profile is None and access_provider is not None:
        raise CommandError("--access-provider goes with --cluster-profile", USAGE)
    import tempfile
    from dataclasses import replace

    from atoll import install
    from atoll.cli.connection import call
    from atoll.kube.transport import ApiServer

    options = settings(ctx)

    @contextlib.asynccontextmanager
    async def administrator(host: ApiServer) -> AsyncIterator[Path]:
        """The kubeconfig of the member's administrator."""
        if cluster_profile is None:
            assert member_kubeconfig is not None, "one of both is given"
            yield member_kubeconfig
            return
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "member.kubeconfig"
            file.write_text(await install.profile_kubeconfig(host, cluster_profile, access_provider, command_words))
            yield file

    async def join_with(host: ApiServer, member: ApiServer, file: Path) -> list[str]:
        host_at = await install.endpoint(options.kubeconfig, options.context)
        return await install.join(
            host,
            member,
            name,
            host_at=host_at if host_proxy is None else replace(host_at, proxy=host_proxy or None),
            member_at=await install.endpoint(file, member_context),
            out=None if dry_run else out,
            facts=facts,
            placing=install.PlacingWish(placer, member_queue, nodes),
            beside_host=beside_host,
            accept=tuple(accept_namespace or ()),
            allow_exec=allow_exec,
            by_certificate=by_certificate(credentials),
            progress=_silent if dry_run else print,
        )

    async def work(host: ApiServer) -> list[str]:
        async with (
            administrator(host) as file,
            await ApiServer.from_kubeconfig(file, member_context, user_agent="atollctl") as member,
        ):
            return await join_with(host, member, file)

    async def rehearse(host: install.Rehearsal) -> dict[str, install.Rehearsal]:
        async with (
            administrator(host) as file,
            await install.Rehearsal.from_kubeconfig(file, member_context, user_agent="atollctl") as member,
        ):
            await join_with(host, member, file)
            return {"host": host, f"member {name}": member}

    install.check_name(name)
    if dry_run:
        _show(call(options, rehearse, install.Rehearsal), output)
        return
    command = call(options, work)
    print(f"\nMember {name} is joined. Start its agent:\n  {shlex.join(command)}")


def unjoin(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the member.")],
    member_kubeconfig: Annotated[
        Path | None,
        typer.Option(
            help="Administrator's kubeconfig of the member, to remove our account and role there.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    member_context: Annotated[str | None, typer.Option(help="Context in that kubeconfig.")] = None,
    out: Out = _OUT,
    force: Annotated[
        bool,
        typer.Option(help="Although workloads run there: they go back to their queues, also if its agent is silent."),
    ] = False,
    purge: Annotated[
        bool, typer.Option(help="Remove from the member also our CRDs with all their objects, and what Atoll brought.")
    ] = False,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds for the workloads to end.")] = 60.0,
) -> None:
    """Take a member out of the federation; stop its agent afterwards. Safe to repeat."""
    for flag, given in (("--purge", purge), ("--member-context", member_context is not None)):
        if given and member_kubeconfig is None:
            raise CommandError(f"{flag} needs --member-kubeconfig", USAGE)
    from atoll import install
    from atoll.cli.connection import call
    from atoll.kube.transport import ApiServer

    async def work(host: ApiServer) -> install.Left:
        async with contextlib.AsyncExitStack() as stack:
            member = None
            if member_kubeconfig is not None:
                member = await stack.enter_async_context(
                    await ApiServer.from_kubeconfig(member_kubeconfig, member_context, user_agent="atollctl")
                )
            return await install.unjoin(
                host, member, name, force=force, purge=purge, timeout=timeout, credentials=out, progress=print
            )

    left = call(settings(ctx), work)
    print(f"\nMember {name} has left. Stop its agent (atoll-agent --cluster={name}).")
    if member_kubeconfig is None:
        print(
            "Still in the member: account, ClusterRole and ClusterRoleBinding atoll-agent, namespace atoll-system, CRDs"
            " (kubectl delete clusterrole,clusterrolebinding atoll-agent)."
        )
    if left.may_run:
        print(f"These may still run in {name}, and start elsewhere now; delete them there:", file=sys.stderr)
        for workload in left.may_run:
            print(f"  {workload}", file=sys.stderr)


def uninstall(
    ctx: typer.Context,
    out: Out = _OUT,
    force: Annotated[
        bool,
        typer.Option(
            help="Although members are joined and workloads have bindings: members leave as with unjoin --force,"
            " bindings and Works are deleted."
        ),
    ] = False,
    crds: Annotated[
        bool,
        typer.Option(
            help="Delete also our CRDs, and with them every Queue, Volcano Job, policy and binding. Needs --yes."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Confirm --crds or --embedded.")] = False,
    dry_run: Annotated[bool, typer.Option(help="Only list what would be deleted, and what is in the way.")] = False,
    embedded: Annotated[
        bool,
        typer.Option(
            "--embedded",
            help="Delete the pods of the host that init --embedded brought into this cluster. Needs --yes.",
        ),
    ] = False,
    delete_data: Annotated[
        bool,
        typer.Option("--delete-data", help="With --embedded: also its volumes, backups and keys, for good."),
    ] = False,
    timeout: Annotated[
        float,
        typer.Option(min=1, help="Seconds for the workloads of each member, and for what is deleted, to be gone."),
    ] = 60.0,
) -> None:
    """Take Atoll off a host: the reverse of init. Stop its processes before. Safe to repeat."""
    if delete_data and not embedded:
        raise CommandError("--delete-data goes with --embedded", USAGE)
    if embedded:
        if crds or force or dry_run:
            raise CommandError("--embedded goes with --delete-data and --yes alone", USAGE)
        if not yes:
            lost = " and deletes every queue, job and binding of it, with all backups" if delete_data else ""
            raise CommandError(
                f"--embedded ends the host for all its users and members{lost}: confirm with --yes", USAGE
            )
        embedding.take_away(settings(ctx), data=delete_data)
        return
    if crds and not yes and not dry_run:
        raise CommandError(
            "--crds deletes every Queue, Volcano Job, policy and binding of this host, whoever made them: look with"
            " --crds --dry-run, then confirm with --yes",
            USAGE,
        )
    from atoll import install
    from atoll.cli.connection import call

    async def work(host: ApiServer) -> Sequence[str]:
        return await install.uninstall(
            host, force=force, crds=crds, dry_run=dry_run, timeout=timeout, credentials=out, progress=print
        )

    may_run = call(settings(ctx), work)
    if dry_run:
        return
    print("\nAtoll is off this host.")
    if not crds:
        print("Still there: CRDs and their objects (queues, jobs, policies); --crds --yes deletes them.")
    if force:
        print(
            "Still in members that were joined: account, ClusterRole and ClusterRoleBinding atoll-agent, namespace"
            " atoll-system, CRDs (kubectl delete clusterrole,clusterrolebinding atoll-agent; kubectl delete namespace"
            " atoll-system)."
        )
    if may_run:
        print("These may still run in their members; delete them there:", file=sys.stderr)
        for workload in may_run:
            print(f"  {workload}", file=sys.stderr)


def _check_output(dry_run: bool, output: DryFormat | None) -> None:
    if output is not None and not dry_run:
        raise CommandError("-o goes with --dry-run", USAGE)


def _silent(_: str) -> None:
    """Progress of a rehearsal, which makes none."""


def _show(rehearsed: Mapping[str, Rehearsal], output: DryFormat | None) -> None:
    from atoll.cli.rendering import print_yaml

    for where, api in rehearsed.items():
        if output is not None:
            print_yaml(api.manifests(), f"{where} (dry run); left out: Secrets, tokens, caBundle of webhooks")
            continue
        for line in api.lines():
            print(f"{where}: {line} (dry run)")
    print("Nothing was written.", file=sys.stderr)


def client_config(url: str | None, service: str | None) -> dict[str, Any] | None:
    """Where the API server finds the webhook, in the form of a webhook configuration; None where nothing was given.

    Raises:
        CommandError: neither a https URL nor namespace/name:port, or both.
    """
    if url is not None and service is not None:
        raise CommandError("give either --webhook-url or --webhook-service", USAGE)
    if url is not None:
        if not url.startswith("https://"):
            raise CommandError(f"--webhook-url {url!r}: an API server calls webhooks by https only", USAGE)
        return {"url": url.rstrip("/")}
    if service is None:
        return None
    namespace, slash, rest = service.partition("/")
    name, _, port = rest.partition(":")
    if not (namespace and slash and name) or not (port or "443").isdigit():
        raise CommandError(f"--webhook-service {service!r}: write namespace/name:port", USAGE)
    return {"service": {"namespace": namespace, "name": name, "port": int(port or "443")}}


def member_facts(
    label: list[str] | None, region: str | None, provider: str | None, zone: list[str] | None
) -> MemberFacts:
    """The facts that flags give; `MemberFacts` tells None from an empty value."""
    from atoll import install

    zones = None if zone is None else tuple(filter(None, zone))
    return install.MemberFacts(key_values(label or []), region, provider, zones)


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
