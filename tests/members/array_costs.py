"""The cost of N runs of one pod under Volcano's and Kueue's own controllers: objects, writes and bytes on one API server.

`python -m tests.members.array_costs` counts them by audit, as `bench.arrays` does for Atoll, beside plain Kubernetes Jobs.
It builds the controllers at first.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import time
from pathlib import Path
from typing import Any

from atoll.local.binaries import ensure
from atoll.local.cluster import ClusterHandle
from atoll.local.federation import Federation
from atoll.local.layout import FederationConfig
from atoll.model.apiresource import BATCH_JOBS, JOBS, ApiResource
from bench.arrays import STALL_S, WHERE, costs, pod
from bench.load import creation, measured, namespace, send, watching
from bench.report import Progress, Report, progress, run
from tests.members import kueue_member, volcano_member
from tests.members.forms import CPUS, FORMS, member_of
from tests.members.manifests import apply
from tests.members.modules import Json, programs

NAME = "array_costs"
DESCRIPTION = "Runs of one pod under Volcano's and Kueue's controllers: objects, writes and bytes on one API server."
FULL: dict[str, Any] = {"runs": 200, "run_time": 1.0}
QUICK: dict[str, Any] = {"runs": 10, "run_time": 0.2}
_QUEUED = {"kueue.x-k8s.io/queue-name": kueue_member.QUEUE}
_TRIES = 120
"""Half seconds in which webhooks and queues of a fresh installation begin to work."""


def options(parser: argparse.ArgumentParser) -> None:
    """The sizes."""
    parser.add_argument("--runs", type=int, help="of one pod, all at once")
    parser.add_argument("--run-time", type=float, help="seconds that each pod runs")
    parser.add_argument("--directory", type=Path, help="keep data and logs here (default: a folder that is removed)")


def measure(chosen: argparse.Namespace, told: Progress = progress) -> Report:
    """Run it."""
    return measured(chosen, told, _measure, NAME, QUICK, FULL)


async def _measure(report: Report, params: dict[str, Any], directory: Path, told: Progress) -> None:
    count, run_time = params["runs"], params["run_time"]
    for project in (volcano_member, kueue_member):
        await asyncio.to_thread(programs, project.PROJECT, project.TOOLS, build=True)
    nodes = math.ceil((count + 1) / CPUS)
    members = [member_of(form, directory) for form in ("volcano", "kueue")]
    members = [
        each.model_copy(update={"nodes": [each.nodes[0].model_copy(update={"count": nodes})]}) for each in members
    ]
    crds = {form: found() for form in ("volcano", "kueue") if (found := FORMS[form].crds) is not None}
    binaries = await asyncio.to_thread(ensure, report=lambda _: None)
    config = FederationConfig(members=members, raised_limits=True)
    async with Federation(config, directory=directory, binaries=binaries, crds_of=crds, on_progress=told) as federation:
        await federation.populate()
        await volcano_member.install(federation, members[0])
        await kueue_member.install(federation, members[1])
        volcano, kueue = (federation.members[each.name] for each in members)
        for handle in (volcano, kueue):
            async with await handle.connect() as api:
                await namespace(api, WHERE)
        await asyncio.to_thread(apply, kueue, [kueue_member.local_queue(WHERE)], tries=_TRIES)

        plain = [_job(f"plain-{number:05}", run_time, {}) for number in range(count)]
        queued = [_job(f"queued-{number:05}", run_time, _QUEUED) for number in range(count)]
        indexed = _job("indexed", run_time, _QUEUED)
        indexed["spec"] |= {"completions": count, "parallelism": count, "completionMode": "Indexed"}
        jobs = [_volcano_job(f"job-{number:05}", run_time) for number in range(count)]
        await _warm(kueue, BATCH_JOBS, _job("warm", run_time, _QUEUED))
        await _warm(volcano, JOBS, _volcano_job("warm", run_time))
        for case, handle, resource, manifests in (
            (f"{count} Jobs, Kubernetes alone", kueue, BATCH_JOBS, plain),
            (f"{count} Jobs, Kueue", kueue, BATCH_JOBS, queued),
            (f"an Indexed Job of {count}, Kueue", kueue, BATCH_JOBS, [indexed]),
            (f"{count} Volcano Jobs, Volcano", volcano, JOBS, jobs),
        ):
            told(case)
            begin = time.time()
            await _play(report, handle, resource, manifests)
            await costs(report, {"server": handle}, case, count, begin)


async def _play(report: Report, handle: ClusterHandle, resource: ApiResource, manifests: list[Json]) -> None:
    """Create all, and return when they have ended."""
    async with await handle.connect() as api, watching(api, resource, WHERE, _ended(resource)) as done:
        await send(handle, [creation(resource, each) for each in manifests])
        if not await done.reach(len(manifests), STALL_S):
            report.remarks.append(f"STUCK: {done.count} of {len(manifests)} have ended")


async def _warm(handle: ClusterHandle, resource: ApiResource, manifest: Json) -> None:
    """One run before the measured ones: webhooks answer, queues are open."""
    async with await handle.connect() as api, watching(api, resource, WHERE, _ended(resource)) as done:
        await asyncio.to_thread(apply, handle, [manifest], tries=_TRIES)
        if not await done.reach(1, STALL_S):
            raise RuntimeError(f"{manifest['kind']} {manifest['metadata']['name']} does not end")


def _ended(resource: ApiResource) -> bytes:
    return b'"phase":"Completed"' if resource == JOBS else b'"type":"Complete"'


def _job(name: str, run_time: float, labels: dict[str, str]) -> Json:
    return {
        "apiVersion": BATCH_JOBS.api_version,
        "kind": BATCH_JOBS.kind,
        "metadata": {"name": name, "namespace": WHERE, "labels": labels},
        "spec": {"template": pod(run_time)},
    }


def _volcano_job(name: str, run_time: float) -> Json:
    task = {"name": "worker", "replicas": 1, "template": pod(run_time)}
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {"name": name, "namespace": WHERE},
        "spec": {
            "minAvailable": 1,
            "schedulerName": "volcano",
            "queue": "default",
            "policies": [{"event": "TaskCompleted", "action": "CompleteJob"}],
            "tasks": [task],
        },
    }


if __name__ == "__main__":
    run(NAME, DESCRIPTION, options, measure)
