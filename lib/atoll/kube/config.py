"""Where an API server is and how to prove who we are: kubeconfig files, exec plugins and in-cluster tokens.

They are kept as a URL, a TLS context and a function that gives the current Authorization header. Credentials
age: a plugin's answer is renewed before it expires, files that were replaced on disk are read again, and a
request that was refused as unknown has everything read again once.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

from atoll.kube import plainconfig
from atoll.kube.access import Access
from atoll.kube.access import BadKubeconfig as BadKubeconfig
from atoll.kube.access import tls_context as tls_context
from atoll.kube.lazylog import get_logger

EXEC_DEADLINE = 30.0
"""Seconds that an exec plugin may take."""
LOOK = 5.0
"""Seconds between two looks at whether a file of the credentials was replaced."""
PATIENCE = 10.0
"""Seconds before credentials that could not be renewed, or did not become better, are asked for again."""
_DEFAULT = "~/.kube/config"
_EARLY = 60.0
_LEAST_EARLY = 0.2

Authorize = Callable[[], Awaitable[str | None]]
Renew = Callable[[str | None], Awaitable[bool]]

log = get_logger(__name__)


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


async def load(kubeconfig: str | Path | None = None, context: str | None = None) -> Connection:
    """Read a kubeconfig, or the usual places ($KUBECONFIG, ~/.kube/config, the pod's service account) when none is
    named.

    Raises:
        BadKubeconfig: no configuration, or one that can't be read.
    """
    credentials = _Credentials(str(kubeconfig) if kubeconfig is not None else None, context)
    return await credentials.connect()


async def access(kubeconfig: str | Path | None = None, context: str | None = None) -> Access:
    """The address of the API server that `load` would connect to, and the credentials as they are now.

    Raises:
        BadKubeconfig: no configuration, or one that can't be read.
    """
    return await _Credentials(str(kubeconfig) if kubeconfig is not None else None, context).read()


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
        #: time.time() at which the credentials must be renewed; None for ones that do not expire
        self._renew_at: float | None = None
        #: time.monotonic() of the next look at files, and before which a refused header is not renewed
        self._look_at = self._renew_after = 0.0
        #: the reading under way; a caller that gives up does not end it for the others
        self._reading: asyncio.Task[None] | None = None

    async def connect(self) -> Connection:
        found = await self.read()
        self._connection = Connection(
            found.url, None, self.authorize, found.proxy, found.server_name, self.renew
        )  # fmt: skip
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
            self._take(await self.read())
        except BadKubeconfig as error:
            log.warning("credentials were not renewed", error=str(error))
            if self._renew_at is not None:
                self._renew_at = time.time() + PATIENCE

    def _take(self, found: Access) -> None:
        connection = self._connection
        assert connection is not None, "connect makes it first"
        state = _state(found.files)
        try:
            identity = found.identity()
            if identity != self._identity:
                connection.tls = found.tls()
        except (OSError, ValueError) as error:
            raise self._bad(f"its certificates can't be used: {error}") from error
        self._identity, self._header, self._files, self._state = identity, found.header, found.files, state
        self._renew_at = None
        if found.expires is not None:
            left = found.expires - time.time()
            self._renew_at = time.time() + max(left - min(_EARLY, left * _LEAST_EARLY), PATIENCE if left <= 0 else 0.0)

    # -- reading -----------------------------------------------------------------------------------------------------

    async def read(self) -> Access:
        """The access as it is now."""
        if self._kubeconfig is not None and _state(frozenset((self._kubeconfig,))) == {self._kubeconfig: None}:
            raise self._bad("no such file")
        paths = self._kubeconfig or os.environ.get("KUBECONFIG") or _DEFAULT
        found = plainconfig.read_one(paths, self._context) or await self._read_any(paths)
        return replace(found, header=self._checked(found.header))

    async def _read_any(self, paths: str) -> Access:
        there = plainconfig.existing(paths)
        if not there:
            return self._read_account()
        try:
            from atoll.kube import packageconfig
        except ModuleNotFoundError as error:
            raise self._bad(
                "it needs the Python package `kubernetes`, as exec plugins and several files do: install atoll[cli]"
            ) from error
        try:
            async with asyncio.timeout(EXEC_DEADLINE):
                return await packageconfig.read(paths, self._context)
        except TimeoutError as error:
            raise self._bad(f"its exec plugin did not answer within {EXEC_DEADLINE:g} s") from error
        except Exception as error:
            # The package answers a file that is no kubeconfig with any error at all.
            why = plainconfig.fault(there[0], self._context) if len(there) == 1 else ""
            raise self._bad(why or str(error) or type(error).__name__) from error

    def _read_account(self) -> Access:
        """Read the ServiceAccount of the pod, where no kubeconfig is asked for."""
        try:
            account = plainconfig.in_cluster(os.environ) if self._kubeconfig is None and self._context is None else None
        except OSError as error:
            raise self._bad(f"there is none, and the account of this pod can't be read: {error}") from error
        if account is None:
            raise self._bad("there is none, and this is no pod")
        return account

    def _checked(self, header: str | None) -> str | None:
        header = header.strip() if header is not None else None
        if header is not None and not (header.isascii() and header.isprintable()):
            raise self._bad("users[].user.token: it has characters that no token has")
        return header

    def _bad(self, why: str) -> BadKubeconfig:
        named = self._kubeconfig or os.environ.get("KUBECONFIG") or _DEFAULT
        return BadKubeconfig(f"kubeconfig {named}: {why}; name another with --kubeconfig or $KUBECONFIG")


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
