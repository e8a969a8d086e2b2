"""Bounds of a server open to any client: time for each step, connections, and bytes held at once.

A connection that is silent, or whose request comes in drops, ends after a deadline; bodies share one budget of memory;
where there are too many connections, the one that has been idle longest gives way to a new one.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import structlog
from aiohttp import web

_SMALL = 2**16

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one server; seconds, connections and bytes."""

    handshake: float = 10.0
    """TLS."""
    header: float = 10.0
    """From the connection, or from the first byte of a later request, until its header is whole."""
    body: float = 10.0
    """Until the body is read."""
    idle: float = 120.0
    """Between requests; longer than the 90 s after which an API server closes a connection that it does not use."""
    connections: int = 1024
    per_peer: int = 512
    """Connections of one address; all requests of an API server come from one."""
    buffered: int = 64 * 2**20
    """Bytes of large bodies that are held at once, over all connections; small ones, of up to 64 KiB, always get in."""


@dataclass(eq=False, slots=True)
class _Connection:
    transport: asyncio.Transport
    peer: str
    #: on the loop's clock, when the last request ended or the connection was made
    idle_since: float
    #: requests under way
    busy: int = 0
    deadline: asyncio.TimerHandle | None = None


@dataclass(eq=False)
class Guard:
    """Keeps one server within `limits`.

    `middleware` comes first in its application, its handlers read bodies by `body`, and it listens by a `GuardedSite`.
    """

    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        #: transport -> its connection, in the order of their arrival
        self._connections: dict[Any, _Connection] = {}
        self._peers: Counter[str] = Counter()
        self._held = 0
        self._released = asyncio.Event()

    @property
    def connections(self) -> int:
        """Open now, handshakes under way not counted."""
        return len(self._connections)

    @property
    def held(self) -> int:
        """Bytes of bodies that are counted against the budget now."""
        return self._held

    @web.middleware
    async def middleware(self, request: web.Request, handler: Callable[..., Any]) -> web.StreamResponse:
        """Counts a request as under way, and its memory as released once it is answered."""
        connection = self._connections.get(request.transport)
        if connection is not None:
            connection.busy += 1
            _disarm(connection)
        try:
            response: web.StreamResponse = await handler(request)
        finally:
            self._release(request.get(_HELD, 0))
            if connection is not None:
                connection.busy -= 1
                connection.idle_since = asyncio.get_running_loop().time()
        return response

    async def body(self, request: web.Request, most: int) -> bytes:
        """The whole body.

        Raises:
            HTTPRequestEntityTooLarge: more than `most` bytes.
            HTTPRequestTimeout: it does not come in time.
            HTTPServiceUnavailable: other bodies fill the memory that there is for them.
        """
        size = most if request.content_length is None else request.content_length
        if size > most:
            raise web.HTTPRequestEntityTooLarge(most, size)
        await self._hold(request, size)
        parts: list[bytes] = []
        left = size
        try:
            async with asyncio.timeout(self.limits.body):
                async for part in request.content.iter_any():
                    left -= len(part)
                    if left < 0:
                        raise web.HTTPRequestEntityTooLarge(most, size - left)
                    parts.append(part)
        except TimeoutError:
            raise web.HTTPRequestTimeout(text=f"the body did not come within {self.limits.body:g} s\n") from None
        return b"".join(parts)

    async def _hold(self, request: web.Request, size: int) -> None:
        """Count a body against the budget, whole and before it is read: parts of many could fill it, and none end."""
        if size <= _SMALL:
            return
        try:
            async with asyncio.timeout(self.limits.body):
                while self._held and self._held + size > self.limits.buffered:
                    self._released.clear()
                    await self._released.wait()
        except TimeoutError:
            text = "there are too many large requests at once; try again\n"
            raise web.HTTPServiceUnavailable(text=text, headers={"Retry-After": "1"}) from None
        self._held += size
        request[_HELD] = size

    def _release(self, size: int) -> None:
        if size:
            self._held -= size
            self._released.set()

    # -- connections -------------------------------------------------------------------------------------------------

    def made(self, transport: asyncio.Transport) -> bool:
        """Take a connection in; whether the server can take it."""
        peer = str((transport.get_extra_info("peername") or ("",))[0])
        if self._peers[peer] >= self.limits.per_peer and not self._drop_idle(peer):
            return False
        if len(self._connections) >= self.limits.connections and not self._drop_idle(None):
            return False
        connection = _Connection(transport, peer, asyncio.get_running_loop().time())
        self._connections[transport] = connection
        self._peers[peer] += 1
        self._arm(connection)
        return True

    def received(self, transport: asyncio.Transport) -> None:
        """Bytes came: where no request is under way, the next one has begun."""
        connection = self._connections.get(transport)
        if connection is not None and not connection.busy and connection.deadline is None:
            self._arm(connection)

    def lost(self, transport: asyncio.Transport) -> None:
        """Forget a connection."""
        connection = self._connections.pop(transport, None)
        if connection is not None:
            _disarm(connection)
            self._peers[connection.peer] -= 1
            if not self._peers[connection.peer]:
                del self._peers[connection.peer]

    def _arm(self, connection: _Connection) -> None:
        loop = asyncio.get_running_loop()
        connection.deadline = loop.call_later(self.limits.header, self._end, connection, "no request came in time")

    def _end(self, connection: _Connection, why: str) -> None:
        log.info("connection closed", peer=connection.peer, why=why)
        self.lost(connection.transport)
        connection.transport.abort()

    def _drop_idle(self, peer: str | None) -> bool:
        idle = [
            each for each in self._connections.values() if not each.busy and (peer is None or each.peer == peer)
        ]  # fmt: skip
        if not idle:
            return False
        self._end(min(idle, key=lambda each: each.idle_since), "idle longest, and there are too many")
        return True


