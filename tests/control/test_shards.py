"""A namespace is in one shard, a shard has one leader, and numbers of shards don't mix."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.control.shards import Candidate
from atoll.kube.settings import Election
from atoll.kube.transport import ApiServer
from atoll.kube.workqueue import WorkQueue
from atoll.model import keys, shards
from atoll.model.shards import Shard
from atoll.view.explanation import Facts, explain
from tests.kube.servers import LeasesServer, eventually, serving

_NUMBERS = itertools.count()
TIMES = Election(lease=1.0, renew_deadline=0.4, retry_period=0.05)


class Replica:
    """A process that takes part; `shard` is the one that it leads."""

    def __init__(self, api: ApiServer, name: str, of: int) -> None:
        self.candidate = Candidate(api, name, TIMES, of)
        self.shard: Shard | None = None
        self.task = asyncio.create_task(self.candidate.run(self._work))

    async def _work(self, shard: Shard) -> None:
        self.shard = shard
        try:
            await asyncio.Event().wait()
        finally:
            self.shard = None

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@asynccontextmanager
async def replicas(server: LeasesServer, *ofs: int) -> AsyncIterator[list[Replica]]:
    async with contextlib.AsyncExitStack() as stack:
        made = []
        for of in ofs:
            # A client of its own: its writes depend on its leases.
            made.append(Replica(await stack.enter_async_context(serving(server)), f"replica-{next(_NUMBERS)}", of))
            stack.push_async_callback(made[-1].stop)
        yield made


@given(st.text(max_size=63), st.integers(1, shards.MOST))
def test_each_namespace_is_in_one_shard(namespace: str, of: int) -> None:
    assert sum(Shard(number, of).owns(namespace) for number in range(of)) == 1


def test_namespaces_spread_over_shards() -> None:
    counts = Counter(number for each in range(1000) for number in range(4) if Shard(number, 4).owns(f"team-{each}"))
    assert min(counts.values()) > 150


async def test_each_replica_leads_another_shard_and_one_more_stands_by() -> None:
    server = LeasesServer()
    async with replicas(server, 2, 2, 2) as three:
        await eventually(lambda: sum(each.shard is not None for each in three) == 2)
        led = {each.shard: each for each in three if each.shard is not None}
        assert set(led) == {Shard(0, 2), Shard(1, 2)}
        assert {name: lease.lease["metadata"]["annotations"][keys.SHARDS] for name, lease in server.leases.items()
                if lease.lease} == {"atoll-control": "2", "atoll-control-1": "2"}  # fmt: skip
        [spare] = [each for each in three if each.shard is None]
        await eventually(lambda: spare.candidate.can_lead)
        assert not spare.candidate.leading
        await led[Shard(1, 2)].stop()
        await eventually(lambda: spare.shard == Shard(1, 2))
        assert led[Shard(0, 2)].shard == Shard(0, 2)


async def test_a_leader_that_lost_its_shard_leads_one_that_is_free() -> None:
    server = LeasesServer()
    async with replicas(server, 2) as [only]:
        await eventually(lambda: only.shard == Shard(0, 2))
        server.leases["atoll-control"].steal("another")
        await eventually(lambda: only.shard == Shard(1, 2))


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1)])
async def test_leaders_of_another_number_of_shards_go_first(before: int, after: int) -> None:
    server = LeasesServer()
    async with replicas(server, *[before] * before) as old:
        await eventually(lambda: all(each.shard for each in old))
        async with replicas(server, *[after] * after) as new:
            for each in old[:-1]:
                await each.stop()
            if after > before:
                # They hold the leases that are free, and wait.
                await eventually(lambda: any(each.candidate.leading for each in new))
            assert not any(each.shard for each in new)
            await old[-1].stop()
            await eventually(lambda: {each.shard for each in new} == {Shard(number, after) for number in range(after)})


async def test_a_dead_leader_of_another_number_of_shards_binds_for_its_lease_only() -> None:
    server = LeasesServer()
    spec = {"holderIdentity": "dead", "leaseDurationSeconds": 1, "renewTime": "2026-01-01T00:00:00.000000Z"}
    server.leases["atoll-control-1"].lease = {
        "metadata": {"name": "atoll-control-1", "resourceVersion": "0", "annotations": {keys.SHARDS: "4"}},
        "spec": spec,
    }
    async with replicas(server, 1) as [new]:
        await eventually(lambda: new.shard == Shard(0, 1))


async def test_a_queue_takes_keys_of_its_shard_alone() -> None:
    queue: WorkQueue[str] = WorkQueue("test", owns=lambda namespace: namespace == "mine")
    for key in ("theirs/a", "mine/b", "theirs/c"):
        queue.add(key)
    assert (len(queue), await queue.get()) == (1, "mine/b")


@pytest.mark.parametrize(("led", "reason"), [("01", "NoBinding"), ("0", "ControlNotRunning")])
def test_explain_looks_at_the_lease_of_the_namespace_s_shard(led: str, reason: str) -> None:
    namespace = next(name for name in map("team-{}".format, range(99)) if Shard(1, 2).owns(name))
    leases = [
        {
            "metadata": {"name": shards.lease(number), "annotations": {keys.SHARDS: "2"}},
            "spec": {"holderIdentity": "x" if str(number) in led else "", "renewTime": "2026-01-01T00:00:00Z"},
        }
        for number in range(2)
    ]
    workload = {
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "j", "namespace": namespace},
    }  # fmt: skip
    facts = Facts(workload, leases=leases, namespace_labels={keys.ENABLED: "true"})
    assert explain(facts, 1767225600.0)["why"]["reason"] == reason
