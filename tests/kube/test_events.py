"""Events: what the API server takes, what is one series, what a budget allows."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from atoll.kube import events
from atoll.kube.collector import KubeCollector
from atoll.kube.events import Recorder
from atoll.kube.transport import ApiServer
from atoll.local.atoll_federation import AtollFederation
from atoll.model.apiresource import EVENTS, NAMESPACES
from tests.integration.federation import until
from tests.kube.servers import client, eventually, serving

Json = dict[str, Any]


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def pod(name: str = "p", namespace: str = "ns", uid: str = "") -> Json:
    return {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": uid or f"u-{name}"}


@asynccontextmanager
async def running(recorder: Recorder) -> AsyncIterator[Recorder]:
    task = asyncio.create_task(recorder.run())
    try:
        yield recorder
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


# -- a real API server -----------------------------------------------------------------------------------------------


@pytest.fixture
async def host(federation: AtollFederation) -> AsyncIterator[ApiServer]:
    async with await federation.host.connect() as api:
        yield api


@pytest.fixture
async def namespace(host: ApiServer) -> AsyncIterator[str]:
    name = f"e-{uuid.uuid4().hex[:8]}"
    await host.create(NAMESPACES, {"metadata": {"name": name}})
    yield name
    await host.delete(NAMESPACES, name)


async def told(host: ApiServer, namespace: str, amount: int) -> list[Json]:
    async def look() -> list[Json] | None:
        found = await host.list(EVENTS, namespace)
        return found if len(found) >= amount else None

    return await until(look, what=f"{amount} events in {namespace}", deadline=10)


@pytest.mark.integration
async def test_the_api_server_takes_whatever_is_recorded(host: ApiServer, namespace: str) -> None:
    async with running(Recorder(host, "control")) as recorder:
        recorder.record(pod("x" * 62 + ".", namespace) | {"name": ".".join(["x" * 62] * 4) + "y"}, "LongName", "n")
        recorder.record(pod("long-note", namespace), "LongNote", "ü" * 2000, warning=True)
        recorder.record(pod("long-words", namespace), "R" * 300, "n", action="A" * 300)
        recorder.record(pod("system:odd/Name", namespace), "OddName", "n")
        recorder.record(pod("related", namespace), "Related", "n", related=pod("other", namespace))
        found = {event["reason"][:20]: event for event in await told(host, namespace, 5)}
        await eventually(lambda: recorder.outcomes == {"written": 5})
    long = found["LongName"]
    assert len(long["metadata"]["name"]) <= 253
    assert len(long["regarding"]["name"]) == 252, "what it is about is named whole"
    assert len(found["LongNote"]["note"].encode()) == 1024
    assert (found["LongNote"]["type"], long["type"]) == ("Warning", "Normal")
    assert (len(found["R" * 20]["reason"]), len(found["R" * 20]["action"])) == (128, 128)
    assert found["OddName"]["metadata"]["name"].startswith("system-odd-name.")
    assert found["Related"]["related"]["name"] == "other"
    assert {event["reportingController"] for event in found.values()} == {"atoll.sh/control"}


@pytest.mark.integration
async def test_an_event_about_an_object_without_a_namespace_is_in_default(host: ApiServer) -> None:
    name = f"q-{uuid.uuid4().hex[:8]}"
    async with running(Recorder(host, "control")) as recorder:
        about = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "name": name, "uid": "u"}
        recorder.record(about, "Closed", "n")

        async def look() -> list[Json]:
            return await host.list(EVENTS, "default", field_selector=f"regarding.name={name}")

        [event] = await until(look, what="the event")
    await host.delete(EVENTS, event["metadata"]["name"], "default")


@pytest.mark.integration
async def test_what_is_said_again_counts_in_the_series_of_one_event(
    host: ApiServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "SWEEP", 0.02)
    clock = Clock()
    async with running(Recorder(host, "agent", clock=clock)) as recorder:

        def say(note: str = "no room") -> None:
            recorder.record(pod("p", namespace), "Unschedulable", note, warning=True)

        say()
        [first] = await told(host, namespace, 1)
        assert "series" not in first
        for _ in range(4):
            say()

        async def counted(amount: int) -> Json | None:
            [event] = await host.list(EVENTS, namespace)
            return event if (event.get("series") or {}).get("count") == amount else None

        second = await until(lambda: counted(5), what="a series of 5")
        assert second["series"]["lastObservedTime"] > second["eventTime"]
        assert second["metadata"]["uid"] == first["metadata"]["uid"]
        # Soon told again, a series is written now and then only, and at its end.
        say()
        version = second["metadata"]["resourceVersion"]
        await asyncio.sleep(0.2)
        [third] = await host.list(EVENTS, namespace)
        assert third["metadata"]["resourceVersion"] == version
        clock.now += events.REFRESH
        await until(lambda: counted(6), what="a series of 6")
        say()
        clock.now += events.WINDOW
        await until(lambda: counted(7), what="a series of 7")
        await eventually(lambda: not recorder._series)
        # The window is over: the same words are a new Event, as other words are at any time.
        say()
        say("no room for 3")
        assert len(await told(host, namespace, 3)) == 3
        await eventually(lambda: recorder.outcomes == {"written": 3, "repeated": 6})


@pytest.mark.integration
async def test_a_series_whose_event_has_expired_goes_on_in_a_new_one(
    host: ApiServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "SWEEP", 0.02)
    async with running(Recorder(host, "agent")) as recorder:
        recorder.record(pod("p", namespace), "R", "n")
        [first] = await told(host, namespace, 1)
        await host.delete(EVENTS, first["metadata"]["name"], namespace)
        recorder.record(pod("p", namespace), "R", "n")
        [second] = await told(host, namespace, 1)
    assert second["series"]["count"] == 2


@pytest.mark.integration
async def test_an_event_that_is_refused_is_counted_and_the_next_ones_are_written(
    host: ApiServer, namespace: str
) -> None:
    async with running(Recorder(host, "agent")) as recorder:
        recorder.record(pod("lost", "there-is-no-such-namespace"), "R", "n")
        recorder.record(pod("p", namespace), "R", "n")
        await told(host, namespace, 1)
        # The API server shows an Event before the recorder has its answer.
        await eventually(lambda: recorder.outcomes == {"failed": 1, "written": 1})


# -- budgets ---------------------------------------------------------------------------------------------------------


def silent(clock: Clock) -> Recorder:
    """A recorder that nobody runs: what it would write stays in its queue."""
    return Recorder(client(9), "test", clock=clock)


def test_an_object_has_a_budget_that_comes_back_with_time() -> None:
    clock = Clock()
    recorder = silent(clock)
    for number in range(30):
        recorder.record(pod("talks"), "R", f"{number}")
    recorder.record(pod("silent"), "R", "n")
    assert (recorder._queue.qsize(), recorder.outcomes["dropped"]) == (11, 20)
    clock.now += 60
    for number in range(30, 32):
        recorder.record(pod("talks"), "R", f"{number}")
    assert recorder._queue.qsize() == 12


def test_normal_events_have_a_common_budget_and_leave_warnings_theirs() -> None:
    clock = Clock()
    recorder = silent(clock)
    for number in range(300):
        recorder.record(pod(f"p{number}"), "R", "n")
    assert recorder._queue.qsize() == events.ALL_BURST
    for number in range(5):
        recorder.record(pod(f"p{number}"), "Bad", "n", warning=True)
    assert recorder._queue.qsize() == events.ALL_BURST + 5


def test_an_object_that_talks_too_much_does_not_use_up_what_others_share() -> None:
    recorder = silent(Clock())
    for number in range(1000):
        recorder.record(pod("talks"), "R", f"{number}")
    for number in range(80):
        recorder.record(pod(f"p{number}"), "R", "n")
    assert recorder._queue.qsize() == 90


async def test_nothing_waits_for_a_server_that_does_not_answer_and_memory_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events, "_REMEMBERED", 50)
    monkeypatch.setattr(events, "_QUEUED", 20)
    clock = Clock()
    stuck = asyncio.Event()

    async def hang(request: web.Request) -> web.Response:
        await stuck.wait()
        return web.json_response({}, status=201)

    async with serving(hang) as api, running(Recorder(api, "test", clock=clock)) as recorder:
        for number in range(2000):
            clock.now += 1
            recorder.record(pod(f"p{number}"), "R", "n")
            if number % 100 == 0:
                await asyncio.sleep(0)
        assert recorder.outcomes["dropped"] > 1900
        assert (len(recorder._series) <= 50, len(recorder._budgets) <= 50) == (True, True)
        stuck.set()
        await eventually(lambda: recorder.outcomes["written"] == 2000 - recorder.outcomes["dropped"])
    shown = {
        sample.labels["outcome"]: sample.value
        for family in KubeCollector().collect()
        if family.name == "atoll_events"
        for sample in family.samples
    }
    assert shown["dropped"] >= recorder.outcomes["dropped"]


async def test_a_busy_server_is_asked_again_and_a_lost_answer_does_not_double_the_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events, "_PAUSE", 0.01)
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append((await request.json())["metadata"]["name"])
        if len(asked) == 1:
            return web.json_response({"message": "later"}, status=503)
        if len(asked) == 2:
            return web.json_response({"reason": "AlreadyExists"}, status=409)
        return web.json_response({}, status=201)

    async with serving(answer) as api, running(Recorder(api, "test")) as recorder:
        recorder.record(pod(), "R", "n")
        await eventually(lambda: recorder.outcomes["written"] == 1)
    assert len(asked) == 2
    assert asked[0] == asked[1]
