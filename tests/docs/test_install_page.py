"""docs/install.md and docs/first-job.md show what their commands print: all of them are typed, in their order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from atoll.local.binaries import ensure
from atoll.local.federation import Federation
from atoll.local.layout import FederationConfig
from atoll.local.ports import free_ports
from tests.docs import first_job
from tests.docs.pages import DOCS, ROOT
from tests.docs.replay import search_path, shell, shows, steps

pytestmark = pytest.mark.integration

PAGE = DOCS / "install.md"
_CLUSTERS = "pip install"
"""In the first block about clusters that exist already."""
_ELSEWHERE = {
    "make setup": "made what this test runs in",
    "export PATH=": "is of the shell that the page is read beside",
    "python3 -m venv": "tests/install/test_package.py",
    "atollctl local up --provider kind --members 2": "needs Docker",
}
"""Commands that are not typed here, and why."""
_FIRST_JOB_AFTER = "atollctl local status"
"""The command of this page whose reader has the federation in which docs/first-job.md begins."""
_PATIENCE = 90.0
"""Seconds until commands that look show what the page does."""
_LOOKS = ("curl", "kubectl get")
_HEALTH = {"atoll-webhook": "8081", "atoll-control": "8082", "atoll-dispatcher": "8083", "atoll-agent": "8084"}
_PORTS = ("9443", *_HEALTH.values())
"""The ports of the page: others of this machine may use them, so free ones take their place."""
_TRAIN = """
apiVersion: batch/v1
kind: Job
metadata: {name: train, namespace: research}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: "busybox:1.36", resources: {requests: {cpu: "1"}}}]
"""


def halves() -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """What is typed for a federation on this machine, and for clusters that exist already."""
    blocks = list(steps(PAGE))
    first = next(index for index, block in enumerate(blocks) if any(_CLUSTERS in command for command, _ in block))
    return _typed(blocks[:first]), _typed(blocks[first:])


def _typed(blocks: list[list[tuple[str, str]]]) -> list[tuple[str, str]]:
    return [
        (command, shown)
        for block in blocks
        for command, shown in block
        if command not in _ELSEWHERE and not command.startswith(("export PATH=", "python3 -m venv"))
    ]


def test_every_command_that_is_not_typed_here_has_a_reason() -> None:
    left_out = {
        command
        for block in steps(PAGE)
        for command, _ in block
        if command not in {each for half in halves() for each, _ in half}
    }
    assert all(any(command.startswith(each) for each in _ELSEWHERE) for command in left_out)


async def test_a_federation_on_this_machine(tmp_path: Path) -> None:
    environment = {
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": str(tmp_path / ".local/state"),
        # The programs stay where they are.
        "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache"),
    }
    read = False
    try:
        for command, shown in halves()[0]:
            printed, code = await shell(command, ROOT, environment)
            assert code == 0, f"$ {command}\n{printed}"
            assert not shown or shows(shown, printed.replace(str(tmp_path), "$HOME")), f"$ {command}\n{printed}"
            if command == _FIRST_JOB_AFTER:
                folder = tmp_path / "first-job"
                folder.mkdir()
                await first_job.type_all(tmp_path / ".local/state/atoll/local/default/clusters/host/kubeconfig", folder)
                read = True
        assert read, "a reader of the first job's page has no federation"
    finally:
        for name in ("default", "second"):
            await shell(f"atollctl local down --name {name}", ROOT, environment)


async def test_clusters_that_exist_already(tmp_path: Path) -> None:
    config = FederationConfig.model_validate({"members": [{"name": "east", "nodes": {"count": 2}}]})
    ports = dict(zip(_PORTS, map(str, free_ports(len(_PORTS), "127.0.0.1")), strict=True))
    async with (
        Federation(config, directory=tmp_path / "federation", binaries=ensure()) as federation,
        _processes() as running,
    ):
        await federation.populate()
        for name, cluster in {"host": federation.host, "east": federation.members["east"]}.items():
            shutil.copy(cluster.kubeconfig, tmp_path / f"{name}.yaml")
        environment = {"KUBECONFIG": str(tmp_path / "host.yaml")}
        for command, shown in halves()[1]:
            if command.startswith("atollctl unjoin") and "--force" not in command:
                await _train(tmp_path, environment)
            for page, free in ports.items():
                command = command.replace(f":{page}", f":{free}")
                shown = shown.replace(f":{page}", f":{free}")
            if command.startswith("atoll-"):
                running.append(await _start(command, tmp_path, environment, ports))
                continue
            await _look_at(command, shown, tmp_path, environment)


@contextlib.asynccontextmanager
async def _processes() -> AsyncIterator[list[asyncio.subprocess.Process]]:
    """Those of Atoll, which end with the block."""
    running: list[asyncio.subprocess.Process] = []
    try:
        yield running
    finally:
        for process in running:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        await asyncio.gather(*(process.wait() for process in running))


async def _look_at(command: str, shown: str, folder: Path, environment: dict[str, str]) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + (_PATIENCE if command.startswith(_LOOKS) else 0.0)
    printed, _ = await shell(command, folder, environment)
    while shown and not shows(shown, printed) and loop.time() < end:
        await asyncio.sleep(0.5)
        printed, _ = await shell(command, folder, environment)
    assert not shown or shows(shown, printed), f"$ {command}\n{printed}"


async def _train(folder: Path, environment: dict[str, str]) -> None:
    """The workload that the page finds in the member that leaves."""
    (folder / "train.yaml").write_text(_TRAIN)
    printed, code = await shell("kubectl apply -f train.yaml", folder, environment)
    assert code == 0, printed
    await _look_at("kubectl get -n research job train -o jsonpath={.status.active}", "1", folder, environment)


async def _start(
    command: str, folder: Path, environment: dict[str, str], ports: dict[str, str]
) -> asyncio.subprocess.Process:
    """A process of Atoll at ports of its own."""
    program = command.split()[0]
    flags = [f"--health-port={ports[_HEALTH[program]]}"]
    if program == "atoll-dispatcher":
        flags.append(f"--query-port={free_ports(1, '127.0.0.1')[0]}")
    with (folder / f"{program}.log").open("wb") as log:
        return await asyncio.create_subprocess_shell(
            f"exec {command} {' '.join(flags)}",
            cwd=folder,
            env={**os.environ, "PATH": search_path(), **environment},
            stdout=log,
            stderr=log,
        )
