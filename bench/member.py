"""The member's scheduler alone on a real API server with simulated nodes: how fast it binds, and who goes for others.

All pods of a case are there before the clock starts, and the scheduler has read them. It ends with the last binding in
the server's audit log.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import orjson
import structlog

from atoll import install
from atoll.agent.cache import MemberCache
from atoll.agent.objects import Pod, decode_node, decode_pod
from atoll.agent.scheduler.core import Bind, MemberCore, Pass
from atoll.agent.scheduler.core.events import NodeSet, PodSet, Whose
from atoll.agent.scheduler.loop import Scheduler
from atoll.kube.events import Recorder
from atoll.kube.transport import ApiServer
from atoll.local.binaries import ensure
from atoll.local.cluster import ClusterHandle
from atoll.local.federation import Federation
from atoll.local.install import wait_until
from atoll.local.layout import RAISED_LIMITS, FederationConfig, Member, NodeGroup, Tier, Topology
from atoll.model import keys
from atoll.model.apiresource import POD_GROUPS, PODS, PRIORITY_CLASSES, SERVICE_ACCOUNTS, ApiResource
from bench import machine
from bench.load import CONNECTIONS, Request, creation, namespace, read_log, send, workspace
from bench.objects import GPU
from bench.report import Progress, Report, percentile, progress, rate, run, sizes

NAME = "member"
DESCRIPTION = "A member's scheduler alone on a real API server: pods bound per second, and victims of a reclaim."
BOUND = (
    "as many bind calls by a bare client with 32 connections on the same pods' like, one pod per call, on the same "
    "server, before each case of the same run; of victims: the fewest that make the room"
)
REFERENCE = (
    "on such machines: kube-scheduler 343 to 366 pods/s, Kueue's gangs 123 to 153, Volcano 82 to 89; hard leaf 4.8 s "
    "and 9 s; reclaim 13.6 s and 15 s; fragmented 6.0 s and 3.0 s (Kueue, Volcano)"
)
FULL: dict[str, Any] = {
    "nodes": 1024, "leaf": 32, "pods": 5000, "gangs": 100, "gang": 50, "leaves": 16, "reclaim": 512,
    "start_nodes": 5000, "start_pods": 50_000,
}  # fmt: skip
QUICK: dict[str, Any] = {
    "nodes": 32, "leaf": 4, "pods": 40, "gangs": 4, "gang": 5, "leaves": 2, "reclaim": 16,
    "start_nodes": 100, "start_pods": 1000,
}  # fmt: skip
TARGET = 0.6
_MEMBER, _WHERE = "member", "bench"
_GPUS = 4
_STALL_S = 60.0
_PASSES = 200
_HIGH = "bench-high"
_Json = dict[str, Any]


def options(parser: argparse.ArgumentParser) -> None:
    """The sizes."""
    parser.add_argument("--nodes", type=int, help=f"of {_GPUS} GPUs each, in leaves, blocks of 8 leaves, and one root")
    parser.add_argument("--leaf", type=int, help="nodes per leaf; gangs with whole nodes have as many pods")
    parser.add_argument("--pods", type=int, help="pods on their own")
    parser.add_argument("--gangs", type=int, help="gangs anywhere")
    parser.add_argument("--gang", type=int, help="pods of each of these")
    parser.add_argument("--leaves", type=int, help="gangs of whole nodes that want one leaf each")
    parser.add_argument("--reclaim", type=int, help="GPUs that a gang of a higher priority takes while all are in use")
    parser.add_argument("--start-nodes", type=int, help="in process: nodes that a scheduler finds at its start")
    parser.add_argument("--start-pods", type=int, help="in process: pods that run on these")
    parser.add_argument("--directory", type=Path, help="keep data and logs here (default: a folder that is removed)")


def measure(chosen: argparse.Namespace, told: Progress = progress) -> Report:
    """Run it."""
    params = sizes(chosen, QUICK, FULL)
    report = Report(NAME, {**params, "in_flight_limits": RAISED_LIMITS, "bound": BOUND, "reference": REFERENCE})
    # The scheduler runs in this process, and standard output is the report's.
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger("warning"),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    told("start")
    _start(report, params)
    with workspace(chosen.directory) as directory:
        asyncio.run(_measure(report, params, directory, told))
    return report


async def _measure(report: Report, params: _Json, directory: Path, told: Progress) -> None:
    tiers = [Tier(name="leaf", size=params["leaf"]), Tier(name="block", size=8), Tier(name="root", size=1)]
    offer = {"cpu": "64", "memory": "512Gi", GPU: str(_GPUS), "pods": "110"}
    nodes = [NodeGroup(count=params["nodes"], allocatable=offer)]
    shape = Member(name=_MEMBER, nodes=nodes, topology=Topology(tiers=tiers), scheduler=False)
    binaries = await asyncio.to_thread(ensure, report=lambda _: None)
    federation = Federation(
        FederationConfig(members=[shape], raised_limits=True),
        directory=directory, binaries=binaries, crds=install.member_crds(), on_progress=told,
    )  # fmt: skip
    async with federation:
        await federation.populate()
        async with await federation.members[_MEMBER].connect() as api:
            bench = _Bench(federation, api, shape, report, told)
            await bench.prepare()
            await bench.single(params["pods"])
            await bench.gangs(params["gangs"], params["gang"])
            await bench.leaves(params["leaves"], params["leaf"])
            await bench.fragmented(params["leaf"])
            await bench.reclaim(params["reclaim"])


class _Bench:
    """The cases, one after the other in an empty member."""

    def __init__(self, federation: Federation, api: ApiServer, shape: Member, report: Report, told: Progress) -> None:
        self._federation, self._api, self._shape, self._report, self._told = federation, api, shape, report, told
        self._names = shape.node_names()
        #: owner of pods that nobody makes PodGroups of
        self._owner: _Json = {}

    @property
    def _member(self) -> ClusterHandle:
        return self._federation.members[_MEMBER]

    async def prepare(self) -> None:
        """What all cases need."""
        await namespace(self._api, _WHERE)
        high = {"apiVersion": PRIORITY_CLASSES.api_version, "kind": "PriorityClass", "metadata": {"name": _HIGH}}
        await self._api.create(PRIORITY_CLASSES, {**high, "value": 1000})

        async def missing() -> str:
            found = [each["metadata"]["name"] for each in await self._api.list(SERVICE_ACCOUNTS, _WHERE)]
            return "" if "default" in found else "no service account"

        await wait_until(missing, "pods may be made", 60)
        made = await self._api.get(SERVICE_ACCOUNTS, "default", _WHERE)
        self._owner = {
            "apiVersion": "v1", "kind": "ServiceAccount", "name": "default", "uid": made["metadata"]["uid"],
            "controller": True,
        }  # fmt: skip

    # -- cases -------------------------------------------------------------------------------------------------------

    async def single(self, count: int) -> None:
        """Pods on their own."""
        pods = [self._pod(f"single-{number:05}") for number in range(count)]
        for pod in pods:
            pod["metadata"]["ownerReferences"] = [self._owner]
        await self._throughput(f"{count} pods", pods)

    async def gangs(self, count: int, size: int) -> None:
        """Gangs of small pods, anywhere."""
        pods = [self._pod(f"gang-{n:03}-{at:02}", group=f"gang-{n:03}") for n in range(count) for at in range(size)]
        groups = [_group(f"gang-{n:03}", size) for n in range(count)]
        await self._throughput(f"{count} gangs x {size}", pods, groups)

    async def leaves(self, count: int, size: int) -> None:
        """Gangs of whole nodes, each in one leaf."""
        hard = {"mode": "hard", "highestTierAllowed": 1}
        pods = [
            self._pod(f"leaf-{n:02}-{at:02}", group=f"leaf-{n:02}", gpus=_GPUS)
            for n in range(count)
            for at in range(size)
        ]
        case = f"{count} gangs x {size} whole nodes, hard leaf"
        where = await self._throughput(case, pods, [_group(f"leaf-{n:02}", size, hard) for n in range(count)])
        leaf = {name: at // size for at, name in enumerate(self._names)}
        for gang, nodes in where.items():
            if len({leaf[node] for node in nodes}) != 1 or len(set(nodes)) != size:
                raise RuntimeError(f"{case}: {gang} is not alone in one leaf: {nodes}")

    async def fragmented(self, size: int) -> None:
        """A gang of whole nodes where as many are empty, far from each other, and all others partly in use."""
        empty = set(range(0, len(self._names), len(self._names) // size)[:size])
        # As many GPUs are free beside them as in them, three times over.
        others = [
            self._pod(f"part-{at:04}", gpus=1, node=name) for at, name in enumerate(self._names) if at not in empty
        ]
        await self._make(others)
        pods = [self._pod(f"whole-{at:02}", group="whole", gpus=_GPUS) for at in range(size)]
        case = f"{size} whole nodes of {len(self._names)}, the others in use in part"
        await self._throughput(case, pods, [_group("whole", size)], bound=False)

    async def reclaim(self, gpus: int) -> None:
        """A gang of a higher priority takes whole nodes while every GPU is in use."""
        size = gpus // _GPUS
        running = [
            self._pod(f"low-{at:04}-{card}", gpus=1, node=name)
            for at, name in enumerate(self._names)
            for card in range(_GPUS)
        ]
        await self._make(running)
        pods = [self._pod(f"high-{at:03}", group="high", gpus=_GPUS) for at in range(size)]
        for pod in pods:
            pod["spec"]["priorityClassName"] = _HIGH
        case = f"reclaim {gpus} of {len(self._names) * _GPUS} GPUs"
        await self._throughput(case, pods, [_group("high", size)], bound=False, minimum=gpus)

    # -- what they are made of ---------------------------------------------------------------------------------------

    async def _throughput(
        self, case: str, pods: list[_Json], groups: Iterable[_Json] = (), *, bound: bool = True, minimum: int = 0
    ) -> dict[str, list[str]]:
        """Let the scheduler bind them; gang -> nodes."""
        least = await self._bound(pods) if bound else None
        self._told(case)
        await self._make(pods, groups)
        before = machine.sample(self._pids())
        async with _scheduler(self._api) as (cache, scheduler):
            began = time.time()
            if missing := await _until_bound(cache, scheduler, {pod["metadata"]["name"] for pod in pods}):
                raise RuntimeError(f"{case}: {missing} pods are not bound, and none was for {_STALL_S:.0f} s")
            left = sum(each.metadata.name.startswith("low-") for each in cache.pods)
            where: dict[str, list[str]] = {}
            for pod in cache.pods:
                if pod.group and pod.node:
                    where.setdefault(pod.group, []).append(pod.node)
        after = machine.sample(self._pids())
        spent = await self._last_binding(began, len(pods)) - began
        if least is not None:
            self._report.add(case, "bound_per_s", rate(len(pods), spent), "1/s", least)
        self._report.add(case, "until_bound", spent, "s")
        self._report.add(case, "scheduler_cpu", machine.used(before, after)["bench"] * 1000 / len(pods), "ms per pod")
        self._report.add(case, "used_by_others", machine.others(before, after), "share")
        if minimum:
            victims = len(self._names) * _GPUS - left
            self._report.add(case, "victims", victims, "pods", minimum)
        if least is not None:
            ratio = rate(len(pods), spent) / least
            met = "met" if ratio >= TARGET else "MISSED"
            self._report.remarks.append(f"{case}: target at least {TARGET:g} of the bound: {ratio:.2f}; {met}")
        await self._clear()
        return where

    async def _bound(self, pods: list[_Json]) -> float:
        """Bindings per second by a client that does nothing else; pods like these, and they are gone afterwards."""
        self._told(f"the bound: {len(pods)} bindings")
        alike = [orjson.loads(orjson.dumps(pod)) for pod in pods]
        for pod in alike:
            # A name of its own: what plays the kubelets is late under load, and deletes by name.
            pod["metadata"]["name"] = f"bound-{pod['metadata']['name']}"
            pod["spec"]["schedulerName"] = "bench-nobody"
        await self._make(alike)
        binds = []
        for number, pod in enumerate(alike):
            name = pod["metadata"]["name"]
            body = {
                "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "namespace": _WHERE},
                "target": {"apiVersion": "v1", "kind": "Node", "name": self._names[number % len(self._names)]},
            }  # fmt: skip
            binds.append(Request("POST", f"{PODS.path(_WHERE)}/{name}/binding", orjson.dumps(body)))
        began = time.time()
        await send(self._member, binds)
        spent = await self._last_binding(began, len(pods)) - began
        await self._clear()
        return rate(len(pods), spent)

    async def _last_binding(self, began: float, count: int) -> float:
        """When the last of so many bindings since then was answered."""

        def binds(events: Iterable[Any]) -> list[Any]:
            return [
                each for each in events
                if each.wrote("pods/binding", "create") and each.request_received_timestamp.timestamp() >= began
            ]  # fmt: skip

        found = binds(await read_log(self._member.audit_log, lambda all_: len(binds(all_)) >= count, _WHERE))
        return float(max(each.at for each in found))

    async def _make(self, pods: list[_Json], groups: Iterable[_Json] = ()) -> None:
        await send(self._member, [creation(POD_GROUPS, group) for group in groups])
        await send(self._member, [creation(PODS, pod) for pod in pods])

    async def _clear(self) -> None:
        turn = asyncio.Semaphore(CONNECTIONS)

        async def delete(resource: ApiResource, name: str) -> None:
            async with turn:
                await self._api.delete(resource, name, _WHERE, grace_seconds=0)

        for resource in (PODS, POD_GROUPS):
            found = [each["metadata"]["name"] for each in await self._api.list(resource, _WHERE)]
            await asyncio.gather(*(delete(resource, name) for name in found))

    def _pids(self) -> dict[str, int | None]:
        return {each.spec.name: each.pid for each in self._federation.processes.processes}

    def _pod(self, name: str, *, group: str = "", gpus: int = 0, node: str = "") -> _Json:
        requests = {"cpu": str(8 * gpus or 1), "memory": f"{64 * gpus or 1}Gi", **({GPU: str(gpus)} if gpus else {})}
        container = {"name": "c", "image": "i", "resources": {"requests": requests, "limits": requests}}
        notes = {keys.GROUP_NAME: group, keys.TASK_SPEC: "worker"} if group else {}
        return {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": _WHERE, "annotations": notes},
            "spec": {
                "schedulerName": keys.SCHEDULER_NAME, "containers": [container], "terminationGracePeriodSeconds": 0,
                **({"nodeName": node} if node else {}),
            },
        }  # fmt: skip


def _group(name: str, size: int, topology: _Json | None = None) -> _Json:
    spec: _Json = {"minMember": size, **({"networkTopology": topology} if topology else {})}
    meta = {"name": name, "namespace": _WHERE}
    return {"apiVersion": POD_GROUPS.api_version, "kind": POD_GROUPS.kind, "metadata": meta, "spec": spec}


@contextlib.asynccontextmanager
async def _scheduler(api: ApiServer) -> AsyncIterator[tuple[MemberCache, Scheduler]]:
    """One that has read everything and decided nothing, as an agent's that was just started."""
    cache, recorder = MemberCache(api), Recorder(api, "bench")
    scheduler = Scheduler(api, cache, recorder)
    # No host has asked it for anything.
    scheduler.reservations.recall([])
    async with asyncio.TaskGroup() as tasks:
        started = [tasks.create_task(each.run()) for each in (cache, recorder)]
        await cache.wait()
        yield cache, scheduler
        for task in started:
            task.cancel()


