"""Steps around the objects of the Helm charts: `atollctl hooks`, which their hooks run in pods.

A chart brings accounts, rights, policies and processes. Three things can't be plain objects of a release: CRDs must
stay when it goes or rolls back, webhooks may be registered only once they are answered, and removal is refused while
work runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import orjson

from atoll.install import versions
from atoll.install.crds import host_crds, install_crds, member_crds, refuse_newer
from atoll.install.credentials import FIELD_MANAGER, MANAGED_BY, ensure_namespace
from atoll.install.host import WEBHOOK_SERVICE, ensure_authority, ensure_default_queue, refuse_foreign
from atoll.install.query import ensure_endpoints
from atoll.install.reach import unreached
from atoll.install.refusal import Refused, some
from atoll.install.registration import ensure_registration
from atoll.install.removal import leading, look, release_kinds
from atoll.kube import authority, errors
from atoll.kube.transport import ApiServer
from atoll.model import keys, shards
from atoll.model.apiresource import (
    API_SERVICES,
    CRDS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    LEASES,
    MUTATING_WEBHOOKS,
    SECRETS,
    VALIDATING_WEBHOOKS,
    WORKS,
    ApiResource,
)

Json = dict[str, Any]
Progress = Callable[[str], None]

_WEBHOOKS: Final = (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)
_LEADERS: Final = ("atoll-control", "atoll-dispatcher")
_POLL_S: Final = 1.0


async def prepare_host(host: ApiServer, address: Json | None, *, crds: bool, progress: Progress) -> None:
    """Before the objects of the chart: what the processes need to become ready. Safe to repeat.

    Args:
        host: with the rights of `roles.INSTALLER`.
        address: see `registration.configurations`; None is `WEBHOOK_SERVICE`.
        crds: also the CRDs; else only their versions are checked.
        progress: gets a line per step.

    Raises:
        Refused: `init` would refuse this host.
        ApiError: the host refused.
    """
    await refuse_foreign(host, allowed=())
    progress(f"the host is {versions.said(await versions.check_host(host))}")
    await _bring(host, host_crds(), crds, progress)
    await ensure_namespace(host, keys.SYSTEM_NAMESPACE, {keys.HOST_PROFILE: "shared"})
    await ensure_authority(host, progress)
    await ensure_endpoints(host)
    for resource in _WEBHOOKS:
        await _leave_address(host, resource, address or WEBHOOK_SERVICE)
    progress("the webhook finds its address and its certificate authority")


async def complete_host(host: ApiServer, address: Json | None, *, timeout: float, progress: Progress) -> None:
    """After the objects of the chart: register the webhook once the API server reaches it. Safe to repeat.

    Raises:
        Refused: the API server did not reach it in time.
        ApiError: the host refused.
    """
    client_config = address or WEBHOOK_SERVICE
    trusted = authority.from_secret(await host.get(SECRETS, authority.SECRET, keys.SYSTEM_NAMESPACE)).trusted
    clock = asyncio.get_running_loop().time
    end = clock() + timeout
    while why := await unreached(host, client_config, authority.ca_bundle(trusted)):
        if clock() > end:
            raise Refused(f"the API server does not reach atoll-webhook: {why}; nothing was registered")
        progress(f"the API server does not reach atoll-webhook yet: {why}")
        await asyncio.sleep(_POLL_S)
    for line in await ensure_registration(host, client_config, trusted):
        progress(line)
    await ensure_default_queue(host, progress)


async def check_host(host: ApiServer) -> str:
    """Missing part of a working host; empty for none.

    Raises:
        ApiError: the host refused.
    """
    missing = [name for name in _LEADERS if name not in await leading(host)]
    if missing:
        return f"{' and '.join(missing)} have no leader"
    for resource in _WEBHOOKS:
        if not (await host.get(resource, keys.WEBHOOKS)).get("webhooks"):
            return f"{resource.kind} {keys.WEBHOOKS} has no webhooks"
    return ""


async def leave_host(host: ApiServer, *, timeout: float, progress: Progress) -> None:
    """Before the objects of the chart go: refuse while something runs, then stop the processes and remove the rest.

    Raises:
        Refused: members are joined or workloads have bindings, or a process did not end in time.
        ApiError: the host refused.
    """
    if in_use := (await look(host)).sentence():
        raise Refused(f"Atoll is in use here: {in_use}. Nothing was changed")
    for resource in _WEBHOOKS:
        await host.delete(resource, keys.WEBHOOKS)
    progress("the webhook is not called any more")
    await _stop(host, ("atoll-webhook", *_LEADERS), timeout, progress)
    await release_kinds(host)
    await host.delete(API_SERVICES, keys.QUERY_API)
    for resource, names in (
        (ENDPOINT_SLICES, tuple(keys.QUERY_ENDPOINTS)),
        (SECRETS, (authority.SECRET,)),
        (LEASES, (*shards.NAMES, "atoll-dispatcher")),
    ):
        for name in names:
            await host.delete(resource, name, keys.SYSTEM_NAMESPACE)
    progress("certificates, leases and registrations of the processes are gone")


async def prepare_member(member: ApiServer, name: str, *, crds: bool, progress: Progress) -> None:
    """Before the objects of the agent's chart: versions and CRDs. Safe to repeat.

    Raises:
        Refused: `join` would refuse this member.
        ApiError: the member refused.
    """
    progress(f"member {name}: {versions.said(await versions.check_member(member, name))}")
    await _bring(member, member_crds(), crds, progress)


async def leave_member(
    member: ApiServer, host: ApiServer | None, name: str, *, timeout: float, progress: Progress
) -> None:
    """Before the objects of the agent's chart go: refuse while Works are there, then stop the agent.

    Args:
        member: with the rights of `roles.INSTALLER_IN_MEMBER`.
        host: with the agent's credentials; None where they are missing.
        name: of the Cluster.
        timeout: seconds for the agent to end.
        progress: gets a line per step.

    Raises:
        Refused: work of the host is there, or the agent did not end in time.
        ApiError: the host can't be asked, or the member refused.
    """
    works = []
    if host is not None:
        try:
            works = [each["metadata"]["name"] for each in await host.list(WORKS, keys.execution_namespace(name))]
        except (errors.Unauthorized, errors.Forbidden, errors.NotFound):
            progress(f"the host knows no member {name} any more")
    if works:
        raise Refused(
            f"{len(works)} Works are in member {name} ({some(works)}): atollctl unjoin {name} on the host first."
            " Nothing was changed"
        )
    await _stop(member, ("atoll-agent",), timeout, progress)
    await member.delete(LEASES, "atoll-agent", keys.SYSTEM_NAMESPACE)


async def _bring(api: ApiServer, crds: list[Json], install: bool, progress: Progress) -> None:
    if install:
        await install_crds(api, crds, progress)
    else:
        refuse_newer({each["metadata"]["name"]: each for each in await api.list(CRDS)}, crds)


async def _leave_address(host: ApiServer, resource: ApiResource, client_config: Json) -> None:
    """A configuration without webhooks, which no client calls; one with webhooks is the business of `complete_host`."""
    configuration = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {
            "name": keys.WEBHOOKS,
            "labels": MANAGED_BY,
            "annotations": {keys.CLIENT_CONFIG: orjson.dumps(client_config).decode()},
        },
        "webhooks": [],
    }
    try:
        await host.create(resource, configuration, field_manager=FIELD_MANAGER)
    except errors.AlreadyExists:
        return


async def _stop(api: ApiServer, names: tuple[str, ...], timeout: float, progress: Progress) -> None:
    """Scale Deployments to nothing and wait until no process holds a lease.

    Raises:
        Refused: one is held still.
    """
    for name in names:
        try:
            await api.merge_patch(
                DEPLOYMENTS, name, {"spec": {"replicas": 0}}, keys.SYSTEM_NAMESPACE, field_manager=FIELD_MANAGER
            )
        except errors.NotFound:
            continue
    clock = asyncio.get_running_loop().time
    end = clock() + timeout
    while running := [each for each in await leading(api) if each in (*names, *shards.NAMES)]:
        if clock() > end:
            raise Refused(f"{' and '.join(running)} still run, by their leases")
        await asyncio.sleep(_POLL_S)
    progress(f"stopped: {', '.join(names)}")
