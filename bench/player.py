"""Agents of many members that exist on the host alone, in one process: `python -m bench.player`.

Each has the account, the rights, the watch, the heartbeat and the capacity reports of a real agent. A Work is answered
as if its one pod were bound and running at once, and Completed after the time that its pod asks for. A process of its
own, as agents are. Reads what to do as one JSON object from standard input, prints a line once all members have
reported, and goes on until it is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from atoll import install
from atoll.agent.heartbeat import Heartbeat
from atoll.agent.publisher import Publisher
from atoll.agent.settings import HeartbeatSettings
from atoll.delivery.work import WorkObject, decode_work, identifier
from atoll.delivery.written import replace_status
from atoll.install.member import check_acceptable, register
from atoll.kinds import volcano_job
from atoll.kube import errors
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.kube.workqueue import WorkQueue
from atoll.local.processes import python_path
from atoll.model import duration, keys
from atoll.model.apiresource import WORKS
from atoll.model.conditions import with_condition
from bench.objects import GPU, NODE_GPUS, capacity_object

_READY_S = 300.0
_WRITERS = 4
"""Of each member."""

_SHARE = {"cpu": 1000, "memory": 1 << 30, GPU: 1, "pods": 1}
"""What a pod of `bench.endtoend.job_object` asks for."""

Json = dict[str, Any]


class Orders(msgspec.Struct, frozen=True):
    """What the process is to do."""

    kubeconfigs: dict[str, str]
    """Member -> credentials of its agent on the host."""
    nodes: int
    """Of each member, with 8 GPUs each."""


async def joined(host: ApiServer, at: install.Endpoint, names: Sequence[str], out: Path) -> dict[str, str]:
    """Register members, as `join` does on the host; the kubeconfig of each one's agent."""
    found = {}
    for name in names:
        url, wish = f"https://{name}.invalid", install.PlacingWish("atoll")
        present = await check_acceptable(host, name, url, name)
        await register(host, name, url, name, install.MemberFacts(), wish, present, lambda _: None)
        execution, (file, _) = keys.execution_namespace(name), install.agent_kubeconfigs(out, name)
        token, _ = await install.issue_token(host, install.AGENT, execution)
        install.write_kubeconfig(file, at, install.AGENT, token, namespace=execution)
        found[name] = str(file)
    return found


@contextlib.asynccontextmanager
async def playing(orders: Sequence[Orders]) -> AsyncIterator[list[asyncio.subprocess.Process]]:
    """A process for each of the orders, once all their members have reported.

    Raises:
        RuntimeError: one ended by itself.
    """
    children = []
    try:
        for each in orders:
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "bench.player",
                env={**os.environ, "PYTHONPATH": python_path()}, stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
            children.append(child)
            assert child.stdin is not None, "it was asked for"
            child.stdin.write(msgspec.json.encode(each))
            child.stdin.close()
        async with asyncio.timeout(_READY_S):
            for child in children:
                assert child.stdout is not None, "it was asked for"
                await child.stdout.readline()
        yield children
        if ended := [child.returncode for child in children if child.returncode is not None]:
            raise RuntimeError(f"bench.player ended with {ended[0]}")
    finally:
        for child in children:
            if child.returncode is None:
                child.kill()
            await child.wait()


