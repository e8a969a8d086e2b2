"""Two members, end to end: nodes come up, pods live and end as told, and nothing stays behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from atoll.kube.transport import ApiServer
from atoll.local import binaries, supervisor
from atoll.local.federation import Federation
from atoll.local.install import wait_until
from atoll.local.layout import FederationConfig
from atoll.local.processes import ProcessFailed, ProcessGroup, ProcessSpec
from atoll.model.apiresource import HYPER_NODES, NODES, PODS, ApiResource
from tests.local.conditions import eventually

TREES = ApiResource("test.atoll.sh", "v1", "trees", "Tree")
CONFIG = FederationConfig.model_validate(
    {
        "members": [
            {
                "name": name,
                "nodes": {"count": 4},
                "topology": {"tiers": [{"name": "rack", "size": 2}, {"name": "root", "size": 2}]},
            }
            for name in ("alpha", "beta")
        ]
    }
)

SMALL = FederationConfig(members=CONFIG.members[:1])
"""Enough to see what starts and ends."""


def crd(resource: ApiResource) -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "names": {"plural": resource.plural, "kind": resource.kind},
            "versions": [
                {
                    "name": resource.version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def crds() -> list[dict[str, Any]]:
    return [crd(HYPER_NODES), crd(TREES)]


async def no_processes(_: Federation) -> list[ProcessSpec]:
    return []


EXTENSION = supervisor.Extension(crds=crds, processes=no_processes)


def pod(name: str, annotations: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {
            "nodeName": "alpha-n0",
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "work"}],
        },
    }


async def phases(api: ApiServer, name: str, last: str) -> list[dict[str, Any]]:
    """Return the statuses that a pod went through until its phase is `last`."""
    seen: list[dict[str, Any]] = []
    async with asyncio.timeout(20):
        async for line in api.watch(PODS, "default", resource_version="0", field_selector=f"metadata.name={name}"):
            event = json.loads(line)
            if event["type"] == "BOOKMARK":
                continue
            status = event["object"]["status"]
            if not seen or status.get("phase") != seen[-1].get("phase"):
                seen.append(status)
            if status.get("phase") == last:
                break
    return seen


def processes_of(directory: Path) -> list[int]:
    """Return the pids of all processes that name a folder on their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            line = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if str(directory).encode() in line:
            found.append(int(entry.name))
    return found


@pytest.fixture(scope="module")
def programs() -> binaries.Binaries:
    return binaries.ensure()


@pytest.mark.integration
async def test_a_federation_runs_pods_and_leaves_nothing(tmp_path: Path, programs: binaries.Binaries) -> None:
    federation = Federation(CONFIG, directory=tmp_path, binaries=programs, crds=crds())
    async with federation:
        await federation.populate()
        assert list(federation.members) == ["alpha", "beta"]
        assert processes_of(tmp_path)

        async with await federation.members["beta"].connect() as api:
            assert len(await api.list(NODES)) == 4
            assert len(await api.list(HYPER_NODES)) == 3
        async with await federation.host.connect() as api:
            assert await api.list(NODES) == []
        async with await federation.members["alpha"].connect() as api:
            nodes = await api.list(NODES)
            assert all("taints" not in node["spec"] for node in nodes)

            await api.create(PODS, pod("good", {"atoll.sh/run-time": "1s"}))
            await api.create(PODS, pod("bad", {"atoll.sh/run-time": "1s", "atoll.sh/fail": "true"}))
            await api.create(PODS, pod("endless", {}))
            good, bad, endless = await asyncio.gather(
                phases(api, "good", "Succeeded"),
                phases(api, "bad", "Failed"),
                phases(api, "endless", "Running"),
            )
            assert [status["phase"] for status in good][-2:] == ["Running", "Succeeded"]
            assert good[-2]["podIP"]
            assert good[-2]["startTime"]
            assert good[-2]["containerStatuses"][0]["state"].keys() == {"running"}
            for status, code in ((good[-1], 0), (bad[-1], 1)):
                state = status["containerStatuses"][0]["state"]
                assert state.keys() == {"terminated"}
                assert state["terminated"]["exitCode"] == code
            assert endless[-1]["phase"] == "Running"

            await api.delete(PODS, "endless", "default")
            await gone(api, PODS, "endless")
            await owned_objects_go_with_their_owner(api)

        audit = [json.loads(line) for line in federation.members["alpha"].audit_log.read_text().splitlines()]
        assert {event["verb"] for event in audit}.isdisjoint({"get", "list"}), "reads of an administrator"
        reports = [
            event
            for event in audit
            if event.get("objectRef", {}).get("subresource") == "status" and event["objectRef"]["resource"] == "pods"
        ]
        assert {event["level"] for event in reports} == {"Request"}
    assert processes_of(tmp_path) == []


async def owned_objects_go_with_their_owner(api: ApiServer) -> None:
    """Check that the garbage collector knows custom kinds from its start, not 30 s later."""
    tree = {"apiVersion": TREES.api_version, "kind": TREES.kind}
    root = await api.create(TREES, {**tree, "metadata": {"name": "root", "namespace": "default"}})
    owner = {**tree, "name": "root", "uid": root["metadata"]["uid"]}
    leaf = {"name": "leaf", "namespace": "default", "ownerReferences": [owner]}
    await api.create(TREES, {**tree, "metadata": leaf})
    await api.delete(TREES, "root", "default")
    await gone(api, TREES, "leaf")


