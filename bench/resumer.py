"""A client that resumes each binding at once, for a latency to be compared with: `python -m bench.resumer`.

What a dispatcher does without what it thinks: it watches bindings and capacity, and writes the same patches over as
many connections. A process of its own, as the dispatcher is. Reads what to do as one JSON object from standard input,
prints a line once it watches, and goes on until it is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import orjson
from yarl import URL

from atoll.kube.transport import JSON_PATCH
from atoll.local.processes import python_path
from atoll.model import keys
from atoll.model.apiresource import BINDINGS, CAPACITIES, ApiResource
from bench.load import CONNECTIONS, Request, administrator

_READY_S = 30.0
_MANAGER = "?fieldManager=atoll-dispatcher"
_GANG_PATH = "/metadata/annotations/" + keys.GANG.replace("/", "~1")

Json = dict[str, Any]


class Example(msgspec.Struct, frozen=True):
    """A decision that the dispatcher wrote, as the audit log has it, to be repeated on other bindings."""

    uid: str
    """Of the binding that it was written to."""
    body: str


class Orders(msgspec.Struct, frozen=True):
    """What the process is to do."""

    url: str
    ca: str
    token: str
    namespace: str
    """Of the bindings."""
    example: Example
    room: int
    """Bindings that may be resumed from the start."""
    more: int
    """By how many these become more with each change of a ClusterCapacity."""


def resumption(binding: Json, example: Example) -> Request:
    """The patch that the dispatcher would write to this binding."""
    meta = binding["metadata"]
    operations = orjson.loads(example.body.replace(example.uid, meta["uid"]))
    for each in operations:
        if each["path"] == _GANG_PATH:
            each["value"] = meta["annotations"][keys.GANG]
    path = BINDINGS.path(meta["namespace"], meta["name"]) + _MANAGER
    return Request("PATCH", path, orjson.dumps(operations), JSON_PATCH)


@contextlib.asynccontextmanager
async def resuming(orders: Orders) -> AsyncIterator[None]:
    """The process, watching already.

    Raises:
        RuntimeError: it ended by itself.
    """
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.resumer",
        env={**os.environ, "PYTHONPATH": python_path()}, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert child.stdin is not None, "it was asked for"
    assert child.stdout is not None, "it was asked for"
    try:
        child.stdin.write(msgspec.json.encode(orders))
        child.stdin.close()
        async with asyncio.timeout(_READY_S):
            await child.stdout.readline()
        yield
        if child.returncode is not None:
            raise RuntimeError(f"bench.resumer ended with {child.returncode}")
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


class Resumer:
    """The watches and what follows from them."""

    def __init__(self, orders: Orders, session: aiohttp.ClientSession) -> None:
        self._orders, self._session = orders, session
        self._room = orders.room
        #: bindings that no patch was begun for, the first seen first
        self._waiting: deque[Json] = deque()
        self._connections = asyncio.Semaphore(CONNECTIONS)

    async def run(self) -> None:
        """Resume until cancelled."""
        async with asyncio.TaskGroup() as group:
            bindings = await self._watch(BINDINGS, self._orders.namespace)
            capacities = await self._watch(CAPACITIES, None)
            print("watching", flush=True)
            group.create_task(self._take_bindings(bindings, group))
            group.create_task(self._take_room(capacities, group))

    async def _watch(self, resource: ApiResource, namespace: str | None) -> aiohttp.ClientResponse:
        """From what exists on, which comes first."""
        path = resource.path(namespace) + "?watch=true"
        return await self._session.get(self._url(path), timeout=aiohttp.ClientTimeout(total=None))

    async def _take_bindings(self, events: aiohttp.ClientResponse, group: asyncio.TaskGroup) -> None:
        async for event in _events(events):
            if event["type"] == "ADDED":
                self._waiting.append(event["object"])
                self._resume(group)

    async def _take_room(self, events: aiohttp.ClientResponse, group: asyncio.TaskGroup) -> None:
        async for event in _events(events):
            if event["type"] == "MODIFIED":
                self._room += self._orders.more
                self._resume(group)

    def _resume(self, group: asyncio.TaskGroup) -> None:
        while self._waiting and self._room:
            self._room -= 1
            group.create_task(self._patch(resumption(self._waiting.popleft(), self._orders.example)))

    async def _patch(self, request: Request) -> None:
        kind = {"Content-Type": request.content_type}
        async with (
            self._connections,
            self._session.patch(self._url(request.path), data=request.body, headers=kind) as answer,
        ):
            await answer.read()
            answer.raise_for_status()

    def _url(self, path: str) -> URL:
        return URL(self._orders.url + path, encoded=True)


async def _events(answer: aiohttp.ClientResponse) -> AsyncIterator[Json]:
    rest = b""
    async for chunk in answer.content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield orjson.loads(line)


async def _main() -> None:
    orders = msgspec.json.decode(sys.stdin.buffer.read(), type=Orders)
    # Two more for the watches.
    async with administrator(orders.ca, orders.token, CONNECTIONS + 2) as session:
        await Resumer(orders, session).run()


if __name__ == "__main__":
    asyncio.run(_main())
