"""Users in sessions with pods, and the agents that hold them, on real connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from atoll.dispatcher.query.documents import Refusal
from atoll.dispatcher.query.tunnels import Tunnels
from atoll.dispatcher.settings import LogSettings
from atoll.model import tunnel
from atoll.model.tunnel import Answer, Session
from tests.dispatcher.query.agents import Agent

SESSION = Session("n", "uid", command=["sort"], stdin=True)


class User:
    """One that has a session in member east."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket

    async def hears(self) -> tuple[int, bytes]:
        data = await self.socket.receive_bytes(timeout=5)
        return data[0], data[1:]

    async def hears_the_end(self) -> dict[str, object]:
        kind, data = await self.hears()
        assert kind == 3
        end: dict[str, object] = msgspec.json.decode(data)
        return end


@asynccontextmanager
async def sessions(tunnels: Tunnels, count: int = 1) -> AsyncIterator[tuple[Agent, list[User]]]:
    async def serve(request: web.Request) -> web.WebSocketResponse:
        return await tunnels.serve(request, "east")

    async def hold(request: web.Request) -> web.StreamResponse:
        try:
            return await tunnels.session(request, "eve", "east", SESSION)
        except Refusal as refusal:
            return web.Response(status=refusal.code)

    app = web.Application()
    app.router.add_get("/agent", serve)
    app.router.add_get("/user", hold)
    async with TestServer(app) as server, aiohttp.ClientSession() as session, AsyncExitStack() as sockets:
        agent = await sockets.enter_async_context(session.ws_connect(server.make_url("/agent")))
        users = [await sockets.enter_async_context(session.ws_connect(server.make_url("/user"))) for _ in range(count)]
        yield Agent(agent), [User(each) for each in users]


async def test_both_sides_hear_each_other_and_the_code_comes_last() -> None:
    async with sessions(Tunnels()) as (agent, [user]):
        began = await agent.asked()
        assert (began.session, began.wanted) == (SESSION, None)
        await agent.say(Answer(began.number, began=True))
        await user.socket.send_bytes(b"\x00b\na\n")
        assert (await agent.asked()).data == b"b\na\n"
        await user.socket.send_bytes(b"\xff")
        assert (await agent.asked()).end
        await agent.say(Answer(began.number, data=b"a\nb\n"))
        await agent.say(Answer(began.number, data=b"oh", stream=2))
        await agent.say(Answer(began.number, end=True, code=3))
        assert [await user.hears(), await user.hears()] == [(1, b"a\nb\n"), (2, b"oh")]
        assert await user.hears_the_end() == {"code": 3, "error": ""}


async def test_a_user_who_goes_ends_it_for_the_agent() -> None:
    async with sessions(Tunnels()) as (agent, [user]):
        began = await agent.asked()
        await agent.say(Answer(began.number, began=True))
        await user.socket.close()
        last = await agent.asked()
        assert (last.number, last.session, last.data, last.end) == (began.number, None, b"", False)


async def test_why_there_is_none_is_said() -> None:
    async with sessions(Tunnels()) as (agent, [user]):
        began = await agent.asked()
        await agent.say(Answer(began.number, end=True, error="it has no such pod that runs"))
        assert (await user.hears_the_end())["error"] == "member east: it has no such pod that runs"


async def test_an_agent_that_does_not_begin_one_is_not_waited_for() -> None:
    async with sessions(Tunnels(LogSettings(begins=0.05))) as (_, [user]):
        assert "did not begin it in time" in str((await user.hears_the_end())["error"])


async def test_long_silence_ends_it() -> None:
    async with sessions(Tunnels(LogSettings(idle=0.05))) as (agent, [user]):
        began = await agent.asked()
        await agent.say(Answer(began.number, began=True))
        assert "nothing was said for 0.05 s" in str((await user.hears_the_end())["error"])


async def test_a_user_has_no_more_sessions_than_logs_at_once() -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        async with sessions(Tunnels(LogSettings(per_user=2)), 3):
            raise AssertionError("not reached")
    assert refused.value.status == 429


async def test_input_is_passed_on_no_faster_than_the_settings_say() -> None:
    async with sessions(Tunnels(LogSettings(rate=2 * tunnel.CHUNK))) as (agent, [user]):
        began = await agent.asked()
        await agent.say(Answer(began.number, began=True))
        loop = asyncio.get_running_loop()
        since = loop.time()
        await user.socket.send_bytes(b"\x00" + b"x" * (2 * tunnel.CHUNK))
        parts = [(await agent.asked()).data for _ in range(2)]
        assert [len(part) for part in parts] == [tunnel.CHUNK, tunnel.CHUNK]
        assert loop.time() - since >= 0.5
