"""What the shell does beside reading and writing objects, without any API server."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll.dispatcher.core import Pass
from atoll.dispatcher.recording import Recorder
from atoll.dispatcher.shell import Shell
from atoll.sim import replay
from tests.dispatcher.builders import make_queue
from tests.kube.servers import client


async def test_a_disk_that_is_full_ends_the_log_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    with Recorder(Path("/dev/full")) as recorder:
        shell = Shell(client(9), recorder=recorder)
        for now in (1.0, 2.0):
            shell._handle(make_queue("q"))
            shell._handle(Pass(now))
        assert recorder.closed
    assert capsys.readouterr().out.count("the log of events can't be written and ends here") == 1


async def test_what_the_shell_records_is_replayed(tmp_path: Path) -> None:
    with Recorder(tmp_path / "log") as recorder:
        shell = Shell(client(9), recorder=recorder)
        for event in (make_queue("q"), Pass(1.0)):
            shell._handle(event)
    with (tmp_path / "log").open("rb") as file:
        assert replay.replay(file) == replay.Replayed(2, 0, 1)
