"""Records on a real federation: one row for each run, with kills of the writer and a workload that goes at once."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

pytest.importorskip("pyarrow")

from atoll import install
from atoll.control.ledger import read
from atoll.kube import errors
from atoll.local.atoll_federation import QUICK_ELECTION, AtollFederation
from atoll.local.keeper import KeptProcess
from atoll.local.ports import free_ports
from atoll.local.processes import ProcessSpec
from atoll.model import keys
from atoll.model.apiresource import BINDINGS, CONFIGMAPS, DEPLOYMENTS, JOBS, PRIORITY_CLASSES, QUEUES, STATEFUL_SETS
from atoll.view.usage import history_rows, of_bindings
from tests.control.receivers import Receiver, receiving
from tests.integration.decisions import YOUNG
from tests.integration.federation import Site, batch_job, job, until
from tests.integration.pod_templates import service

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("records")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def control(federation: AtollFederation, store: Path, receiver: Receiver) -> AsyncIterator[KeptProcess]:
    """A control with a store and a target of notifications, in place of the federation's own."""
    own = federation.process("control")
    await own.stop()
    config = store.parent / "control.yaml"
    targets = store.parent / "targets.yaml"
    targets.write_text(yaml.safe_dump({"targets": {"chat": {"webhook": f"{receiver.url}/chat"}}}))
    said = {"records": {"store": str(store), "every": 0.2}, "notifications": {"targets": str(targets)}}
    config.write_text(yaml.safe_dump(said))
    (port,) = free_ports(1)
    flags = [
        f"--config={config}",
        f"--kubeconfig={install.kubeconfig_of(federation.atoll.credentials, 'control')}",
        f"--health-port={port}",
        *QUICK_ELECTION,
    ]
    spec = ProcessSpec(
        name="control-with-records",
        argv=[sys.executable, "-m", "atoll.control", *flags],
        env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        ready_url=f"http://127.0.0.1:{port}/readyz",
    )
    process = KeptProcess(spec, federation.federation.directory / "logs")
    await process.start()
    try:
        await process.ready()
        yield process
    finally:
        await process.stop()
        await own.start()
        await own.ready()


def rows(store: Path, site: Site) -> list[dict[str, Any]]:
    now = datetime.now(UTC)
    found = read(str(store), now - timedelta(days=1), now + timedelta(days=1))
    return sorted((each for each in found if each["namespace"] == site.namespace), key=lambda row: row["dispatched"])


async def test_each_run_is_one_record_with_its_user_times_amounts_and_eviction(
    site: Site, control: KeptProcess, store: Path
) -> None:
    high: dict[str, Any] = {"metadata": {"name": f"high-{site.namespace}"}, "value": 1000, "globalDefault": False}
    await site.host.create(
        PRIORITY_CLASSES, {"apiVersion": PRIORITY_CLASSES.api_version, "kind": PRIORITY_CLASSES.kind, **high}
    )
    queue = await site.queue(capability={"cpu": "2"})
    await site.host.merge_patch(QUEUES, queue, YOUNG)
    made = await site.submit(job("low", cpu="1", replicas=2, seconds=None, queue=queue))
    user = made["metadata"]["annotations"][keys.SUBMITTED_BY]
    await site.phase("low", "Running")
    await site.submit(job("vip", cpu="2", seconds=2, queue=queue, priorityClassName=high["metadata"]["name"]))

    async def recorded(count: int) -> list[dict[str, Any]]:
        async def look() -> list[dict[str, Any]] | None:
            found = rows(store, site)
            return found if len(found) >= count else None

        return await until(look, what=f"{count} records")

    await recorded(1)
    control.kill()
    await control.ready()
    await site.phase("vip", "Completed")
    await site.phase("low", "Running")
    await site.host.delete(JOBS, "low", site.namespace)
    await recorded(3)
    control.kill()
    await control.ready()
    await site.submit(job("last", seconds=0.1, queue=queue))
    await site.phase("last", "Completed")
    evicted, vip, deleted, last = await recorded(4)

    assert [each["name"] for each in (evicted, vip, deleted, last)] == ["low", "vip", "low", "last"]
    assert [each["outcome"] for each in (evicted, vip, deleted, last)] == [
        "Evicted", "Succeeded", "Deleted", "Succeeded",
    ]  # fmt: skip
    assert (evicted["reason"], evicted["evicted_for"], evicted["for_queue"]) == (
        "Preempted", f"{site.namespace}/vip", queue,
    )  # fmt: skip
    assert {each["user"] for each in (evicted, vip, deleted, last)} == {user}
    assert evicted["id"] != deleted["id"]
    assert evicted["uid"] == deleted["uid"]
    for each in (evicted, vip, deleted):
        assert each["submitted"] <= each["dispatched"] <= each["bound"] <= each["ended"] <= each["released"]
        held = (each["released"] - each["bound"]).total_seconds()
        assert dict(each["asked"])["cpu"] == 2
        assert dict(each["seconds"])["cpu"] == pytest.approx(2 * held, abs=0.1)
        assert each["members"] == [each["parts"][0]["member"]]
    assert deleted["queued"] == evicted["ended"]
    listed = history_rows(of_bindings(await site.host.list(BINDINGS, site.namespace)))
    assert [(each[1], each[8]) for each in listed] == [("vip", "Succeeded"), ("last", "Succeeded")]

    async def emptied() -> bool:
        found = await site.host.list(CONFIGMAPS, keys.SYSTEM_NAMESPACE)
        return not any(each["metadata"]["name"].startswith("atoll-records-") for each in found)

    await until(emptied, what="no record waits in a ConfigMap")
    await site.host.delete(PRIORITY_CLASSES, high["metadata"]["name"])


