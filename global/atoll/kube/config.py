"""Where an API server is and how to prove who we are: kubeconfig files, exec plugins and in-cluster tokens.

The `kubernetes` package reads them all; what is kept of it is a URL, a TLS context and a function that gives the
current Authorization header. Credentials age: what a plugin gave is asked for anew before it expires, files that were
replaced on disk are read again, and a request that was refused as unknown has everything read again once.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config import ConfigException, incluster_config, kube_config, load_kube_config
from kubernetes.aio.config.exec_provider import ExecProvider

EXEC_DEADLINE = 30.0
"""Seconds that an exec plugin may take."""
LOOK = 5.0
"""Seconds between two looks at whether a file of the credentials was replaced."""
PATIENCE = 10.0
"""Seconds before credentials that could not be renewed, or did not become better, are asked for again."""
_EARLY = 60.0
_LEAST_EARLY = 0.2

Authorize = Callable[[], Awaitable[str | None]]
Renew = Callable[[str | None], Awaitable[bool]]

log = structlog.get_logger(__name__)


async def _can_not_renew(_: str | None) -> bool:
    return False


@dataclass(slots=True)
class Connection:
    """One API server and the credentials for it."""

    url: str
    tls: ssl.SSLContext | None
    """Replaced when certificates are: ask for it at every request."""
    authorize: Authorize
    """The Authorization header to send now; None where a client certificate speaks."""
    proxy: str | None = None
    server_name: str | None = None
    """Name to expect in the certificate when it is not the URL's host."""
    renew: Renew = _can_not_renew
    """Called with the header that the server did not know (401): whether there are others to try."""


class BadKubeconfig(ValueError):
    """The kubeconfig is missing or can't be used; the message says which one, which field and what to do."""


async def load(kubeconfig: str | Path | None = None, context: str | None = None) -> Connection:
    """Read a kubeconfig, or the usual places ($KUBECONFIG, ~/.kube/config, the pod's service account) when none is
    named.

    Raises:
        BadKubeconfig: no configuration, or one that can't be read.
    """
    credentials = _Credentials(str(kubeconfig) if kubeconfig is not None else None, context)
    return await credentials.connect()


def tls_context(ca_file: str | None = None, ca_data: str | None = None) -> ssl.SSLContext:
    """A client's context that trusts these authorities (PEM), or the machine's where none are given."""
    context = ssl.create_default_context(cafile=ca_file, cadata=ca_data)
    # An API server's own certificate is a leaf that clients pin as their CA; strict X.509 checks refuse that.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


@dataclass(frozen=True, slots=True)
class _Found:
    """What one reading of the configuration gave."""

    configuration: Configuration
    header: str | None
    expires: float | None = None
    """Seconds since the epoch."""
    files: frozenset[str] = field(default_factory=frozenset)
    """What to read again once it changes on disk."""


