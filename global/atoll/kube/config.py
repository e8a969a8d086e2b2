"""Where an API server is and how to prove who we are: kubeconfig files, exec plugins and in-cluster tokens.

The `kubernetes` package reads them all; what is kept of it is a URL, a TLS context and a function that gives the
current Authorization header.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config

_EXEC_RENEWAL = 60.0
"""Seconds after which an exec plugin is asked again; plugins cache, and tokens live for minutes."""

Authorize = Callable[[], Awaitable[str | None]]


@dataclass(frozen=True, slots=True)
class Connection:
    """One API server and the credentials for it."""

    url: str
    tls: ssl.SSLContext | None
    authorize: Authorize
    """The Authorization header to send now; None where a client certificate speaks."""
    proxy: str | None = None
    server_name: str | None = None
    """Name to expect in the certificate when it is not the URL's host."""


class BadKubeconfig(ValueError):
    """The kubeconfig is missing or can't be used; the message says which file and why."""


async def load(kubeconfig: str | Path | None = None, context: str | None = None) -> Connection:
    """Read a kubeconfig, or the usual places ($KUBECONFIG, ~/.kube/config, the pod's service account) when none is
    named.

    Raises:
        BadKubeconfig: no configuration, or one that can't be read.
    """
    if kubeconfig is not None:
        _must_exist(Path(kubeconfig))
    configuration = Configuration()
    loader = None
    try:
        try:
            loader = await load_kube_config(
                config_file=str(kubeconfig) if kubeconfig else None,
                context=context,
                client_configuration=configuration,
            )
        except ConfigException:
            if kubeconfig is not None or context is not None:
                raise
            load_incluster_config(client_configuration=configuration)
    except ConfigException as error:
        raise BadKubeconfig(
            f"kubeconfig {kubeconfig or '(default)'}: {error}; name one with --kubeconfig or $KUBECONFIG"
        ) from error
    renew = loader.load_from_exec_plugin if loader is not None and "exec" in loader._user else None
    return Connection(
        configuration.host.rstrip("/"),
        _tls(configuration),
        _authorizer(configuration, loader, renew),
        configuration.proxy,
        configuration.tls_server_name,
    )


def _must_exist(kubeconfig: Path) -> None:
    if not kubeconfig.is_file():
        raise BadKubeconfig(f"kubeconfig {kubeconfig}: no such file; name another with --kubeconfig or $KUBECONFIG")


def _tls(configuration: Configuration) -> ssl.SSLContext | None:
    if not configuration.host.startswith("https"):
        return None
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    # An API server's own certificate is a leaf that clients pin as their CA; strict X.509 checks refuse that.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _authorizer(configuration: Configuration, loader: Any, renew: Callable[[], Awaitable[None]] | None) -> Authorize:
    next_renewal = time.monotonic() + _EXEC_RENEWAL

    async def authorize() -> str | None:
        nonlocal next_renewal
        if renew is not None and time.monotonic() >= next_renewal:
            next_renewal = time.monotonic() + _EXEC_RENEWAL
            await renew()
            configuration.api_key["BearerToken"] = loader.token
        if configuration.refresh_api_key_hook is not None:
            configuration.refresh_api_key_hook(configuration)
        token: str | None = configuration.api_key.get("BearerToken")
        if token is None and configuration.username:
            token = configuration.get_basic_auth_token()
        return token

    return authorize
