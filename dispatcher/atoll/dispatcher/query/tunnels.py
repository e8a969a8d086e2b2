"""The ends of the agents' connections, and who reads over them.

A reader never holds others up: answers that it does not take in time are dropped, and so are unexpected ones.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager

import aiohttp
import msgspec
import structlog
from aiohttp import web

from atoll.dispatcher.query.documents import Refusal
from atoll.dispatcher.settings import LogSettings
from atoll.model import tunnel
from atoll.model.tunnel import Answer, Ask, Session, Wanted

log = structlog.get_logger(__name__)


class Tunnels:
    """The connected agents of one term of leadership."""

    def __init__(self, settings: LogSettings = LogSettings()) -> None:
        """No reader is connected."""
        self._settings = settings
        #: cluster -> the connection that its agent made last
        self._sockets: dict[str, web.WebSocketResponse] = {}
        #: number of a question -> (cluster, its answers so far)
        self._waiting: dict[int, tuple[str, asyncio.Queue[Answer]]] = {}
        self._numbers = itertools.count(1)
        #: user -> answers that it reads now
        self._readers: Counter[str] = Counter()

    async def serve(self, request: web.Request, cluster: str) -> web.WebSocketResponse:
        """Take the connection of a member's agent, until it ends."""
        socket = web.WebSocketResponse(heartbeat=self._settings.heartbeat, max_msg_size=4 * tunnel.CHUNK)
        await socket.prepare(request)
        # The one before is of an agent that does not lead any more, or that lost it.
        before, self._sockets[cluster] = self._sockets.get(cluster), socket
        if before is not None:
            await before.close()
        try:
            async for message in socket:
                if message.type == aiohttp.WSMsgType.TEXT and not self._take(cluster, message.data):
                    # Reading more of the like would cost as much again; the agent comes back with a growing pause.
                    await socket.close(code=aiohttp.WSCloseCode.UNSUPPORTED_DATA, message=b"no answer")
        finally:
            if self._sockets.get(cluster) is socket:
                del self._sockets[cluster]
                for number, (other, _) in list(self._waiting.items()):
                    if other == cluster:
                        self._put(Answer(number, end=True, error="the connection to its agent broke"))
        return socket

    def _take(self, cluster: str, data: str) -> bool:
        """Pass an answer on; whether it is one."""
        try:
            answer = tunnel.to_answer(data)
        except (msgspec.MsgspecError, RecursionError) as error:
            log.warning("an agent sends what is no answer: disconnected", cluster=cluster, error=str(error))
            return False
        # A member answers for itself alone, whatever numbers it knows.
        if self._waiting.get(answer.number, ("",))[0] == cluster:
            self._put(answer)
        return True

    def _put(self, answer: Answer) -> None:
        waiting = self._waiting.get(answer.number)
        if waiting is None:
            return
        queue = waiting[1]
        if queue.full():
            # Its reader is too slow; the last message gives way to the one with that error.
            del self._waiting[answer.number]
            queue.get_nowait()
            answer = Answer(answer.number, end=True, error="the output comes faster than it is read; use --tail")
        queue.put_nowait(answer)

    async def read(self, user: str, clusters: Sequence[str], wanted: Wanted) -> AsyncIterator[str]:
        """The output in these members as it comes; ends with the output, or when a followed one has run long enough.

        Raises:
            Refusal: nothing can be read; only before the first text.
        """
        with self._counted(user), self._asked(clusters) as (queue, numbers):
            refused, began = [], False
            for cluster in clusters:
                socket = self._sockets.get(cluster)
                if socket is None:
                    refused.append(f"member {cluster}: no agent is connected")
                    continue
                number = numbers[cluster]
                await socket.send_str(tunnel.encode(Ask(number, wanted)).decode())
            names = {number: cluster for cluster, number in numbers.items() if cluster in self._sockets}
            try:
                async with asyncio.timeout(self._settings.longest):
                    while names:
                        answer = await queue.get()
                        if answer.text:
                            began = True
                            yield answer.text
                        if answer.end and (cluster := names.pop(answer.number, "")) and answer.error:
                            refused.append(f"member {cluster}: {answer.error}")
            except TimeoutError:
                refused.append(f"nothing is followed for longer than {self._settings.longest:g} s; begin again")
            finally:
                await self._forget(names)
            if refused and not began:
                raise Refusal(404, "NotFound", "; ".join(refused))
            for text in refused:
                yield f"[{text}]\n"

    async def session(self, request: web.Request, user: str, cluster: str, session: Session) -> web.WebSocketResponse:
        """Let a user and a pod speak, until one of them ends it or both are silent for long.

        The first byte of a message is its type: 0 input, 1 output, 2 errors, 3 the end as JSON (`code`, `error`),
        255 that no more input comes.

        Raises:
            Refusal: no agent is connected, or the user has too many.
        """
        agent = self._sockets.get(cluster)
        if agent is None:
            raise Refusal(404, "NotFound", f"member {cluster}: no agent is connected")
        with self._counted(user), self._asked([cluster]) as (queue, numbers):
            number = numbers[cluster]
            client = web.WebSocketResponse(heartbeat=self._settings.heartbeat, max_msg_size=4 * tunnel.CHUNK)
            await client.prepare(request)
            await agent.send_str(tunnel.encode(Ask(number, session=session)).decode())
            sending = asyncio.ensure_future(self._send_input(client, agent, number))
            try:
                end = await self._pass_output(client, queue)
            finally:
                sending.cancel()
                if not agent.closed:
                    await agent.send_str(tunnel.encode(Ask(number)).decode())
            if not client.closed:
                error = f"member {cluster}: {end.error}" if end.error else ""
                await client.send_bytes(b"\x03" + msgspec.json.encode({"code": end.code, "error": error}))
                await client.close()
        return client

    async def _send_input(self, client: web.WebSocketResponse, agent: web.WebSocketResponse, number: int) -> None:
        async for message in client:
            if message.type != aiohttp.WSMsgType.BINARY or not message.data:
                continue
            kind, data = message.data[0], message.data[1:]
            if kind == 255:
                await agent.send_str(tunnel.encode(Ask(number, end=True)).decode())
            for begin in range(0, len(data) if kind == 0 else 0, tunnel.CHUNK):
                part = data[begin : begin + tunnel.CHUNK]
                await agent.send_str(tunnel.encode(Ask(number, data=part)).decode())
                await asyncio.sleep(len(part) / self._settings.rate)
        # Who has gone waits for nothing.
        self._put(Answer(number, end=True))

    async def _pass_output(self, client: web.WebSocketResponse, queue: asyncio.Queue[Answer]) -> Answer:
        patience, silent = self._settings.begins, "did not begin it in time; its agent may be of an earlier version"
        while True:
            try:
                async with asyncio.timeout(patience):
                    answer = await queue.get()
            except TimeoutError:
                return Answer(0, end=True, error=silent)
            if answer.end:
                return answer
            patience, silent = self._settings.idle, f"nothing was said for {self._settings.idle:g} s"
            if answer.data:
                await client.send_bytes(bytes([answer.stream]) + answer.data)

    @contextmanager
    def _counted(self, user: str) -> Iterator[None]:
        if self._readers[user] >= self._settings.per_user or self._readers.total() >= self._settings.most:
            raise Refusal(429, "TooManyRequests", f"{user} reads {self._readers[user]} logs already, or others do", 5)
        self._readers[user] += 1
        try:
            yield
        finally:
            self._readers[user] -= 1
            self._readers += Counter()

    @contextmanager
    def _asked(self, clusters: Sequence[str]) -> Iterator[tuple[asyncio.Queue[Answer], dict[str, int]]]:
        queue: asyncio.Queue[Answer] = asyncio.Queue(self._settings.behind)
        numbers = {cluster: next(self._numbers) for cluster in clusters}
        self._waiting |= {number: (cluster, queue) for cluster, number in numbers.items()}
        try:
            yield queue, numbers
        finally:
            for number in numbers.values():
                self._waiting.pop(number, None)

    async def _forget(self, names: dict[int, str]) -> None:
        for number, cluster in names.items():
            socket = self._sockets.get(cluster)
            if socket is not None and not socket.closed:
                await socket.send_str(tunnel.encode(Ask(number)).decode())
