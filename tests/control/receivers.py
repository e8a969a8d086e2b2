"""A server that keeps what it gets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
from aiohttp import web

Json = dict[str, Any]


class Receiver:
    """Keeps requests; `codes` are the answers to the next ones, then 200."""

    def __init__(self, *codes: int) -> None:
        self.got: list[tuple[str, Json]] = []
        self.headers: list[Any] = []
        self.codes = [*codes]
        self.url = ""
        self.came = asyncio.Event()

    async def take(self, request: web.Request) -> web.Response:
        self.got.append((request.path, orjson.loads(await request.read())))
        self.headers.append(request.headers)
        self.came.set()
        code = self.codes.pop(0) if self.codes else 200
        return web.Response(status=code, headers={"Location": f"{self.url}/elsewhere"} if code == 302 else {})

    async def has(self, count: int) -> list[Json]:
        async with asyncio.timeout(20):
            while len(self.got) < count:
                self.came.clear()
                await self.came.wait()
        return [body for _, body in self.got]


@asynccontextmanager
async def receiving(*codes: int) -> AsyncIterator[Receiver]:
    receiver, app = Receiver(*codes), web.Application()
    app.router.add_post("/{path:.*}", receiver.take)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield receiver
    finally:
        await runner.cleanup()
