"""A reflector and a real stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import orjson
import pytest
from aiohttp import web

from atoll.kube import reflector as module
from atoll.kube.reflector import Reflector, StoreWentBack
from atoll.model.apiresource import PODS
from atoll.model.objects import Full, decode_full
from tests.kube.servers import Handler, eventually, serving


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


@pytest.mark.parametrize(("relist_after", "resumed"), [(60.0, ["5", "5"]), (0.0, ["5", "9"])], ids=["soon", "late"])
async def test_states_that_are_over_since_a_long_silence_are_left_out(relist_after: float, resumed: list[str]) -> None:
    """A server replays them to whoever resumes."""
    server = PodServer({"a": 1}, 5, [([], "dropped")])

    async def going_on(request: web.Request) -> web.StreamResponse:
        if server.resumed:
            server.version = 9
        return await server(request)

    async with following(going_on, Reflector, relist_after=relist_after):
        await eventually(lambda: len(server.resumed) == 2)
    assert server.resumed == resumed


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


def server_error(code: int) -> dict[str, Any]:
    return {"type": "ERROR", "object": {"code": code, "reason": "Timeout", "message": "Too large resource version"}}


async def test_a_version_that_the_server_can_not_resume_from_is_given_up() -> None:
    server = PodServer({"a": 1}, 5, [([server_error(504)], "closed")])
    await follow(server, 2)
    assert (server.resumed, server.lists) == (["5", "5"], 2)


async def test_a_healthy_stream_that_ends_in_order_is_resumed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_HEALTHY_AFTER", 0.0)
    monkeypatch.setattr(module, "_BACKOFF_FIRST", 60.0)
    server = PodServer({}, 5, [([event("BOOKMARK", "", number)], "closed") for number in (6, 7, 8)])
    await follow(server, 4)
    assert server.resumed == ["5", "6", "7", "8"]


@pytest.mark.parametrize("end", ["closed", "dropped", "410"])
async def test_a_server_that_ends_every_stream_at_once_is_not_hammered_however_slow_its_lists_are(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than a stream that ends at once lasts on a busy machine, shorter than a list.
    monkeypatch.setattr(module, "_HEALTHY_AFTER", 0.3)
    monkeypatch.setattr(module, "_BACKOFF_FIRST", 0.04)
    server = PodServer({}, 5, [([], end)] * 5)
    began = asyncio.get_running_loop().time()

    async def slow(request: web.Request) -> web.StreamResponse:
        if request.query.get("watch") != "true":
            await asyncio.sleep(0.4)
        return await server(request)

    async with following(slow, Reflector):
        await eventually(lambda: len(server.resumed) == 5)
    # A server that was away is asked for its version before each stream.
    assert server.lists == (1 if end == "closed" else 5)
    # Four pauses, each at least half of what doubles every time; without the doubling it would take half of this.
    assert asyncio.get_running_loop().time() - began >= 0.4 * server.lists + 0.02 * (1 + 2 + 4 + 8)


@asynccontextmanager
async def following(handler: Handler, make: Callable[..., Reflector[Any]], **options: Any) -> AsyncIterator[Any]:
    """A running reflector of pods, and what its handler heard: (old version, new version) of each change."""
    heard: list[tuple[str, str]] = []

    def told(obj: Full | None) -> str:
        return f"{obj.metadata.name}@{obj.metadata.resource_version}" if obj is not None else ""

    async with serving(handler) as api:
        reflector: Reflector[Full] = make(api, PODS, options.pop("decode", decode_full), **options)
        reflector.on_change(lambda old, new: heard.append((told(old), told(new))))
        task = asyncio.create_task(reflector.run())
        try:
            yield reflector, heard
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_a_list_from_a_server_that_lags_is_not_believed() -> None:
    server = PodServer({"a": 7}, 9, [([GONE], "closed")])
    versions = iter([9, 4, 12])

    async def lagging(request: web.Request) -> web.StreamResponse:
        if request.query.get("watch") != "true":
            server.version = next(versions)
            server.objects = {"a": 3} if server.version == 4 else {"a": server.version}
        return await server(request)

    async with following(lagging, Reflector) as (_, heard):
        await eventually(lambda: len(server.resumed) == 2)
        assert heard == [("", "a@9"), ("a@9", "a@12")]


async def test_a_store_that_was_put_back_to_an_earlier_state_ends_the_process_that_saw_more() -> None:
    server = PodServer({"a": 7, "b": 8}, 9, [([GONE], "closed")])

    async def restored(request: web.Request) -> web.StreamResponse:
        if request.query.get("watch") != "true" and server.lists == 1:
            server.version, server.objects = 4, {"a": 3}
        return await server(request)

    async with serving(restored) as api:
        with pytest.raises(StoreWentBack, match="are at 4 after 9"):
            await asyncio.wait_for(Reflector(api, PODS, decode_full).run(), 20)
    assert server.lists == 4


async def test_a_store_that_was_put_back_and_has_caught_up_is_known_by_an_older_object() -> None:
    server = PodServer({"a": 7}, 9, [([GONE], "closed")])

    async def restored(request: web.Request) -> web.StreamResponse:
        if request.query.get("watch") != "true" and server.lists == 1:
            server.version, server.objects = 12, {"a": 3}
        return await server(request)

    async with serving(restored) as api:
        with pytest.raises(StoreWentBack, match="ns/a is older"):
            await asyncio.wait_for(Reflector(api, PODS, decode_full).run(), 20)


async def test_a_store_that_was_put_back_while_the_server_was_away_is_known_without_any_event() -> None:
    """A watch from a version that the store does not have any more is silent: nothing else would tell."""
    server = PodServer({"a": 7}, 9, [([], "dropped")])

    async def restored(request: web.Request) -> web.StreamResponse:
        if server.lists == 1 and server.resumed:
            server.version, server.objects = 4, {"a": 3}
        return await server(request)

    async with serving(restored) as api:
        with pytest.raises(StoreWentBack, match="are at 4 after 9"):
            await asyncio.wait_for(Reflector(api, PODS, decode_full).run(), 20)


async def test_a_server_that_was_away_is_asked_for_its_version_once() -> None:
    """It has gone on: the stream is resumed, and nothing is listed anew."""
    server = PodServer({"a": 7}, 9, [([], "dropped")])
    reflector, heard = await follow(server, 2)
    assert (server.resumed, server.lists) == (["9", "9"], 2)
    assert (heard, reflector.relists) == ([("ADDED", "a")], 0)


async def test_one_list_with_an_older_object_comes_from_a_server_that_lags() -> None:
    """What was read before may be of a list that broke off, so that its version is not known."""
    server = PodServer({"a": 7}, 9, [([GONE], "closed")])

    async def lagging(request: web.Request) -> web.StreamResponse:
        if request.query.get("watch") != "true":
            server.version, server.objects = 12, {"a": 3 if server.lists == 1 else 7}
        return await server(request)

    async with following(lagging, Reflector) as (_, heard):
        await eventually(lambda: len(server.resumed) == 2)
        assert (server.lists, heard) == (3, [("", "a@7")])


async def test_a_bookmark_from_before_the_stream_began_means_a_server_that_lags() -> None:
    server = PodServer({"a": 1}, 9, [([event("BOOKMARK", "", 4)], "open")])
    async with following(server, Reflector):
        await eventually(lambda: server.lists == 2)


END: dict[str, Any] = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "20", "annotations": {"k8s.io/initial-events-end": "true"}}}}  # fmt: skip


async def test_a_watch_list_tells_what_exists_and_what_is_gone_since() -> None:
    later = {"type": "BOOKMARK", "object": {"metadata": {**END["object"]["metadata"], "resourceVersion": "30"}}}
    first = [event("ADDED", "b", 12), event("ADDED", "a", 3), END, event("MODIFIED", "a", 21), GONE]
    server = PodServer({}, 0, [(first, "closed"), ([event("ADDED", "a", 25), later], "open")])
    async with following(server, Reflector, watch_list=True) as (reflector, heard):
        await eventually(lambda: reflector.relists == 1)
        assert heard == [("", "b@12"), ("", "a@3"), ("a@3", "a@21"), ("a@21", "a@25"), ("b@12", "")]
        assert (server.lists, server.resumed) == (0, ["", ""])


async def test_a_watch_list_that_breaks_off_removes_nothing() -> None:
    server = PodServer({}, 0, [([event("ADDED", "a", 3), END, GONE], "closed"), ([], "closed")])
    async with following(server, Reflector, watch_list=True) as (reflector, heard):
        await eventually(lambda: len(server.resumed) == 3)
        assert (heard, sorted(reflector.store)) == ([("", "a@3")], ["ns/a"])


@pytest.mark.parametrize("answer", ["refused", "never closed"])
async def test_a_server_without_watch_lists_is_read_in_pages(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_INITIAL_SILENCE", 0.05)
    server = PodServer({"a": 1}, 5, [([event("ADDED", "a", 1)], "open")] if answer == "never closed" else [])

    async def old(request: web.Request) -> web.StreamResponse:
        if answer == "refused" and "sendInitialEvents" in request.query:
            return web.json_response({"message": "sendInitialEvents is forbidden", "code": 422}, status=422)
        return await server(request)

    async with following(old, Reflector, watch_list=True) as (reflector, heard):
        await eventually(lambda: server.resumed[-1:] == ["5"])
        assert (heard, server.lists) == ([("", "a@1")], 1)
        assert reflector.synced.is_set()


async def test_metadata_is_asked_for_where_nothing_else_is_wanted() -> None:
    wanted: list[str] = []
    server = PodServer({"a": 1}, 5, [])

    async def noting(request: web.Request) -> web.StreamResponse:
        wanted.append(request.headers["Accept"].partition(";g=")[0])
        return await server(request)

    async with following(noting, Reflector, metadata_only=True):
        await eventually(lambda: len(server.resumed) == 1)
    assert wanted == [f"application/json;as=PartialObjectMetadata{what}" for what in ("List", "")]


async def test_nothing_in_an_object_can_end_the_watch() -> None:
    """Numbers, texts and depths that one JSON reader takes and another refuses."""
    bad = b'{"type":"ADDED","object":{"metadata":{"name":"bad","namespace":"ns","resourceVersion":"6"},"x":%s}}\n'
    values = [b"1e999", b'"\xff"', b"[" * 600 + b"]" * 600, b"[" * 5000 + b"]" * 5000]
    server = PodServer({"a": 1}, 5, [])

    async def hostile(request: web.Request) -> web.StreamResponse:
        if request.query.get("watch") != "true" or not values:
            return await server(request)
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(bad % values.pop())
        return response

    async with following(hostile, Reflector) as (reflector, _):
        await eventually(lambda: len(server.resumed) == 1)
        assert sorted(reflector.store) == ["ns/a"]


async def test_an_object_that_is_nested_without_end_hides_no_other() -> None:
    """1. It is there, with its text in quotes and brackets, when all are listed. 2. Another one comes. 3. One that
    was there becomes like it. 4. The first one goes.
    """
    deep = b'{"a":' * 3000 + b'["]\\"}", 1]' + b"}" * 3000
    odd = b'{"metadata":{"name":"%s","namespace":"ns","resourceVersion":"%s"},"spec":' + deep + b"}"
    listed = b'{"metadata":{"resourceVersion":"5"},"items":[' + odd % (b"deep", b"3") + b",%s]}"
    server = PodServer({}, 5, [])
    told = [
        orjson.dumps(event("ADDED", "b", 6)),
        b'{"type":"MODIFIED","object":' + odd % (b"a", b"7") + b"}",
        b'{"type":"DELETED","object":' + odd % (b"deep", b"8") + b"}",
    ]

    async def hostile(request: web.Request) -> web.StreamResponse:
        if request.query.get("watch") != "true":
            return web.Response(body=listed % orjson.dumps(pod("a", 4)), content_type="application/json")
        if not told:
            return await server(request)
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"".join(line + b"\n" for line in told))
        told.clear()
        return response

    async with following(hostile, Reflector) as (reflector, _):
        await eventually(lambda: bool(server.resumed))
        assert sorted(reflector.store) == ["ns/b"]
        assert server.resumed == ["8"]


async def test_a_list_of_which_no_page_comes_is_begun_again_with_smaller_pages() -> None:
    limits: list[int] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.query.get("watch") == "true":
            await asyncio.Event().wait()
        limits.append(int(request.query["limit"]))
        if limits[-1] > 200:
            return web.json_response({"message": "too much"}, status=503, headers={"Retry-After": "1"})
        return web.json_response({"metadata": {"resourceVersion": "5"}, "items": [pod("a", 1)]})

    async with serving(answer) as api:
        api.request = partial(api.request, deadline=0.1)  # type: ignore[method-assign]
        reflector: Reflector[Full] = Reflector(api, PODS, decode_full, watch_list=False)
        task = asyncio.create_task(reflector.run())
        try:
            await eventually(reflector.synced.is_set, 30)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    assert limits == [500, 250, 125]


class Absent:
    """Says that there is no such resource until it is `there`."""

    def __init__(self) -> None:
        self.there, self.asked = False, 0
        self.server = PodServer({"a": 1}, 5, [])

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        self.asked += 1
        if self.there:
            return await self.server(request)
        return web.json_response({"message": "not here", "reason": "NotFound", "code": 404}, status=404)


async def test_an_optional_resource_that_is_not_there_has_no_objects_until_a_user_says_that_it_may_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """1. It is absent. 2. It is asked for no more. 3. It comes. 4. It goes with its objects."""
    monkeypatch.setattr(module, "_ASKED_AGAIN", 2)
    server = Absent()
    async with serving(server) as api:
        cache: Reflector[Full] = Reflector(api, PODS, decode_full, optional=True)
        task = asyncio.create_task(cache.run())
        try:
            await eventually(lambda: cache.synced.is_set() and server.asked == 3 and cache.active_at is None)
            assert (cache.absent, len(cache)) == (True, 0)
            server.there = True
            cache.look()
            await eventually(lambda: list(cache.store) == ["ns/a"] and not cache.absent)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        server.there = False
        task = asyncio.create_task(cache.run())
        try:
            await eventually(lambda: cache.absent)
            assert len(cache) == 0
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_objects_that_are_known_are_not_forgotten_at_the_first_answer_that_there_is_no_such_resource() -> None:
    server = Absent()
    server.there = True
    server.server.streams = [([], "410")]
    gone: list[str] = []

    async def once(request: web.Request) -> web.StreamResponse:
        server.there = server.server.lists != 1 or request.query.get("watch") == "true" or server.asked > 3
        return await server(request)

    async with serving(once) as api:
        cache: Reflector[Full] = Reflector(api, PODS, decode_full, optional=True)
        cache.on_change(lambda old, new: gone.append(old.metadata.name) if new is None and old else None)
        task = asyncio.create_task(cache.run())
        try:
            await eventually(lambda: server.server.lists == 2)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    assert (gone, cache.absent, list(cache.store)) == ([], False, ["ns/a"])
