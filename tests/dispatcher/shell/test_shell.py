"""What the shell does beside reading and writing objects, without a real API server."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from atoll.dispatcher import objects
from atoll.dispatcher.core import BindingSet, Evict, Pass, Refused
from atoll.dispatcher.core.log import LOG
from atoll.dispatcher.metrics import Metrics
from atoll.dispatcher.settings import DispatcherSettings, ShellSettings
from atoll.dispatcher.shell import Shell
from atoll.kube.events import Recorder
from atoll.kube.recording import LogWriter
from atoll.model.decision import Decision, Phase
from atoll.model.verdict import Reason
from atoll.sim import replay
from tests.dispatcher.builders import make_binding, make_capacity, make_cluster, make_queue
from tests.kube.servers import client, eventually, serving

REPEATERS = ShellSettings().repeaters


def again(least: float, most: float = 30.0) -> DispatcherSettings:
    return DispatcherSettings(shell=ShellSettings(again=least, longest_again=most))


async def test_a_disk_that_is_full_ends_the_log_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    with LogWriter(Path("/dev/full"), LOG) as recorder:
        shell = Shell(client(9), recorder=recorder)
        for now in (1.0, 2.0):
            shell._handle(make_queue("q"))
            shell._handle(Pass(now))
        assert recorder.closed
    assert capsys.readouterr().out.count("the log of events can't be written and ends here") == 1


async def test_a_decision_is_not_sent_again_before_the_server_wants_it() -> None:

    async def busy(_: web.Request) -> web.Response:
        return web.Response(status=503, headers={"Retry-After": "1"})

    command = Evict("u", "ns", "b", 1, 1, Decision(2, Phase.EVICTING, Reason.HELD))
    async with serving(busy) as host:
        shell = Shell(host, settings=again(0.01))
        shell._bindings.put("ns/b", binding())
        await shell._writes.carry_out(1, command, None)
        await asyncio.sleep(0.1)
        assert shell._writes._repeats.empty()
        assert await asyncio.wait_for(shell._writes._repeats.get(), 2.0) == (1, command, None)


async def test_what_the_host_can_t_take_is_sent_ever_more_rarely_and_holds_up_no_other_namespace() -> None:
    """1. Namespace `bad` has 300 decisions that hang for a moment and fail, each time. 2. `good` has one, later."""
    asked: Counter[str] = Counter()
    trouble = asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        namespace = request.path.split("/")[5]
        asked[namespace] += 1
        if namespace == "good":
            return web.json_response({})
        trouble.set()
        await asyncio.sleep(0.05)
        return web.json_response({"message": "a webhook of that namespace does not answer"}, status=500)

    def evict(namespace: str, number: int) -> Evict:
        return Evict(f"{namespace}{number}", namespace, f"b{number}", 1, 1, Decision(2, Phase.EVICTING, Reason.HELD))

    async with serving(answer) as host:
        shell = Shell(host, settings=again(0.05))
        for namespace, count in (("bad", 300), ("good", 1)):
            for number in range(count):
                shell._bindings.put(f"{namespace}/b{number}", binding(namespace, f"b{number}", f"{namespace}{number}"))
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(shell._writes._write(shell._writes._first)) for _ in range(ShellSettings().writers)
            ]
            tasks += [group.create_task(shell._writes._write(shell._writes._repeats)) for _ in range(REPEATERS)]
            for number in range(300):
                shell._writes._first.put_nowait((1, evict("bad", number), None))
            await trouble.wait()
            await eventually(lambda: "bad" in shell._writes._troubled and shell._writes._first.empty(), 60)
            shell._writes._first.put_nowait((2, evict("good", 0), None))
            before = time.monotonic()
            await eventually(lambda: asked["good"] == 1, 60)
            # Four repeaters of 50 ms each: what they could send meanwhile, and no more.
            sent = asked["bad"]
            await asyncio.sleep(1.0)
            assert asked["bad"] - sent <= REPEATERS * (time.monotonic() - before) / 0.05 + REPEATERS
            for task in tasks:
                task.cancel()


def binding(namespace: str = "ns", name: str = "b", uid: str = "u") -> objects.BindingObject:
    text = f'{{"metadata": {{"name": "{name}", "namespace": "{namespace}", "uid": "{uid}"}}}}'
    return objects.decode_binding(text.encode())


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(403, id="that the dispatcher may not write"),
        pytest.param(422, id="that an admission policy refuses"),
    ],
)
async def test_a_decision_that_stays_refused_is_made_ever_more_rarely(code: int) -> None:
    asked: list[float] = []
    answers = [code] * 7

    async def answer(_: web.Request) -> web.Response:
        asked.append(time.monotonic())
        return web.json_response({"message": "no"}, status=answers.pop() if answers else 200)

    command = Evict("u", "ns", "b", 1, 1, Decision(2, Phase.EVICTING, Reason.HELD))
    async with serving(answer) as host:
        shell = Shell(host, settings=again(0.02, 0.3))
        shell._bindings.put("ns/b", binding())
        for _ in range(8):
            await shell._writes.carry_out(1, command, None)
            if code == 403 and len(asked) < 8:
                await shell._writes._repeats.get()
            elif len(asked) < 8:
                await eventually(lambda: Refused("u", 2, 1) in shell._events)
                shell._events.clear()
        pauses = [after - before for before, after in itertools.pairwise(asked)]
        assert len(pauses) == 7
        assert all(pause >= least for pause, least in zip(pauses, (0.02, 0.02, 0.04, 0.08, 0.15, 0.15), strict=False))
        assert max(pauses) < 1.0
        assert len(shell._writes._again) == 0, "what was written starts anew"


async def test_a_decision_on_a_binding_that_is_gone_is_not_sent_again() -> None:

    async def forbid(_: web.Request) -> web.Response:
        return web.json_response({"message": "no"}, status=403)

    command = Evict("u", "ns", "b", 1, 1, Decision(2, Phase.EVICTING, Reason.HELD))
    async with serving(forbid) as host:
        shell = Shell(host, settings=again(0.01))
        shell._bindings.put("ns/b", binding())
        await shell._writes.carry_out(1, command, None)
        assert len(shell._writes._again) == 1
        shell._bindings.put("ns/b", None)
        await asyncio.wait_for(shell._writes._repeats.get(), 1.0)
        await shell._writes.carry_out(1, command, None)
        await asyncio.sleep(0.05)
        assert (shell._writes._repeats.empty(), len(shell._writes._again)) == (True, 0)


async def test_what_the_shell_records_is_replayed(tmp_path: Path) -> None:
    with LogWriter(tmp_path / "log", LOG) as recorder:
        shell = Shell(client(9), recorder=recorder)
        binding = BindingSet(make_binding("a").build())
        for event in (make_queue("q"), make_cluster("m"), make_capacity("m", [8]), binding, Pass(1.0)):
            shell._handle(event)
    with (tmp_path / "log").open("rb") as file:
        assert replay.replay(file) == replay.Replayed(5, 1, 1)


async def test_an_invariant_that_is_broken_is_an_event_and_a_metric() -> None:
    told: list[dict[str, Any]] = []

    async def keep(request: web.Request) -> web.Response:
        told.append({"path": request.path, **await request.json()})
        return web.json_response({})

    registry = CollectorRegistry()
    async with serving(keep) as host:
        events = Recorder(host, "dispatcher")
        shell = Shell(host, Metrics(registry), events=events)
        shell._handle(make_queue("q"))
        shell._checker.look()
        shell.core.tree.queue("q").used["cores"] = 1
        writing = asyncio.create_task(events.run())
        shell._checker.look()
        await eventually(lambda: bool(told))
        writing.cancel()
    [event] = told
    assert event["path"] == "/apis/events.k8s.io/v1/namespaces/atoll-system/events"
    assert (event["reason"], event["regarding"]["name"]) == ("InvariantBroken", "atoll-dispatcher")
    assert event["note"].startswith("queue root: used. ")
    assert registry.get_sample_value("atoll_dispatcher_invariants_broken_total") == 1