class Member:
    """One played agent."""

    def __init__(self, host: ApiServer, name: str, nodes: int) -> None:
        self._host, self._name, self._nodes = host, name, nodes
        #: (binding UID, epoch) -> the node of its pod
        self._places: dict[tuple[str, int], str] = {}
        #: node -> GPUs in use
        self._used: Counter[str] = Counter()
        #: key of a Work -> when its pod ends, on the loop's clock
        self._ends: dict[str, float] = {}
        self._queue: WorkQueue[str] = WorkQueue(name, lambda key: {"work": key})
        self._works = Reflector(host, WORKS, decode_work, namespace=keys.execution_namespace(name))
        self._works.on_change(self._changed)
        self._publisher = Publisher(host, name, self._summary)
        self._heartbeat = Heartbeat(host, host, name, "played", settings=HeartbeatSettings(probe=5.0))

    async def reported(self) -> None:
        """Wait until the host may send work."""
        await self._works.synced.wait()
        await self._publisher.resumed.wait()

    async def run(self) -> None:
        """Play until cancelled."""
        async with asyncio.TaskGroup() as group:
            for each in (self._works, self._publisher, self._heartbeat):
                group.create_task(each.run())
            group.create_task(self._queue.run(self._answer, workers=_WRITERS))

    def _changed(self, old: WorkObject | None, new: WorkObject | None) -> None:
        if new is not None:
            self._queue.add(new.metadata.key)
        elif old is not None:
            self._end(old)

    async def _answer(self, key: str) -> None:
        work = self._works.get(key)
        if work is None:
            return
        with contextlib.suppress(errors.Conflict, errors.NotFound):
            if work.metadata.deletion_timestamp is not None:
                self._end(work)
                patch = {"metadata": {"finalizers": [], "resourceVersion": work.metadata.resource_version}}
                await self._host.merge_patch(WORKS, work.metadata.name, patch, work.metadata.namespace)
            elif (due := self._due(work)) is not None:
                phase = "Running" if due > 0 else "Completed"
                if phase != (work.reported.get("state") or {}).get("phase"):
                    await replace_status(self._host, WORKS, work.metadata, self._status(work, phase))
                if due > 0:
                    self._queue.add(key, after=due)

    def _due(self, work: WorkObject) -> float | None:
        """Seconds until its pod ends; None where there is nothing to say yet, or any more."""
        over = (work.reported.get("state") or {}).get("phase") == "Completed"
        if over or work.spec.suspend_dispatching or not work.manifest:
            return None
        now = asyncio.get_running_loop().time()
        return max(self._ends.setdefault(work.metadata.key, now + run_time(work.manifest)) - now, 0.0)

    def _status(self, work: WorkObject, phase: str) -> Json:
        node, over = self._place(work), phase == "Completed"
        counts = {"succeeded": 1} if over else {"running": 1}
        if over:
            self._end(work)
        reported = {
            "state": {"phase": phase}, "minAvailable": 1, **counts,
            "placement": {"generation": self._publisher.promise(), "nodes": {} if over else {node: 1}, "waiting": "",
                          "domain": node, "tier": 0, "running": 1},
        }  # fmt: skip
        conditions = with_condition([], "Applied", True, "AppliedSuccessful", "", now=time.time())
        item = {"identifier": identifier(work, volcano_job.KIND), "status": reported, "health": "Healthy"}
        return {"conditions": conditions, "manifestStatuses": [item]}

    def _place(self, work: WorkObject) -> str:
        """The first node with a free GPU; the last one where the host sends too much."""
        found = self._places.get((work.binding_uid, work.epoch))
        if found is None:
            names = (f"node-{number:05}" for number in range(self._nodes))
            found = next((name for name in names if self._used[name] < NODE_GPUS), f"node-{self._nodes - 1:05}")
            self._places[work.binding_uid, work.epoch] = found
            self._used[found] += 1
        return found

    def _end(self, work: WorkObject) -> None:
        self._ends.pop(work.metadata.key, None)
        if (node := self._places.pop((work.binding_uid, work.epoch), None)) is not None:
            self._used[node] -= 1
            self._publisher.wake()

    def _summary(self) -> dict[str, Json]:
        return {"root": played_capacity(self._name, self._nodes, self._used)}


def played_capacity(name: str, nodes: int, used: Counter[str]) -> Json:
    """The spec of its ClusterCapacity: in each rack a class of nodes per number of GPUs in use."""
    spec: Json = capacity_object(name, nodes)["spec"]
    classes = []
    for each in spec["classes"]:
        for gpus in sorted({used[node] for node in each["names"]}):
            names = [node for node in each["names"] if used[node] == gpus]
            free = dict(each["free"])
            for resource, amount in _SHARE.items():
                free[resource] -= gpus * amount
            classes.append({**each, "nodes": len(names), "names": names, "free": free})
    del spec["generation"]
    return {**spec, "classes": classes}


def run_time(manifest: Json) -> float:
    """Seconds for which the pod of a Job runs."""
    template = manifest["spec"]["tasks"][0]["template"]
    return duration.parse(template["metadata"]["annotations"][keys.RUN_TIME])


async def _main() -> None:
    orders = msgspec.json.decode(sys.stdin.buffer.read(), type=Orders)
    async with contextlib.AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        members = [
            Member(await stack.enter_async_context(await ApiServer.from_kubeconfig(file)), name, orders.nodes)
            for name, file in orders.kubeconfigs.items()
        ]
        for each in members:
            group.create_task(each.run())
        for each in members:
            await each.reported()
        print("playing", flush=True)


if __name__ == "__main__":
    asyncio.run(_main())
