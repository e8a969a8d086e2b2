"""What real nodes make of the machine goes with them, also when nobody is left to tell them."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from atoll.kube.transport import ApiServer
from atoll.local import supervisor
from atoll.local.layout import FederationConfig, Member
from atoll.local.realnodes import cgroups, leftovers, network
from atoll.local.realnodes.images import BUSYBOX
from atoll.local.realnodes.tag import tag
from atoll.model.apiresource import PODS
from tests.e2e.jobs import PATIENCE
from tests.integration.federation import until
from tests.local.conditions import eventually

CONFIG = FederationConfig(members=[Member(name="alpha", real_nodes=1)])
LENGTH = "86399"
"""Seconds that nobody else sleeps for."""


@pytest.fixture
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    yield tmp_path
    supervisor.down("test")


def processes() -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if LENGTH.encode() in words:
                found.append(entry.name)
    return found


def mounts(directory: Path) -> list[str]:
    return [line for line in Path("/proc/mounts").read_text().splitlines() if str(directory) in line]


def made(directory: Path) -> list[str]:
    """Bridges and cgroups of a federation."""
    bridges = [each.name for each in Path("/sys/class/net").iterdir() if each.name.startswith(f"at{tag(directory)}")]
    cgroups = [str(each) for each in Path("/sys/fs/cgroup").glob(f"**/atoll-{tag(directory)}-*")]
    return bridges + cgroups


async def test_a_killed_supervisor_takes_containers_along_and_the_next_federation_removes_the_rest(
    state_home: Path,
) -> None:
    state = await asyncio.to_thread(supervisor.up, "test", CONFIG)
    assert state.pid
    container = {"name": "c", "image": BUSYBOX, "command": ["sleep", LENGTH]}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "endless", "namespace": "default"},
        "spec": {"containers": [container]},
    }
    async with await ApiServer.from_kubeconfig(state.members["alpha"].kubeconfig) as api:
        await api.create(PODS, pod)

        async def runs() -> bool:
            return bool(processes())

        await until(runs, deadline=PATIENCE, what="the container runs")
    assert len(made(state.directory)) >= 2
    os.kill(state.pid, signal.SIGKILL)
    assert await asyncio.to_thread(eventually, lambda: not processes())
    assert mounts(state.directory) == []
    assert state.directory in network.orphans()
    # What the next federation begins with, wherever it is.
    leftovers.reap()
    assert made(state.directory) == []


def test_down_removes_what_a_killed_supervisor_left(state_home: Path) -> None:
    directory = supervisor.run_directory("test")
    (directory / leftovers.FOLDER).mkdir(parents=True)
    network.create(directory, 0, 1)
    cgroups.create(directory, "alpha-real0")
    assert len(made(directory)) >= 2
    assert not supervisor.down("test"), "it did not run"
    assert made(directory) == []
