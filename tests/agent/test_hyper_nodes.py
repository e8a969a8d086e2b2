"""What HyperNodes say of themselves, by condition `Valid`."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from aiohttp import web

from atoll.agent.cache import MemberCache
from atoll.agent.hyper_nodes import HyperNodes
from atoll.kube.events import Recorder
from tests.agent.builders import make_domain, make_node, make_room
from tests.kube.servers import eventually, serving

RACK: dict[str, Any] = {"tier": 1, "members": [{"type": "Node", "selector": {"exactMatch": {"name": "n1"}}}]}
WRONG = {"type": "Valid", "status": "False", "reason": "Inconsistent", "message": "a member of both"}


async def test_what_was_mended_while_no_agent_ran_is_said_to_be_right() -> None:
    """1. An agent says that a HyperNode is wrong. 2. It dies. 3. That is mended. 4. Another begins, and looks at the
    HyperNode before its scheduler's first pass."""
    said: list[tuple[str, str]] = []

    async def answer(request: web.Request) -> web.Response:
        path = request.path.rpartition("hypernodes/")[2]
        said.extend((path, each["status"]) for each in (await request.json())["status"]["conditions"])
        return web.json_response({})

    async with serving(answer) as api:
        cache = MemberCache(api)
        room = make_room(make_node("n1"), domains=[make_domain("rack", 1, ["n1"])])
        hyper_nodes = HyperNodes(api, cache, Recorder(api, "agent"), room)
        metadata = {"name": "rack", "uid": "u", "resourceVersion": "1", "generation": 1}
        rack = {"metadata": metadata, "spec": RACK, "status": {"conditions": [WRONG]}}
        cache.hyper_nodes.take_line(orjson.dumps({"type": "ADDED", "object": rack}))
        running = asyncio.create_task(hyper_nodes.run())
        # Its worker looks at all that it was told of.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        hyper_nodes.observe()
        await eventually(lambda: bool(said))
        running.cancel()
    assert said == [("rack/status", "True")]