class _Credentials:
    """The credentials of one connection over its whole life."""

    def __init__(self, kubeconfig: str | None, context: str | None) -> None:
        self._kubeconfig, self._context = kubeconfig, context
        self._connection: Connection | None = None
        self._header: str | None = None
        #: contents of authority, certificate and key that `Connection.tls` was made of
        self._identity: object = None
        #: what to read again when its state changes
        self._files: frozenset[str] = frozenset()
        self._state: object = None
        #: time.time() at which the credentials are to be asked for anew; None for ones that do not expire
        self._renew_at: float | None = None
        #: time.monotonic() of the next look at files, and before which a refused header is not renewed
        self._look_at = self._renew_after = 0.0
        #: the reading under way; a caller that gives up does not end it for the others
        self._reading: asyncio.Task[None] | None = None

    async def connect(self) -> Connection:
        found = await self._read()
        configuration = found.configuration
        self._connection = Connection(
            configuration.host.rstrip("/"),
            None,
            self.authorize,
            configuration.proxy,
            configuration.tls_server_name,
            self.renew,
        )
        self._take(found)
        return self._connection

    async def authorize(self) -> str | None:
        """The header to send now."""
        # Whoever comes while it is read goes on with what there is: that is renewed before it expires.
        if self._reading is None and self._is_due():
            await self._refresh()
        return self._header

    async def renew(self, refused: str | None) -> bool:
        """Read everything again, unless that was done a moment ago."""
        if self._header != refused:
            return True
        assert self._connection is not None, "connect makes it first"
        before = self._connection.tls
        if self._reading is None:
            if time.monotonic() < self._renew_after:
                return False
            self._renew_after = time.monotonic() + PATIENCE
        await self._refresh()
        return self._header != refused or self._connection.tls is not before

    async def _refresh(self) -> None:
        if self._reading is None:
            self._reading = asyncio.create_task(self._reread())
            self._reading.add_done_callback(self._read_ended)
        await asyncio.shield(self._reading)

    def _read_ended(self, _: object) -> None:
        self._reading = None

    def _is_due(self) -> bool:
        if self._renew_at is not None and time.time() >= self._renew_at:
            return True
        if time.monotonic() < self._look_at:
            return False
        self._look_at = time.monotonic() + LOOK
        return _state(self._files) != self._state

    async def _reread(self) -> None:
        """What can't be read leaves everything as it is: the old credentials may still be good."""
        try:
            self._take(await self._read())
        except BadKubeconfig as error:
            log.warning("credentials were not renewed", error=str(error))
            if self._renew_at is not None:
                self._renew_at = time.time() + PATIENCE

    def _take(self, found: _Found) -> None:
        configuration, connection = found.configuration, self._connection
        assert connection is not None, "connect makes it first"
        state = _state(found.files)
        try:
            identity = _contents(configuration)
            if identity != self._identity:
                connection.tls = _tls(configuration)
        except (OSError, ValueError) as error:
            raise self._bad(f"its certificates can't be used: {error}") from error
        self._identity, self._header, self._files, self._state = identity, found.header, found.files, state
        self._renew_at = None
        if found.expires is not None:
            left = found.expires - time.time()
            self._renew_at = time.time() + max(left - min(_EARLY, left * _LEAST_EARLY), PATIENCE if left <= 0 else 0.0)

    # -- reading -----------------------------------------------------------------------------------------------------

    async def _read(self) -> _Found:
        if self._kubeconfig is not None and _state(frozenset((self._kubeconfig,))) == {self._kubeconfig: None}:
            raise self._bad("no such file")
        configuration = Configuration()
        try:
            async with asyncio.timeout(EXEC_DEADLINE):
                try:
                    loader = await load_kube_config(
                        config_file=self._kubeconfig, context=self._context, client_configuration=configuration
                    )
                except ConfigException:
                    if self._kubeconfig is not None or self._context is not None:
                        raise
                    return self._in_cluster(configuration)
                return await self._from_file(configuration, loader)
        except BadKubeconfig:
            raise
        except TimeoutError as error:
            raise self._bad(f"its exec plugin did not answer within {EXEC_DEADLINE:g} s") from error
        except Exception as error:
            # The package answers a file that is no kubeconfig with any error at all.
            raise self._bad(str(error) or type(error).__name__) from error

    async def _from_file(self, configuration: Configuration, loader: Any) -> _Found:
        if not isinstance(configuration.host, str) or not configuration.host.startswith(("https://", "http://")):
            raise self._bad(f"clusters[].cluster.server: {configuration.host!r} is no http(s) URL")
        user = loader._user
        if user is not None and user.safe_get("as") is not None:
            raise self._bad("users[].user.as: acting as another user is not supported; use that user's credentials")
        header = configuration.api_key.get("BearerToken")
        if user is not None and user.safe_get("exec") and header is None and not configuration.cert_file:
            # The package only logs why a plugin failed; asked directly, it says so.
            await ExecProvider(user["exec"]).run()
            raise self._bad("users[].user.exec: the plugin gave neither a token nor a certificate")
        expiry = getattr(loader, "exec_plugin_expiry", None)
        files = {str(path) for path in self._paths()}
        token_file = user.safe_get("tokenFile") if user is not None else None
        if token_file and not user.safe_get("token"):
            files.add(os.path.join(loader._get_base_path(user.path), token_file))
        return _Found(
            configuration,
            self._checked(header),
            expiry.timestamp() if expiry is not None else None,
            frozenset(files | _certificate_files(configuration)),
        )

    def _in_cluster(self, configuration: Configuration) -> _Found:
        token, authority = incluster_config.SERVICE_TOKEN_FILENAME, incluster_config.SERVICE_CERT_FILENAME
        incluster_config.InClusterConfigLoader(token, authority, try_refresh_token=False).load_and_set(configuration)
        header = self._checked(configuration.api_key.get("BearerToken"))
        return _Found(configuration, header, None, frozenset((token, authority)))

    def _paths(self) -> list[str]:
        if self._kubeconfig is not None:
            return [self._kubeconfig]
        return str(kube_config.KUBE_CONFIG_DEFAULT_LOCATION).split(kube_config.ENV_KUBECONFIG_PATH_SEPARATOR)

    def _checked(self, header: str | None) -> str | None:
        header = header.strip() if header is not None else None
        if header is not None and not (header.isascii() and header.isprintable()):
            raise self._bad("users[].user.token: it has characters that no token has")
        return header

    def _bad(self, why: str) -> BadKubeconfig:
        return BadKubeconfig(
            f"kubeconfig {self._kubeconfig or '(default)'}: {why}; name another with --kubeconfig or $KUBECONFIG"
        )


def _tls(configuration: Configuration) -> ssl.SSLContext | None:
    if not configuration.host.startswith("https"):
        return None
    context = tls_context(configuration.ssl_ca_cert)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _certificate_files(configuration: Configuration) -> set[str]:
    files = (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
    return {file for file in files if file}


def _contents(configuration: Configuration) -> object:
    return {file: Path(file).read_bytes() for file in _certificate_files(configuration)}


def _state(files: frozenset[str]) -> object:
    """Something that changes when one of the files is written or replaced."""
    state: dict[str, tuple[int, int, int] | None] = {}
    for file in files:
        try:
            status = os.stat(file)
        except OSError:
            state[file] = None
        else:
            state[file] = (status.st_mtime_ns, status.st_ino, status.st_size)
    return state
