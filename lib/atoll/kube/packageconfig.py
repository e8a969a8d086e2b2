"""Kubeconfigs of every sort and exec plugins, as the `kubernetes` package reads them.

Its import takes a fifth of a second of CPU time: `atoll.kube.config` imports this module only where the plain reader
does not do.
"""

from __future__ import annotations

import os
from typing import Any

from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config import load_kube_config
from kubernetes.aio.config.exec_provider import ExecProvider

from atoll.kube.access import Access


class Unusable(ValueError):
    """The package read it, and it can't be used; the message names the field."""


async def read(paths: str, context: str | None) -> Access:
    """What the package finds.

    Args:
        paths: of kubeconfigs, separated as in $KUBECONFIG.
        context: of the files; None for the current one.

    Raises:
        Unusable: it can't be used.
        Exception: the package answers a file that is no kubeconfig with any error at all.
    """
    configuration = Configuration()
    loader = await load_kube_config(config_file=paths, context=context, client_configuration=configuration)
    return await _from_file(configuration, loader, paths)


async def _from_file(configuration: Configuration, loader: Any, paths: str) -> Access:
    if not isinstance(configuration.host, str) or not configuration.host.startswith(("https://", "http://")):
        raise Unusable(f"clusters[].cluster.server: {configuration.host!r} is no http(s) URL")
    user = loader._user
    if user is not None and user.safe_get("as") is not None:
        raise Unusable("users[].user.as: acting as another user is not supported; use that user's credentials")
    header = configuration.api_key.get("BearerToken")
    if user is not None and user.safe_get("exec") and header is None and not configuration.cert_file:
        # The package only logs why a plugin failed; asked directly, it says so.
        await ExecProvider(user["exec"]).run()
        raise Unusable("users[].user.exec: the plugin gave neither a token nor a certificate")
    expiry = getattr(loader, "exec_plugin_expiry", None)
    files = set(paths.split(os.pathsep))
    token_file = user.safe_get("tokenFile") if user is not None else None
    if token_file and not user.safe_get("token"):
        files.add(os.path.join(loader._get_base_path(user.path), token_file))
    certificates = (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
    return Access(
        configuration.host.rstrip("/"),
        header,
        *certificates,
        verify=configuration.verify_ssl,
        proxy=configuration.proxy,
        server_name=configuration.tls_server_name,
        expires=expiry.timestamp() if expiry is not None else None,
        files=frozenset({*files, *(file for file in certificates if file)}),
    )