async def test_a_user_can_neither_choose_nor_change_the_name_of_the_submitter(site: Site) -> None:
    wanted = job("forged", queue="no-such-queue")
    wanted["metadata"].setdefault("annotations", {})[keys.SUBMITTED_BY] = "someone-else"
    made = await site.submit(wanted)
    user = made["metadata"]["annotations"][keys.SUBMITTED_BY]
    assert user
    assert user != "someone-else"
    patch = {"metadata": {"annotations": {keys.SUBMITTED_BY: "someone-else"}}}
    with pytest.raises(errors.ApiError, match=r"submitted-by names the user who created the workload"):
        await site.host.merge_patch(JOBS, "forged", patch, site.namespace)


async def test_an_end_is_told_once_over_a_kill_and_a_wait_after_its_time(
    site: Site, control: KeptProcess, receiver: Receiver
) -> None:
    def texts(name: str) -> list[str]:
        return [body["data"]["text"] for _, body in receiver.got if body["subject"] == f"{site.namespace}/{name}"]

    for name, note, more in (("told", "chat", {"seconds": 0.1}), ("late", "chat: waiting=1s", {"cpu": "1000"})):
        wanted = job(name, **more)
        wanted["metadata"].setdefault("annotations", {})[keys.NOTIFY] = note
        await site.submit(wanted)

    async def notified(name: str, mark: str) -> bool:
        bindings = await site.host.list(BINDINGS, site.namespace)
        mine = [each for each in bindings if each["spec"]["resource"]["name"] == name]
        return any(mark in (each.get("status") or {}).get("notified", ()) for each in mine)

    await until(lambda: notified("told", "1/ended/chat"), what="the binding says that its end was told")
    await until(lambda: notified("late", "1/waiting/chat"), what="the binding says that its wait was told")
    control.kill()
    await control.ready()
    wanted = job("after", seconds=0.1)
    wanted["metadata"].setdefault("annotations", {})[keys.NOTIFY] = "chat; nowhere"
    await site.submit(wanted)
    await until(lambda: notified("after", "1/ended/chat"), what="the next leader tells of ends")
    assert len(texts("told")) == 1
    assert "succeeded" in texts("told")[0]
    assert len(texts("late")) == 1
    assert "waits for" in texts("late")[0]


@pytest.mark.parametrize(
    "workload",
    [
        job("later", seconds=None),
        batch_job("later", seconds=None),
        service(DEPLOYMENTS, "later", 1),
        service(STATEFUL_SETS, "later", 1),
    ],
    ids=lambda workload: workload["kind"],
)
async def test_a_note_that_can_t_be_read_is_warned_of_on_a_workload_that_runs_already(
    site: Site, workload: dict[str, Any]
) -> None:
    await site.submit(workload)
    group, _, version = workload["apiVersion"].partition("/")
    about = f"{workload['kind'].lower()}.{version}.{group}/later"
    warned = site.warned("annotate", "-n", site.namespace, about, f"{keys.NOTIFY}=chat: sometimes")
    assert f"metadata.annotations[{keys.NOTIFY}]" in warned
    assert "has no effect" in warned
