"""The follower: records reach the store once, wherever it is killed, and counters count what is held."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from atoll.control import objects
from atoll.control.caches import Caches
from atoll.control.records import RecordMetrics, Records
from atoll.kube.transport import ApiServer
from atoll.model import reports, runs
from atoll.model.objects import decode_full
from atoll.model.runs import Part, Record, Run
from tests.control.recorders import records_of
from tests.kube.servers import client

Json = dict[str, Any]


def at(second: int) -> str:
    return f"2026-11-28T12:{second // 60:02}:{second % 60:02}.000Z"


def run(epoch: int = 1, *, released: int | None = 20, **more: Any) -> Run:
    end = at(released) if released is not None else ""
    seconds = {"cpu": 4.0 * (released - 10)} if released is not None else {}
    parts = [Part("alpha", 2, granted={"cpu": 4.0}, seconds=seconds)]
    times = {"bound": at(10), "ended": end, "released": end, "counted": end or at(10)}
    return Run(epoch, at(epoch), queue="q", **{"parts": parts, **times, **more})


def binding(name: str, *present: Run, version: int = 1, **status: Any) -> objects.BindingObject:
    about = {"name": f"{name}-job", "namespace": "team", "uid": f"uid-{name}", "resourceVersion": str(version)}
    resource = {"apiVersion": "batch/v1", "kind": "Job", "namespace": "team", "name": name, "uid": "u"}
    body = {"runs": msgspec.to_builtins([*present]), **status}
    return objects.decode_binding(orjson.dumps({"metadata": about, "spec": {"resource": resource}, "status": body}))


class Killed(BaseException):
    """The process ends here."""


class Store:
    """Keeps records by identity; `how` says when the next append ends the process."""

    def __init__(self) -> None:
        self.rows = list[str]()
        self.how = "well"

    def append(self, records: Sequence[Record], unsure: Mapping[str, str]) -> None:
        if self.how == "before":
            raise Killed
        self.rows += [each.id for each in records if each.id not in self.rows]
        if self.how == "after":
            raise Killed
        assert {each.id for each in records} <= unsure.keys()

    def expire(self, days: int) -> int:
        return 0


class Host:
    """Keeps ConfigMaps."""

    def __init__(self) -> None:
        self.configs = dict[str, Json]()
        self.version = 0

    async def apply(self, _: object, obj: Json, **__: Any) -> Json:
        self.version += 1
        made = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}
        self.configs[obj["metadata"]["name"]] = made
        return made

    async def delete(self, _: object, name: str, namespace: str, *, version: str) -> None:
        if self.configs.get(name, {}).get("metadata", {}).get("resourceVersion") == version:
            del self.configs[name]


def leader(host: Host, store: Store | None, bindings: Sequence[objects.BindingObject]) -> tuple[Caches, Records]:
    """A new leader that has listed everything."""
    caches = Caches(client(9))
    records = Records(cast(ApiServer, host), caches, RecordMetrics(CollectorRegistry()), store)
    for each in bindings:
        caches.bindings.put(each.metadata.key, each)
    for config in host.configs.values():
        found = decode_full(orjson.dumps(config))
        records._outbox.put(found.metadata.key, found)
    return caches, records


def sample(metrics: RecordMetrics, counter: str, **labels: str) -> float:
    found = getattr(metrics, counter)
    return float(found.labels(**labels)._value.get())


async def test_a_closed_run_is_written_once_and_its_binding_says_so() -> None:
    store, told = Store(), list[str]()
    done = binding("a", run())
    caches, records = leader(Host(), store, [done, binding("b", run(released=None))])
    records.on_written(told.append)
    await records._write_batch(store)
    assert (store.rows, told) == (["uid-a/1"], ["team/a-job"])
    await records._write_batch(store)
    assert store.rows == ["uid-a/1"]
    caches.bindings.put("team/a-job", binding("a", run(), version=2, recorded=1))
    await records._write_batch(store)
    assert store.rows == ["uid-a/1"]


async def test_a_binding_that_goes_leaves_its_records_behind() -> None:
    store, host = Store(), Host()
    done = binding("a", run())
    _, records = leader(host, store, [done])
    await records.keep(done)
    assert len(host.configs) == 1
    _, later = leader(host, store, [])
    await later._write_batch(store)
    assert (store.rows, host.configs) == (["uid-a/1"], {})


async def test_without_a_store_a_binding_that_goes_leaves_nothing() -> None:
    host = Host()
    _, records = leader(host, None, [])
    await records.keep(binding("a", run()))
    assert not host.configs


STEPS = st.lists(
    st.tuples(st.sampled_from(["close", "write", "delete", "restart"]), st.sampled_from(["well", "before", "after"])),
    max_size=30,
)


@settings(max_examples=80)
@given(STEPS)
async def test_kills_at_each_write_lose_and_double_nothing(steps: list[tuple[str, str]]) -> None:
    """`keep` before the finalizer goes, the file, the status that says what is written, the ConfigMap's removal."""
    host, store, alive, made = Host(), Store(), dict[str, objects.BindingObject](), 0
    caches, records = leader(host, store, [])
    for version, (step, how) in enumerate([*steps, ("restart", "well"), ("write", "well")], 1):
        killed = False
        match step:
            case "close":
                made += 1
                new = binding(str(made), run(), version=version)
                alive[new.metadata.key] = new
                caches.bindings.put(new.metadata.key, new)
            case "write":
                store.how = how
                try:
                    await records._write_batch(store)
                except Killed:
                    killed = True
            case "delete" if alive:
                key, old = next(iter(alive.items()))
                await records.keep(old)
                for config in host.configs.values():
                    found = decode_full(orjson.dumps(config))
                    records._outbox.put(found.metadata.key, found)
                if how == "before":
                    # The finalizer is still there.
                    killed = True
                else:
                    del alive[key]
                    killed = how == "after"
        if killed or step == "restart":
            caches, records = leader(host, store, [*alive.values()])
    store.how = "well"
    await records._write_batch(store)
    assert sorted(store.rows) == sorted(f"uid-{number + 1}/1" for number in range(made))