async def _until_bound(cache: MemberCache, scheduler: Scheduler, wanted: set[str]) -> int:
    """Let it run until these pods have nodes; how many have none once nothing happens any more."""
    changed = asyncio.Event()

    def seen(_: Pod | None, pod: Pod | None) -> None:
        if pod is not None and pod.node and pod.metadata.name in wanted:
            wanted.discard(pod.metadata.name)
            changed.set()

    cache.pods.on_change(seen)
    task = asyncio.create_task(scheduler.run())
    try:
        while wanted:
            changed.clear()
            try:
                async with asyncio.timeout(_STALL_S):
                    await changed.wait()
            except TimeoutError:
                break
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return len(wanted)


def _start(report: Report, params: _Json) -> None:
    """Processor time of a scheduler in process from its first event to its first pass, and of a pass after that."""
    core, nodes, pods = MemberCore(), params["start_nodes"], params["start_pods"]
    offer = {"cpu": "64", "memory": "512Gi", GPU: "8", "pods": "110"}
    status = {"allocatable": offer, "conditions": [{"type": "Ready", "status": "True"}]}
    told: list[Any] = []
    for at in range(nodes):
        labels = {"kubernetes.io/hostname": f"n{at}"}
        node = {"metadata": {"name": f"n{at}", "uid": f"n{at}", "labels": labels}, "status": status}
        told.append(NodeSet(decode_node(orjson.dumps(node))))
    requests = {"cpu": "1", "memory": "1Gi"}
    for at in range(pods):
        body = {
            "metadata": {"name": f"p{at}", "namespace": _WHERE, "uid": f"p{at}"},
            "spec": {
                "schedulerName": keys.SCHEDULER_NAME, "nodeName": f"n{at % nodes}",
                "containers": [{"resources": {"requests": requests}}],
            },
            "status": {"phase": "Running"},
        }  # fmt: skip
        told.append(PodSet(decode_pod(orjson.dumps(body)), Whose.OURS))
    began = time.process_time()
    for event in told:
        core.handle(event)
    core.handle(Pass(0.0))
    first = time.process_time() - began
    more = []
    for at in range(_PASSES):
        body = {
            "metadata": {"name": f"new{at}", "namespace": _WHERE, "uid": f"new{at}"},
            "spec": {
                "schedulerName": keys.SCHEDULER_NAME,
                "containers": [{"resources": {"requests": requests}}],
            },
        }
        pod = decode_pod(orjson.dumps(body))
        began = time.process_time()
        core.handle(PodSet(pod, Whose.OURS))
        if not any(isinstance(each, Bind) for each in core.handle(Pass(float(at + 1)))):
            raise RuntimeError("a pod is not placed in a member that is nearly empty")
        more.append(time.process_time() - began)
    case = f"start, {nodes} nodes, {pods} pods"
    report.add(case, "first_pass_cpu", first, "s")
    report.add(case, "pass_cpu_p50", percentile(more, 50) * 1000, "ms")


if __name__ == "__main__":
    run(NAME, DESCRIPTION, options, measure)
