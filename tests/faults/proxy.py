"""A reverse proxy in front of a real API server, with faults that a test scripts.

TLS to both sides; bearer tokens pass, a client certificate ends here. Every client connection has one of its own
upstream, opened before the handshake, so that a server that is down is a server that is down for the client too.
Which request a fault with a probability hits is drawn from the seed, in the order in which requests come.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import random
import socket
import ssl
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import orjson
import yaml

from atoll.local.certificates import Authority, write_private
from tests.faults import request as requests
from tests.faults import wire
from tests.faults.play import AFTER, BEFORE, STRIKES, Fault, Play
from tests.faults.request import Request
from tests.faults.stream import EXPIRED, Broken, Stream

__all__ = ["Fault", "FaultProxy", "Play", "Request"]

_FLUSH = 1 << 18
"""Bytes of an answer that are collected before they are passed on."""
_SLOW_PIECES = 20
_STRIKES_NEW = frozenset({Fault.DROP, Fault.HALF_OPEN})
_QUIET = (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError, TimeoutError, Broken)
"""How connections end; none of it is this program's failure."""


class FaultProxy:
    """One proxy, on a port of its own. Answers from the moment it is made; carries requests once started."""

    def __init__(self, upstream_kubeconfig: Path, directory: Path, *, seed: int, mark: str = "") -> None:
        """Choose the port and write the certificate authority.

        Args:
            upstream_kubeconfig: names the API server and its authority.
            directory: for the authority and for kubeconfigs; its own.
            seed: of everything that is drawn.
            mark: appended to the User-Agent of every request, to tell processes apart in the audit log.

        Raises:
            ValueError: the kubeconfig lacks what is needed.
        """
        cluster = _current(upstream_kubeconfig)[0]
        url = urlsplit(cluster["server"])
        self._upstream = (url.hostname or "", url.port or 443)
        self._upstream_tls = ssl.create_default_context(
            cadata=base64.b64decode(cluster["certificate-authority-data"]).decode()
        )
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        authority = Authority(directory, "fault-proxy")
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._tls.load_cert_chain(*authority.issue("localhost"))
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self._socket.setblocking(False)
        #: PEM file of the authority that signed its certificate
        self.ca = authority.path
        self.url = f"https://127.0.0.1:{self._socket.getsockname()[1]}"
        self.mark = mark.encode()
        self._random = random.Random(seed)
        self._plays: list[Play] = []
        #: how often each fault happened, over all plays
        self.hits: Counter[Fault] = Counter()
        #: requests that came in
        self.requests = 0
        #: requests that came in and are held back by a cut now
        self.held = 0
        #: called with each request before it is passed on; False refuses it: the connection is closed
        self.on_request: Callable[[Request], bool | None] | None = None
        #: called with each request that was carried out and the answer's status, before the client gets the answer
        self.on_answer: Callable[[Request, int], None] | None = None
        #: what holds everything back: `cut`, or a blackhole that is being played
        self._cuts: set[object] = set()
        self._open = asyncio.Event()
        self._open.set()
        self.streams: set[Stream] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    # -- for tests ---------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Carry requests from now on; those that wait in the kernel's queue first."""
        self._spawn(self._accept())

    async def stop(self) -> None:
        """Close every connection. Safe to repeat."""
        for play in self._plays:
            play.stop()
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        self._socket.close()

    def kubeconfig(self, path: Path) -> Path:
        """A copy of a kubeconfig for the same API server that goes through this proxy.

        Raises:
            ValueError: it proves its identity by a client certificate, which a proxy can't pass on.
        """
        cluster, user = _current(path)
        if wrong := [name for name in user if name.startswith("client-")]:
            raise ValueError(f"{path}: users[].user.{wrong[0]}: only tokens go through a fault proxy")
        copy = {"server": self.url, "certificate-authority-data": base64.b64encode(self.ca.read_bytes()).decode()}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "proxied",
            "clusters": [{"name": "proxied", "cluster": {**cluster, **copy}}],
            "users": [{"name": "proxied", "user": user}],
            "contexts": [{"name": "proxied", "context": {"cluster": "proxied", "user": "proxied"}}],
        }
        target = self._directory / f"{path.name}.proxied"
        write_private(target, yaml.safe_dump(content).encode())
        return target

    def play(
        self,
        fault: Fault,
        *,
        method: str | None = None,
        resource: str | None = None,
        watch: bool | None = None,
        probability: float = 1.0,
        times: int | None = 1,
        seconds: float | None = None,
        after_bytes: int | None = None,
    ) -> Play:
        """Let a fault happen; `Fault` says what each does and what `seconds` and `after_bytes` mean to it.

        What strikes open watches strikes those that match at once; other faults wait for the next request or event.

        Args:
            fault: which.
            method: only to requests with this one, such as `PATCH`.
            resource: only to requests about it, such as `pods` (any subresource) or `pods/binding`.
            watch: only to watches, or never to one.
            probability: with which each request or event that matches is hit.
            times: most hits; None for no limit.
            seconds: see `Fault`.
            after_bytes: see `Fault`.

        Raises:
            ValueError: a blackhole with a filter.
        """
        play = Play(fault, method, resource, watch, probability, times, seconds, after_bytes)
        if fault is Fault.BLACKHOLE:
            if (method, resource, watch) != (None, None, None):
                raise ValueError("a blackhole swallows everything: play it without method, resource and watch")
            self._hit(play)
            self._hold(play)
            play.on_stop = lambda: self._let_through(play)
            if seconds is not None:
                asyncio.get_running_loop().call_later(seconds, play.stop)
            return play
        self._plays = [each for each in self._plays if each.active]
        self._plays.append(play)
        if fault in STRIKES:
            for stream in list(self.streams):
                if play.active and stream.struck is None and self._hits(play, stream.request):
                    self._hit(play)
                    stream.strike(play)
        return play

    def cut(self) -> None:
        """Let nothing through in either direction, on any connection, until `heal`; what was sent then arrives."""
        self._hold(self)

    def heal(self) -> None:
        """End a `cut`."""
        self._let_through(self)

    @property
    def is_cut(self) -> bool:
        """Whether nothing passes now."""
        return not self._open.is_set()

    # -- for its connections -----------------------------------------------------------------------------------------

    async def passing(self) -> None:
        """Return when packets pass."""
        if not self._open.is_set():
            await self._open.wait()

    async def hold(self) -> None:
        """The same for a request."""
        self.held += 1
        try:
            await self.passing()
        finally:
            self.held -= 1

    def may_hit(self, request: Request) -> bool:
        """Whether some play could still hit this request."""
        return any(play.active and play.meets(request) for play in self._plays)

    def draw(self, request: Request, faults: frozenset[Fault]) -> Play | None:
        """The play that hits this request now, among these faults."""
        for play in self._plays:
            if play.fault in faults and play.active and self._hits(play, request):
                self._hit(play)
                return play
        return None

    def missed(self, play: Play) -> None:
        """Take a hit back that could not happen."""
        play.hits -= 1
        self.hits[play.fault] -= 1
        if play not in self._plays:
            self._plays.append(play)

    def connect(self) -> tuple[str, int, ssl.SSLContext]:
        """Host, port and TLS context of the API server."""
        return *self._upstream, self._upstream_tls

    # -- inside ------------------------------------------------------------------------------------------------------

    def _hits(self, play: Play, request: Request) -> bool:
        return play.meets(request) and (play.probability >= 1 or self._random.random() < play.probability)

    def _hit(self, play: Play) -> None:
        play.hits += 1
        self.hits[play.fault] += 1

    def _hold(self, why: object) -> None:
        self._cuts.add(why)
        self._open.clear()

    def _let_through(self, why: object) -> None:
        self._cuts.discard(why)
        if not self._cuts:
            self._open.set()

    def _spawn(self, coroutine: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            # While cut, the kernel alone accepts: clients are connected and hear nothing.
            await self.passing()
            accepted, _ = await loop.sock_accept(self._socket)
            self._spawn(self._serve(accepted))

    async def _serve(self, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        await self.passing()
        link = Link(self)
        try:
            await link.connect_upstream()
        except OSError:
            _reset(accepted)
            accepted.close()
            return
        try:
            await loop.connect_accepted_socket(lambda: link.protocol, accepted, ssl=self._tls)
            await link.run()
        except _QUIET:
            return
        finally:
            link.close()


class _Protocol(asyncio.StreamReaderProtocol):
    """A stream that says when its connection is lost, also while nobody reads."""

    def __init__(self, lost: Callable[[], None]) -> None:
        self.reader = asyncio.StreamReader()
        super().__init__(self.reader, self._made)
        self._lost = lost
        self.writer: asyncio.StreamWriter

    def _made(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._lost()


class Link:
    """One client's connection and its connection to the server."""

    def __init__(self, proxy: FaultProxy) -> None:
        self.proxy = proxy
        self.protocol = _Protocol(self._client_lost)
        self._upstream = _Protocol(self._upstream_lost)
        self._task: asyncio.Task[None] | None = None
        self._timers: list[asyncio.Task[None]] = []
        #: a request was passed on and its answer is not complete
        self._answering = False
        self._client_gone = False

    @property
    def writer(self) -> asyncio.StreamWriter:
        """To the client."""
        return self.protocol.writer

    async def connect_upstream(self) -> None:
        """Connect to the server.

        Raises:
            OSError: it can't be reached.
        """
        host, port, tls = self.proxy.connect()
        await asyncio.get_running_loop().create_connection(lambda: self._upstream, host, port, ssl=tls)

    async def run(self) -> None:
        """Carry requests one after the other until either side closes."""
        self._task = asyncio.current_task()
        while (head := await wire.read_head(self.protocol.reader)) is not None:
            content = b"".join([piece async for piece in wire.body(self.protocol.reader, head)])
            # What was sent during a cut arrives when it is over, even if its sender has given up.
            await self.proxy.hold()
            method, target, _ = head.first
            if not await self._carry(requests.parse(method, target), head, content):
                return

    def close(self) -> None:
        """Close both sides."""
        for protocol in (self.protocol, self._upstream):
            if hasattr(protocol, "writer"):
                protocol.writer.close()
        for timer in self._timers:
            timer.cancel()

    def reset(self) -> None:
        """Reset the client's connection: it gets an RST."""
        _reset(self.writer.get_extra_info("socket"))
        self.writer.transport.abort()

    def forget_upstream(self) -> None:
        """Close the server's side; the client is not told."""
        self._answering = True
        self._upstream.writer.transport.abort()

    def after(self, play: Play, action: Callable[[], None]) -> None:
        """Do something when a hit of the play is over, unless the connection has ended before."""

        async def wait() -> None:
            await play.over()
            action()

        self._timers.append(asyncio.get_running_loop().create_task(wait()))

    def _client_lost(self) -> None:
        self._client_gone = True
        # A request that has come in is passed on even so, as the network would have done.
        if self._answering and self._task is not None:
            self._task.cancel()

    def _upstream_lost(self) -> None:
        if not self._answering and hasattr(self.protocol, "writer"):
            self.writer.close()

    # -- one request -------------------------------------------------------------------------------------------------

    async def _carry(self, request: Request, head: wire.Head, content: bytes) -> bool:
        """Carry a request; False ends the connection."""
        self.proxy.requests += 1
        if self.proxy.on_request is not None and self.proxy.on_request(request) is False:
            return False
        # The callback may have cut the connection at this very request.
        await self.proxy.hold()
        before = self.proxy.draw(request, BEFORE)
        if before is not None and not await self._before(before):
            return before.fault in (Fault.BUSY, Fault.ERROR, Fault.GONE)
        if self.proxy.mark:
            head = head.with_suffix(b"user-agent", b" (" + self.proxy.mark + b")")
        self._upstream.writer.write(head.raw + content)
        await self._upstream.writer.drain()
        self._answering = True
        if self._client_gone and request.watch:
            return False
        # To a client that has gone by now the answer can't be given; its request is carried out all the same, the worst
        # that can become of a packet that was late.
        answer = await wire.read_head(self._upstream.reader)
        if answer is None:
            return False
        status = int(answer.first[1])
        if self.proxy.on_answer is not None:
            self.proxy.on_answer(request, status)
        if self._client_gone:
            return False
        pieces = wire.body(self._upstream.reader, answer, answer_to=request.method)
        if request.watch and status == 200 and answer.chunked:
            await self._stream(request, answer, pieces)
        else:
            after = None if request.watch else self.proxy.draw(request, AFTER)
            if after is not None:
                whole = answer.raw + b"".join([wire.framed(piece, answer) async for piece in pieces])
                if not await self._after(after, whole + (wire.chunk(b"") if answer.chunked else b"")):
                    return False
            else:
                await self._pass_back(answer, pieces)
        self._answering = False
        return answer.field(b"connection") != b"close"

    async def _before(self, play: Play) -> bool:
        """Play it on a request that came in; whether the request is to be passed on."""
        match play.fault:
            case Fault.LATENCY:
                await asyncio.sleep(0.2 if play.seconds is None else play.seconds)
                return True
            case Fault.HANG:
                self._answering = True
                await play.over()
            case Fault.RESET:
                self.reset()
            case Fault.BUSY:
                after = str(1 if play.seconds is None else round(play.seconds))
                self._answer("429 Too Many Requests", "TooManyRequests", retry_after=after)
            case Fault.ERROR:
                self._answer("500 Internal Server Error", "InternalError")
            case Fault.GONE:
                self.writer.write(wire.answer("410 Gone", EXPIRED))
        return False

    async def _after(self, play: Play, whole: bytes) -> bool:
        """Play it on a complete answer; whether the connection can be used again."""
        half = len(whole) // 2 if play.after_bytes is None else play.after_bytes
        match play.fault:
            case Fault.DROP:
                await self._send(whole[:half])
            case Fault.HALF_OPEN:
                await self._send(whole[:half])
                await asyncio.Event().wait()
            case Fault.SLOW:
                size = max(1, len(whole) // _SLOW_PIECES)
                for start in range(0, len(whole), size):
                    await self._send(whole[start : start + size])
                    await asyncio.sleep((2.0 if play.seconds is None else play.seconds) / _SLOW_PIECES)
                return True
        return False

    def _answer(self, status: str, reason: str, **fields: str) -> None:
        code = int(status[:3])
        body = {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": reason, "code": code,
            "message": "said by a fault proxy",
        }  # fmt: skip
        self.writer.write(wire.answer(status, orjson.dumps(body), **fields))

    async def _pass_back(self, answer: wire.Head, pieces: Any) -> None:
        collected = bytearray(answer.raw)
        async for piece in pieces:
            collected += wire.framed(piece, answer)
            if len(collected) >= _FLUSH:
                await self._send(bytes(collected))
                collected.clear()
        if answer.chunked:
            collected += wire.chunk(b"")
        await self._send(bytes(collected))

    async def _send(self, data: bytes) -> None:
        await self.proxy.passing()
        self.writer.write(data)
        await self.writer.drain()

    async def _stream(self, request: Request, answer: wire.Head, pieces: Any) -> None:
        await self._send(answer.raw)
        stream = Stream(self, request)
        self.proxy.streams.add(stream)
        try:
            struck = self.proxy.draw(request, _STRIKES_NEW)
            if struck is not None:
                stream.strike(struck)
            try:
                await stream.relay(pieces)
            except _QUIET:
                # Silence lasts for as long as the client listens.
                if stream.struck is not None and stream.struck.fault in (Fault.HANG, Fault.HALF_OPEN):
                    await asyncio.Event().wait()
                raise
        finally:
            self.proxy.streams.discard(stream)


def _reset(sock: Any) -> None:
    """Let closing this socket send an RST."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _current(kubeconfig: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Cluster and user of the current context."""
    content = yaml.safe_load(kubeconfig.read_text())
    context = _named(content, "contexts", content.get("current-context"), kubeconfig)["context"]
    cluster = _named(content, "clusters", context["cluster"], kubeconfig)["cluster"]
    if "certificate-authority-data" not in cluster:
        raise ValueError(
            f"{kubeconfig}: clusters[].cluster.certificate-authority-data: missing; a fault proxy needs it"
        )
    return cluster, _named(content, "users", context["user"], kubeconfig)["user"]


def _named(content: dict[str, Any], kind: str, name: str | None, kubeconfig: Path) -> dict[str, Any]:
    for each in content.get(kind) or ():
        if each["name"] == name:
            found: dict[str, Any] = each
            return found
    raise ValueError(f"{kubeconfig}: {kind}: none is named {name!r}")
