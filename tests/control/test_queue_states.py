"""The end of closing, against a queue that is opened again in the same moment."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from aiohttp import web

from atoll.control.caches import Caches
from atoll.control.queues import Queues
from atoll.model.queue_object import QueueObject, decode_queue
from tests.kube.servers import eventually, serving

Json = dict[str, Any]


class Host:
    """Keeps one Queue, with the API server's optimistic locking."""

    def __init__(self, state: str) -> None:
        self.queue: Json = {"metadata": {"name": "q", "uid": "u"}, "spec": {}, "status": {}}
        self.patches = 0
        self.say(state)

    def say(self, state: str) -> QueueObject:
        version = int(self.queue["metadata"].get("resourceVersion", 0)) + 1
        self.queue["metadata"]["resourceVersion"] = str(version)
        self.queue["status"]["state"] = state
        return decode_queue(orjson.dumps(self.queue))

    async def answer(self, request: web.Request) -> web.StreamResponse:
        patch = await request.json()
        self.patches += 1
        seen = (patch.get("metadata") or {}).get("resourceVersion")
        if seen not in (None, self.queue["metadata"]["resourceVersion"]):
            return web.json_response(
                {"kind": "Status", "code": 409, "reason": "Conflict", "message": "newer"}, status=409
            )
        self.say(patch["status"]["state"])
        return web.json_response(self.queue)


async def test_a_queue_that_is_opened_as_its_last_workload_ends_stays_open() -> None:
    """1. The queue is closing. 2. Its user opens it. 3. Its last workload ends, before the watch shows 2."""
    host = Host("Closing")
    seen = host.say("Closing")
    async with serving(host.answer) as api:
        caches = Caches(api)
        states = Queues(api, caches)
        working = asyncio.create_task(states.run())
        opened = host.say("Open")
        caches.queues.put("q", seen)
        await eventually(lambda: host.patches > 0)
        caches.queues.put("q", opened)
        await asyncio.sleep(0)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
    assert host.queue["status"]["state"] == "Open"


async def test_a_closing_queue_without_workloads_is_closed() -> None:
    host = Host("Closing")
    async with serving(host.answer) as api:
        caches = Caches(api)
        states = Queues(api, caches)
        working = asyncio.create_task(states.run())
        caches.queues.put("q", host.say("Closing"))
        await eventually(lambda: host.queue["status"]["state"] == "Closed")
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
