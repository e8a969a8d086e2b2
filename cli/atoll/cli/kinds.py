"""`atollctl kinds`: which workload kinds are served, on the host and in each member, and why others are not."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from atoll.cli.options import DataOutput, NoHeaders, settings
from atoll.cli.printing import show_data, show_table

if TYPE_CHECKING:
    from atoll.kinds import Kind
    from atoll.kube.transport import ApiServer
    from atoll.model.apiresource import ApiResource

Json = dict[str, Any]

EPILOG = "Example: atollctl kinds; atollctl kinds -o json"


def kinds(ctx: typer.Context, no_headers: NoHeaders = False, output: DataOutput = None) -> None:
    """Show which workload kinds the host takes and which members run them; and why not."""
    from atoll.cli.connection import call

    found = call(settings(ctx), gather)
    if output is not None:
        show_data(found, output)
        return
    rows: list[list[object]] = [
        [
            each["kind"],
            each["resource"],
            each["host"]["reason"] or "served",
            ",".join(name for name, why in each["members"].items() if not why) or "-",
            "; ".join(f"{name}: {why}" for name, why in each["members"].items() if why) or "-",
        ]
        for each in found
    ]
    show_table(("KIND", "RESOURCE", "HOST", "MEMBERS", "NOT IN"), rows, no_headers=no_headers)


async def gather(host: ApiServer) -> list[Json]:
    """Every kind, as the host and its Clusters say."""
    from atoll.kinds import KINDS
    from atoll.kube.served import served
    from atoll.model.apiresource import CLUSTERS

    there = await served(host, (kind.resource for kind in KINDS))
    clusters = await host.list(CLUSTERS)
    features = {
        each["metadata"]["name"]: ((each.get("status") or {}).get("agent") or {}).get("features") for each in clusters
    }
    return described(KINDS, there, features)


def described(
    kinds: Sequence[Kind], there: Collection[ApiResource], features: Mapping[str, Sequence[str] | None]
) -> list[Json]:
    """Every kind as data: its place on the host, and per member why it is not served, empty where it is.

    Args:
        kinds: all that Atoll knows.
        there: resources that the host has.
        features: member -> what its agent says may be sent there; None where it says nothing.
    """
    found = []
    for kind in kinds:
        resource = kind.resource
        crd = f"CRD {resource.plural}.{resource.group} with version {resource.version}"
        found.append(
            {
                "kind": kind.words.title,
                "resource": f"{resource.plural}.{resource.group}" if resource.group else resource.plural,
                "version": resource.version,
                "host": {
                    "served": resource in there,
                    "reason": "" if resource in there else f"{crd} is not there",
                },
                "members": {name: _why_not(kind, crd, said) for name, said in sorted(features.items())},
            }
        )
    return found


def _why_not(kind: Kind, crd: str, features: Sequence[str] | None) -> str:
    """Why a member does not run the kind; empty where it does."""
    from atoll.model.member import kind_feature

    if not kind.optional:
        return ""
    if features is None:
        return "its agent has not said what it serves"
    return "" if kind_feature(kind.resource) in features else f"{crd} is not there, or its agent is older"
