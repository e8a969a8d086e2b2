"""HTTP to one API server: every request that Atoll makes goes through here.

Each request has a deadline; a request that is safe to repeat is repeated while the deadline lasts, honouring
Retry-After. Credentials that the server does not know any more are renewed once.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import math
import os
import random
import re
import socket
import ssl
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, Self

import aiohttp
from yarl import URL

from atoll.kube import client_metrics, config, errors
from atoll.kube.backoff import ceiling
from atoll.kube.drain import Writes, keeps_leadership
from atoll.kube.pace import Pace
from atoll.kube.ratelimit import RateLimit
from atoll.model.apiresource import ApiResource
from atoll.model.release import VERSION

Json = dict[str, Any]

JSON: Final = "application/json"

_IN_ONE_PIECE: Final = 1 << 20
"""Bytes of a request."""
_DEADLINE = 15.0
_CONNECT = 5.0


class Http:
    """Requests, streams and websockets of one API server; use as an async context manager or call `close`."""

    def __init__(
        self,
        connection: config.Connection,
        *,
        user_agent: str = "atoll",
        connections: int = 64,
        rate: RateLimit | None = None,
        on_warning: Callable[[str], None] | None = None,
    ) -> None:
        """No I/O happens here.

        Args:
            connection: where it is and who we are.
            user_agent: shown in the server's audit log with the version, `atoll-agent/alpha` as
                `atoll-agent/<version> (alpha)`.
            connections: most requests under way at once; watches have connections of their own.
            rate: most requests in a second, watches included, those about leases excepted; several clients may share
                one. None: no limit but the server's own.
            on_warning: gets what the server, or a webhook, says of a request besides its answer.
        """
        self._connection = connection
        self._environment_proxy: str | None = None
        self._on_warning = on_warning
        self._user_agent = user_agent
        self._limit = connections
        self._rate = rate
        self._session: aiohttp.ClientSession | None = None
        self._watches: aiohttp.ClientSession | None = None
        #: (verb, resource, code) -> requests answered; code 0 = no answer
        self.requests: Counter[tuple[str, str, int]] = Counter()
        #: verb -> seconds until the whole answer was there; of a watch, until it began
        self.seconds: defaultdict[str, client_metrics.Durations] = defaultdict(client_metrics.Durations)
        self.writes = Writes()
        self.pace = Pace()
        client_metrics.clients.add(self)

    @classmethod
    async def from_kubeconfig(
        cls,
        kubeconfig: str | Path | None = None,
        context: str | None = None,
        *,
        user_agent: str = "atoll",
        connections: int = 64,
        rate: RateLimit | None = None,
        on_warning: Callable[[str], None] | None = None,
    ) -> Self:
        """A client by a kubeconfig file, or by what the environment offers when none is named.

        Raises:
            BadKubeconfig: it can't be used.
        """
        connection = await config.load(kubeconfig, context)
        return cls(connection, user_agent=user_agent, connections=connections, rate=rate, on_warning=on_warning)

    @property
    def url(self) -> str:
        return self._connection.url

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection; the object can be used again."""
        for session in (self._session, self._watches):
            if session is not None:
                await session.close()
        self._session = self._watches = None

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content_type: str = JSON,
        params: Mapping[str, str] | None = None,
        accept: str = JSON,
        deadline: float = _DEADLINE,
    ) -> bytes:
        """Send a request and give the body of a 2xx answer.

        Reads are repeated while the deadline lasts when the server is unreachable or busy. Writes are repeated only
        after 429 and after a connection that could not be made, when it is certain that nothing was done. Anything is
        repeated once after 401, if the credentials could be renewed.

        Raises:
            ApiError: see `atoll.kube.errors`; `Unreachable` once the deadline has passed.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + deadline

        failures = 0
        while True:
            try:
                rate = None if keeps_leadership(path) else self._rate
                if rate is not None and not await rate.take(end - loop.time()):
                    raise errors.Busy(f"{method} {path}: our own limit, {rate.qps:g} a second, leaves no time")
                async with self.writes.passing(method, path) as within:
                    left = max(end - loop.time(), 0.05)
                    # The server goes on with a write whose client is gone, unless the request itself has an end.
                    bounded = (
                        params if math.isinf(within) else {**(params or {}), "timeout": f"{max(within, 0.001):.3f}s"}
                    )
                    return await self._once(method, path, body, content_type, bounded, accept, left)
            except errors.ApiError as error:
                pause = _pause(error, failures)
                if not _repeatable(method, error) or loop.time() + pause >= end:
                    raise
            failures += 1
            await asyncio.sleep(pause)

    async def _once(
        self,
        method: str,
        path: str,
        body: bytes | None,
        content_type: str,
        params: Mapping[str, str] | None,
        accept: str,
        timeout: float,
    ) -> bytes:
        if self._session is None:
            self._session = self._new_session(self._limit)
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            async with asyncio.timeout(timeout):
                options = await self._options(accept)
                if body is not None:
                    options["headers"]["Content-Type"] = content_type
                async with self._session.request(
                    method, self._target(path), data=_payload(body), params=params, timeout=_TIMEOUT, **options
                ) as response:
                    content = await response.read()
                    self.requests[method, _plural(path), response.status] += 1
                    self.seconds[method].observe(clock() - began)
                    if method != "GET":
                        self.pace.observe(clock() - began)
                    if self._on_warning is not None:
                        for warning in _warnings(response.headers.getall("Warning", ())):
                            self._on_warning(warning)
                    if response.status < 300:
                        return content
                    raise await self._refusal(response, content, f"{method} {path}", options)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self.requests[method, _plural(path), 0] += 1
            raise errors.Unreachable(f"{method} {self.url}{path}: {in_words(error)}") from error

    async def _refusal(
        self, response: aiohttp.ClientResponse, content: bytes, request: str, options: Json
    ) -> errors.ApiError:
        """The error for an answer. Who raises it must not have it in a variable: it would end in a cycle with its own
        traceback, which is garbage that only a collection frees, and none does that after one came in between.
        """
        error = errors.from_response(response.status, content, response.headers.get("Retry-After"), request)
        if isinstance(error, errors.Unauthorized):
            error.renewed = await self._renewed(options)
        return error

    async def _renewed(self, refused: Json) -> bool:
        """Whether there are other credentials than the ones of a request that was answered with 401."""
        if self._connection.tls is not refused.get("ssl"):
            return True
        return await self._connection.renew(refused["headers"].get("Authorization"))

    def _target(self, path: str) -> URL:
        return URL(self._connection.url + path, encoded=True)

    async def _options(self, accept: str) -> Json:
        # An API server redirects no client; another server that does would get the token, and a POST would come back as
        # a GET.
        options: Json = {"headers": {"Accept": accept}, "allow_redirects": False}
        authorization = await self._connection.authorize()
        if authorization:
            options["headers"]["Authorization"] = authorization
        if proxy := self._connection.proxy or self._environment_proxy:
            options["proxy"] = proxy
        if self._connection.server_name:
            options["server_hostname"] = self._connection.server_name
        if self._connection.tls is not None:
            # Per request: a new certificate needs a new connection, and gets one as this is part of the pool's key.
            options["ssl"] = self._connection.tls
        return options

    def _new_session(self, limit: int) -> aiohttp.ClientSession:
        if os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy"):
            # Commands start faster without it.
            from atoll.kube import proxies

            self._environment_proxy = proxies.from_environment(self._connection.url)
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=limit, keepalive_timeout=60),
            headers={"User-Agent": _product(self._user_agent)},
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        # Only this code decides about repetitions. The session would send a PUT again whose answer was lost, and its
        # sender would get a conflict with itself; there is no public switch.
        session._retry_connection = False
        return session

    async def stream(
        self, resource: ApiResource, path: str, params: Mapping[str, str], *, silence: float | None = None
    ) -> AsyncGenerator[bytes, None]:
        """The body of a GET as it comes, such as a log that is followed.

        Args:
            resource: that it is about.
            path: of the request.
            params: of the query.
            silence: seconds without a byte after which the connection is taken for dead; None for any.

        Raises:
            Unreachable: it broke.
        """
        try:
            async with await self._opened(resource, path, params, "*/*", silence) as response:
                async for chunk in response.content.iter_any():
                    yield chunk
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise errors.Unreachable(f"GET {self.url}{path} broke: {in_words(error)}") from error

    @contextlib.asynccontextmanager
    async def websocket(
        self,
        path: str,
        *,
        heartbeat: float,
        params: Sequence[tuple[str, str]] = (),
        protocols: Sequence[str] = (),
    ) -> AsyncGenerator[aiohttp.ClientWebSocketResponse, None]:
        """A connection on which both sides speak; after `heartbeat` seconds of silence a sign of life is asked for.

        Raises:
            ApiError: it is refused.
            Unreachable: it can't be made.
        """
        if self._watches is None:
            self._watches = self._new_session(0)
        options = await self._options("*/*")
        options.pop("allow_redirects")
        try:
            async with asyncio.timeout(_DEADLINE):
                socket = await self._watches.ws_connect(
                    self._target(path), heartbeat=heartbeat, params=list(params), protocols=protocols, **options
                )
        except aiohttp.WSServerHandshakeError as error:
            refused = errors.from_response(error.status, b"", None, f"GET {path}")
            if isinstance(refused, errors.Unauthorized):
                await self._renewed(options)
            raise refused from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise errors.Unreachable(f"GET {self.url}{path}: {in_words(error)}") from error
        async with socket:
            yield socket

    async def _opened(
        self, resource: ApiResource, path: str, params: Mapping[str, str], accept: str, inactivity: float | None
    ) -> aiohttp.ClientResponse:
        """The answer of a watch that was taken; that must come as soon as any other, what follows may take long."""
        if self._watches is None:
            self._watches = self._new_session(0)
        if self._rate is not None:
            await self._rate.take(float("inf"))
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT, sock_read=inactivity)
        while True:
            began = asyncio.get_running_loop().time()
            async with asyncio.timeout(_DEADLINE):
                options = await self._options(accept)
                response = await self._watches.get(self._target(path), params=params, timeout=timeout, **options)
            self.requests["WATCH", resource.plural, response.status] += 1
            if response.status == 200:
                self.seconds["WATCH"].observe(asyncio.get_running_loop().time() - began)
                return response
            async with response, asyncio.timeout(_DEADLINE):
                error = errors.from_response(
                    response.status, await response.read(), response.headers.get("Retry-After"), f"WATCH {path}"
                )
                if not (isinstance(error, errors.Unauthorized) and await self._renewed(options)):
                    raise error


_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT)
_NOTHING_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
_BACKOFF: Final = {errors.Busy: (0.1, 5.0), errors.Unreachable: (0.05, 2.0)}
"""Most seconds before a request is sent again, where the server does not say: at first, and ever; the rest is random.
"""


def _warnings(headers: Iterable[str]) -> Iterator[str]:
    """The texts of `299 - "text"` headers (RFC 7234, section 5.5), as API servers send them."""
    for header in headers:
        if (found := _WARNING.match(header)) is not None:
            yield re.sub(r"\\(.)", r"\1", found[1])


_WARNING: Final = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')


def in_words(error: Exception) -> str:
    """Why there is no answer; aiohttp's own words name the TLS context by its place in memory."""
    if isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
        if cause.errno and not isinstance(cause, ssl.SSLError | socket.gaierror):
            return os.strerror(cause.errno)
        return cause.strerror or str(cause)
    return str(error) or ("no answer in time" if isinstance(error, TimeoutError) else type(error).__name__)


