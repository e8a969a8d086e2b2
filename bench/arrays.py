"""What an array costs the API servers: one JobArray beside Kubernetes Jobs, on the same host and member.

Both are played through the same federation, one after the other, with pods of the same time; each object, each request
that writes and the bytes of its body come from the audit logs. Jobs cost the same each, so a hundred of them stand for
any number; what an array costs its host depends on how long it runs, which the report gives beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from atoll.kube.transport import ApiServer
from atoll.local import audit
from atoll.local.atoll_federation import AtollFederation
from atoll.local.cluster import ClusterHandle
from atoll.local.layout import FederationConfig, Member, NodeGroup
from atoll.model import keys
from atoll.model.apiresource import BATCH_JOBS, JOB_ARRAYS
from bench import accounting
from bench.load import creation, measured, namespace, read_log, send, watching
from bench.report import Progress, Report, progress, run

NAME = "arrays"
DESCRIPTION = "One JobArray beside Kubernetes Jobs: objects, writes and bytes on the host and in the member."
BOUND = "of the host's cost of an array: what so many Kubernetes Jobs cost it in the same run"
FULL: dict[str, Any] = {"indices": 10_000, "at_once": 200, "jobs": 100, "nodes": 100, "run_time": 1.0}
QUICK: dict[str, Any] = {"indices": 20, "at_once": 10, "jobs": 5, "nodes": 4, "run_time": 0.2}
OTHERS = "Volcano's and Kueue's controllers with N runs of one pod: python -m tests.members.array_costs"
WHERE = "chaos"
"""The namespace of which the audit log keeps every body."""
STALL_S = 120.0
_SETTLE_S = 12.0
"""The last report, and the writes that follow from it."""


def options(parser: argparse.ArgumentParser) -> None:
    """The sizes."""
    parser.add_argument("--indices", type=int, help="of the array, one pod each")
    parser.add_argument("--at-once", type=int, help="indices that run at once")
    parser.add_argument("--jobs", type=int, help="Kubernetes Jobs of one pod, for comparison")
    parser.add_argument("--nodes", type=int, help="nodes of the member, 8 GPUs each")
    parser.add_argument("--run-time", type=float, help="seconds that each pod runs")
    parser.add_argument("--directory", type=Path, help="keep data and logs here (default: a folder that is removed)")


class Cost(NamedTuple):
    """What one API server did between two moments."""

    objects: int
    """Created, Events and Leases left out."""
    writes: int
    bytes: int
    """Of the bodies of these writes."""
    by_kind: Counter[str]
    """`verb resource` -> writes."""


def cost(events: Iterable[audit.Event], begin: float, end: float) -> Cost:
    """The cost of what was asked for in this time, by an audit log."""
    by_kind: Counter[str] = Counter()
    made = size = 0
    for event in events:
        if accounting.counted(event) and begin <= event.at < end:
            by_kind[f"{event.verb} {event.object_ref.path}"] += 1
            size += len(event.request_object)
            made += event.ok and event.verb == "create" and not event.object_ref.subresource
    return Cost(made, by_kind.total(), size, by_kind)


def measure(chosen: argparse.Namespace, told: Progress = progress) -> Report:
    """Run it."""
    report = measured(chosen, told, _measure, NAME, QUICK, FULL, bound=BOUND)
    report.remarks.append(OTHERS)
    return report


async def _measure(report: Report, params: dict[str, Any], directory: Path, told: Progress) -> None:
    config = FederationConfig(
        members=[Member(name="member1", nodes=[NodeGroup(count=params["nodes"])])], raised_limits=True
    )
    federation = AtollFederation(config, directory, on_progress=told)
    async with federation, await federation.host.connect() as api:
        await namespace(api, WHERE, {keys.ENABLED: "true"})
        told(f"{params['jobs']} Kubernetes Jobs")
        jobs = await _jobs(report, federation, api, params)
        told(f"an array of {params['indices']} indices")
        array = await _array(report, federation, api, params)
    _compare(report, params, jobs, array)


async def _jobs(report: Report, federation: AtollFederation, api: ApiServer, params: dict[str, Any]) -> Cost:
    count = params["jobs"]
    manifests = [_job(f"job-{number:05}", params["run_time"]) for number in range(count)]
    begin = time.time()
    async with watching(api, BATCH_JOBS, WHERE, b'"type":"Complete"') as done:
        await send(federation.host, [creation(BATCH_JOBS, each) for each in manifests])
        if not await done.reach(count, STALL_S):
            report.remarks.append(f"STUCK: {done.count} of {count} Jobs are Complete")
    return (await costs(report, _sides(federation), f"{count} Kubernetes Jobs", count, begin))["host"]


async def _array(report: Report, federation: AtollFederation, api: ApiServer, params: dict[str, Any]) -> Cost:
    begin, count = time.time(), params["indices"]
    await api.create(JOB_ARRAYS, _array_of(count, params["at_once"], params["run_time"]))
    last, ended = time.monotonic(), -1
    status: dict[str, Any] = {}
    while status.get("phase") not in ("Completed", "Failed"):
        await asyncio.sleep(1)
        status = (await api.get(JOB_ARRAYS, "sweep", WHERE)).get("status") or {}
        if status.get("succeeded", 0) != ended:
            last, ended = time.monotonic(), status.get("succeeded", 0)
        elif time.monotonic() > last + STALL_S:
            report.remarks.append(f"STUCK: {ended} of {count} indices have succeeded")
            break
    return (await costs(report, _sides(federation), f"a JobArray of {count}", count, begin))["host"]


def _sides(federation: AtollFederation) -> dict[str, ClusterHandle]:
    return {"host": federation.host, **federation.members}


async def costs(
    report: Report, sides: Mapping[str, ClusterHandle], case: str, count: int, begin: float
) -> dict[str, Cost]:
    """The cost of each API server since `begin`, seconds since the epoch; added to the report.

    Args:
        report: gets the figures.
        sides: name -> API server.
        case: in words.
        count: runs of pods.
        begin: of the case.
    """
    took = time.time() - begin
    await asyncio.sleep(_SETTLE_S)
    end = time.time()
    report.add(case, "time", took, "s")
    found = {}
    for side, handle in sides.items():
        found[side] = cost(await read_log(handle.audit_log, lambda _: True), begin, end)
        report.add(case, f"{side} objects", found[side].objects, "objects")
        report.add(case, f"{side} writes", found[side].writes, "writes")
        report.add(case, f"{side} bytes written", found[side].bytes / 1000, "kB")
        report.add(case, f"{side} objects each", found[side].objects / max(count, 1), "objects")
        report.add(case, f"{side} writes each", found[side].writes / max(count, 1), "writes")
        report.add(case, f"{side} bytes each", found[side].bytes / 1000 / max(count, 1), "kB")
        kinds = ", ".join(f"{number} {kind}" for kind, number in found[side].by_kind.most_common(8))
        report.remarks.append(f"{case}, {side}: {kinds}")
    return found


def _compare(report: Report, params: dict[str, Any], jobs: Cost, array: Cost) -> None:
    """The array's cost on the host beside the Jobs', and the target."""
    case = f"the array beside {params['jobs']} Jobs"
    for name in ("objects", "writes", "bytes"):
        mine, theirs = float(getattr(array, name)), float(getattr(jobs, name))
        report.add(case, f"host {name}", mine, name, theirs)
        if mine > theirs:
            report.remarks.append(f"MISSED: {mine:.0f} {name} on the host, {theirs:.0f} of {params['jobs']} Jobs")


def pod(run_time: float) -> dict[str, Any]:
    """A template whose pod runs so many seconds and succeeds."""
    return {
        "metadata": {"annotations": {keys.RUN_TIME: f"{max(round(run_time * 1000), 1)}ms"}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "bench", "resources": {"requests": {"cpu": "1"}}}],
        },
    }


def _job(name: str, run_time: float) -> dict[str, Any]:
    return {
        "apiVersion": BATCH_JOBS.api_version,
        "kind": BATCH_JOBS.kind,
        "metadata": {"name": name, "namespace": WHERE, "labels": {keys.QUEUE_LABEL: keys.DEFAULT_QUEUE}},
        "spec": {"template": pod(run_time)},
    }


def _array_of(count: int, at_once: int, run_time: float) -> dict[str, Any]:
    task = {"name": accounting.TASK, "replicas": 1, "template": pod(run_time)}
    return {
        "apiVersion": JOB_ARRAYS.api_version,
        "kind": JOB_ARRAYS.kind,
        "metadata": {"name": "sweep", "namespace": WHERE, "labels": {keys.QUEUE_LABEL: keys.DEFAULT_QUEUE}},
        "spec": {"indices": count, "atOnce": at_once, "template": {"spec": {"tasks": [task]}}},
    }


if __name__ == "__main__":
    run(NAME, DESCRIPTION, options, measure)
