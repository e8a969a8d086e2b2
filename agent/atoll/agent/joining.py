"""A member asks the host to let it join, by the token of an invitation, and keeps its credentials in one Secret.

The host's certificate authority comes first: every client may read it there, and its hash in the invitation says
whether it is the right one. The token is sent to no other server. See `atoll.install.invitations` for the other side.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog

from atoll.agent.push_credentials import host_secret, member_name
from atoll.agent.settings import JoinSettings
from atoll.kube import client_certificates, errors
from atoll.kube.access import tls_context
from atoll.kube.config import Connection
from atoll.kube.endpoint import Endpoint, ca_hash, kubeconfig
from atoll.kube.token_renewal import claims_of
from atoll.kube.transport import ApiServer
from atoll.kube.version import version_of
from atoll.model import certificates, keys
from atoll.model.apiresource import CLUSTER_REQUESTS, CONFIGMAPS, NAMESPACES, SECRETS, SERVICE_ACCOUNTS
from atoll.model.reports import readable
from atoll.model.timestamps import rfc3339_seconds

Json = dict[str, Any]

AGENT: Final = "atoll-agent"
_SECRET: Final = f"{keys.SYSTEM_NAMESPACE}/{keys.HOST_SECRET}"
_YEAR: Final = 365 * 24 * 3600
_SHORT: Final = 600
"""Seconds; of a token that a certificate takes the place of."""
_POLL: Final = 2.0
"""Seconds between two looks at the answer of the host's administrator."""
_TELL: Final = 30.0
"""Seconds between two lines that say that the answer is waited for."""

log = structlog.get_logger(__name__)


class NotJoined(Exception):
    """The host does not take this cluster; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Invitation:
    """What the host's administrator handed over."""

    url: str
    token: str
    ca_hash: str = ""
    """`sha256:...` of the host's authority; empty: the machine's own authorities, or `ca`."""
    ca: bytes | None = None
    """The authority itself (PEM), for hosts that answer no strangers."""
    proxy: str | None = None


async def ensure_joined(member: ApiServer, cluster: str, settings: JoinSettings) -> None:
    """Ask the host to join, where the member has no credentials for it yet.

    Raises:
        SystemExit: the host says no.
    """
    if not settings.url or await host_secret(member) is not None:
        return
    try:
        token = await asyncio.to_thread(Path(settings.token_file).read_text)
        ca = await asyncio.to_thread(Path(settings.ca_file).read_bytes) if settings.ca_file else None
        invitation = Invitation(settings.url, token.strip(), settings.ca_hash, ca, settings.proxy or None)
        labels = dict(each.partition("=")[::2] for each in settings.labels.split(",") if each)
        facts = {"labels": labels, "region": settings.region, "provider": settings.provider}
        await join(member, cluster, invitation, facts, log.info)
    except (NotJoined, OSError) as error:
        raise SystemExit(f"atoll-agent: {cluster} has not joined: {error}") from error


async def about(member: ApiServer, facts: Mapping[str, Any]) -> Json:
    """The request of this cluster: its identity, its version, and further facts."""
    found = await member.named(NAMESPACES, "kube-system")
    if not found:
        raise NotJoined("this cluster has no namespace kube-system, whose UID tells clusters apart")
    return {
        "id": found[0]["metadata"]["uid"],
        "askedAt": rfc3339_seconds(time.time()),
        "version": (await version_of(member)).text,
        **{name: value for name, value in facts.items() if value},
    }


