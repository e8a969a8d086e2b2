"""A member joins without shared keys: the host invites it, its cluster asks, the host's administrator answers.

A ClusterRequest is all that both sides write. The host's half is the spec, the cluster's half is the status: a token
that may patch the status alone can ask, once, and nothing else. An approval registers the member as `join` does and
lets that token get tokens of the agent's account, so no object of the host ever holds a credential. Everything of an
invitation belongs to its ClusterRequest and goes with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from atoll.install.credentials import (
    FIELD_MANAGER,
    MANAGED_BY,
    Endpoint,
    ensure_account,
    issue_token,
    owned,
    write_kubeconfig,
)
from atoll.install.member import (
    AGENT,
    MemberFacts,
    accept_work,
    agent_kubeconfigs,
    certificate_rights,
    certify,
    check_acceptable,
    check_name,
    inspect,
    prepare,
    register,
)
from atoll.install.placing import PlacingWish, plan
from atoll.install.refusal import Refused
from atoll.install.rights import ensure_rights, has_rights, remove_rights
from atoll.install.roles import joined, joiner, reader_of_authority
from atoll.kube import errors
from atoll.kube.endpoint import ca_hash
from atoll.kube.transport import ApiServer
from atoll.model import certificates, keys
from atoll.model.apiresource import CLUSTER_REQUESTS, CLUSTERS, CONFIGMAPS, SERVICE_ACCOUNTS
from atoll.model.timestamps import rfc3339_seconds, to_seconds

Json = dict[str, Any]

LIFE: Final = 3600
"""Seconds that an invitation and its token are valid."""
_STRANGERS: Final = "system:unauthenticated"


@dataclass(frozen=True, slots=True)
class Invitation:
    """What the other side needs, and what the host's administrator hands over."""

    url: str
    ca_hash: str
    """Of the authority of the host's certificate; empty where machines know it already."""
    token: str
    expires: str
    """RFC 3339."""