def _repeatable(method: str, error: BaseException) -> bool:
    match error:
        case errors.Busy():
            return method == "GET" or error.code == 429
        case errors.Unreachable():
            return method == "GET" or isinstance(error.__cause__, _NOTHING_SENT)
        case errors.Unauthorized():
            return error.renewed
    return False


def _pause(error: errors.ApiError, failures: int) -> float:
    """Seconds before it is sent again, after so many failures and this one."""
    if error.retry_after is not None:
        # Not all clients that were sent away at one moment come back at one moment.
        return error.retry_after * random.uniform(1.0, 1.1)
    first, most = _BACKOFF.get(type(error), (0.0, 0.0))
    return random.uniform(0.0, ceiling(first, failures + 1, most))


def _payload(body: bytes | None) -> bytes | io.BytesIO | None:
    """A request's body as aiohttp takes it: bytes beyond a mebibyte are sent in pieces, or it warns that they block."""
    return io.BytesIO(body) if body is not None and len(body) > _IN_ONE_PIECE else body


def _plural(path: str) -> str:
    """The resource that a path of `ApiResource.path` is about; the path itself where it is of another form."""
    parts = path.split("/")[1:]
    rest = parts[2:] if parts[0] == "api" else parts[3:] if parts[0] == "apis" else []
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        rest = rest[2:]
    return rest[0] if rest else path


@cache
def _product(name: str) -> str:
    """The User-Agent of a process: `atoll-control/1.2.3`, `atoll-agent/1.2.3 (alpha)`."""
    process, _, detail = name.partition("/")
    return f"{process}/{VERSION} ({detail})" if detail else f"{process}/{VERSION}"
