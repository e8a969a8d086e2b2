"""Namespaces, ServiceAccounts, their tokens, and the kubeconfig files that Atoll's processes start with."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from atoll.kube import config
from atoll.kube.access import content
from atoll.kube.endpoint import Endpoint as Endpoint
from atoll.kube.endpoint import kubeconfig as kubeconfig
from atoll.kube.transport import ApiServer
from atoll.model.apiresource import NAMESPACES, SERVICE_ACCOUNTS

FIELD_MANAGER = "atoll-init"
MANAGED_BY = {"app.kubernetes.io/managed-by": "atoll"}
"""Label of everything that an installation makes: what carries it may be updated, anything else is left alone."""

YEAR: Final = 365 * 24 * 3600
"""Seconds."""

Json = dict[str, Any]


async def endpoint(kubeconfig: str | Path | None, context: str | None = None) -> Endpoint:
    """Where the API server of a kubeconfig is ($KUBECONFIG or the usual file when none is named).

    Raises:
        BadKubeconfig: it can't be used.
        OSError: the file of its authority can't be read.
    """
    found = await config.access(kubeconfig, context)
    authority = content(found.authority) if found.authority is not None else None
    return Endpoint(found.url, authority, not found.verify, found.server_name, found.proxy)


async def ensure_namespace(api: ApiServer, name: str, labels: dict[str, str] | None = None) -> None:
    """Create a namespace, or add labels to it; nothing else of it changes."""
    await api.apply(
        NAMESPACES,
        {
            "apiVersion": NAMESPACES.api_version,
            "kind": NAMESPACES.kind,
            "metadata": {"name": name, "labels": labels or {}},
        },
        field_manager=FIELD_MANAGER,
    )


async def ensure_account(api: ApiServer, name: str, namespace: str, *, owners: Sequence[Json] = ()) -> None:
    """Create or keep a ServiceAccount; it goes with its owners."""
    await api.apply(
        SERVICE_ACCOUNTS,
        {
            "apiVersion": SERVICE_ACCOUNTS.api_version,
            "kind": SERVICE_ACCOUNTS.kind,
            "metadata": {"name": name, "namespace": namespace, "labels": MANAGED_BY, **owned(owners)},
        },
        field_manager=FIELD_MANAGER,
    )


def owned(owners: Sequence[Json]) -> Json:
    """Metadata that names these owner references; none where there are none."""
    return {"ownerReferences": [*owners]} if owners else {}


async def issue_token(api: ApiServer, name: str, namespace: str, seconds: int = YEAR) -> tuple[str, str]:
    """A token of a ServiceAccount, and its end (RFC 3339): in so many seconds, or earlier if the server caps it."""
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": seconds},
    }
    status = (await api.create_in(SERVICE_ACCOUNTS, name, namespace, "token", request))["status"]
    return status["token"], status["expirationTimestamp"]


def write_kubeconfig(
    path: Path, at: Endpoint, user: str, credentials: str | Mapping[str, str], *, namespace: str | None = None
) -> None:
    """Write a kubeconfig to a file that its owner alone can read; an older one is replaced at once."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(kubeconfig(at, user, credentials, namespace=namespace))
    fresh.replace(path)