async def gone(api: ApiServer, resource: ApiResource, name: str) -> None:
    async def missing() -> str:
        names = [item["metadata"]["name"] for item in await api.list(resource, "default")]
        return f"{name} is still there" if name in names else ""

    await wait_until(missing, f"deletion of {name}", 10)


async def test_a_process_that_dies_early_is_reported_with_its_last_words(tmp_path: Path) -> None:
    group = ProcessGroup(tmp_path)
    words = ["/bin/sh", "-c", "echo the port is taken; exit 3"]
    spec = ProcessSpec("loser", words, ready_url="http://127.0.0.1:1/")
    with pytest.raises(ProcessFailed, match=r"loser exited .* exit code 3(.|\n)*port is taken"):
        await group.start([spec])
    await group.stop()


async def test_a_process_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    group = ProcessGroup(tmp_path)
    await group.start([ProcessSpec("deaf", ["/bin/sh", "-c", "trap '' TERM; echo; sleep 60"])])
    process = group.processes[0]

    async def missing() -> str:
        return "" if process.log.read_text() else "the trap is not set"

    await wait_until(missing, "shell", 10, poll_s=0.01)
    await process.stop(grace_s=0.2)
    assert not process.running


async def test_a_process_that_exits_is_started_again_and_given_up_at_the_sixth_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("atoll.local.processes._RESTART_PAUSE_S", 0.01)
    group = ProcessGroup(tmp_path)
    said: list[str] = []
    await group.start([ProcessSpec("stays", ["sleep", "60"]), ProcessSpec("loser", ["/bin/sh", "-c", "exit 3"])])
    try:
        with pytest.raises(
            ProcessFailed, match=r"loser exited unexpectedly \(started again 5 times\) with exit code 3"
        ):
            await group.keep(said.append)
        assert said == [f"loser exited with code 3 and was started again; its log: {tmp_path / 'loser.log'}"] * 5
        assert [(each.spec.name, each.restarts) for each in group.processes] == [("stays", 0), ("loser", 5)]
    finally:
        await group.stop()


async def test_a_process_that_can_not_be_started_again_ends_its_group_at_once(tmp_path: Path) -> None:
    group = ProcessGroup(tmp_path)
    await group.start([ProcessSpec("node", ["/bin/sh", "-c", "exit 3"], once=True)])
    with pytest.raises(ProcessFailed, match="node exited unexpectedly with exit code 3"):
        await group.keep(lambda _: None)


@pytest.fixture
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "path", [*sys.path, str(Path(__file__).parents[2])])
    yield tmp_path
    supervisor.down("test")


@pytest.mark.integration
def test_a_detached_federation_goes_up_starts_what_dies_again_and_goes_down(state_home: Path) -> None:
    said: list[str] = []
    state = supervisor.up("test", SMALL, said.append, extension="tests.local.test_federation:EXTENSION")
    assert state.status == "ready"
    assert said[-1] == "ready"
    assert set(state.members) == {"alpha"}
    assert all(process.alive and process.rss_bytes for process in supervisor.status("test").processes)
    with pytest.raises(supervisor.SupervisorError, match="runs already"):
        supervisor.up("test", SMALL)

    for name in ("alpha-scheduler", "alpha-apiserver"):
        [old] = [each.pid for each in state.processes if each.name == name]
        os.kill(old, signal.SIGKILL)

        def back(name: str = name, old: int = old) -> bool:
            after = supervisor.status("test")
            [found] = [each for each in after.processes if each.name == name]
            return found.alive and found.pid != old and found.restarts == 1 and name in after.message

        assert eventually(back)
        assert supervisor.status("test").status == "ready"

    assert supervisor.down("test")
    assert supervisor.status("test").status == "stopped"
    assert processes_of(state_home) == []
    assert not (state.directory / "etcd").exists()
    assert (state.directory / "logs" / "etcd.log").exists()
    assert not supervisor.down("test")


@pytest.mark.integration
def test_a_killed_supervisor_takes_everything_with_it(state_home: Path) -> None:
    state = supervisor.up("test", SMALL, extension="tests.local.test_federation:EXTENSION")
    assert state.pid
    assert len(processes_of(state_home)) >= 3
    os.kill(state.pid, signal.SIGKILL)
    assert eventually(lambda: processes_of(state_home) == [])
    after = supervisor.status("test")
    assert (after.status, after.pid) == ("stopped", None)
    assert not any(process.alive for process in after.processes)


def test_a_federation_that_can_not_start_leaves_no_folder(state_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: object) -> None:
        raise binaries.BinariesError("the download failed")

    monkeypatch.setattr(binaries, "ensure", fail)
    with pytest.raises(binaries.BinariesError):
        supervisor.up("test", SMALL)
    assert not supervisor.run_directory("test").exists()


@pytest.mark.integration
def test_a_federation_told_to_stop_while_it_starts_leaves_nothing(state_home: Path) -> None:
    def interrupt(message: str) -> None:
        if "API servers" in message:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        supervisor.up("test", SMALL, interrupt)
    assert processes_of(state_home) == []
    assert supervisor.status("test").status == "stopped"


def test_a_state_file_with_a_reused_pid_is_stale(state_home: Path) -> None:
    directory = supervisor.run_directory("test")
    directory.mkdir(parents=True)
    with subprocess.Popen(["sleep", "30"]) as stranger:
        state = supervisor.State(name="test", status="ready", directory=directory, pid=stranger.pid, started=1)
        (directory / "state.json").write_text(state.model_dump_json())
        assert supervisor.status("test").status == "stopped"
        supervisor.down("test")
        assert stranger.poll() is None
        stranger.kill()
