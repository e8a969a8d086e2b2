"""The federation with Atoll in it: processes are kept running, and the command line shows what happens."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from atoll import install
from atoll.cli import errors
from atoll.cli.app import tree
from atoll.local import binaries, supervisor
from atoll.local.atoll_federation import AtollFederation
from atoll.local.keeper import KeptProcess, start_all
from atoll.local.processes import ProcessFailed, ProcessSpec
from tests import atollctl as commands
from tests.integration.federation import Site, job

pytestmark = pytest.mark.integration


async def until(condition: Callable[[], bool], deadline_s: float = 20.0) -> None:
    async with asyncio.timeout(deadline_s):
        while not condition():
            await asyncio.sleep(0.02)


async def atollctl(fed: AtollFederation, *args: str) -> str:
    """Run a command as a user would; fail with what it said."""
    ran = await commands.atollctl(*args, f"--kubeconfig={fed.host.kubeconfig}")
    if ran.code:
        raise errors.CommandError(ran.said.strip(), ran.code)
    return ran.out


async def test_all_processes_run_and_have_credentials_of_their_own(federation: AtollFederation) -> None:
    agents = [f"atoll-agent-{member}" for member in federation.members]
    assert list(federation.processes) == [*(f"atoll-{name}" for name in install.PROCESSES), *agents]
    assert all(process.running for process in federation.processes.values())
    assert federation.process("control") is federation.process("atoll-control")
    with pytest.raises(KeyError, match="there are atoll-webhook"):
        federation.process("nothing")


async def test_queues_are_closed_and_opened_from_the_command_line(federation: AtollFederation) -> None:
    await atollctl(federation, "queue", "create", "research", "--capability", "nvidia.com/gpu=16", "--priority", "3")
    assert await atollctl(federation, "queue", "close", "research") == "queue.scheduling.volcano.sh/research closed\n"
    assert "research   Closed" in await atollctl(federation, "queue", "list")
    assert await atollctl(federation, "queue", "open", "research") == "queue.scheduling.volcano.sh/research open\n"
    with pytest.raises(errors.CommandError, match="queue research exists already"):
        await atollctl(federation, "queue", "create", "research")
    await atollctl(federation, "queue", "delete", "research")
    with pytest.raises(errors.CommandError, match=r"Error from server \(NotFound\): queues"):
        await atollctl(federation, "queue", "close", "research")
    assert await atollctl(federation, "queue", "create", "root", "--capability", "cpu=64")
    assert await atollctl(federation, "queue", "delete", "root") == "queue.scheduling.volcano.sh/root deleted\n"
    with pytest.raises(errors.CommandError, match="built in"):
        await atollctl(federation, "queue", "delete", "default")


async def test_explain_names_queue_position_and_shortage_of_a_waiting_job(
    federation: AtollFederation, site: Site
) -> None:
    queue = await site.queue("small", capability={"cpu": "4"})
    await site.submit(job("large", cpu="8", queue=queue))
    await site.reason("large", "QuotaExceeded")
    data = json.loads(await atollctl(federation, "explain", "large", "-n", site.namespace, "-o", "json"))
    assert (data["waiting"]["position"], data["waiting"]["of"]) == (1, 1)
    assert (data["waiting"]["blocker"]["requested"], data["waiting"]["blocker"]["available"]) == ("8", "4")
    assert "4 cpu" in data["waiting"]["help"][0]
    assert "capability" in await atollctl(federation, "job", "list", "-A", "-o", "wide")
    with pytest.raises(errors.CommandError, match="holds 1 waiting"):
        await atollctl(federation, "queue", "delete", queue)


async def test_a_killed_process_comes_back(federation: AtollFederation) -> None:
    process = federation.process("dispatcher")
    old, restarts = process.pid, process.restarts
    process.kill()
    await until(lambda: process.running and process.pid != old)
    await process.ready()
    assert process.restarts == restarts + 1
    await process.stop()
    await process.stop()
    assert not process.running
    await process.start()
    await process.ready()


async def test_a_process_that_never_starts_is_given_up_with_its_last_words(tmp_path: Path) -> None:
    spec = ProcessSpec("broken", [sys.executable, "-c", "raise SystemExit('no luck')"], ready_url="http://127.0.0.1:1/")
    process = KeptProcess(spec, tmp_path)
    try:
        with pytest.raises(ProcessFailed, match="no luck"):
            await start_all([process], 30, lambda _: None)
    finally:
        await process.stop()
    assert not process.running


async def test_status_of_a_federation_that_never_ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    result = CliRunner().invoke(tree(), ["local", "status", "--name", "nothing"])
    assert result.exit_code == 1
    assert str(result.exception) == "federation nothing does not run: `atollctl local up --name nothing` starts it"
    result = CliRunner().invoke(tree(), ["local", "down", "--name", "nothing"])
    assert result.output == "federation nothing was not running\n"


def test_a_federation_whose_programs_can_not_be_had_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ensure(**_: object) -> None:
        raise binaries.BinariesError("no Go")

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(binaries, "ensure", ensure)
    for flags in ([], ["--foreground"]):
        result = CliRunner().invoke(tree(), ["local", "up", "--name", "poor", *flags])
        assert str(result.exception) == "no Go"
        assert not supervisor.run_directory("poor").exists()


def test_status_of_a_federation_that_ended_names_its_logs_and_no_others_that_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    logs = supervisor.run_directory("over") / "logs"
    logs.mkdir(parents=True)
    result = CliRunner().invoke(tree(), ["local", "status", "--name", "over"])
    assert str(result.exception).startswith("federation over does not run: ")
    assert str(result.exception).endswith(f"; logs of the last run: {logs}")
    result = CliRunner().invoke(tree(), ["local", "status", "--name", "other"])
    assert "over" not in str(result.exception)