async def invite(
    host: ApiServer,
    name: str,
    at: Endpoint,
    *,
    only: str = "",
    facts: MemberFacts | None = None,
    again: bool = False,
    by_certificate: bool | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Invitation:
    """Let one cluster ask to join under this name, for an hour.

    Args:
        host: with an administrator's credentials.
        name: of the member.
        at: where the member will find the host.
        only: UID of kube-system of the one cluster that may ask; it is approved in advance.
        facts: of its Cluster, with `only`.
        again: a member of that name is joined, and has lost its credentials.
        by_certificate: see `join`.
        progress: gets a line per step.

    Raises:
        Refused: the name is taken or invited already, or the host can't be reached safely by others.
        ApiError: the host refused.
    """
    check_name(name)
    if at.insecure or at.server_name:
        raise Refused(
            "the kubeconfig of the host skips the check of its certificate, or expects another name in it: no"
            " member could verify the host; use a kubeconfig without insecure-skip-tls-verify and tls-server-name"
        )
    for request in await requests(host):
        if request["metadata"]["name"] == name and decision(request) != "Denied":
            raise Refused(
                f"{name} is invited already, until {request['spec']['expires']}: withdraw that with `atollctl member"
                f" deny {name}`, then invite again"
            )
    if not again and name in [each["metadata"]["name"] for each in await host.list(CLUSTERS)]:
        raise Refused(
            f"Cluster {name} is joined already: choose another name, or give --again if that member has lost its"
            " credentials"
        )
    if only:
        await check_acceptable(host, name, "", only)
    await _withdraw(host, name)
    expires = rfc3339_seconds(time.time() + LIFE)
    if by_certificate is None:
        by_certificate = await has_rights(host, *certificate_rights(name))
    credentials = {"credentials": certificates.BY_CERTIFICATE} if by_certificate else {}
    request = await host.create(
        CLUSTER_REQUESTS,
        {
            "apiVersion": CLUSTER_REQUESTS.api_version,
            "kind": CLUSTER_REQUESTS.kind,
            "metadata": {"name": name, "labels": MANAGED_BY},
            "spec": {"expires": expires, **credentials, **({"id": only} if only else {})},
        },
        field_manager=FIELD_MANAGER,
    )
    account, owners = keys.JOIN_PREFIX + name, [_owner(request)]
    await ensure_account(host, account, keys.SYSTEM_NAMESPACE, owners=owners)
    await ensure_rights(host, account, (keys.SYSTEM_NAMESPACE, account), joiner(name), owners=owners)
    if at.ca is not None:
        await _show_authority(host, account, at.ca, owners)
    if only:
        await _admit(host, request, MemberFacts() if facts is None else facts, only, progress)
    token, _ = await issue_token(host, account, keys.SYSTEM_NAMESPACE, LIFE)
    return Invitation(at.url, ca_hash(at.ca) if at.ca is not None else "", token, expires)


async def requests(host: ApiServer) -> list[Json]:
    """The ClusterRequests of this hour; older ones are deleted.

    Raises:
        Refused: this host has none of the kind.
    """
    try:
        found = await host.list(CLUSTER_REQUESTS)
    except errors.NotFound as error:
        raise Refused(
            "the host knows no ClusterRequests: run `atollctl init` of this version on it again; members of a Karmada"
            " join by Karmada's own means"
        ) from error
    over = [each for each in found if to_seconds(each["spec"]["expires"]) < time.time()]
    for each in over:
        await _withdraw(host, each["metadata"]["name"])
    return [each for each in found if each not in over]


async def pending(host: ApiServer, name: str) -> Json:
    """The request of that name that waits for an answer.

    Raises:
        Refused: there is none, or it has an answer.
    """
    for request in await requests(host):
        if request["metadata"]["name"] != name:
            continue
        if found := decision(request):
            raise Refused(f"the request of {name} is {found.lower()} already")
        if not request.get("status"):
            raise Refused(f"{name} is invited, and no cluster has asked yet")
        return request
    raise Refused(f"there is no request of {name}: it was not invited, has joined, or its hour is over")


async def approve(
    host: ApiServer, request: Json, facts: MemberFacts, progress: Callable[[str], None] = lambda _: None
) -> None:
    """Register the cluster that asks, and let it get its credentials.

    Args:
        host: with an administrator's credentials.
        request: as `pending` gave it; only its contents are approved.
        facts: of the administrator; they win over the request.
        progress: gets a line per step.

    Raises:
        Refused: the cluster is the host, or a member already.
        ApiError: the host refused; Conflict where the request is another one by now.
    """
    asked = request["status"]
    merged = MemberFacts(
        {**(asked.get("labels") or {}), **facts.labels},
        asked.get("region") if facts.region is None else facts.region,
        asked.get("provider") if facts.provider is None else facts.provider,
        tuple(asked.get("zones") or ()) or None if facts.zones is None else facts.zones,
    )
    await _admit(host, request, merged, asked["id"], progress)


async def deny(host: ApiServer, name: str, message: str = "") -> None:
    """Refuse a request, or withdraw an unused invitation.

    Raises:
        Refused: there is none.
    """
    for request in await requests(host):
        if request["metadata"]["name"] == name:
            break
    else:
        raise Refused(f"{name} is not invited")
    if not request.get("status") or decision(request) == "Approved":
        await _withdraw(host, name)
        return
    spec = {"decision": "Denied", **({"message": message} if message else {})}
    await _decide(host, request, spec)


async def prepare_invited(
    member: ApiServer,
    name: str,
    *,
    placing: PlacingWish,
    accept: Sequence[str] = (),
    allow_exec: bool | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> None:
    """Write into the invited cluster the same as `join` does there.

    Args:
        member: with an administrator's credentials.
        name: of the member.
        placing: see `join`.
        accept: see `join`.
        allow_exec: see `join`.
        progress: gets a line per step.

    Raises:
        Refused: the cluster can't be a member, or the requested options are impossible.
        ApiError: the member refused.
    """
    await inspect(member, name, progress)
    agreed = await plan(member, name, placing, {})
    progress(f"member {name}: {agreed.placer} places ({agreed.sentence})")
    await accept_work(member, name, accept, progress)
    await prepare(member, name, allow_exec=allow_exec, nodes=placing.nodes, progress=progress)


async def agent_of_invited(
    member: ApiServer, name: str, at: Endpoint, out: Path, progress: Callable[[str], None] = lambda _: None
) -> list[str]:
    """Write the agent's kubeconfig for its member, and give the command line that starts it outside of pods.

    Raises:
        ApiError: the member refused.
    """
    token, expires = await issue_token(member, AGENT, keys.SYSTEM_NAMESPACE)
    file = agent_kubeconfigs(out, name)[1]
    write_kubeconfig(file, at, AGENT, token, namespace=keys.SYSTEM_NAMESPACE)
    progress(f"{file}: credentials of {keys.SYSTEM_NAMESPACE}/{AGENT}, valid until {expires}")
    return ["atoll-agent", f"--cluster={name}", "--host-secret", f"--member-kubeconfig={file}"]


def decision(request: Json) -> str:
    """`Approved`, `Denied`, or empty."""
    return str(request["spec"].get("decision") or "")


async def _admit(
    host: ApiServer, request: Json, facts: MemberFacts, identity: str, progress: Callable[[str], None]
) -> None:
    name, asked = request["metadata"]["name"], request.get("status") or {}
    url = asked.get("apiEndpoint") or ""
    present = await check_acceptable(host, name, url, identity)
    placing = PlacingWish(asked.get("placer"), asked.get("memberQueue"), asked.get("nodes"))
    await register(host, name, url, identity, facts, placing, present, progress)
    await certify(host, name, request["spec"].get("credentials") == certificates.BY_CERTIFICATE)
    account = keys.JOIN_PREFIX + name
    owners = [_owner(request)]
    await ensure_rights(host, account, (keys.SYSTEM_NAMESPACE, account), joined(name), owners=owners)
    await _decide(host, request, {"decision": "Approved"})


async def _decide(host: ApiServer, request: Json, spec: Json) -> None:
    patch = {"metadata": {"uid": request["metadata"]["uid"]}, "spec": spec}
    await host.merge_patch(CLUSTER_REQUESTS, request["metadata"]["name"], patch, field_manager=FIELD_MANAGER)


async def _withdraw(host: ApiServer, name: str) -> None:
    """Delete what there is of an invitation. The account goes first and at once, and its tokens with it."""
    account = keys.JOIN_PREFIX + name
    await host.delete(SERVICE_ACCOUNTS, account, keys.SYSTEM_NAMESPACE)
    # The garbage collector may be late: an approval must not wait for the next invitation.
    await remove_rights(host, account, joined(name))
    await host.delete(CLUSTER_REQUESTS, name)


async def _show_authority(host: ApiServer, name: str, ca: bytes, owners: list[Json]) -> None:
    """Let everybody read the host's CA: whoever asks must know it before the token may be sent."""
    metadata = {"name": name, "namespace": keys.SYSTEM_NAMESPACE, "labels": MANAGED_BY, **owned(owners)}
    head = {"apiVersion": CONFIGMAPS.api_version, "kind": CONFIGMAPS.kind, "metadata": metadata}
    await host.apply(CONFIGMAPS, {**head, "data": {"ca.crt": ca.decode()}}, field_manager=FIELD_MANAGER)
    await ensure_rights(host, f"{name}-ca", _STRANGERS, reader_of_authority(name), owners=owners)


def _owner(request: Json) -> Json:
    head = {"apiVersion": CLUSTER_REQUESTS.api_version, "kind": CLUSTER_REQUESTS.kind}
    return {**head, "name": request["metadata"]["name"], "uid": request["metadata"]["uid"]}
