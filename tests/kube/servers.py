"""A tiny API server on the loopback interface, scripted by a test."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

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


class LeaseServer:
    """One Lease with optimistic locking; `down` answers nothing."""

    def __init__(self) -> None:
        self.lease: Any = None
        self.version = 0
        self.down: set[str] = set()

    async def __call__(self, request: web.Request) -> web.Response:
        body: Any = await request.json() if request.body_exists else None
        who = request.headers["User-Agent"].partition("/")[0]
        if who in self.down:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if request.method == "GET":
            return web.json_response(self.lease) if self.lease else web.json_response({}, status=404)
        taken = (self.lease is None) != (request.method == "POST") or (
            self.lease is not None
            and body["metadata"].get("resourceVersion") != self.lease["metadata"]["resourceVersion"]
        )
        if taken:
            return web.json_response({"reason": "Conflict"}, status=409)
        self.version += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        self.lease = body
        return web.json_response(body)

    def steal(self, holder: str) -> None:
        """Another writes itself into the lease."""
        self.version += 1
        self.lease["spec"]["holderIdentity"] = holder
        self.lease["metadata"]["resourceVersion"] = str(self.version)

    @property
    def holder(self) -> str:
        return str(self.lease["spec"]["holderIdentity"]) if self.lease else ""


class LeasesServer:
    """Leases by name, each a `LeaseServer`."""

    def __init__(self) -> None:
        self.leases: defaultdict[str, LeaseServer] = defaultdict(LeaseServer)

    async def __call__(self, request: web.Request) -> web.Response:
        name = request.path.rpartition("/")[2]
        if name == "leases":
            name = (await request.json())["metadata"]["name"]
        return await self.leases[name](request)
