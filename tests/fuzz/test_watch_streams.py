"""Watch streams: valid ones in any order and with any repeats give the true state; broken ones never end the cache."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any
from unittest import mock

import msgspec
import orjson
from aiohttp import web
from hypothesis import example, given, settings
from hypothesis import strategies as st

from atoll.kube import errors, reflector
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ListMeta, Page
from atoll.model.apiresource import PODS
from atoll.model.objects import Full, Slim, decode_full, decode_meta
from tests.fuzz import examples
from tests.kube.servers import eventually, serving

#: name -> (UID, version)
State = dict[str, tuple[str, int]]
TOLERATED = (errors.ApiError, reflector._Distrusted, *reflector._UNREADABLE)


def obj(name: str, uid: str, version: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": uid, "resourceVersion": str(version), "labels": {"app": uid[:1]}}}


def line(type_: str, name: str, uid: str, version: int) -> bytes:
    return orjson.dumps({"type": type_, "object": obj(name, uid, version)})


def history(steps: list[tuple[str, bool]]) -> tuple[list[bytes], list[State]]:
    """The events of a server on which each step writes an object, or deletes it; the state after each of them."""
    state: State = {}
    lines, states = list[bytes](), [state]
    for version, (name, delete) in enumerate(steps, start=10):
        known = state.get(name)
        if delete and known is None:
            continue
        uid = known[0] if known is not None else f"{name}-{version}"
        lines.append(line("DELETED" if delete else "MODIFIED" if known else "ADDED", name, uid, version))
        state = {key: value for key, value in state.items() if key != name}
        if not delete:
            state[name] = (uid, version)
        states.append(state)
    return lines, states


class Listing:
    """What `Reflector._list` asks for."""

    def __init__(self, state: State, version: int) -> None:
        self._page = Page(
            ListMeta(str(version)), [msgspec.Raw(orjson.dumps(obj(name, *found))) for name, found in state.items()]
        )

    async def pages(self, *_: object, **__: object) -> AsyncGenerator[Page, None]:
        yield self._page


class Mirror:
    """Knows of the cache only what its handlers are told."""

    def __init__(self, cache: Reflector[Any]) -> None:
        self.state: State = {}
        self.cache = cache
        cache.on_change(self.hear)
        cache.add_index("app", lambda each: [value] if (value := each.metadata.labels.get("app")) else [])

    def hear(self, old: Any, new: Any) -> None:
        key = (old or new).metadata.key
        assert self.state.get(key) == told(old), f"{key}: the old state told is not the one told before"
        if old is not None and new is not None:
            assert old.metadata.uid == new.metadata.uid, "a new object is told after the deletion of the old one"
        if new is None:
            del self.state[key]
        else:
            self.state[key] = (new.metadata.uid, new.metadata.resource_version)

    def check(self) -> None:
        assert {key: told(each) for key, each in self.cache.store.items()} == self.state
        filed = {
            each.metadata.key for value in self.cache._indexes["app"] for each in self.cache.by_index("app", value)
        }
        assert filed == {key for key, each in self.cache.store.items() if each.metadata.labels.get("app")}


def told(each: Any) -> Any:
    return None if each is None else (each.metadata.uid, each.metadata.resource_version)


STEPS = st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=14)


@given(steps=STEPS, data=st.data())
@settings(max_examples=examples(80, share=0.2))
def test_events_in_any_order_and_repeated_give_the_state_of_the_server(
    steps: list[tuple[str, bool]], data: st.DataObject
) -> None:
    lines, states = history(steps)
    listed = data.draw(st.integers(0, len(lines)), label="events in the list")
    at = [orjson.loads(each)["object"]["metadata"]["resourceVersion"] for each in lines]
    version = int(at[listed - 1]) if listed else 9
    stream = data.draw(
        st.permutations([*lines[listed:], *data.draw(st.lists(st.sampled_from(lines)) if lines else st.just([]))])
    )
    cache: Reflector[Slim] = Reflector(Listing(states[listed], version), PODS, decode_meta)  # type: ignore[arg-type]
    mirror = Mirror(cache)
    asyncio.run(cache._list())
    for each in stream:
        cache.take_line(each)
        mirror.check()
    mirror.check()
    assert {key: (uid, int(version)) for key, (uid, version) in mirror.state.items()} == states[-1]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ["name", "namespace", "uid", "resourceVersion", "labels", "annotations", "ownerReferences", "finalizers"]
WRONG = st.fixed_dictionaries(
    {"type": st.sampled_from(["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "", "added"]) | JSON,
     "object": st.fixed_dictionaries({"metadata": st.dictionaries(st.sampled_from(FIELDS), JSON) | JSON}) | JSON}
).map(lambda event: orjson.dumps(event, default=str, option=orjson.OPT_NON_STR_KEYS) if encodable(event) else b"{}")  # fmt: skip


def encodable(value: Any) -> bool:
    try:
        orjson.dumps(value)
    except (TypeError, ValueError):
        return False
    return True


@st.composite
def mangled(draw: st.DrawFn) -> bytes:
    """A valid line, and something done to its bytes."""
    text = draw(st.sampled_from(history([("a", False), ("b", False), ("a", True), ("a", False)])[0]))
    at, end = sorted((draw(st.integers(0, len(text))), draw(st.integers(0, len(text)))))
    put = draw(st.binary(max_size=8) | st.sampled_from([b"[" * 3000, b'"\\ud800"', b"1e999", b"9" * 5000, b"\x00"]))
    return text[:at] + put + text[draw(st.sampled_from([at, end])) :]


@given(lines=st.lists(WRONG | mangled() | st.binary(max_size=40), max_size=12))
@settings(max_examples=examples(80, share=0.2))
@example([b'{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"' + b"9" * 5000 + b'"}}}'])
@example([b'{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"\xd9\xa3"}}}'])
@example([b'{"type":"ADDED","object":{"metadata":{"name":"a","labels":{"app":"' + b"x" * 3_000_000 + b'"}}}}'])
def test_a_line_of_any_bytes_is_taken_or_refused(lines: list[bytes]) -> None:
    cache: Reflector[Full] = Reflector(None, PODS, decode_full)  # type: ignore[arg-type]
    mirror = Mirror(cache)
    for each in lines:
        try:
            cache.take_line(each)
        except TOLERATED:
            continue
    mirror.check()


async def follow_streams(streams: list[list[bytes]]) -> list[str]:
    """The names in a cache after a real server has sent these streams, each a list of chunks, one after the other."""
    left = [*streams]
    versions = iter(range(1000, 100_000))

    async def serve(request: web.Request) -> web.StreamResponse:
        if request.query.get("watch") != "true":
            # Hostile versions must not hide the list: it is always the newest.
            body = {"metadata": {"resourceVersion": f"{next(versions)}" + "0" * 36}, "items": [obj("listed", "u", 5)]}
            return web.json_response(body)
        response = web.StreamResponse()
        await response.prepare(request)
        if not left:
            await asyncio.Event().wait()
        for chunk in left.pop(0):
            await response.write(chunk)
            await asyncio.sleep(0)
        return response

    async with serving(serve) as api:
        cache: Reflector[Full] = Reflector(api, PODS, decode_full)
        mirror = Mirror(cache)
        task = asyncio.create_task(cache.run())
        try:
            await eventually(lambda: not left or task.done(), 20.0)
            await eventually(lambda: task.done() or cache._alive_since is None)
            assert not task.done(), task.exception()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        mirror.check()
        return sorted(cache.store)


@given(streams=st.lists(st.lists(WRONG | mangled() | st.binary(max_size=40), max_size=4), max_size=6))
@settings(max_examples=examples(15, share=0.02))
def test_a_stream_of_any_bytes_does_not_end_the_cache(streams: list[list[bytes]]) -> None:
    with mock.patch.object(reflector, "_BACKOFF_FIRST", 0.0001), mock.patch.object(reflector, "_HEALTHY_AFTER", 0.0):
        asyncio.run(follow_streams([[each + b"\n" for each in stream] for stream in streams]))


def test_a_stream_may_be_cut_at_every_byte() -> None:
    lines, states = history([("a", False), ("b", False), ("ü", False), ("b", True)])
    body = b"\n".join(lines).replace(b'"10"', b'"' + b"9" * 39 + b'"') + b"\n"
    streams = [[body[:at], body[at:]] for at in range(1, len(body), max(1, 3000 // examples(3000)))]
    with mock.patch.object(reflector, "_HEALTHY_AFTER", 0.0):
        found = asyncio.run(follow_streams(streams))
    assert found == sorted({"listed", *states[-1]})
