"""`atollctl render`: the objects of `init` and `join` as YAML, without a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli.errors import USAGE, CommandError

if TYPE_CHECKING:
    from atoll.install.rendering import Values

app = typer.Typer(no_args_is_help=True, help="Objects that init and join write, as YAML, without a cluster.")

_HOST_LACKS = (
    "Left out: Secret atoll-system/atoll-webhook-ca and the webhook configurations named atoll (they must come after"
    " the processes are ready) and tokens. atollctl init adds them."
)
_EMBEDDED_LACKS = "Left out: Secrets of the embedded host, which atollctl init --embedded makes."
_MEMBER_LACKS = "Left out: tokens, and spec.id of the Cluster. atollctl join adds them."


class Side(StrEnum):
    """The cluster that objects of a member belong to."""

    HOST = "host"
    MEMBER = "member"


ValuesFile = Annotated[
    str | None,
    typer.Option("--values", "-f", metavar="FILE", help="YAML with blocks host and member; - reads standard input."),
]


@app.command(epilog="Example: atollctl render host > host.yaml; atollctl render host -f values.yaml")
def host(values: ValuesFile = None) -> None:
    """Print the objects of a host: CRDs, accounts, rights, policies, default queue; with host.mode embedded its pods.

    Keys of block host: mode (cluster or embedded), embedded (docs/install.md), on (host or karmada), queryOutside,
    runsDeployments.
    """
    from atoll import install

    wanted = read_values(values)[0].host
    try:
        made = asyncio.run(install.render_host(wanted))
    except install.BadValues as error:
        raise CommandError(str(error), USAGE) from error
    print_yaml(made, _EMBEDDED_LACKS if wanted.mode == "embedded" else _HOST_LACKS)


@app.command(epilog="Example: atollctl render member east --in member -f values.yaml > east.yaml")
def member(
    name: Annotated[str, typer.Argument(help="Name of the member: a DNS label of at most 48 characters.")],
    side: Annotated[Side, typer.Option("--in", help="The cluster of the objects: the member itself, or the host.")],
    values: ValuesFile = None,
) -> None:
    """Print the objects of a member: those in the member itself, or those in the host.

    Keys of block member: endpoint (needed), labels, region, provider, zones, placer, memberQueue, allowExec.
    """
    from atoll import install

    try:
        in_host, in_member = asyncio.run(install.render_member(name, read_values(values)[0].member))
    except install.BadValues as error:
        raise CommandError(str(error), USAGE) from error
    print_yaml(in_host if side is Side.HOST else in_member, _MEMBER_LACKS)


def print_yaml(objects: Sequence[dict[str, Any]], comment: str) -> None:
    """Print objects as YAML documents after a comment."""
    import yaml

    print(f"# {comment}")
    # Equal parts are shared objects in the code; aliases would be hard to read.
    dumper = type("Plain", (yaml.SafeDumper,), {"ignore_aliases": lambda *_: True})
    text = yaml.dump_all(objects, Dumper=dumper, sort_keys=False, allow_unicode=True, width=120, explicit_start=True)
    print(text, end="")


def read_values(filename: str | None) -> tuple[Values, dict[str, Any]]:
    """A values file: checked, and as it is written.

    Raises:
        CommandError: it can't be read, or does not fit.
    """
    from atoll import install
    from atoll.cli.what_if import read_documents

    found = read_documents(filename) if filename is not None else []
    if len(found) > 1:
        raise CommandError(f"-f {filename}: {len(found)} documents; values are one", USAGE)
    written = found[0] if found else {}
    try:
        return install.values_of(written), written
    except install.BadValues as error:
        raise CommandError(f"-f {filename}: {error}", USAGE) from error
