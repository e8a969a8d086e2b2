"""Credentials of an agent in Secrets, read again once the API server does not know them, and renewed there.

An agent beside the host (push mode) has those for its member in a Secret of the host, which its Cluster names. An agent
of a member that joined by invitation has those for the host in a Secret of the member. It may read and change that one.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from atoll.kube import errors
from atoll.kube.config import BadKubeconfig, Connection
from atoll.kube.secretconfig import from_secret
from atoll.kube.token_renewal import Credentials, Renewal, in_kubeconfig, replaced
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import CLUSTERS, SECRETS

Json = dict[str, Any]

log = structlog.get_logger(__name__)


Read = Callable[[], Awaitable[tuple[Connection, str]]]
"""Reads the connection, and the version of the Secret that it was made of."""


async def member_connection(host: ApiServer, cluster: str) -> Connection:
    """The way to a member by `spec.secretRef` of its Cluster; read again when the member does not know the token.

    Raises:
        BadKubeconfig: there is none, or it may not be used; the message names object and field.
        ApiError: the host refused.
    """
    return await _renewing(lambda: _read(host, cluster), "member")


async def host_connection(member: ApiServer, cluster: str) -> Connection:
    """The way to the host by the Secret that `atoll.agent.joining` keeps in the member.

    Raises:
        BadKubeconfig: there is none, it is another member's, or it may not be used.
        ApiError: the member refused.
    """

    async def read() -> tuple[Connection, str]:
        secret = await host_secret(member)
        source = f"Secret {keys.SYSTEM_NAMESPACE}/{keys.HOST_SECRET} of the member"
        if secret is None:
            raise BadKubeconfig(f"{source}: there is none; `atollctl member request` makes it, or flag --host-url here")
        if (other := member_name(secret)) != cluster:
            raise BadKubeconfig(f"{source}: it is of member {other}, not of {cluster}")
        return from_secret(secret.get("data") or {}, source), secret["metadata"]["resourceVersion"]

    return await _renewing(read, "host")


async def host_secret(member: ApiServer) -> Json | None:
    """The Secret with the credentials for the host; None before there are any."""
    try:
        found = await member.get(SECRETS, keys.HOST_SECRET, keys.SYSTEM_NAMESPACE)
    except errors.NotFound:
        return None
    return found if (found.get("data") or {}).get("kubeconfig") else None


def member_name(secret: Json) -> str:
    """The member whose credentials this Secret holds."""
    return base64.b64decode((secret.get("data") or {}).get("cluster") or "").decode(errors="replace")


async def _renewing(read: Read, of: str) -> Connection:
    connection, version = await read()

    async def renew(_: str | None) -> bool:
        nonlocal version
        try:
            fresh, latest = await read()
        except (BadKubeconfig, errors.ApiError) as error:
            log.warning(f"the credentials for the {of} were not renewed", error=str(error))
            return False
        if latest == version:
            return False
        version, connection.authorize, connection.tls = latest, fresh.authorize, fresh.tls
        return True

    connection.renew = renew
    return connection


def secret_renewal(host: ApiServer, member: ApiServer, cluster: str) -> Renewal:
    """The renewal of the token in the Secret that the Cluster names; one of another form is left alone."""

    async def find() -> tuple[str, str]:
        reference = ((await host.get(CLUSTERS, cluster)).get("spec") or {}).get("secretRef") or {}
        return reference.get("name", ""), reference.get("namespace", "")

    return _renewal(member, host, find)


def host_renewal(member: ApiServer, host: ApiServer) -> Renewal:
    """The renewal of the token or certificate for the host in the member's Secret."""

    async def find() -> tuple[str, str]:
        return keys.HOST_SECRET, keys.SYSTEM_NAMESPACE

    return _renewal(host, member, find)


def _renewal(api: ApiServer, keeper: ApiServer, find: Callable[[], Awaitable[tuple[str, str]]]) -> Renewal:
    """The renewal of credentials for `api` in a kubeconfig of a Secret that `keeper` has."""

    async def text_of(where: tuple[str, str]) -> str:
        found = await keeper.get(SECRETS, *where)
        return base64.b64decode((found.get("data") or {}).get("kubeconfig") or "").decode()

    async def read() -> Credentials | None:
        return in_kubeconfig(await text_of(await find()))

    async def store(old: Credentials, new: Credentials) -> None:
        name, namespace = await find()
        patch = {"stringData": {"kubeconfig": replaced(await text_of((name, namespace)), old, new)}}
        await keeper.merge_patch(SECRETS, name, patch, namespace, field_manager="atoll-agent")

    return Renewal(api, read, store)


async def _read(host: ApiServer, cluster: str) -> tuple[Connection, str]:
    """The connection, and the version of the Secret that it was made of."""
    try:
        spec = (await host.get(CLUSTERS, cluster)).get("spec") or {}
        reference = spec.get("secretRef")
        if not reference:
            raise BadKubeconfig(f"Cluster {cluster}: spec.secretRef is not set; name the Secret with its credentials")
        secret = await host.get(SECRETS, reference["name"], reference["namespace"])
    except errors.NotFound as error:
        raise BadKubeconfig(f"the credentials of Cluster {cluster} are not on the host: {error.message}") from error
    except errors.Forbidden as error:
        raise BadKubeconfig(
            f"the credentials of Cluster {cluster} can't be read: {error.message}; a role must allow this agent to get"
            " that Cluster and the Secret of its spec.secretRef, both by name"
        ) from error
    source = f"Secret {reference['namespace']}/{reference['name']}"
    connection = from_secret(secret.get("data") or {}, source, endpoint=spec.get("apiEndpoint") or "")
    return connection, secret["metadata"]["resourceVersion"]