_HELD = web.RequestKey("held", int)


def _disarm(connection: _Connection) -> None:
    if connection.deadline is not None:
        connection.deadline.cancel()
        connection.deadline = None


class GuardedSite(web.BaseSite):
    """Where a runner listens, its connections kept within the limits of a guard."""

    def __init__(self, runner: web.AppRunner, guard: Guard, tls: ssl.SSLContext | None, **where: Any) -> None:
        """Nothing listens yet.

        Args:
            runner: set up, see `runner`.
            guard: of this server.
            tls: None for plain HTTP.
            where: `sock`, or `host` and `port`, as `loop.create_server` takes them.
        """
        super().__init__(runner, ssl_context=tls)
        self._guard, self._where = guard, where

    @property
    def name(self) -> str:
        """For messages."""
        return str(self._where)

    async def start(self) -> None:
        """Listen."""
        await super().start()
        make = self._runner.server
        assert make is not None, "the runner is not set up"
        tls = self._ssl_context
        self._server = await asyncio.get_running_loop().create_server(
            lambda: _Guarded(self._guard, cast(asyncio.Protocol, make())),
            ssl=tls,
            ssl_handshake_timeout=self._guard.limits.handshake if tls is not None else None,
            backlog=self._backlog,
            # One that is cancelled while it begins to listen would be known to the event loop alone, and never closed.
            start_serving=False,
            **self._where,
        )
        await self._server.start_serving()


def runner(app: web.Application, guard: Guard, *, shutdown_timeout: float) -> web.AppRunner:
    """A runner whose idle connections end as the guard's limits say."""
    return web.AppRunner(
        app, access_log=None, shutdown_timeout=shutdown_timeout, keepalive_timeout=guard.limits.idle
    )  # fmt: skip


async def serve(
    app: web.Application, guard: Guard, tls: ssl.SSLContext | None, *, shutdown_timeout: float, **where: Any
) -> web.AppRunner:
    """Listen; `cleanup` of the returned object ends that. See `GuardedSite`.

    `shutdown_timeout`: seconds that a request under way may still take then.
    """
    made = runner(app, guard, shutdown_timeout=shutdown_timeout)
    try:
        await made.setup()
        await GuardedSite(made, guard, tls, **where).start()
    except BaseException:
        await made.cleanup()
        raise
    return made


class _Guarded(asyncio.Protocol):
    """Tells the guard what happens on a connection, and then the protocol that it is made for."""

    def __init__(self, guard: Guard, inner: asyncio.Protocol) -> None:
        self._guard, self._inner = guard, inner
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._guard.made(self._transport):
            self._inner.connection_made(transport)
        else:
            log.warning("connection refused: too many")
            self._transport.abort()
            self._transport = None

    def data_received(self, data: bytes) -> None:
        if self._transport is not None:
            self._guard.received(self._transport)
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received() if self._transport is not None else None

    def connection_lost(self, error: Exception | None) -> None:
        if self._transport is not None:
            self._guard.lost(self._transport)
            self._inner.connection_lost(error)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()
