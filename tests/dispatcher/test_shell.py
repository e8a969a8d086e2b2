"""What the shell does beside reading and writing objects, without a real API server."""

from __future__ import annotations

import asyncio
import itertools
import time
from pathlib import Path

import pytest
from aiohttp import web

from atoll.dispatcher import objects
from atoll.dispatcher.core import Evict, Pass, Refused
from atoll.dispatcher.recording import Recorder
from atoll.dispatcher.shell import Shell
from atoll.model.decision import Decision, Phase
from atoll.model.verdict import Reason
from atoll.sim import replay
from tests.dispatcher.builders import make_queue
from tests.kube.servers import client, eventually, serving


async def test_a_disk_that_is_full_ends_the_log_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    with Recorder(Path("/dev/full")) as recorder:
        shell = Shell(client(9), recorder=recorder)
        for now in (1.0, 2.0):
            shell._handle(make_queue("q"))
            shell._handle(Pass(now))
        assert recorder.closed
    assert capsys.readouterr().out.count("the log of events can't be written and ends here") == 1


async def test_a_decision_is_not_sent_again_before_the_server_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("atoll.dispatcher.shell.AGAIN", 0.01)

    async def busy(_: web.Request) -> web.Response:
        return web.Response(status=503, headers={"Retry-After": "1"})

    command = Evict("u", "ns", "b", 1, 1, Decision(2, Phase.EVICTING, Reason.HELD))
    async with serving(busy) as host:
        shell = Shell(host)
        shell._bindings._put("ns/b", binding())
        await shell._carry_out(1, command, None)
        await asyncio.sleep(0.1)
        assert shell._commands.empty()
        assert await asyncio.wait_for(shell._commands.get(), 2.0) == (1, command, None)


def binding() -> objects.BindingObject:
    return objects.decode_binding(b'{"metadata": {"name": "b", "namespace": "ns", "uid": "u"}}')


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(403, id="that the dispatcher may not write"),
        pytest.param(422, id="that an admission policy refuses"),
    ],
)
async def test_a_decision_that_stays_refused_is_made_ever_more_rarely(
    code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("atoll.dispatcher.shell.AGAIN", 0.02)
    monkeypatch.setattr("atoll.dispatcher.shell.LONGEST_AGAIN", 0.3)
    asked: list[float] = []
    answers = [code] * 7

    async def answer(_: web.Request) -> web.Response:
        asked.append(time.monotonic())
        return web.json_response({"message": "no"}, status=answers.pop() if answers else 200)

    command = Evict("u", "ns", "b", 1, 1, Decision(2, Phase.EVICTING, Reason.HELD))
    async with serving(answer) as host:
        shell = Shell(host)
        shell._bindings._put("ns/b", binding())
        for _ in range(8):
            await shell._carry_out(1, command, None)
            if code == 403 and len(asked) < 8:
                await shell._commands.get()
            elif len(asked) < 8:
                await eventually(lambda: Refused("u", 2, 1) in shell._events)
                shell._events.clear()
        pauses = [after - before for before, after in itertools.pairwise(asked)]
        assert len(pauses) == 7
        assert all(pause >= least for pause, least in zip(pauses, (0.02, 0.02, 0.04, 0.08, 0.15, 0.15), strict=False))
        assert max(pauses) < 1.0
        assert len(shell._again) == 0, "what was written starts anew"


async def test_a_decision_on_a_binding_that_is_gone_is_not_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("atoll.dispatcher.shell.AGAIN", 0.01)

    async def forbid(_: web.Request) -> web.Response:
        return web.json_response({"message": "no"}, status=403)

    command = Evict("u", "ns", "b", 1, 1, Decision(2, Phase.EVICTING, Reason.HELD))
    async with serving(forbid) as host:
        shell = Shell(host)
        shell._bindings._put("ns/b", binding())
        await shell._carry_out(1, command, None)
        assert len(shell._again) == 1
        shell._bindings._put("ns/b", None)
        await asyncio.wait_for(shell._commands.get(), 1.0)
        await shell._carry_out(1, command, None)
        await asyncio.sleep(0.05)
        assert (shell._commands.empty(), len(shell._again)) == (True, 0)


async def test_what_the_shell_records_is_replayed(tmp_path: Path) -> None:
    with Recorder(tmp_path / "log") as recorder:
        shell = Shell(client(9), recorder=recorder)
        for event in (make_queue("q"), Pass(1.0)):
            shell._handle(event)
    with (tmp_path / "log").open("rb") as file:
        assert replay.replay(file) == replay.Replayed(2, 0, 1)