async def join(
    member: ApiServer,
    cluster: str,
    invitation: Invitation,
    facts: Mapping[str, Any],
    progress: Callable[[str], None],
) -> None:
    """Ask, wait for the answer, and store the credentials in the member. Safe to repeat, and to run twice at once.

    Args:
        member: with the right to write Secret `keys.HOST_SECRET`.
        cluster: name of the member.
        invitation: of that name.
        facts: of status of a ClusterRequest, besides `id`, `askedAt` and `version`.
        progress: gets a line per step.

    Raises:
        NotJoined: the host says no, or is not the host of the invitation.
        ApiError: the member says no.
    """
    claims = claims_of(invitation.token)
    invited = claims.name.removeprefix(keys.JOIN_PREFIX) if claims is not None else ""
    if claims is None or not claims.name.startswith(keys.JOIN_PREFIX):
        raise NotJoined("the token is not one of an invitation: `atollctl member invite` prints it")
    if invited != cluster:
        raise NotJoined(f"the token is an invitation for {invited}, not for {cluster}")
    if claims.expires < time.time():
        raise NotJoined(f"the invitation ended at {rfc3339_seconds(claims.expires)}; {_again(cluster)}")
    if not invitation.url.startswith("https://"):
        raise NotJoined(f"the host is at an https URL, and {readable(invitation.url, 200)!r} is none")
    before = await host_secret(member)
    if before is not None and (other := member_name(before)) != cluster:
        raise NotJoined(f"this cluster has joined as {other} (Secret {_SECRET}): atollctl unjoin {other} first")
    request = await about(member, facts)
    at = await _verified(invitation, cluster)
    async with ApiServer(connection(at, invitation.token), user_agent=f"atoll-agent/{cluster}") as host:
        try:
            kind = await _ask(host, cluster, request, at, progress)
            credentials = await _issued(host, cluster, at, kind)
        except (errors.ApiError, client_certificates.NotSigned) as error:
            if await host_secret(member) != before:
                # Another replica was faster and has used the invitation up.
                return
            raise NotJoined(_in_words(error, cluster)) from error
        try:
            await _store(member, cluster, at, credentials, anew=before is None)
        except errors.AlreadyExists:
            # Another replica was faster, and withdraws the invitation.
            return
        progress(f"Secret {_SECRET}: credentials for the host")
        try:
            await host.delete(CLUSTER_REQUESTS, cluster)
        except errors.ApiError as error:
            # It ends by itself within the hour.
            log.warning("the used invitation was not deleted", error=str(error))


async def _ask(host: ApiServer, cluster: str, request: Json, at: Endpoint, progress: Callable[[str], None]) -> str:
    """Ask, unless that was done, and return once it is approved; gives the kind of credentials to get."""
    found = await host.get(CLUSTER_REQUESTS, cluster)
    known = found.get("status") or {}
    if known and known.get("id") != request["id"]:
        raise NotJoined(
            f"another cluster (UID {readable(known['id'], 64)}) has used this invitation; {_again(cluster)}"
        )
    if not known:
        found = await host.merge_patch(CLUSTER_REQUESTS, cluster, {"status": request}, subresource="status")
        progress(f"asked {at.url} to join as {cluster}; this cluster's UID is {request['id']}")
    clock = asyncio.get_running_loop().time
    tell_at = 0.0
    while (answer := found["spec"].get("decision")) is None:
        if clock() >= tell_at:
            progress(
                f"waiting until an administrator of the host approves (atollctl member approve {cluster}), until"
                f" {found['spec']['expires']} at most"
            )
            tell_at = clock() + _TELL
        await asyncio.sleep(_POLL)
        found = await host.get(CLUSTER_REQUESTS, cluster)
    if answer != "Approved":
        why = readable(str(found["spec"].get("message") or ""))
        raise NotJoined(f"the administrator of the host denied the request{f': {why}' if why else ''}")
    progress("the request is approved")
    return str(found["spec"].get("credentials") or "")


async def _issued(host: ApiServer, cluster: str, at: Endpoint, kind: str) -> Mapping[str, str]:
    by_certificate = kind == certificates.BY_CERTIFICATE
    spec = {"expirationSeconds": _SHORT if by_certificate else _YEAR}
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    answer = await host.create_in(SERVICE_ACCOUNTS, AGENT, keys.execution_namespace(cluster), "token", request)
    token = str(answer["status"]["token"])
    if not by_certificate:
        return {"token": token}
    async with ApiServer(connection(at, token), user_agent=f"atoll-agent/{cluster}") as account:
        return await client_certificates.ask(account, cluster)