async def test_nothing_is_written_before_the_records_of_earlier_leaders_are_known() -> None:
    """The first write looks up which of the known ones are in the store already."""
    store = Store()
    _, records = leader(Host(), store, [binding("a", run())])
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(records._write(store), 0.3)
    assert store.rows == []
    records._outbox.synced.set()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(records._write(store), 0.3)
    assert store.rows == ["uid-a/1"]


async def test_usage_is_counted_as_it_is_held_and_evictions_once() -> None:
    metrics = RecordMetrics(CollectorRegistry())
    caches = Caches(client(9))
    Records(client(9), caches, metrics, None)
    labels = {"queue": "q", "namespace": "team", "member": "alpha", "resource": "cpu"}
    # A leader before this one counted what it had held.
    caches.bindings.put("team/old-job", binding("old", run()))
    assert sample(metrics, "usage", **labels) == 0
    caches.bindings.put("team/a-job", binding("a"))
    caches.bindings.put("team/a-job", binding("a", run(released=None), version=2))
    evicted = run(released=None, outcome="Evicted", reason="Reclaimed", for_queue="prod", ended=at(15))
    caches.bindings.put("team/a-job", binding("a", evicted, version=3))
    gone = run(outcome="Evicted", reason="Reclaimed", for_queue="prod")
    caches.bindings.put("team/a-job", binding("a", gone, version=4))
    assert sample(metrics, "usage", **labels) == 40.0
    assert sample(metrics, "evictions", queue="q", reason="Reclaimed", for_queue="prod") == 1


def test_runs_that_can_t_be_read_count_as_none() -> None:
    assert runs.runs_of({"runs": [{"epoch": "x"}]}) == []


@pytest.mark.parametrize("status", [{}, {"recorded": 3}])
def test_a_status_without_a_dispatch_has_no_runs(status: Json) -> None:
    host = client(9)
    caches = Caches(host)
    found = records_of(host, caches).status_of(binding("a"), status, [], cast(Any, None))
    assert found == status


@pytest.mark.parametrize("value", [-1.0, True, "2", float("nan"), float("inf")])
def test_use_that_is_no_amount_is_a_bad_report(value: object) -> None:
    with pytest.raises(reports.BadReport, match=r"placement[.]busy"):
        reports.placement(2)({"busy": {"cpu": value}}, "placement")


def test_the_use_that_a_member_reports_reaches_the_record() -> None:
    """Found with a real kubelet: the check of reports dropped it."""
    said = {"generation": 7, "nodes": {}, "running": 1, "busy": {"cpu": 0.49, "memory": 540000}}
    assert reports.placement(1)(said, "placement")["busy"] == {"cpu": 0.49, "memory": 540000.0}
