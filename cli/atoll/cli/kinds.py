"""`atollctl kinds`: which workload kinds are served, on the host and in each member, and why others are not."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
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
            "served" if each["host"]["served"] else "-",
            ",".join(name for name, why in each["members"].items() if not why) or "-",
            reasons(each) or "-",
        ]
        for each in found
    ]
    show_table(("KIND", "RESOURCE", "HOST", "MEMBERS", "NOT SERVED"), rows, no_headers=no_headers)


def reasons(kind: Json) -> str:
    """Why a kind is not served on the host and in members: each reason once."""
    where: dict[str, list[str]] = {}
    for name, why in (("host", kind["host"]["reason"]), *kind["members"].items()):
        if why:
            where.setdefault(why, []).append(name)
    return "; ".join(f"{', '.join(names)}: {why}" for why, names in where.items())


async def gather(host: ApiServer) -> list[Json]:
    """Every kind, as the host and its Clusters say; of declared ones what their WorkloadKinds say."""
    from atoll.cli.lookup import read_declared
    from atoll.kinds import known
    from atoll.kube.served import served
    from atoll.model.apiresource import CLUSTERS

    declared = await read_declared(host)
    there = await served(host, (kind.resource for kind in known()))
    clusters = await host.list(CLUSTERS)
    agents = {each["metadata"]["name"]: (each.get("status") or {}).get("agent") or {} for each in clusters}
    return described(known(), there, agents, {each["metadata"]["name"]: each for each in declared})


def described(
    kinds: Sequence[Kind],
    there: Collection[ApiResource],
    agents: Mapping[str, Mapping[str, Any]],
    declared: Mapping[str, Json] = MappingProxyType({}),
) -> list[Json]:
    """Every kind as data: its place on the host, and per member why it is not served, empty where it is.

    Args:
        kinds: all that Atoll knows.
        there: resources that the host has.
        agents: member -> its agent, by its Cluster's status.
        declared: WorkloadKinds by name; what can't be followed is in none of the kinds.
    """
    found = []
    for kind in kinds:
        resource = kind.resource
        crd = f"CRD {resource.plural}.{resource.group} with version {resource.version}"
        name = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
        reason = "" if resource in there else f"{crd} is not there"
        if name in declared:
            reason = _said_of(declared[name])
        members = {member: _why_not(kind, crd, agent) for member, agent in sorted(agents.items())}
        found.append(_row(kind.words.title, name, resource.version, reason, members))
    titles = {each["resource"] for each in found}
    for name, each in sorted(declared.items()):
        if name not in titles:
            spec = each.get("spec") or {}
            reason = _said_of(each) or "its WorkloadKind can't be followed"
            found.append(_row(str(spec.get("kind")), name, str(spec.get("version")), reason, {}))
    return found


def _row(title: str, resource: str, version: str, reason: str, members: Mapping[str, str]) -> Json:
    host = {"served": not reason, "reason": reason}
    return {"kind": title, "resource": resource, "version": version, "host": host, "members": dict(members)}


def _said_of(workload_kind: Json) -> str:
    """Why a declared kind is not served on the host; empty where it is."""
    conditions = (workload_kind.get("status") or {}).get("conditions") or ()
    found = next((each for each in conditions if each["type"] == "Served"), None)
    if found is None:
        return "atoll-control has not looked at its WorkloadKind"
    return "" if found["status"] == "True" else str(found["message"])


def _why_not(kind: Kind, crd: str, agent: Mapping[str, Any]) -> str:
    """Why a member does not run the kind; empty where it does."""
    from atoll.model.member import kind_feature
    from atoll.model.release import VERSION

    feature = kind_feature(kind.resource)
    if not kind.optional:
        return ""
    if (features := agent.get("features")) is None:
        return "its agent has not said what it serves"
    if feature in features:
        return ""
    if lacking := (agent.get("unserved") or {}).get(feature):
        return f"its agent may not {lacking}: create the labelled ClusterRole there"
    older = "" if agent.get("version") == VERSION else f", or its agent ({agent.get('version')}) does not know it"
    return f"{crd} is not there{older}"
