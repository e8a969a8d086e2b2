"""The member's credentials where the host keeps them: the Secret that its Cluster object names.

For an agent that runs beside the host (push mode). It may read that one Cluster and that one Secret.
"""

from __future__ import annotations

import base64

import structlog

from atoll.kube import errors
from atoll.kube.config import BadKubeconfig, Connection
from atoll.kube.secretconfig import from_secret
from atoll.kube.tokens import Renewal, in_kubeconfig
from atoll.kube.transport import ApiServer
from atoll.model.apiresource import CLUSTERS, SECRETS

log = structlog.get_logger(__name__)


async def member_connection(host: ApiServer, cluster: str) -> Connection:
    """The way to a member by `spec.secretRef` of its Cluster; read again when the member does not know the token.

    Raises:
        BadKubeconfig: there is none, or it may not be used; the message names object and field.
        ApiError: the host said no.
    """
    connection, version = await _read(host, cluster)

    async def renew(_: str | None) -> bool:
        nonlocal version
        try:
            fresh, latest = await _read(host, cluster)
        except (BadKubeconfig, errors.ApiError) as error:
            log.warning("the member's credentials were not renewed", cluster=cluster, error=str(error))
            return False
        if latest == version:
            return False
        version, connection.authorize, connection.tls = latest, fresh.authorize, fresh.tls
        return True

    connection.renew = renew
    return connection


def secret_renewal(host: ApiServer, member: ApiServer, cluster: str) -> Renewal:
    """The renewal of the token in the Secret that the Cluster names; one of another form is left alone."""

    async def kubeconfig() -> tuple[dict[str, str], str]:
        reference = ((await host.get(CLUSTERS, cluster)).get("spec") or {}).get("secretRef") or {}
        found = await host.get(SECRETS, reference.get("name", ""), reference.get("namespace", ""))
        return reference, base64.b64decode((found.get("data") or {}).get("kubeconfig") or "").decode()

    async def read() -> str | None:
        return in_kubeconfig((await kubeconfig())[1])

    async def store(old: str, new: str) -> None:
        reference, text = await kubeconfig()
        patch = {"stringData": {"kubeconfig": text.replace(old, new)}}
        await host.merge_patch(SECRETS, reference["name"], patch, reference["namespace"], field_manager="atoll-agent")

    return Renewal(member, read, store)


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
