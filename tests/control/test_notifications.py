"""The follower: each event reaches each target that is named, once or more, and never one that is not the user's to name."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest
from prometheus_client import CollectorRegistry

from atoll.control import notifications, objects
from atoll.control.caches import Caches
from atoll.control.notifications import Notifications, counter
from atoll.control.settings import NotificationSettings
from atoll.model import gang, keys
from atoll.model.apiresource import BATCH_JOBS
from atoll.model.objects import decode_full
from atoll.model.queue_object import decode_queue
from atoll.model.runs import Run
from atoll.model.timestamps import rfc3339
from tests.control.receivers import Receiver, receiving
from tests.control.recorders import Told
from tests.kube.servers import client

Json = dict[str, Any]
_VERSIONS = itertools.count(1)


def ago(seconds: float) -> str:
    return rfc3339(time.time() - seconds)


def ended(epoch: int = 1, outcome: str = "Succeeded", seconds: float = 5, **more: Any) -> Run:
    # One look at the clock: a second that passes between two shortens the run.
    now = time.time()
    began, end = rfc3339(now - 60), rfc3339(now - seconds)
    return Run(epoch, began, queue="q", user="ann", bound=began, ended=end, outcome=outcome, **more)


def binding(
    *runs: Run, waits: bool = False, submitted: float = 60, notified: list[str] | None = None
) -> objects.BindingObject:
    wish = gang.Gang(queue="q", tasks=[gang.Task("w", 1, 1, {"cpu": 1000})], min_available=1, submitted=ago(submitted))
    meta = {
        "name": "a-job",
        "namespace": "team",
        "uid": "ub",
        "resourceVersion": str(next(_VERSIONS)),
        "annotations": {keys.GANG: gang.encode(wish)},
    }
    resource = {"apiVersion": "batch/v1", "kind": "Job", "namespace": "team", "name": "a", "uid": "u"}
    spec = {"resource": resource, "suspension": {"scheduling": waits}}
    status = {"runs": msgspec.to_builtins([*runs]), "notified": notified or []}
    return objects.decode_binding(orjson.dumps({"metadata": meta, "spec": spec, "status": status}))


class Leader:
    """A control that has listed everything."""

    def __init__(self, folder: Path, receiver: Receiver, note: str = "", queue: str = "") -> None:
        path = folder / "targets.yaml"
        path.write_text(
            f"targets:\n  chat: {{webhook: '{receiver.url}/chat'}}\n  pager: {{webhook: '{receiver.url}/pager'}}\n"
            f"  closed: {{webhook: '{receiver.url}/closed', namespaces: [others]}}\n"
        )
        self.path, self.caches, self.recorder, self.told = path, Caches(client(9)), Told(), list[str]()
        self.made = Notifications(
            self.caches,
            self.recorder,
            counter(CollectorRegistry()),
            settings=NotificationSettings(targets=str(path), per_minute=10_000),
        )
        self.made.on_sent(self.told.append)
        meta = {"name": "a", "namespace": "team", "uid": "u", "annotations": {keys.NOTIFY: note}}
        jobs: Any = self.caches.workloads[BATCH_JOBS]
        jobs.put("team/a", decode_full(orjson.dumps({"metadata": meta})))
        about = {"metadata": {"name": "q", "annotations": {keys.NOTIFY: queue}}, "spec": {}}
        self.caches.queues.put("q", decode_queue(orjson.dumps(about)))

    def put(self, found: objects.BindingObject) -> None:
        self.caches.bindings.put("team/a-job", found)

    def notified(self, found: objects.BindingObject) -> list[str]:
        return list(self.made.status_of(found).get("notified") or ())

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.made.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def written(self, found: objects.BindingObject, count: int) -> list[str]:
        """Once so many messages have left."""
        async with asyncio.timeout(20):
            while len(self.notified(found)) < count:
                await asyncio.sleep(0.01)
        return self.notified(found)


async def test_ends_and_evictions_reach_the_targets_of_workload_and_queue(tmp_path: Path) -> None:
    async with receiving() as receiver:
        leader = Leader(tmp_path, receiver, note="chat", queue="pager: failed")
        found = binding(ended(1, "Evicted", reason="Preempted", evicted_for="team/vip"), ended(2, "Failed"))
        async with leader.leading():
            leader.put(found)
            marks = await leader.written(found, 3)
    assert sorted(marks) == ["1/evicted/chat", "2/failed/chat", "2/failed/pager"]
    assert leader.told == ["team/a-job"] * 3
    texts = {(path, body["id"]): body["data"] for path, body in receiver.got}
    assert sorted(texts) == [("/chat", "ub/1/evicted"), ("/chat", "ub/2/failed"), ("/pager", "ub/2/failed")]
    evicted = texts["/chat", "ub/1/evicted"]
    assert evicted["text"] == "Job team/a was evicted (Preempted) for team/vip"
    assert (evicted["kind"], evicted["queue"], evicted["user"]) == ("Job.batch", "q", "ann")
    assert texts["/pager", "ub/2/failed"]["text"] == "Job team/a failed after 55s"


async def test_a_new_leader_sends_what_no_status_has_with_the_same_id(tmp_path: Path) -> None:
    """1. sent, 2. killed before the status is written, 3. sent again, 4. written, 5. killed, 6. not sent again."""
    found = binding(ended())
    async with receiving() as receiver:
        for _ in range(2):
            leader = Leader(tmp_path, receiver, note="chat")
            async with leader.leading():
                leader.put(found)
                marks = await leader.written(found, 1)
        leader = Leader(tmp_path, receiver, note="chat")
        async with leader.leading():
            leader.put(binding(ended(), notified=marks))
            leader.put(binding(ended(), ended(2), notified=marks))
            await receiver.has(3)
    assert [body["id"] for _, body in receiver.got] == ["ub/1/ended", "ub/1/ended", "ub/2/ended"]


async def test_a_leader_sends_each_event_once(tmp_path: Path) -> None:
    async with receiving() as receiver:
        leader = Leader(tmp_path, receiver, note="chat")
        async with leader.leading():
            for _ in range(3):
                leader.put(binding(ended()))
                await leader.written(binding(ended()), 1)
            leader.put(binding(ended(), ended(2)))
            await receiver.has(2)
    assert [body["id"] for _, body in receiver.got] == ["ub/1/ended", "ub/2/ended"]


async def test_waiting_longer_is_told_once_for_each_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifications, "_LOOK_S", 0.05)
    async with receiving() as receiver:
        leader = Leader(tmp_path, receiver, note="chat: waiting=30s")
        async with leader.leading():
            leader.put(binding(waits=True, submitted=29.5))
            [first] = await receiver.has(1)
            leader.put(binding(ended(1, "Evicted", 40), waits=True))
            [_, second] = await receiver.has(2)
            await asyncio.sleep(0.2)
    assert first["id"] == "ub/1/waiting"
    assert first["data"]["text"].startswith("Job team/a waits for 30s")
    assert second["id"] == "ub/2/waiting"
    assert len(receiver.got) == 2


@pytest.mark.parametrize(
    ("note", "found"),
    [
        pytest.param("", binding(ended()), id="nobody asked"),
        pytest.param("chat: waiting=1h", binding(ended()), id="another event"),
        pytest.param("chat", binding(ended(seconds=10_000)), id="old news"),
        pytest.param("chat", binding(ended(1, "Deleted")), id="its user removed it"),
        pytest.param("chat", binding(Run(1, ago(9), bound=ago(9))), id="it runs"),
        pytest.param("chat: waiting=2m", binding(waits=True), id="it does not wait so long"),
        pytest.param("chat: nonsense", binding(ended()), id="an annotation that can't be read"),
    ],
)  # fmt: skip
async def test_nothing_is_sent(tmp_path: Path, note: str, found: objects.BindingObject) -> None:
    async with receiving() as receiver:
        leader = Leader(tmp_path, receiver, note=note, queue="pager: failed")
        async with leader.leading():
            leader.put(found)
            leader.put(binding(ended(), ended(9, "Failed")))
            # What comes later has come: nothing of before is under way.
            assert (await receiver.has(1))[0]["id"]
    assert {body["id"] for path, body in receiver.got if path == "/pager"} <= {"ub/9/failed"}
    if note != "chat":
        assert not [path for path, _ in receiver.got if path == "/chat"]


@pytest.mark.parametrize("name", ["closed", "unknown"])
async def test_targets_that_are_not_for_the_namespace_get_nothing_and_an_event_says_so(
    tmp_path: Path, name: str
) -> None:
    async with receiving() as receiver:
        leader = Leader(tmp_path, receiver, note=f"{name}; chat")
        async with leader.leading():
            leader.put(binding(ended()))
            await receiver.has(1)
    assert [path for path, _ in receiver.got] == ["/chat"]
    assert leader.recorder.about == [("a", "NoSuchTarget")]


async def test_the_file_is_read_again_and_a_wrong_one_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications, "_LOOK_S", 0.02)
    async with receiving() as receiver:
        leader = Leader(tmp_path, receiver, note="chat")
        async with leader.leading():
            leader.path.write_text("targets: [")
            leader.put(binding(ended()))
            await receiver.has(1)
            leader.path.write_text(f"targets: {{chat: {{webhook: '{receiver.url}/moved'}}}}")
            for epoch in itertools.count(2):
                leader.put(binding(ended(epoch)))
                await receiver.has(epoch)
                if receiver.got[-1][0] == "/moved":
                    break
    assert receiver.got[0][0] == "/chat"


def test_a_file_that_is_not_there_ends_the_process(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="--notifications"):
        Notifications(
            Caches(client(9)), Told(), counter(CollectorRegistry()),
            settings=NotificationSettings(targets=str(tmp_path / "none")),
        )  # fmt: skip
