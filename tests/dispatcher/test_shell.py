"""What the shell does beside reading and writing objects, without a real API server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import web

from atoll.dispatcher.core import Evict, Pass
from atoll.dispatcher.recording import Recorder
from atoll.dispatcher.shell import Shell
from atoll.model.decision import Decision, Phase
from atoll.model.verdict import Reason
from atoll.sim import replay
from tests.dispatcher.builders import make_queue
from tests.kube.servers import client, serving


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
        await shell._carry_out(1, command, None)
        await asyncio.sleep(0.1)
        assert shell._commands.empty()
        assert await asyncio.wait_for(shell._commands.get(), 2.0) == (1, command, None)


async def test_what_the_shell_records_is_replayed(tmp_path: Path) -> None:
    with Recorder(tmp_path / "log") as recorder:
        shell = Shell(client(9), recorder=recorder)
        for event in (make_queue("q"), Pass(1.0)):
            shell._handle(event)
    with (tmp_path / "log").open("rb") as file:
        assert replay.replay(file) == replay.Replayed(2, 0, 1)
