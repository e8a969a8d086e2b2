"""A reflector and a real stream."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from aiohttp import web

from atoll.kube import reflector as module
from atoll.kube.reflector import Reflector
from atoll.model.apiresource import PODS
from atoll.model.objects import Full, decode_full
from tests.kube.servers import eventually, serving


class PodServer:
    """Lists `objects`, and gives each watch the next of `streams`: events, then a way to end."""

    def __init__(self, objects: dict[str, int], version: int, streams: list[tuple[list[dict[str, Any]], str]]) -> None:
        self.objects, self.version, self.streams = objects, version, streams
        self.resumed: list[str] = []
        self.lists = 0

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("watch") != "true":
            self.lists += 1
            items = [pod(name, version) for name, version in self.objects.items()]
            return web.json_response({"metadata": {"resourceVersion": str(self.version)}, "items": items})
        self.resumed.append(request.query["resourceVersion"])
        events, end = self.streams.pop(0) if self.streams else ([], "open")
        if end == "410":
            return web.json_response({"message": "too old", "reason": "Expired", "code": 410}, status=410)
        response = web.StreamResponse()
        await response.prepare(request)
        for event in events:
            await response.write(orjson.dumps(event) + b"\n")
        if end == "half a line":
            await response.write(b'{"type": "ADD')
        if end in ("dropped", "half a line"):
            assert request.transport is not None
            request.transport.abort()
        elif end == "open":
            await asyncio.Event().wait()
        return response


def pod(name: str, version: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "ns", "resourceVersion": str(version)}}


def event(type_: str, name: str, version: int) -> dict[str, Any]:
    return {"type": type_, "object": pod(name, version)}


async def follow(server: PodServer, watches: int) -> tuple[Reflector[Full], list[tuple[str, str]]]:
    """What a reflector has and heard once it has opened that many watches."""
    heard: list[tuple[str, str]] = []

    def hear(old: Full | None, new: Full | None) -> None:
        found = new or old
        assert found is not None
        heard.append((("ADDED" if old is None else "MODIFIED") if new else "DELETED", found.metadata.name))

    async with serving(server) as api:
        reflector: Reflector[Full] = Reflector(api, PODS, decode_full)
        reflector.on_change(hear)
        task = asyncio.create_task(reflector.run())
        try:
            await eventually(lambda: len(server.resumed) >= watches)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    return reflector, heard


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BACKOFF_FIRST", 0.001)


@pytest.mark.parametrize("end", ["closed", "dropped", "half a line"])
async def test_a_stream_that_ends_is_resumed_from_the_last_version(end: str) -> None:
    server = PodServer({"a": 1}, 5, [([event("ADDED", "b", 6), event("BOOKMARK", "", 9)], end)])
    reflector, heard = await follow(server, 2)
    assert (server.resumed, server.lists) == (["5", "9"], 1)
    assert heard == [("ADDED", "a"), ("ADDED", "b")]
    assert sorted(reflector.store) == ["ns/a", "ns/b"]


GONE = {"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}}


@pytest.mark.parametrize(
    "stream", [pytest.param(([], "410"), id="as an answer"), pytest.param(([GONE], "closed"), id="in the stream")]
)
async def test_an_expired_version_means_a_new_list_and_its_difference(stream: tuple[list[dict[str, Any]], str]) -> None:
    server = PodServer({"same": 1, "changed": 2, "gone": 3}, 5, [stream])

    async def changing(request: web.Request) -> web.StreamResponse:
        if request.query.get("watch") != "true" and server.lists == 1:
            server.objects, server.version = {"same": 1, "changed": 7, "new": 8}, 9
        return await server(request)

    heard: list[tuple[str, str]] = []
    async with serving(changing) as api:
        reflector: Reflector[Full] = Reflector(api, PODS, decode_full)
        reflector.on_change(
            lambda old, new: heard.append((old.metadata.name if old else "", new.metadata.name if new else ""))
        )
        task = asyncio.create_task(reflector.run())
        try:
            await eventually(lambda: len(server.resumed) == 2)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    assert (server.resumed, reflector.relists) == (["5", "9"], 1)
    assert heard[3:] == [("changed", "changed"), ("", "new"), ("gone", "")]
