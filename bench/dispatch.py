"""Suspended bindings resumed per second by the production dispatcher through a real API server.

The bound is what that server takes of the very same patches from a bare client. Both run on the same server, in turns,
on as many bindings, beside the same open watch; times are those of the server's audit log. Nothing else of Atoll runs:
members are objects.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from atoll.control import install
from atoll.kube.transport import JSON_PATCH, ApiServer
from atoll.local import audit
from atoll.local.binaries import ensure
from atoll.local.cluster import free_ports
from atoll.local.federation import Federation
from atoll.local.layout import FederationConfig
from atoll.local.processes import Process, ProcessSpec
from atoll.model import gang, keys
from atoll.model.apiresource import BINDINGS, CAPACITIES, CLUSTERS
from bench import machine
from bench.load import Request, clear, creation, namespace, read_log, send, watching, without_policies, workspace
from bench.report import Progress, Report, median, progress, rate, run, sizes

NAME = "dispatch"
DESCRIPTION = "Bindings resumed per second by the production dispatcher through a real API server."
BOUND = (
    "the dispatcher's own JSON patch, repeated on as many other bindings of the same API server by a bare aiohttp "
    "client with 32 connections, an open watch beside it, in alternating order in the same run; medians"
)
FULL: dict[str, Any] = {"members": 3, "bindings": 2000, "repeats": 3, "half_load_s": 5.0}
QUICK: dict[str, Any] = {"members": 2, "bindings": 100, "repeats": 1, "half_load_s": 0.5}
ACCOUNT = f"system:serviceaccount:{keys.SYSTEM_NAMESPACE}:atoll-dispatcher"
_RESUMED = b'"suspension":{"scheduling":false}'
_GPU = "nvidia.com/gpu"
_NODE = {"cpu": 64_000, "memory": 512 << 30, _GPU: 8, "pods": 110}
_SHAPES = 8
_MANAGER = "?fieldManager=atoll-dispatcher"
_GANG_PATH = "/metadata/annotations/" + keys.GANG.replace("/", "~1")
_STALL_S = 20.0
_PENDING = re.compile(r"^atoll_queue_pending\{[^}]*\} ([0-9.e+]+)$", re.MULTILINE)


def options(parser: argparse.ArgumentParser) -> None:
    """The sizes."""
    parser.add_argument("--members", type=int, help="members, which are objects only")
    parser.add_argument("--bindings", type=int, help="bindings per repeat, and as many for the bound")
    parser.add_argument("--repeats", type=int, help="turns of bound and dispatch")
    parser.add_argument(
        "--half-load-s", type=float, help="seconds of the latency measurement at half of the rate; 0 leaves it out"
    )
    parser.add_argument("--directory", type=Path, help="keep data and logs here (default: a folder that is removed)")


@dataclass(slots=True)
class Turn:
    """What the audit log says of one round of dispatching."""

    resumed: dict[str, float] = field(default_factory=dict)
    """`namespace/name` -> when it was resumed."""
    patches: int = 0
    """Writes of decisions by the dispatcher, refused ones included."""
    refused: int = 0
    bodies: list[bytes] = field(default_factory=list)
    """Of the decisions that were carried out."""
    reasons: int = 0
    """Writes that say why a binding waits."""


@dataclass(frozen=True, slots=True)
class Example:
    """A decision that the dispatcher wrote, as the audit log has it: the bound repeats it on other bindings."""

    uid: str
    """Of the binding that it was written to."""
    body: bytes


@dataclass(frozen=True, slots=True)
class Effort:
    """What one round cost."""

    used: dict[str, float]
    """Process -> CPU seconds."""
    others: float
    """Share of the machine that others used meanwhile."""


def account(events: Iterable[audit.Event], namespace: str) -> Turn:
    """What the dispatcher wrote to the bindings of a namespace."""
    turn = Turn()
    for event in events:
        ref = event.object_ref
        if (ref.namespace, ref.resource, event.user.username) != (namespace, BINDINGS.plural, ACCOUNT):
            continue
        if event.verb not in audit.WRITES or event.stage != "ResponseComplete":
            continue
        body = event.body()
        resumes = isinstance(body, list) and any(item.get("path") == "/spec/suspension/scheduling" for item in body)
        if not resumes:
            turn.reasons += 1
            continue
        turn.patches += 1
        if event.ok:
            turn.resumed[ref.key] = event.at
            turn.bodies.append(orjson.dumps(body))
        else:
            turn.refused += 1
    return turn


def measure(chosen: argparse.Namespace, told: Progress = progress) -> Report:
    """Run it."""
    params = sizes(chosen, QUICK, FULL)
    report = Report(NAME, {**params, "bound": BOUND})
    with workspace(chosen.directory) as directory:
        asyncio.run(_measure(report, params, directory, told))
    return report


async def _measure(report: Report, params: dict[str, Any], directory: Path, told: Progress) -> None:
    binaries = await asyncio.to_thread(ensure, report=lambda _: None)
    # A host alone: the model of the configuration asks for a member, the federation does not.
    config = FederationConfig.model_construct(members=[])
    async with (
        Federation(
            config, directory=directory, binaries=binaries, crds=install.host_crds(), on_progress=told
        ) as federation,
        await federation.host.connect() as api,
    ):
        out = directory / "credentials"
        await install.init(
            api, await install.endpoint(federation.host.kubeconfig), out=out,
            webhook_client_config={"url": "https://127.0.0.1:1"},
        )  # fmt: skip
        # The bound writes decisions as an administrator, and capacities come from no member.
        await without_policies(api)
        await _Rounds(report, params, federation, api, out, told).run()


class _Rounds:
    """Bound and dispatch in turns on one host."""

    def __init__(
        self, report: Report, params: dict[str, Any], federation: Federation, api: ApiServer, out: Path, told: Progress
    ) -> None:
        self._report, self._params, self._api, self._told = report, params, api, told
        self._host, self._directory, self._out = federation.host, federation.directory, out
        self._members = [f"member{number}" for number in range(1, params["members"] + 1)]
        self._processes = federation.processes.processes
        self._port = 0
        self._efforts: dict[str, list[Effort]] = {"bound": [], "dispatch": []}

    async def run(self) -> None:
        for name in self._members:
            await namespace(self._api, keys.execution_namespace(name))
            await self._api.create(CLUSTERS, cluster_object(name))
            ready = [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "Bench",
                    "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }
            ]
            await self._api.merge_patch(CLUSTERS, name, {"status": {"conditions": ready}}, subresource="status")
        count = self._params["bindings"]
        self._told("one binding, to see what the dispatcher writes")
        example = await self._example()
        bounds: list[float] = []
        turns: list[tuple[float, Turn]] = []
        for number in range(self._params["repeats"]):
            # Whoever goes second finds a larger database and a warmer server: they take turns at it.
            for kind in ("bound", "dispatch") if number % 2 == 0 else ("dispatch", "bound"):
                self._told(f"{kind}, repeat {number + 1} of {self._params['repeats']}")
                if kind == "bound":
                    bounds.append(await self._bound(f"bound-{number}", example))
                else:
                    turns.append(await self._dispatch(f"dispatch-{number}", count))
        bound, reached = median(bounds), median(found for found, _ in turns)
        add, case = self._report.add, f"{count} one-pod bindings to {len(self._members)} members"
        add(case, "decisions_per_s", reached, "1/s", bound)
        for number, (low, (got, _)) in enumerate(zip(bounds, turns, strict=True), start=1):
            add(f"repeat {number}", "decisions_per_s", got, "1/s", low)
        dispatched = sum(len(turn.resumed) for _, turn in turns)
        add(case, "writes_per_dispatch", sum(turn.patches for _, turn in turns) / max(dispatched, 1), "1/binding")
        add(case, "refused_writes", sum(turn.refused for _, turn in turns), "writes")
        add(
            case, "reason_writes_per_dispatch", sum(turn.reasons for _, turn in turns) / max(dispatched, 1), "1/binding"
        )
        add(case, "bindings_dispatched", dispatched, f"of {count * len(turns)}")
        self._add_efforts(count)
        if self._params["half_load_s"] > 0 and reached > 0:
            self._told("latency at half load")
            await self._half_load(reached / 2, self._params["half_load_s"])

    def _add_efforts(self, count: int) -> None:
        """CPU is hardly changed by who else is on the machine, rates are."""
        for name in ("host-apiserver", "etcd", "atoll-dispatcher"):
            bound, spent = (
                median(each.used.get(name, 0.0) for each in self._efforts[kind]) for kind in ("bound", "dispatch")
            )
            self._report.add(
                "CPU per binding (bound: the same process while the bound ran)",
                name,
                spent * 1000 / count,
                "ms",
                bound * 1000 / count or None,
            )
        client = median(each.used.get("bench", 0.0) for each in self._efforts["bound"])
        self._report.add("CPU per binding, bare client and its watch", "bench", client * 1000 / count, "ms")
        for kind, efforts in self._efforts.items():
            worst = max(each.others for each in efforts)
            self._report.add("the machine", f"used_by_others_during_{kind}", worst, "share")
            if worst > machine.QUIET:
                self._report.remarks.append(
                    f"DISTURBED: others used up to {worst:.0%} of the machine during {kind}; rates mean little"
                )

    def _sample(self, dispatcher: Process | None = None) -> machine.Sample:
        pids = {process.spec.name: process.pid for process in self._processes}
        return machine.sample({**pids, "atoll-dispatcher": dispatcher.pid if dispatcher else None})

    async def _example(self) -> Example:
        (made,) = await self._make_bindings("example", 1)
        _, turn = await self._dispatch("example", 1, made=True)
        self._efforts["dispatch"].clear()
        (body,) = turn.bodies
        return Example(made["metadata"]["uid"], body)

    async def _bound(self, where: str, example: Example) -> float:
        """Patches per second by the bare client."""
        made = await self._make_bindings(where, self._params["bindings"])
        requests = [resumption(obj, example) for obj in made]
        async with watching(self._api, BINDINGS, where, _RESUMED) as seen:
            before = self._sample()
            await send(self._host, requests)
            await seen.reach(len(requests), _STALL_S)
            after = self._sample()
        self._efforts["bound"].append(Effort(machine.used(before, after), machine.others(before, after)))

        def mine(events: list[audit.Event]) -> list[audit.Event]:
            return [
                each for each in events if each.wrote(BINDINGS.plural, "patch") and each.object_ref.namespace == where
            ]

        events = mine(await read_log(self._host.audit_log, lambda all_: len(mine(all_)) >= len(requests)))
        await clear(self._api, BINDINGS, where)
        began = min(each.request_received_timestamp for each in events).timestamp()
        return rate(len(events), max(each.at for each in events) - began)

    async def _dispatch(self, where: str, count: int, *, made: bool = False) -> tuple[float, Turn]:
        """Bindings resumed per second, from the moment at which the first capacity is there."""
        if not made:
            await self._make_bindings(where, count)
        dispatcher = await self._start_dispatcher()
        try:
            await self._pending(count)
            async with watching(self._api, BINDINGS, where, _RESUMED) as seen:
                before = self._sample(dispatcher)
                began = await self._offer(count)
                if not await seen.reach(count, _STALL_S):
                    if not dispatcher.running:
                        raise dispatcher.failure()
                    self._report.remarks.append(f"{where}: only {seen.count} of {count} bindings were resumed")
                after = self._sample(dispatcher)
                self._efforts["dispatch"].append(Effort(machine.used(before, after), machine.others(before, after)))
        finally:
            await dispatcher.stop()
        events = await read_log(self._host.audit_log, lambda all_: len(account(all_, where).resumed) >= seen.count)
        turn = account(events, where)
        await self._withdraw(where)
        return rate(len(turn.resumed), max(turn.resumed.values(), default=began) - began), turn

    async def _half_load(self, per_second: float, seconds: float) -> None:
        """Latency of bindings that arrive at an even pace while there is room: from creation to resumption."""
        where, count = "half-load", max(int(per_second * seconds), 1)
        await namespace(self._api, where)
        requests = [creation(BINDINGS, binding_object(where, number)) for number in range(count)]
        dispatcher = await self._start_dispatcher()
        try:
            await self._pending(0)
            await self._offer(count)
            async with watching(self._api, BINDINGS, where, _RESUMED) as seen:
                began = time.monotonic()
                async with asyncio.TaskGroup() as group:
                    # A few at a time: one request per timer would measure the timer.
                    step = max(round(per_second / 50), 1)
                    for at in range(0, count, step):
                        await asyncio.sleep(max(began + at / per_second - time.monotonic(), 0))
                        group.create_task(self._create(requests[at : at + step]))
                await seen.reach(count, _STALL_S)
        finally:
            await dispatcher.stop()
        events = await read_log(self._host.audit_log, lambda all_: len(account(all_, where).resumed) >= seen.count)
        created, resumed = audit.creation_times(events, BINDINGS.plural), account(events, where).resumed
        case = f"half load: {count} bindings created at {per_second:.0f}/s while there is room"
        self._report.add_latency(case, [resumed[key] - created[key] for key in resumed if key in created])
        await self._withdraw(where)

    async def _create(self, requests: Sequence[Request]) -> None:
        await asyncio.gather(*(self._api.request(each.method, each.path, body=each.body) for each in requests))

    async def _make_bindings(self, where: str, count: int) -> list[dict[str, Any]]:
        await namespace(self._api, where)
        answers = await send(self._host, [creation(BINDINGS, binding_object(where, number)) for number in range(count)])
        return [orjson.loads(answer) for answer in answers]

    async def _start_dispatcher(self) -> Process:
        (self._port,) = free_ports(1)
        kubeconfig = install.kubeconfig_of(self._out, "dispatcher")
        argv = [
            sys.executable,
            "-m",
            "atoll.dispatcher",
            f"--kubeconfig={kubeconfig}",
            f"--health-port={self._port}",
            "--query-port=0",
        ]
        spec = ProcessSpec(
            "atoll-dispatcher", argv, {"PYTHONPATH": _search_path()}, f"http://127.0.0.1:{self._port}/readyz"
        )
        process = Process(spec, self._directory / "logs" / "atoll-dispatcher.log")
        await process.start()
        try:
            await process.wait_ready()
        except BaseException:
            await process.stop()
            raise
        return process

    async def _pending(self, count: int) -> None:
        """Wait until the dispatcher leads and has looked at so many bindings, as its metrics tell."""
        end = time.monotonic() + 60
        async with aiohttp.ClientSession() as session:
            while time.monotonic() < end:
                async with session.get(f"http://127.0.0.1:{self._port}/metrics") as answer:
                    text = await answer.text()
                looked = "atoll_dispatcher_pass_seconds_count 0.0" not in text
                if looked and sum(float(value) for value in _PENDING.findall(text)) == count:
                    return
                await asyncio.sleep(0.05)
        raise RuntimeError(f"the dispatcher does not see {count} pending bindings after 60 s")

    async def _offer(self, count: int) -> float:
        """Publish room for all; when the first of it was there, by the wall clock that audit logs use too."""
        nodes = -(-count * 5 // (4 * len(self._members) * _NODE[_GPU]))
        began = time.time()
        await asyncio.gather(*(self._api.create(CAPACITIES, capacity_object(name, nodes)) for name in self._members))
        return began

    async def _withdraw(self, where: str) -> None:
        for name in self._members:
            await clear(self._api, CAPACITIES, keys.execution_namespace(name))
        await clear(self._api, BINDINGS, where)


def _search_path() -> str:
    """This process may run from source folders that only its own sys.path knows."""
    return os.pathsep.join(str(Path(part).resolve()) for part in sys.path if part)


# -- objects -----------------------------------------------------------------------------------------------------------


def binding_object(namespace: str, number: int) -> dict[str, Any]:
    """A binding as the detector makes it: suspended, at epoch 0, one pod with one GPU; eight different shapes."""
    name = f"job-{number:06}"
    requests = {"cpu": 1000 * (1 + number % _SHAPES), "memory": 8 << 30, _GPU: 1, "pods": 1}
    wish = gang.Gang(keys.DEFAULT_QUEUE, [gang.Task("worker", 1, 1, requests)], 1, submitted="2026-01-01T00:00:00Z")
    reference = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "namespace": namespace, "name": name}
    return {
        "apiVersion": BINDINGS.api_version,
        "kind": BINDINGS.kind,
        "metadata": {
            "name": f"{name}-job",
            "namespace": namespace,
            "annotations": {keys.GANG: gang.encode(wish), keys.EPOCH: "0"},
        },
        "spec": {
            "resource": {**reference, "uid": f"00000000-0000-0000-0000-{number:012}"},
            "replicas": 1,
            "placement": {},
            "suspension": {"scheduling": True},
        },
    }


def resumption(binding: dict[str, Any], example: Example) -> Request:
    """The patch that the dispatcher would write to this binding."""
    meta = binding["metadata"]
    operations = orjson.loads(example.body.replace(example.uid.encode(), meta["uid"].encode()))
    for each in operations:
        if each["path"] == _GANG_PATH:
            each["value"] = meta["annotations"][keys.GANG]
    path = BINDINGS.path(meta["namespace"], meta["name"]) + _MANAGER
    return Request("PATCH", path, orjson.dumps(operations), JSON_PATCH)


def cluster_object(name: str) -> dict[str, Any]:
    """A member that nobody looks after."""
    return {
        "apiVersion": CLUSTERS.api_version,
        "kind": CLUSTERS.kind,
        "metadata": {"name": name},
        "spec": {"syncMode": "Pull", "apiEndpoint": "https://127.0.0.1:1"},
    }


def capacity_object(cluster: str, nodes: int) -> dict[str, Any]:
    """Empty nodes of 8 GPUs in racks of 16, blocks of 16 racks, one root."""
    racks = [min(16, nodes - at) for at in range(0, nodes, 16)]
    blocks = -(-len(racks) // 16)
    domains: list[dict[str, Any]] = [{"name": "root", "tier": 3, "tierName": "root"}]
    domains += [{"name": f"block-{n}", "tier": 2, "tierName": "block", "parent": "root"} for n in range(blocks)]
    domains += [
        {"name": f"rack-{n}", "tier": 1, "tierName": "rack", "parent": f"block-{n // 16}"} for n in range(len(racks))
    ]
    allocatable = {"cpu": "64", "memory": "512Gi", _GPU: "8", "pods": "110"}
    return {
        "apiVersion": CAPACITIES.api_version,
        "kind": CAPACITIES.kind,
        "metadata": {"name": "root", "namespace": keys.execution_namespace(cluster)},
        "spec": {
            "cluster": cluster,
            "generation": 1,
            "root": "root",
            "objects": 1,
            "domains": domains,
            "profiles": [{"labels": {}, "taints": [], "allocatable": allocatable}],
            "classes": [
                {"domain": f"rack-{n}", "profile": 0, "nodes": size, "free": _NODE} for n, size in enumerate(racks)
            ],
        },
    }


if __name__ == "__main__":
    run(NAME, DESCRIPTION, options, measure)