async def _store(member: ApiServer, cluster: str, at: Endpoint, credentials: Mapping[str, str], *, anew: bool) -> None:
    text = kubeconfig(at, AGENT, credentials, namespace=keys.execution_namespace(cluster))
    secret = {
        "apiVersion": SECRETS.api_version,
        "kind": SECRETS.kind,
        "metadata": {
            "name": keys.HOST_SECRET,
            "namespace": keys.SYSTEM_NAMESPACE,
            "labels": {"app.kubernetes.io/managed-by": "atoll"},
        },
        "data": {
            name: base64.b64encode(value.encode()).decode()
            for name, value in (("cluster", cluster), ("kubeconfig", text))
        },
    }
    if anew:
        await member.create(SECRETS, secret, field_manager=AGENT)
    else:
        await member.apply(SECRETS, secret, field_manager=AGENT)


async def _verified(invitation: Invitation, cluster: str) -> Endpoint:
    """The host, with an authority that is the invitation's.

    Raises:
        NotJoined: it shows another one, or none.
    """
    ca = invitation.ca
    if ca is None and invitation.ca_hash:
        ca = await _shown(invitation, cluster)
    if ca is not None and invitation.ca_hash:
        try:
            found = ca_hash(ca)
        except ValueError:
            found = "no certificate"
        if found != invitation.ca_hash.strip().lower():
            raise NotJoined(
                f"the certificate authority of {invitation.url} is not the invitation's ({found}): this is another"
                " host, or another server is in between; the token was not sent"
            )
    return Endpoint(invitation.url.rstrip("/"), ca, proxy=invitation.proxy)


async def _shown(invitation: Invitation, cluster: str) -> bytes:
    """The authority that the host shows to everybody, unverified: read without any credentials."""
    blind = ssl.create_default_context()
    blind.check_hostname = False
    blind.verify_mode = ssl.CERT_NONE
    connection = Connection(invitation.url.rstrip("/"), blind, _no_header, invitation.proxy)
    async with ApiServer(connection, user_agent=f"atoll-agent/{cluster}") as stranger:
        try:
            found = await stranger.get(CONFIGMAPS, keys.JOIN_PREFIX + cluster, keys.SYSTEM_NAMESPACE)
        except errors.Unauthorized as error:
            raise NotJoined(
                f"{invitation.url} answers no strangers (anonymous requests are off), so its CA can't be read: give it"
                " with --host-ca-file"
            ) from error
        except errors.ApiError as error:
            raise NotJoined(
                f"{invitation.url} shows no CA for {cluster}: {readable(error.message)}; the invitation has ended, was"
                " used, or is of another host"
            ) from error
    return str((found.get("data") or {}).get("ca.crt") or "").encode()


def connection(at: Endpoint, token: str) -> Connection:
    async def authorize() -> str | None:
        return f"Bearer {token}"

    return Connection(at.url, tls_context(ca_data=at.ca.decode() if at.ca else None), authorize, at.proxy)


async def _no_header() -> str | None:
    return None


def _again(cluster: str) -> str:
    return f"ask the host's administrator for another one (atollctl member invite {cluster})"


def _in_words(error: errors.ApiError | client_certificates.NotSigned, cluster: str) -> str:
    match error:
        case client_certificates.NotSigned():
            return str(error)
        # The rights may go before the account does.
        case errors.Forbidden() | errors.NotFound():
            return f"the invitation is over: it was used, withdrawn, or its hour has passed; {_again(cluster)}"
        case errors.Invalid():
            return f"the host refuses the request: {readable(error.said)}"
    return readable(error.message)
