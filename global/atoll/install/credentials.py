"""Namespaces, ServiceAccounts, their tokens, and the kubeconfig files that Atoll's processes start with."""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from atoll.kube import config
from atoll.kube.access import content
from atoll.kube.transport import ApiServer
from atoll.model.apiresource import NAMESPACES, SERVICE_ACCOUNTS

FIELD_MANAGER = "atoll-init"
MANAGED_BY = {"app.kubernetes.io/managed-by": "atoll"}
"""Label of everything that an installation makes: what carries it may be updated, anything else is left alone."""

_YEAR_SECONDS = 365 * 24 * 3600

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What a client must know of an API server besides its credentials."""

    url: str
    ca: bytes | None = None
    """PEM; None: the machine's own authorities."""
    insecure: bool = False
    server_name: str | None = None
    proxy: str | None = None


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


async def ensure_account(api: ApiServer, name: str, namespace: str) -> None:
    """Create or keep a ServiceAccount."""
    await api.apply(
        SERVICE_ACCOUNTS,
        {
            "apiVersion": SERVICE_ACCOUNTS.api_version,
            "kind": SERVICE_ACCOUNTS.kind,
            "metadata": {"name": name, "namespace": namespace, "labels": MANAGED_BY},
        },
        field_manager=FIELD_MANAGER,
    )


async def issue_token(api: ApiServer, name: str, namespace: str) -> tuple[str, str]:
    """A token of a ServiceAccount and when it expires (RFC 3339): a year from now, or earlier if the server caps it."""
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": _YEAR_SECONDS},
    }
    status = (await api.create_in(SERVICE_ACCOUNTS, name, namespace, "token", request))["status"]
    return status["token"], status["expirationTimestamp"]


def kubeconfig(at: Endpoint, user: str, token: str, *, namespace: str | None = None) -> str:
    """A kubeconfig with one context, as YAML."""
    cluster: Json = {"server": at.url}
    if at.ca is not None:
        cluster["certificate-authority-data"] = base64.b64encode(at.ca).decode()
    if at.insecure:
        cluster["insecure-skip-tls-verify"] = True
    if at.server_name:
        cluster["tls-server-name"] = at.server_name
    if at.proxy:
        cluster["proxy-url"] = at.proxy
    context: Json = {"cluster": "cluster", "user": user}
    if namespace:
        context["namespace"] = namespace
    content: Json = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": user,
        "clusters": [{"name": "cluster", "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": user, "context": context}],
    }
    return yaml.safe_dump(content, sort_keys=False)


def write_kubeconfig(path: Path, at: Endpoint, user: str, token: str, *, namespace: str | None = None) -> None:
    """Write a kubeconfig to a file that its owner alone can read; an older one is replaced at once."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(kubeconfig(at, user, token, namespace=namespace))
    fresh.replace(path)
