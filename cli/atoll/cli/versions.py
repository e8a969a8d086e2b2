"""`atollctl version`: of this program, the host, the processes of Atoll there, and the members' agents."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli.options import DataOutput, Settings, settings
from atoll.cli.printing import show_data
from atoll.model.release import VERSION

if TYPE_CHECKING:
    from atoll.kube.transport import ApiServer

Json = dict[str, Any]

_PATIENCE = 5.0
"""Seconds for the host: whoever asks for versions may have no host at all."""
_PROCESSES = ("atoll-control", "atoll-dispatcher")
"""Those that lead by a Lease, which carries their version."""
_OLD = "unknown"
"""Of a process from before it said so."""

Client = Annotated[bool, typer.Option("--client", help="Only of this program; nothing is asked.")]


def version(ctx: typer.Context, client: Client = False, output: DataOutput = None) -> None:
    """Print the versions of this program, of the host and its processes, and of the members' agents."""
    show(settings(ctx), client=client, output=output)


def show(options: Settings, *, client: bool = False, output: Any = None) -> None:
    """Print versions; that the host does not answer is told on stderr, and is no failure."""
    data: Json = {"client": {"atoll": VERSION, "python": sys.version.split()[0]}}
    if not client:
        data |= _of_host(options)
    if output is not None:
        show_data(data, output)
    else:
        print(text(data))


def _of_host(options: Settings) -> Json:
    from atoll.cli.connection import call
    from atoll.cli.errors import describe

    async def look(host: ApiServer) -> Json:
        import asyncio

        async with asyncio.timeout(_PATIENCE):
            return await gather(host)

    try:
        return call(options, look)
    except TimeoutError:
        print(f"the host does not answer within {_PATIENCE:.0f} s", file=sys.stderr)
    except Exception as error:
        said, _ = describe(error)
        if not said:
            raise
        print(said, file=sys.stderr)
    return {}


async def gather(host: ApiServer) -> Json:
    """What the host says of versions, as far as this user may see it."""
    from atoll.cli.unseen import Unseen
    from atoll.kube.version import version_of
    from atoll.model import keys
    from atoll.model.apiresource import CLUSTERS, LEASES

    unseen = Unseen()
    kubernetes = await version_of(host)
    leases = await unseen.allowed("atoll-control and atoll-dispatcher", host.list(LEASES, keys.SYSTEM_NAMESPACE))
    clusters = await unseen.allowed("members and their agents", host.list(CLUSTERS))
    return described(str(kubernetes), leases, clusters, unseen.lines)


def described(
    kubernetes: str, leases: Iterable[Json] | None, clusters: Iterable[Json] | None, unseen: Iterable[str] = ()
) -> Json:
    """Versions as data.

    Args:
        kubernetes: version of the host.
        leases: of the processes there; None where they may not be seen.
        clusters: all Cluster objects; None likewise.
        unseen: objects that may not be seen, in words.
    """
    from atoll.model import keys

    data: Json = {"host": {"kubernetes": kubernetes}}
    if leases is not None:
        there = {each["metadata"]["name"]: each for each in leases}
        data["host"] |= {
            name: (there[name]["metadata"].get("annotations") or {}).get(keys.RELEASE, _OLD)
            for name in _PROCESSES
            if name in there and (there[name].get("spec") or {}).get("holderIdentity")
        }
    if clusters is not None:
        data["members"] = {}
        for each in clusters:
            status = each.get("status") or {}
            said = {"agent": (status.get("agent") or {}).get("version"), "kubernetes": status.get("kubernetesVersion")}
            data["members"][each["metadata"]["name"]] = {key: value or _OLD for key, value in said.items()}
    if skew := _skew(data):
        data["skew"] = skew
    if lines := list(unseen):
        data["unseen"] = lines
    return data


def _skew(data: Json) -> list[str]:
    """Differences of versions, in words."""
    from atoll.model.skew import wrong_with_agent

    host = {name: data["host"][name] for name in _PROCESSES if name in data["host"]}
    lines = [f"{name} is {each}, atollctl is {VERSION}" for name, each in host.items() if each not in (VERSION, _OLD)]
    leading = next((each for each in host.values() if each != _OLD), VERSION)
    for name, member in data.get("members", {}).items():
        if wrong := wrong_with_agent(member["agent"], leading):
            lines.append(f"{name} gets no new work: {wrong[1]}")
        elif member["agent"] not in (leading, _OLD):
            lines.append(
                f"the agent of {name} is {member['agent']}, the host's processes are {leading}: they go together"
            )
    return lines


def text(data: Mapping[str, Any]) -> str:
    """Versions as a person reads them."""
    lines = [f"atollctl {data['client']['atoll']}"]
    if host := data.get("host"):
        processes = "".join(f", {name} {host[name]}" for name in _PROCESSES if name in host)
        lines.append(f"  host       Kubernetes {host['kubernetes']}{processes}")
        if "unseen" not in data and (silent := [name for name in _PROCESSES if name not in host]):
            lines.append(f"  not there  {', '.join(silent)}: no such process leads")
    lines += [
        f"  member     {name}: agent {each['agent']}, Kubernetes {each['kubernetes']}"
        for name, each in data.get("members", {}).items()
    ]
    lines += [f"  skew       {each}" for each in data.get("skew", ())]
    lines += [f"  not shown  {each}" for each in data.get("unseen", ())]
    return "\n".join(lines)
