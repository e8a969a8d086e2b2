"""One address in front of several webhooks, as a Service is: new connections go to those that say they are ready."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import aiohttp

_POLL_S = 0.05


@dataclass
class Backend:
    """One replica."""

    port: int
    health_port: int
    ready: bool = False


class Balancer:
    """Carries bytes; knows nothing of TLS."""

    def __init__(self, backends: Sequence[Backend]) -> None:
        self.backends = backends
        #: connections that found nobody ready, or whose backend refused
        self.refused = 0
        self._turn = itertools.count()
        self._open: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def listening(self, port: int) -> AsyncIterator[None]:
        """Carry connections while the context is open."""
        async with await asyncio.start_server(self._accept, "127.0.0.1", port):
            watch = asyncio.create_task(self._watch())
            try:
                yield
            finally:
                for task in (watch, *self._open):
                    task.cancel()
                await asyncio.gather(watch, *self._open, return_exceptions=True)

    async def _watch(self) -> None:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=1)) as session:
            while True:
                for backend in self.backends:
                    try:
                        async with session.get(f"http://127.0.0.1:{backend.health_port}/readyz") as answer:
                            backend.ready = answer.status == 200
                    except (aiohttp.ClientError, TimeoutError):
                        backend.ready = False
                await asyncio.sleep(_POLL_S)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._carry(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ready = [backend for backend in self.backends if backend.ready]
        try:
            if not ready:
                raise ConnectionError("nobody is ready")
            backend = ready[next(self._turn) % len(ready)]
            theirs, back = await asyncio.open_connection("127.0.0.1", backend.port)
        except OSError:
            self.refused += 1
            writer.transport.abort()
            return
        try:
            await asyncio.wait(
                {asyncio.create_task(_copy(reader, back)), asyncio.create_task(_copy(theirs, writer))},
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            for each in (writer, back):
                each.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()
