"""Each fault does on a real API server what it says, for a bare client, for ours, and for a cache behind it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import random
import ssl
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
import pytest_asyncio
import yaml

from atoll.kube import errors
from atoll.kube.reflector import Reflector
from atoll.kube.transport import MERGE_PATCH, ApiServer
from atoll.local import audit
from atoll.local.atoll_federation import AtollFederation
from atoll.model.apiresource import CONFIGMAPS, NAMESPACES
from atoll.model.objects import Slim, decode_meta
from tests.faults.proxy import Fault, FaultProxy
from tests.faults.request import parse
from tests.integration.federation import until

pytestmark = pytest.mark.integration

SHORT = 0.2


@dataclass
class Way:
    """A namespace of an API server, reached directly and through a proxy."""

    namespace: str
    direct: ApiServer
    proxy: FaultProxy
    #: our client through the proxy
    api: ApiServer
    #: a bare one
    session: aiohttp.ClientSession
    audit_log: Path

    @property
    def url(self) -> str:
        return f"{self.proxy.url}/api/v1/namespaces/{self.namespace}/configmaps"

    async def make(self, api: ApiServer, name: str, data: str = "") -> dict[str, Any]:
        return await api.create(
            CONFIGMAPS,
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": name, "namespace": self.namespace},
                "data": {"text": data},
            },
        )

    async def there(self, name: str) -> bool:
        try:
            await self.direct.get(CONFIGMAPS, name, self.namespace)
        except errors.NotFound:
            return False
        return True

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[Watch]:
        version = orjson.loads(
            await self.direct.request("GET", CONFIGMAPS.path(self.namespace), params={"limit": "1"})
        )["metadata"]["resourceVersion"]
        params = {"watch": "true", "resourceVersion": version}
        async with self.session.get(self.url, params=params) as response:
            yield Watch(response)


class Watch:
    """A bare client's view of an open watch."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def line(self) -> bytes:
        return await asyncio.wait_for(self._response.content.readline(), 5)

    async def event(self) -> tuple[str, str, str]:
        """Type, name, and what the data says."""
        event = orjson.loads(await self.line())
        data = (event["object"].get("data") or {}).get("text", "")
        return event["type"], event["object"].get("metadata", {}).get("name", ""), data

    async def silent(self) -> bool:
        """Whether nothing comes and the connection stays."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._response.content.readline(), SHORT)
            return False
        return True


@pytest_asyncio.fixture
async def way(federation: AtollFederation, tmp_path: Path) -> AsyncIterator[Way]:
    host = federation.host
    namespace = f"f-{uuid.uuid4().hex[:8]}"
    async with (
        await host.connect() as direct,
        FaultProxy(host.kubeconfig, tmp_path / "proxy", seed=7, mark="through-proxy") as proxy,
        await ApiServer.from_kubeconfig(proxy.kubeconfig(host.kubeconfig)) as api,
        aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {host.token}"},
            connector=aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=proxy.ca)),
        ) as session,
    ):
        await direct.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        made = Way(namespace, direct, proxy, api, session, host.audit_log)
        # A controller puts it into each namespace: in the middle of a test it would be one event too many.
        await until(lambda: made.there("kube-root-ca.crt"), what="the namespace has the authority of its API server")
        yield made
        await direct.delete(NAMESPACES, namespace)


# -- no fault --------------------------------------------------------------------------------------------------------


async def test_what_is_sent_arrives_unchanged_and_is_marked(way: Way) -> None:
    text = "0123456789" * 50_000
    await way.make(way.api, "large", text)
    assert (await way.api.get(CONFIGMAPS, "large", way.namespace))["data"]["text"] == text
    assert (await way.direct.get(CONFIGMAPS, "large", way.namespace))["data"]["text"] == text
    await way.api.delete(CONFIGMAPS, "large", way.namespace)
    assert not await way.there("large")
    with pytest.raises(errors.NotFound):
        await way.api.get(CONFIGMAPS, "large", way.namespace)
    [created] = [
        event
        for event in audit.read(way.audit_log)
        if event.wrote("configmaps", "create")
        and (event.object_ref.namespace, event.object_ref.name) == (way.namespace, "large")
    ]
    assert created.user_agent.endswith("(through-proxy)")
    assert not way.proxy.hits


async def test_a_client_that_goes_away_takes_its_request_along(way: Way) -> None:
    async with way.watching():
        assert len(way.proxy.streams) == 1

    async def closed() -> bool:
        return not way.proxy.streams

    await until(closed, what="the watch is closed to the server as well")


async def test_an_api_server_that_is_down_refuses_connections(way: Way, tmp_path: Path) -> None:
    content = yaml.safe_load((tmp_path / "proxy" / "kubeconfig.proxied").read_text())
    content["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    nowhere = tmp_path / "nowhere"
    nowhere.write_text(yaml.safe_dump(content))
    async with (
        FaultProxy(nowhere, tmp_path / "second", seed=1) as proxy,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=proxy.ca))) as bare,
    ):
        with pytest.raises(aiohttp.ClientConnectorError):
            await bare.get(proxy.url)


# -- each fault, by a bare client ------------------------------------------------------------------------------------


async def test_busy_answers_429_and_carries_nothing_out(way: Way) -> None:
    way.proxy.play(Fault.BUSY, method="POST", seconds=3)
    async with way.session.post(way.url, json={"metadata": {"name": "a"}}) as answer:
        assert (answer.status, answer.headers["Retry-After"]) == (429, "3")
    assert not await way.there("a")
    async with way.session.post(way.url, json={"metadata": {"name": "a"}}) as answer:
        assert answer.status == 201
    assert way.proxy.hits == {Fault.BUSY: 1}


async def test_error_answers_500_and_carries_nothing_out(way: Way) -> None:
    way.proxy.play(Fault.ERROR, method="POST")
    async with way.session.post(way.url, json={"metadata": {"name": "a"}}) as answer:
        assert answer.status == 500
        assert (await answer.json())["reason"] == "InternalError"
    assert not await way.there("a")


async def test_gone_is_answered_to_a_list_but_to_no_write(way: Way) -> None:
    way.proxy.play(Fault.GONE)
    await way.make(way.api, "a")
    async with way.session.get(way.url) as answer:
        assert answer.status == 410


async def test_gone_ends_an_open_watch_by_an_event(way: Way) -> None:
    async with way.watching() as watch:
        play = way.proxy.play(Fault.GONE, watch=True)
        assert orjson.loads(await watch.line())["object"]["code"] == 410
        assert await watch.line() == b""
        assert play.hits == 1


async def test_drop_closes_in_the_middle_of_an_answer(way: Way) -> None:
    await way.make(way.direct, "a", "x" * 100_000)
    way.proxy.play(Fault.DROP, after_bytes=5_000)
    async with way.session.get(f"{way.url}/a") as answer:
        assert answer.status == 200
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()


async def test_drop_closes_an_open_watch_in_the_middle_of_an_event(way: Way) -> None:
    async with way.watching() as watch:
        await way.make(way.direct, "a")
        whole = await watch.line()
        way.proxy.play(Fault.DROP)
        read = b""
        with contextlib.suppress(aiohttp.ClientPayloadError):
            while line := await watch.line():
                read += line
        assert whole.startswith(read)
        assert len(read) < len(whole)


async def test_reset_is_an_rst(way: Way) -> None:
    play = way.proxy.play(Fault.RESET, method="POST")
    with pytest.raises(aiohttp.ClientOSError) as raised:
        await way.session.post(way.url, json={"metadata": {"name": "a"}})
    assert raised.value.errno == errno.ECONNRESET
    assert play.hits == 1
    assert not await way.there("a")
    async with way.watching() as watch:
        way.proxy.play(Fault.RESET)
        with pytest.raises((aiohttp.ClientOSError, aiohttp.ClientPayloadError)):
            await watch.line()


async def test_hang_answers_nothing_and_closes_in_the_end(way: Way) -> None:
    way.proxy.play(Fault.HANG, method="POST", seconds=SHORT)
    began = time.monotonic()
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await way.session.post(way.url, json={"metadata": {"name": "a"}})
    assert time.monotonic() - began >= SHORT
    assert not await way.there("a")


async def test_hang_ends_with_its_play(way: Way) -> None:
    async with way.watching() as watch:
        play = way.proxy.play(Fault.HANG)
        await way.make(way.direct, "a")
        assert await watch.silent()
        play.stop()
        with pytest.raises(aiohttp.ClientPayloadError):
            await watch.line()


async def test_slow_takes_its_time_and_loses_nothing(way: Way) -> None:
    await way.make(way.direct, "a", "x" * 1000)
    way.proxy.play(Fault.SLOW, seconds=SHORT)
    began = time.monotonic()
    async with way.session.get(f"{way.url}/a") as answer:
        assert (await answer.json())["data"]["text"] == "x" * 1000
    assert time.monotonic() - began >= SHORT
    async with way.watching() as watch:
        way.proxy.play(Fault.SLOW, seconds=SHORT)
        began = time.monotonic()
        await way.make(way.direct, "b")
        assert (await watch.event())[:2] == ("ADDED", "b")
        assert time.monotonic() - began >= SHORT * 0.8


async def test_latency_delays_requests_and_events(way: Way) -> None:
    async with way.watching() as watch:
        way.proxy.play(Fault.LATENCY, times=None, seconds=SHORT)
        began = time.monotonic()
        async with way.session.post(way.url, json={"metadata": {"name": "a"}}) as answer:
            assert answer.status == 201
        assert time.monotonic() - began >= SHORT
        assert (await watch.event())[:2] == ("ADDED", "a")
        assert way.proxy.hits == {Fault.LATENCY: 2}


async def test_half_open_stays_silent_for_ever(way: Way) -> None:
    await way.make(way.direct, "a", "x" * 10_000)
    way.proxy.play(Fault.HALF_OPEN, watch=False, after_bytes=2_000)
    async with way.session.get(f"{way.url}/a") as answer:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(answer.read(), SHORT)
    async with way.watching() as watch:
        way.proxy.play(Fault.HALF_OPEN).stop()
        await way.make(way.direct, "b")
        assert await watch.silent()


async def test_a_lost_answer_was_carried_out(way: Way) -> None:
    way.proxy.play(Fault.LOST_ANSWER, method="POST")
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await way.session.post(way.url, json={"metadata": {"name": "a"}})
    assert await way.there("a")


async def test_duplicate_sends_an_event_twice(way: Way) -> None:
    async with way.watching() as watch:
        way.proxy.play(Fault.DUPLICATE)
        await way.make(way.direct, "a")
        await way.make(way.direct, "b")
        assert [(await watch.event())[1] for _ in range(3)] == ["a", "a", "b"]


async def test_reorder_swaps_two_events(way: Way) -> None:
    async with way.watching() as watch:
        way.proxy.play(Fault.REORDER)
        for name in ("a", "b", "c"):
            await way.make(way.direct, name)
        assert [(await watch.event())[1] for _ in range(3)] == ["b", "a", "c"]


async def test_reorder_keeps_nothing_back_for_ever(way: Way) -> None:
    async with way.watching() as watch:
        play = way.proxy.play(Fault.REORDER, seconds=0.05)
        await way.make(way.direct, "a")
        assert (await watch.event())[1] == "a"
        assert play.hits == 0


async def test_stale_sends_an_earlier_state_again(way: Way) -> None:
    async with way.watching() as watch:
        play = way.proxy.play(Fault.STALE)
        await way.make(way.direct, "a", "old")
        await way.direct.merge_patch(CONFIGMAPS, "a", {"data": {"text": "new"}}, way.namespace)
        told = [await watch.event() for _ in range(3)]
        assert told == [("ADDED", "a", "old"), ("MODIFIED", "a", "new"), ("ADDED", "a", "old")]
        assert play.hits == 1


async def test_what_is_sent_into_a_blackhole_arrives_when_it_is_over(way: Way) -> None:
    async with way.watching() as watch:
        way.proxy.cut()
        post = asyncio.create_task(way.session.post(way.url, json={"metadata": {"name": "late"}}))
        old = asyncio.create_task(way.session.get(f"{way.url}/late"))
        await way.make(way.direct, "a")
        assert await watch.silent()
        assert not post.done()
        assert not old.done()
        assert not await way.there("late")
        # Its sender gives up; the packets are on their way nevertheless.
        post.cancel()
        await asyncio.gather(post, return_exceptions=True)
        way.proxy.heal()
        assert (await watch.event())[1] == "a"
        old.cancel()
        await asyncio.gather(old, return_exceptions=True)


async def test_a_request_sent_on_an_open_connection_is_late_but_carried_out(way: Way) -> None:
    async with way.session.get(way.url) as answer:
        await answer.read()
    play = way.proxy.play(Fault.BLACKHOLE)
    post = asyncio.create_task(way.session.post(way.url, json={"metadata": {"name": "late"}}))
    await asyncio.wait({post}, timeout=SHORT)
    post.cancel()
    await asyncio.gather(post, return_exceptions=True)
    assert not await way.there("late")
    play.stop()
    await until(lambda: way.there("late"), what="the request arrives though its sender has given up")
    assert way.proxy.hits == {Fault.BLACKHOLE: 1}


# -- which requests are hit ------------------------------------------------------------------------------------------


async def test_only_what_matches_is_hit_and_only_so_often(way: Way) -> None:
    play = way.proxy.play(Fault.ERROR, method="GET", resource="configmaps", watch=False, times=2)

    async def statuses() -> list[int]:
        answers = [await way.session.get(url) for url in (way.url, f"{way.proxy.url}/api/v1/namespaces")]
        return [answer.status for answer in answers]

    assert [await statuses() for _ in range(3)] == [[500, 200], [500, 200], [200, 200]]
    assert (play.hits, play.active) == (2, False)


async def test_a_probability_is_drawn_from_the_seed(way: Way) -> None:
    play = way.proxy.play(Fault.ERROR, probability=0.5, times=None)
    statuses = [(await way.session.get(way.url)).status for _ in range(40)]
    drawn = random.Random(7)
    assert statuses == [500 if drawn.random() < 0.5 else 200 for _ in range(40)]
    play.stop()
    assert (await way.session.get(way.url)).status == 200


async def test_callbacks_see_each_request_and_can_refuse_it(way: Way) -> None:
    seen: list[tuple[str, str, str]] = []
    answers: list[int] = []
    way.proxy.on_request = lambda request: seen.append((request.verb, request.path, request.name))
    way.proxy.on_answer = lambda _, status: answers.append(status)
    await way.make(way.api, "a")
    await way.api.get(CONFIGMAPS, "a", way.namespace)
    assert seen == [("create", "configmaps", ""), ("get", "configmaps", "a")]
    assert answers == [201, 200]
    way.proxy.on_request = lambda _: False
    with pytest.raises(errors.Unreachable):
        await way.make(way.api, "b")
    assert not await way.there("b")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("POST /api/v1/namespaces/n/pods/p/binding", ("create", "", "pods/binding", "n", "p")),
        ("GET /apis/apps/v1/deployments?watch=true&x=1", ("watch", "apps", "deployments", "", "")),
        ("GET /api/v1/namespaces", ("list", "", "namespaces", "", "")),
        ("PATCH /api/v1/namespaces/n/status", ("patch", "", "namespaces/status", "", "n")),
        ("DELETE /apis/g.io/v1/namespaces/n/things", ("deletecollection", "g.io", "things", "n", "")),
        ("GET /readyz", ("list", "", "", "", "")),
    ],
)
def test_requests_are_named_as_the_audit_log_names_them(line: str, told: tuple[str, ...]) -> None:
    request = parse(*line.split(" "))
    assert (request.verb, request.group, request.path, request.namespace, request.name) == told


async def test_a_client_certificate_is_refused(way: Way, tmp_path: Path) -> None:
    content = yaml.safe_load((tmp_path / "proxy" / "kubeconfig.proxied").read_text())
    content["users"][0]["user"] = {"client-certificate-data": ""}
    path = tmp_path / "certificate"
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(ValueError, match="only tokens go through"):
        way.proxy.kubeconfig(path)
    with pytest.raises(ValueError, match="swallows everything"):
        way.proxy.play(Fault.BLACKHOLE, resource="pods")


# -- our own client --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "error", "carried_out"),
    [
        (Fault.BUSY, None, True),
        (Fault.ERROR, errors.Busy, False),
        (Fault.DROP, errors.Unreachable, True),
        (Fault.HANG, errors.Unreachable, False),
        (Fault.RESET, errors.Unreachable, False),
        (Fault.HALF_OPEN, errors.Unreachable, True),
        (Fault.LOST_ANSWER, errors.Unreachable, True),
        (Fault.SLOW, None, True),
        (Fault.LATENCY, None, True),
    ],
)
async def test_a_write_by_our_client(way: Way, fault: Fault, error: type[Exception] | None, carried_out: bool) -> None:
    """No write is repeated unless it is certain that nothing was done."""
    await way.api.get(NAMESPACES, way.namespace)
    way.proxy.play(fault, method="PATCH", seconds=0 if fault is Fault.BUSY else 0.1)
    await way.make(way.direct, "a", "old")
    path, body = CONFIGMAPS.path(way.namespace, "a"), orjson.dumps({"data": {"text": "new"}})
    with pytest.raises(error) if error else contextlib.nullcontext():
        await way.api.request("PATCH", path, body=body, content_type=MERGE_PATCH, deadline=1)
    text = (await way.direct.get(CONFIGMAPS, "a", way.namespace))["data"]["text"]
    assert (text == "new") is carried_out
    assert way.proxy.hits == {fault: 1}


async def test_a_replacement_whose_answer_was_lost_is_not_sent_again(way: Way) -> None:
    """1. A PUT on a connection in use is carried out. 2. Its answer is lost. 3. It is not sent a second time: its
    sender would be told of a conflict with itself.
    """
    made = await way.make(way.api, "a", "old")
    way.proxy.play(Fault.LOST_ANSWER, method="PUT")
    sent: list[str] = []
    way.proxy.on_request = lambda request: sent.append(request.method)
    with pytest.raises(errors.Unreachable):
        await way.api.replace(CONFIGMAPS, {**made, "data": {"text": "new"}})
    assert sent == ["PUT"]


@pytest.mark.parametrize(
    "fault",
    [
        Fault.BUSY,
        Fault.ERROR,
        Fault.DROP,
        Fault.HANG,
        Fault.RESET,
        Fault.LOST_ANSWER,
    ],
)
async def test_a_read_by_our_client_is_repeated(way: Way, fault: Fault) -> None:
    await way.make(way.direct, "a", "text")
    way.proxy.play(fault, method="GET", seconds=0 if fault is Fault.BUSY else 0.1)
    assert (await way.api.get(CONFIGMAPS, "a", way.namespace))["data"]["text"] == "text"
    assert way.proxy.hits == {fault: 1}


# -- a cache ---------------------------------------------------------------------------------------------------------


class Impatient(ApiServer):
    """Takes a silent watch for dead after a second."""

    def watch(self, *args: Any, **fields: Any) -> Any:
        return super().watch(*args, **{**fields, "inactivity": 1.0})


@pytest.mark.parametrize("fault", list(Fault))
async def test_a_cache_tells_the_truth_after(way: Way, fault: Fault) -> None:
    drawn = random.Random(3)
    for number in range(8):
        await way.make(way.direct, f"c-{number}")
    kubeconfig = way.proxy.kubeconfig(Path(way.proxy.ca.parent / "kubeconfig.proxied"))
    async with await Impatient.from_kubeconfig(kubeconfig) as api:
        cache: Reflector[Slim] = Reflector(api, CONFIGMAPS, decode_meta, namespace=way.namespace)
        running = asyncio.create_task(cache.run())
        try:
            await asyncio.wait_for(cache.synced.wait(), 5)
            await opened(way)
            if fault is Fault.BLACKHOLE:
                play = way.proxy.play(fault, seconds=SHORT)
            else:
                play = way.proxy.play(fault, probability=0.6, times=3, seconds=SHORT)
                # What hits requests only would wait for the next one.
                way.proxy.play(Fault.DROP) if fault in (Fault.BUSY, Fault.ERROR) else None
            for number in range(24):
                name = f"c-{number % 8}"
                match drawn.choice(["change", "change", "delete"]):
                    case "change" if await way.there(name):
                        await way.direct.merge_patch(CONFIGMAPS, name, {"data": {"n": str(number)}}, way.namespace)
                    case "delete" if await way.there(name):
                        await way.direct.delete(CONFIGMAPS, name, way.namespace)
                    case _:
                        await way.make(way.direct, name)

            async def hit() -> bool:
                return play.hits > 0

            async def same() -> bool:
                truth = {
                    f"{way.namespace}/{each['metadata']['name']}": each["metadata"]["resourceVersion"]
                    for each in await way.direct.list(CONFIGMAPS, way.namespace)
                }
                return {key: each.metadata.resource_version for key, each in cache.store.items()} == truth

            if fault is not Fault.LOST_ANSWER:
                await until(hit, what=f"{fault} happened")
            play.stop()
            await until(same, what=f"the cache is right after {play.hits} x {fault}")
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def opened(way: Way) -> None:
    async def open_() -> bool:
        return bool(way.proxy.streams)

    await until(open_, what="the watch is open")
