"""A tiny API server on the loopback interface, scripted by a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from atoll.kube.config import Connection
from atoll.kube.transport import ApiServer

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def nobody() -> None:
    """No credentials."""


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[ApiServer]:
    """A client of a server that answers every request by the handler."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return await handler(request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    async with client(port) as api:
        try:
            yield api
        finally:
            await api.close()
            await runner.cleanup()


def client(port: int) -> ApiServer:
    return ApiServer(Connection(f"http://127.0.0.1:{port}", None, nobody))


async def eventually(condition: Callable[[], bool], within: float = 5.0) -> None:
    """Let the loop run until the condition holds."""
    async with asyncio.timeout(within):
        while not condition():
            await asyncio.sleep(0.002)
