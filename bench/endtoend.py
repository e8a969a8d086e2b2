"""Volcano Jobs through the whole federation: how many per second, how long each stage takes, what each costs the host.

Every figure but CPU time comes from audit logs. The bound is what the same host takes of plain objects of that size.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson

from atoll.kube.transport import ApiServer
from atoll.local import audit
from atoll.local.atoll_federation import AtollFederation
from atoll.local.layout import FederationConfig, Member, NodeGroup, Tier, Topology
from atoll.model import keys
from atoll.model.apiresource import JOBS
from bench import accounting, machine
from bench.accounting import STAGES, Times, Writes
from bench.load import clear, creation, measured, namespace, read_log, send, watching
from bench.report import Progress, Report, percentile, progress, rate, run

NAME = "endtoend"
DESCRIPTION = "One-pod Volcano Jobs from the host to a node of a member and back."
BOUND = (
    "creation of 1 kB custom objects (padded Volcano Jobs in a namespace that is not opted in, so without webhook and "
    "followers) on the same host by the same bare client with 32 connections, in the same run, before the workloads"
)
REFERENCE = (
    "volcano-global on Karmada, unthrottled, on such a machine: 10.8 workloads/s in the member, 26 host calls and "
    "172 ms of CPU per workload, 0.62 s for one alone"
)
FULL: dict[str, Any] = {"members": 3, "nodes": 200, "jobs": 500, "alone": 20, "run_time": 2.0, "idle": 20.0}
QUICK: dict[str, Any] = {"members": 1, "nodes": 16, "jobs": 30, "alone": 2, "run_time": 0.5, "idle": 1.0}
TARGET_BOUND, TARGET_COMPLETED = 10, 16
"""Most host writes per workload."""
HOST_SIDE = ("host-apiserver", "host-controller-manager", "atoll-webhook", "atoll-control", "atoll-dispatcher")
_COMPLETED = b'"phase":"Completed"'
_STALL_S = 30.0
_SETTLE_S = 1.5
"""What is written after the last Job is Completed belongs to the cost too."""
_BOUND_OBJECTS = 1000
_KILOBYTE = 1000


def options(parser: argparse.ArgumentParser) -> None:
    """The sizes."""
    parser.add_argument("--members", type=int, help="member clusters")
    parser.add_argument("--nodes", type=int, help="nodes per member, 8 GPUs each")
    parser.add_argument("--jobs", type=int, help="Volcano Jobs of one pod, created at once over 32 connections")
    parser.add_argument("--alone", type=int, help="Jobs created one after the other on the idle federation")
    parser.add_argument("--run-time", type=float, help="seconds that each pod runs")
    parser.add_argument("--idle", type=float, help="seconds for which the federation is measured without workloads")
    parser.add_argument("--directory", type=Path, help="keep data and logs here (default: a folder that is removed)")


def measure(chosen: argparse.Namespace, told: Progress = progress) -> Report:
    """Run it."""
    return measured(chosen, told, _measure, NAME, QUICK, FULL, bound=BOUND, reference=REFERENCE)


async def _measure(report: Report, params: dict[str, Any], directory: Path, told: Progress) -> None:
    federation = AtollFederation(config(params["members"], params["nodes"]), directory, on_progress=told)
    async with federation, await federation.host.connect() as api:
        for name in ("alone", "load"):
            await namespace(api, name, {keys.ENABLED: "true"})
        told("the bound")
        bound = await _bound(
            report, federation, api, max(params["jobs"], _BOUND_OBJECTS if params["jobs"] >= 100 else 0)
        )
        told(f"{params['alone']} jobs, one at a time")
        await _alone(report, federation, api, params["alone"])
        told(f"{params['idle']:g} s without workloads")
        idle = await _idle(federation, params["idle"])
        told(f"{params['jobs']} jobs at once")
        await _load(report, federation, api, params, bound, idle)


def config(members: int, nodes: int) -> FederationConfig:
    """Members of equal nodes in racks of 8, blocks of 5 racks, one root."""
    tiers = [Tier(name="rack", size=8), Tier(name="block", size=5), Tier(name="root", size=1)]
    return FederationConfig(
        members=[
            Member(name=f"member{n}", nodes=[NodeGroup(count=nodes)], topology=Topology(tiers=tiers))
            for n in range(1, members + 1)
        ],
        raised_limits=True,
    )


async def _bound(report: Report, federation: AtollFederation, api: ApiServer, count: int) -> float:
    """Plain objects created per second."""
    await namespace(api, "plain")
    objects = [job_object("plain", f"plain-{number:06}", 1.0) for number in range(count)]
    for obj in objects:
        obj["metadata"]["annotations"] = {"bench/padding": "x" * max(_KILOBYTE - len(orjson.dumps(obj)), 0)}
    before = machine.sample(pids(federation))
    await send(federation.host, [creation(JOBS, obj) for obj in objects])
    after = machine.sample(pids(federation))
    spent = machine.used(before, after).get("host-apiserver", 0.0)
    report.add("the bound: plain objects", "host_apiserver_cpu", spent * 1000 / count, "ms")
    report.add("the bound: plain objects", "used_by_others", machine.others(before, after), "share")

    def made(events: Iterable[audit.Event]) -> list[audit.Event]:
        return [each for each in events if each.wrote(JOBS.plural, "create") and each.object_ref.namespace == "plain"]

    events = made(await read_log(federation.host.audit_log, lambda all_: len(made(all_)) >= count))
    await clear(api, JOBS, "plain")
    began = min(each.request_received_timestamp for each in events).timestamp()
    return rate(len(events), max(each.at for each in events) - began)


async def _alone(report: Report, federation: AtollFederation, api: ApiServer, count: int) -> None:
    """One job on an idle federation, again and again: what is left when nothing queues."""
    for number in range(count):
        async with watching(api, JOBS, "alone", _COMPLETED) as done:
            await api.create(JOBS, job_object("alone", f"alone-{number:03}", 0.2))
            if not await done.reach(1, _STALL_S):
                report.remarks.append(f"STUCK: job alone-{number:03} is not Completed after {_STALL_S:.0f} s")
                return
    times, *_ = await _times(federation, "alone", count)
    report.add_latency("one job alone: created -> pod bound", accounting.latencies(times, "created", "pod bound"))
    report.add_latency(
        "one job alone: created -> running on the host", accounting.latencies(times, "created", "running on the host")
    )


async def _idle(federation: AtollFederation, seconds: float) -> dict[str, float]:
    """Process -> CPU seconds per second that it uses without workloads: leases of nodes above all."""
    await asyncio.sleep(_SETTLE_S)
    before = machine.sample(pids(federation))
    await asyncio.sleep(seconds)
    after = machine.sample(pids(federation))
    return {name: used / (after.at - before.at) for name, used in machine.used(before, after).items()}


async def _load(
    report: Report,
    federation: AtollFederation,
    api: ApiServer,
    params: dict[str, Any],
    bound: float,
    idle: dict[str, float],
) -> None:
    count = params["jobs"]
    requests = [creation(JOBS, job_object("load", f"load-{number:06}", params["run_time"])) for number in range(count)]
    before = machine.sample(pids(federation))
    async with watching(api, JOBS, "load", _COMPLETED) as done:
        await send(federation.host, requests)
        if not await done.reach(count, _STALL_S):
            report.remarks.append(
                f"STUCK: only {done.count} of {count} jobs are Completed; nothing moved for {_STALL_S:.0f} s"
            )
    await asyncio.sleep(_SETTLE_S)
    after = machine.sample(pids(federation))
    times, host, members = await _times(federation, "load", done.count)
    names = set(times["created"])
    creations = [each for each in host if each.wrote(JOBS.plural, "create") and each.object_ref.name in names]
    began = min((each.request_received_timestamp.timestamp() for each in creations), default=0.0)
    case = f"{count} jobs at once"
    add = report.add
    add(case, "created_per_s", per_second(times["created"], began), "1/s", bound)
    add(case, "in_member_per_s", per_second(times["in the member"], began), "1/s", bound)
    add(case, "bound_per_s", per_second(times["pod bound"], began), "1/s", bound)
    add(case, "completed_per_s", per_second(times["completed on the host"], began), "1/s", bound)
    for name, jobs in accounting.spread(members, "load").items():
        add(case, f"jobs in {name}", jobs, "jobs")
    for earlier, later in pairwise(STAGES):
        if later != "completed on the host":
            report.add_latency(f"{earlier} -> {later}", accounting.latencies(times, earlier, later))
    report.add_latency("created -> pod bound", accounting.latencies(times, "created", "pod bound"))
    _add_writes(report, accounting.writes(host, times, "load", names), len(names))
    _add_requests(report, host, members, times)
    found = accounting.reads(host, began, max(times["completed on the host"].values(), default=began))
    report.add("host reads", "all", sum(found.values()) / max(len(names), 1), "1/workload")
    for (account, verb, resource), number in merged(found).most_common(12):
        report.add("host reads", f"{account} {verb} {resource}", number / max(len(names), 1), "1/workload")
    add_cpu(report, machine.used(before, after), len(names), idle, after.at - before.at)
    others = machine.others(before, after)
    add("the machine", "used_by_others", others, "share")
    if others > machine.QUIET:
        report.remarks.append(
            f"DISTURBED: others used {others:.0%} of the machine during the load; the rates are too low"
        )
    report.remarks.append(f"to compare with: {REFERENCE}")


def per_second(times: dict[str, float], began: float) -> float:
    return rate(len(times), max(times.values(), default=began) - began)


async def _times(
    federation: AtollFederation, where: str, count: int
) -> tuple[Times, list[audit.Event], dict[str, list[audit.Event]]]:
    """Stage times of a namespace, the host's log and the members' logs."""

    def complete(events: list[audit.Event]) -> bool:
        return len(accounting.stages(events, {}, where)["completed on the host"]) >= count

    host = await read_log(federation.host.audit_log, complete)
    members = {name: await read_log(handle.audit_log, lambda _: True) for name, handle in federation.members.items()}
    return accounting.stages(host, members, where), host, members


def _add_writes(report: Report, found: Writes, count: int) -> None:
    case = "host writes per workload"
    for metric, counts, target in (
        ("until_bound", found.until_bound, TARGET_BOUND),
        ("until_completed", found.until_completed, TARGET_COMPLETED),
        ("in_all", found.total, None),
    ):
        if not counts:
            continue
        mean = sum(counts.values()) / len(counts)
        report.add(case, metric, mean, "1/workload")
        report.add(case, f"{metric}_p99", percentile(list(counts.values()), 99), "1/workload")
        if target is not None:
            verdict = "met" if mean <= target else "MISSED"
            report.remarks.append(
                f"target {metric}: at most {target} host writes per workload: {verdict} with {mean:.2f}"
            )
    report.add(case, "refused", found.refused / max(count, 1), "1/workload")
    report.add(case, "of_no_workload", found.unowned / max(count, 1), "1/workload")
    for (account, verb, resource), number in merged(found.by_kind).most_common():
        if number >= max(count, 1) / 20:
            report.add("host writes by account", f"{account} {verb} {resource}", number / max(count, 1), "1/workload")


def _add_requests(report: Report, host: list[audit.Event], members: dict[str, list[audit.Event]], times: Times) -> None:
    """Of the host and of all members, Events included, reads too."""
    count = max(len(times["created"]), 1)
    for cluster, events in (("host", host), ("members", [each for log in members.values() for each in log])):
        found, case = accounting.requests(events, host, times, "load"), f"{cluster}: requests per workload"
        report.add(case, "until_bound", found.until_bound.total() / count, "1/workload")
        report.add(case, "until_completed", found.until_completed.total() / count, "1/workload")
        report.add(case, "in_all", found.total.total() / count, "1/workload")
        for kind, number in found.total.most_common():
            report.add(case, " ".join(kind), number / count, "1/workload")


def merged(by_kind: Counter[tuple[str, str, str]]) -> Counter[tuple[str, str, str]]:
    """All agents as one."""
    merged: Counter[tuple[str, str, str]] = Counter()
    for (account, verb, resource), number in by_kind.items():
        agent = account.startswith(keys.EXECUTION_PREFIX)
        merged["agents" if agent else account, verb, resource] += number
    return merged


def pids(federation: AtollFederation) -> dict[str, int | None]:
    """Every process of the federation."""
    found = {process.spec.name: process.pid for process in federation.federation.processes.processes}
    return found | {name: process.pid for name, process in federation.processes.items()}


def add_cpu(report: Report, used: dict[str, float], count: int, idle: dict[str, float], elapsed: float) -> None:
    """All that was used, and what the workloads caused of it: the rest is there without them."""
    groups = {"host_side": HOST_SIDE, "agents": [name for name in used if name.startswith("atoll-agent-")]}
    groups["all_processes"] = [name for name in used if name != "bench"]
    by_group = {
        name: [sum(each.get(of, 0.0) for of in names) for each in (used, idle)] for name, names in groups.items()
    }
    for name, (spent, fixed) in by_group.items():
        report.add("CPU per workload", name, spent * 1000 / max(count, 1), "ms")
        report.add("CPU per workload", f"{name}_marginal", (spent - fixed * elapsed) * 1000 / max(count, 1), "ms")
    for name, value in sorted(used.items(), key=lambda item: -item[1]):
        report.add("CPU by process", name, value, "s")
    fixed_by = {**{name: fixed for name, (_, fixed) in by_group.items()}, **idle}
    for name, fixed in sorted(fixed_by.items(), key=lambda item: -item[1]):
        report.add("CPU without workloads", name, fixed * 1000, "ms/s")


def job_object(where: str, name: str, run_time: float, queue: str = keys.DEFAULT_QUEUE) -> dict[str, Any]:
    """A Volcano Job of one pod that asks for one GPU."""
    share = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}
    template = {
        "metadata": {"annotations": {keys.RUN_TIME: f"{max(round(run_time * 1000), 1)}ms"}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "bench", "resources": {"requests": share, "limits": share}}],
        },
    }
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {"name": name, "namespace": where},
        "spec": {
            "queue": queue,
            "minAvailable": 1,
            "tasks": [{"name": accounting.TASK, "replicas": 1, "template": template}],
        },
    }


if __name__ == "__main__":
    run(NAME, DESCRIPTION, options, measure)
