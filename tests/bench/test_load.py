"""A server that can't keep up is a figure of a benchmark, and no end of it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from atoll.kube.errors import Busy, Invalid
from atoll.model.apiresource import JOBS
from bench import load
from bench.__main__ import causes
from bench.load import Request, send, watching

REQUESTS = [Request("POST", f"/{number}") for number in range(4)]


async def overloaded(request: web.Request) -> web.Response:
    """0 is carried out, 1 is refused for now, 2 fails, 3 breaks off."""
    number = int(request.path[1:])
    if number == 3:
        assert request.transport is not None
        request.transport.close()
    return web.Response(status=(201, 429, 500, 201)[number], text="x")


@pytest.fixture
async def cluster() -> Any:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", overloaded)
    async with TestServer(app) as server:
        yield SimpleNamespace(url=str(server.make_url("")).rstrip("/"), token="t", ca="")


async def test_a_lossy_load_goes_on_where_a_strict_one_fails_with_the_cause(cluster: Any) -> None:
    assert await send(cluster, REQUESTS, lossy=True) == [b"x", b"", b"", b""]
    with pytest.raises(ExceptionGroup) as failed:
        await send(cluster, REQUESTS[:2])
    assert causes(failed.value) == ["RuntimeError: POST /1 was not carried out"]


async def test_a_load_on_time_goes_on_where_refusals_are_taken() -> None:
    async def request(method: str, path: str, **_: Any) -> None:
        if path == "/1":
            raise Busy("its webhook took too long")
        if path == "/2":
            raise Invalid("no Job")

    api: Any = SimpleNamespace(request=request)
    refused: list[tuple[float, str]] = []
    await load.open_loop(api, [(number / 100, each) for number, each in enumerate(REQUESTS[:2])], refused)
    assert refused == [(0.01, "its webhook took too long")]
    with pytest.raises(ExceptionGroup):
        await load.open_loop(api, [(0.0, REQUESTS[1])])
    with pytest.raises(ExceptionGroup):
        await load.open_loop(api, [(0.0, REQUESTS[2])], refused)


async def test_a_watch_that_the_server_closes_goes_on_where_it_was() -> None:
    began: list[str] = []

    async def pages(*_: Any) -> Any:
        yield SimpleNamespace(metadata=SimpleNamespace(resource_version="5"))

    async def watch(*_: Any, resource_version: str) -> Any:
        began.append(resource_version)
        if len(began) > 2:
            await asyncio.Event().wait()
        yield b'{"metadata":{"resourceVersion":"%d","uid":"u%d"},"phase":"Done"}' % (6 + len(began), len(began))

    async with watching(SimpleNamespace(pages=pages, watch=watch), JOBS, "n", b"Done") as seen:  # type: ignore[arg-type]
        assert await seen.reach(2, stall_s=10)
    assert began[:2] == ["5", "7"]
