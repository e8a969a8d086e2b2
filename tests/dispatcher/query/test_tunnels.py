"""Readers of logs and the agents that send them, on real connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from atoll.dispatcher.query.documents import Refusal
from atoll.dispatcher.query.tunnels import Tunnels
from atoll.dispatcher.settings import LogSettings
from atoll.model.tunnel import Answer, Ask, Wanted
from tests.dispatcher.query.agents import Agent

WANTED = Wanted("n", "uid")


@asynccontextmanager
async def connected(tunnels: Tunnels, *clusters: str) -> AsyncIterator[list[Agent]]:
    async def serve(request: web.Request) -> web.WebSocketResponse:
        return await tunnels.serve(request, request.match_info["name"])

    app = web.Application()
    app.router.add_get("/{name}", serve)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        sockets = [await session.ws_connect(server.make_url(f"/{cluster}")) for cluster in clusters]
        yield [Agent(socket) for socket in sockets]
        for socket in sockets:
            await socket.close()


async def read(tunnels: Tunnels, *clusters: str, user: str = "eve") -> list[str]:
    return [text async for text in tunnels.read(user, clusters, WANTED)]


async def test_what_members_say_is_read_together_and_what_one_can_not_say_comes_last() -> None:
    tunnels = Tunnels()
    async with connected(tunnels, "east", "west") as (east, west):
        reading = asyncio.create_task(read(tunnels, "east", "west", "gone"))
        first, second = await east.asked(), await west.asked()
        assert first.wanted == second.wanted == WANTED
        await east.say(Answer(first.number, "one\n"))
        await east.say(Answer(first.number, end=True))
        await west.say(Answer(second.number, end=True, error="no such pod"))
        assert await reading == [
            "one\n",
            "[member gone: no agent is connected]\n",
            "[member west: no such pod]\n",
        ]


async def test_nothing_at_all_is_a_refusal_with_the_reasons_of_all_members() -> None:
    tunnels = Tunnels()
    async with connected(tunnels, "east") as (east,):
        reading = asyncio.create_task(read(tunnels, "east", "gone"))
        asked = await east.asked()
        await east.say(Answer(asked.number, end=True, error="no such pod"))
        with pytest.raises(Refusal, match="member gone: no agent is connected; member east: no such pod"):
            await reading


async def test_a_member_answers_for_itself_alone() -> None:
    tunnels = Tunnels()
    async with connected(tunnels, "east", "west") as (east, west):
        reading = asyncio.create_task(read(tunnels, "east"))
        asked = await east.asked()
        await west.say(Answer(asked.number, "forged\n"))
        await west.say(Answer(asked.number, end=True))
        second = asyncio.create_task(read(tunnels, "west", user="other"))
        # West's messages come in order: once this one is answered, the forged ones were looked at.
        own = await west.asked()
        await west.say(Answer(own.number, end=True))
        assert await second == []
        await east.say(Answer(asked.number, "true\n"))
        await east.say(Answer(asked.number, end=True))
        assert await reading == ["true\n"]


async def test_who_stops_reading_is_forgotten_by_the_agent() -> None:
    tunnels = Tunnels()
    async with connected(tunnels, "east") as (east,):
        reading = asyncio.create_task(read(tunnels, "east"))
        asked = await east.asked()
        reading.cancel()
        assert await east.asked() == Ask(asked.number)


async def test_output_that_comes_faster_than_it_is_read_ends_with_a_word_about_it() -> None:
    tunnels = Tunnels(LogSettings(behind=2))
    async with connected(tunnels, "east") as (east,):
        stream = aiter(tunnels.read("eve", ["east"], WANTED))
        first = asyncio.ensure_future(anext(stream))
        asked = await east.asked()
        await east.say(Answer(asked.number, "0\n"))
        assert await first == "0\n"
        for number in range(1, 6):
            await east.say(Answer(asked.number, f"{number}\n"))
        # Told that nobody waits: all that was sent before has been looked at.
        another = asyncio.create_task(read(tunnels, "east", user="other"))
        other = await east.asked()
        await east.say(Answer(other.number, end=True))
        await another
        left = [text async for text in stream]
        assert left[-1] == "[member east: the output comes faster than it is read; use --tail]\n"
        assert len(left) <= 3


async def test_a_user_reads_only_so_many_logs_at_once_and_a_log_only_so_long() -> None:
    tunnels = Tunnels(LogSettings(per_user=1, longest=0.2))
    async with connected(tunnels, "east") as (east,):
        reading = asyncio.create_task(read(tunnels, "east"))
        await east.asked()
        with pytest.raises(Refusal) as refused:
            await read(tunnels, "east")
        assert refused.value.code == 429
        with pytest.raises(Refusal, match=r"nothing is followed for longer than 0\.2 s"):
            await reading
        again = asyncio.create_task(read(tunnels, "east"))
        assert (await east.asked()).wanted is None
        asked = await east.asked()
        await east.say(Answer(asked.number, end=True))
        assert await again == []


async def test_the_connection_that_an_agent_makes_last_counts_and_a_lost_one_ends_what_is_read() -> None:
    tunnels = Tunnels()
    async with connected(tunnels, "east", "east") as (_, second):
        reading = asyncio.create_task(read(tunnels, "east"))
        asked = await second.asked()
        await second.say(Answer(asked.number, "half\n"))
        await second.socket.close()
        assert await reading == ["half\n", "[member east: the connection to its agent broke]\n"]


@pytest.mark.parametrize(
    "message", ["", "{}", '{"number": "x"}', "[" * 60_000], ids=["none", "no number", "a text", "deep"]
)
async def test_an_agent_that_sends_what_is_no_answer_is_disconnected(message: str) -> None:
    tunnels = Tunnels()
    async with connected(tunnels, "east") as (east,):
        reading = asyncio.create_task(read(tunnels, "east"))
        asked = await east.asked()
        await east.say(Answer(asked.number, "half\n"))
        await east.socket.send_str(message)
        # Who closes waits ten seconds for one who does not read.
        assert (await east.socket.receive(timeout=5)).type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)
        assert await reading == ["half\n", "[member east: the connection to its agent broke]\n"]
