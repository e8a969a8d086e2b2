"""A server whose clients are silent, slow or many: each costs little, and for a short time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
from aiohttp import web

from atoll.kube import authority, certificates, serving
from atoll.kube.serving import Guard, GuardedSite, Limits
from atoll.local.ports import free_ports

MOST = 2**20
QUICK = Limits(handshake=0.3, header=0.3, body=0.5, idle=30)
DEADLINE = 20.0


class Served:
    """A server that answers with the size of what it was sent, once `go` is set."""

    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        self.port = 0
        self.go = asyncio.Event()
        self.go.set()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def ask(self, writer: asyncio.StreamWriter, body: bytes, length: int | None = None) -> None:
        size = len(body) if length is None else length
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size + body)
        await writer.drain()


@asynccontextmanager
async def served(limits: Limits, *, tls: bool = False) -> AsyncIterator[Served]:
    guard = Guard(limits)
    found = Served(guard)

    async def size(request: web.Request) -> web.Response:
        body = await guard.body(request, MOST)
        await found.go.wait()
        return web.Response(text=f"{len(body)}")

    app = web.Application(middlewares=[guard.middleware])
    app.router.add_post("/", size)
    runner = serving.runner(app, guard, shutdown_timeout=0.1)
    await runner.setup()
    context = None
    if tls:
        now = datetime.now(UTC)
        context = certificates.server_context(certificates.issue(authority.make_signer(now, name="x"), ["x"], now))
    site = GuardedSite(runner, guard, context, host="127.0.0.1", port=0)
    await site.start()
    server = site._server
    assert isinstance(server, asyncio.Server)
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        await runner.cleanup()


async def ended(reader: asyncio.StreamReader) -> bytes:
    """All that still comes, once the server has closed the connection."""
    async with asyncio.timeout(DEADLINE):
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""


async def until(condition) -> None:
    async with asyncio.timeout(DEADLINE):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "first", [b"", b"POST / HTTP/1.1\r\nHo"], ids=["is silent", "does not finish the header of its request"]
)
async def test_a_client_is_left_that(first: bytes):
    async with served(QUICK) as server:
        reader, writer = await server.connect()
        writer.write(first)
        assert await ended(reader) == b""
        assert server.guard.connections == 0
        writer.close()


async def test_a_client_that_shakes_no_hands_is_left():
    async with served(QUICK, tls=True) as server:
        reader, writer = await server.connect()
        assert await ended(reader) == b""
        writer.close()


async def test_a_later_request_has_a_deadline_of_its_own():
    async with served(QUICK) as server:
        reader, writer = await server.connect()
        await server.ask(writer, b"abc")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        assert await reader.readexactly(1) == b"3"
        writer.write(b"POST / HT")
        assert await ended(reader) == b""
        writer.close()


async def test_a_connection_between_requests_stays():
    async with served(QUICK) as server:
        reader, writer = await server.connect()
        for _ in range(2):
            await server.ask(writer, b"abc")
            await reader.readuntil(b"\r\n\r\n3")
            # Longer than a header may take.
            await asyncio.sleep(2 * QUICK.header)
        writer.close()


async def test_a_body_that_does_not_come_is_answered_with_408():
    async with served(QUICK) as server:
        reader, writer = await server.connect()
        await server.ask(writer, b"ab", length=MOST)
        async with asyncio.timeout(DEADLINE):
            assert (await reader.readline()).startswith(b"HTTP/1.1 408")
        await until(lambda: server.guard.held == 0)
        writer.close()


@pytest.mark.parametrize("length", [MOST + 1, None], ids=["as its header says", "that comes in chunks"])
async def test_a_body_that_is_too_large_is_refused_with_413(length: int | None):
    async with served(QUICK) as server:
        reader, writer = await server.connect()
        if length is None:
            writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
            writer.write(b"%x\r\n" % (MOST + 1) + b"x" * (MOST + 1) + b"\r\n0\r\n\r\n")
        else:
            await server.ask(writer, b"", length=length)
        async with asyncio.timeout(DEADLINE):
            assert (await reader.readline()).startswith(b"HTTP/1.1 413")
        writer.close()


async def test_bodies_of_many_clients_are_held_within_one_budget():
    limits = Limits(header=10, body=1.0, buffered=3 * MOST)
    async with served(limits) as server:
        server.go.clear()
        clients = [await server.connect() for _ in range(12)]
        statuses = []
        for _, writer in clients:
            writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % MOST + b"x" * MOST)
        async with asyncio.timeout(DEADLINE):
            for waiting in asyncio.as_completed([reader.readline() for reader, _ in clients]):
                statuses.append((await waiting)[9:12])
                assert server.guard.held <= limits.buffered
                if len(statuses) == 9:
                    # Small requests are served meanwhile.
                    reader, writer = await server.connect()
                    await server.ask(writer, b"abc", length=4)
                    server.go.set()
                    writer.write(b"d")
                    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
                    writer.close()
        assert statuses == [b"503"] * 9 + [b"200"] * 3
        await until(lambda: server.guard.held == 0)
        for _, writer in clients:
            writer.close()


async def test_where_there_are_too_many_the_longest_idle_connection_is_closed():
    async with served(Limits(header=30, connections=3)) as server:
        clients = []
        for _ in range(3):
            clients.append(await server.connect())
            await until(lambda: server.guard.connections == len(clients))
        reader, writer = await server.connect()
        await server.ask(writer, b"abc")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        assert await ended(clients[0][0]) == b""
        assert server.guard.connections == 3
        for _, each in [*clients, (reader, writer)]:
            each.close()


async def test_requests_under_way_are_not_cut_for_new_connections():
    async with served(Limits(header=30, per_peer=1)) as server:
        server.go.clear()
        reader, writer = await server.connect()
        await server.ask(writer, b"x" * MOST)
        await until(lambda: server.guard.held > 0)
        later, other = await server.connect()
        assert await ended(later) == b""
        server.go.set()
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()
        other.close()


@pytest.mark.parametrize("turns", range(6))
async def test_a_start_that_is_cancelled_listens_to_nothing_once_its_runner_is_cleaned_up(turns: int):
    """Else whoever starts again in the same process finds the port in use, for as long as the process lives."""
    guard = Guard(QUICK)
    runner = serving.runner(web.Application(), guard, shutdown_timeout=0.1)
    await runner.setup()
    [port] = free_ports(1)
    starting = asyncio.create_task(GuardedSite(runner, guard, None, host="127.0.0.1", port=port).start())
    for _ in range(turns):
        await asyncio.sleep(0)
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    await runner.cleanup()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
