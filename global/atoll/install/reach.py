"""Whether a host's API server reaches an address, asked of the API server itself.

A validating webhook for one object alone is registered at the address. A dry run of that object makes the API server
call it, and the error that comes back says how far the call came.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

from atoll.install.credentials import FIELD_MANAGER, MANAGED_BY
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model.apiresource import CONFIGMAPS, VALIDATING_WEBHOOKS

Json = dict[str, Any]

_NAME: Final = "atoll-probe"
_NAMESPACE: Final = "kube-system"
_PATH: Final = "/probe"
"""That no server of Atoll has: it answers 404."""
_TIMEOUT: Final = 5
"""Seconds that the API server tries."""
_KNOWN_S, _POLL_S = 10.0, 0.2
"""Seconds until an API server works with a new registration, at most."""


async def unreached(host: ApiServer, client_config: Json, ca_bundle: str = "") -> str:
    """Why the API server does not reach an address; empty if it does. Nothing is left behind.

    Args:
        host: with an administrator's credentials.
        client_config: `{"url": ...}` without a path, or `{"service": {"namespace", "name", "port"}}`.
        ca_bundle: base64 of the PEM certificates of Atoll's webhook, which must have issued the server's; empty: any
            server that speaks TLS will do.

    Raises:
        ApiError: the host refused the registration.
    """
    await host.apply(VALIDATING_WEBHOOKS, _registration(client_config, ca_bundle), field_manager=FIELD_MANAGER)
    try:
        return judge(await _call(host), strict=bool(ca_bundle))
    finally:
        with contextlib.suppress(errors.NotFound):
            await host.delete(VALIDATING_WEBHOOKS, _NAME)


async def _call(host: ApiServer) -> str:
    """The API server's error of its call; empty if it made none in time."""
    probe = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": _NAME, "namespace": _NAMESPACE}}
    clock = asyncio.get_running_loop().time
    end = clock() + _KNOWN_S
    while clock() < end:
        try:
            await host.create(CONFIGMAPS, probe, dry_run=True)
        except errors.ApiError as error:
            if f"{_NAME}.atoll.sh" in error.message:
                return error.message
        await asyncio.sleep(_POLL_S)
    return ""


def judge(error: str, *, strict: bool) -> str:
    """Why a call did not reach its server; empty if it did.

    Args:
        error: the API server's, empty if it made no call.
        strict: the server's certificate must be of Atoll's webhook.
    """
    if not error:
        return f"the API server called nothing within {_KNOWN_S:.0f} s"
    if strict and "signed by unknown authority" in error:
        return "the server there has a certificate of another authority, so it is not atoll-webhook of this host"
    # A certificate for other names is renewed by the webhook once its new address is registered.
    if "x509" in error or "could not find the requested resource" in error:
        return ""
    return error.partition("failed to call webhook: ")[2] or error


def _registration(client_config: Json, ca_bundle: str) -> Json:
    url, service = client_config.get("url"), client_config.get("service")
    address: Json = {"url": url + _PATH} if url else {"service": {**(service or {}), "path": _PATH}}
    return {
        "apiVersion": VALIDATING_WEBHOOKS.api_version,
        "kind": VALIDATING_WEBHOOKS.kind,
        "metadata": {"name": _NAME, "labels": MANAGED_BY},
        "webhooks": [
            {
                "name": f"{_NAME}.atoll.sh",
                "clientConfig": {**address, **({"caBundle": ca_bundle} if ca_bundle else {})},
                "rules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}
                ],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": _NAMESPACE}},
                "matchConditions": [{"name": "the-probe", "expression": f'request.name == "{_NAME}"'}],
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "timeoutSeconds": _TIMEOUT,
                "admissionReviewVersions": ["v1"],
            }
        ],
    }
