"""A host of many members under a steady load: how far behind each stage is, what it costs, and what broke first.

Webhook, control and dispatcher are the real processes on a real API server; members are played (`bench.player`). A
queue holds so many pending Jobs behind one that runs; Jobs of another queue come at a fixed rate, whatever became of
those before, each of one pod.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from atoll import install
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.local import audit
from atoll.local.atoll_federation import AtollFederation
from atoll.local.layout import FederationConfig
from atoll.model import keys
from atoll.model.apiresource import JOBS, QUEUES, WORKS
from atoll.model.objects import Slim
from bench import accounting, machine
from bench.accounting import Times
from bench.endtoend import job_object, merged, pids
from bench.load import creation, measured, namespace, open_loop, read_log, send
from bench.objects import GPU
from bench.player import Orders, joined, playing
from bench.report import Progress, Report, median, progress, rate, run

NAME = "scale"
DESCRIPTION = "Many members, many pending Jobs and a steady load on one host, and what breaks first."
BOUND = "the rate at which Jobs are offered"
FULL: dict[str, Any] = {
    "members": 100, "nodes": 100, "pending": 100_000, "rate": 100.0, "minutes": 10.0, "run_time": 5.0, "players": 4,
}  # fmt: skip
QUICK: dict[str, Any] = {
    "members": 2, "nodes": 4, "pending": 20, "rate": 4.0, "minutes": 0.1, "run_time": 0.5, "players": 1,
}  # fmt: skip
STAGES = (
    "created", "binding created", "dispatched", "work created", "running on the host", "completed on the host",
)  # fmt: skip
BEHIND_S = 2.0
"""A stage is broken in the first window in which its median lag is longer."""
WINDOW_S = 10.0
_FLOW, _FULL = "flow", "full"
"""Namespace and queue of the steady load; of what waits."""
_FOREVER_S = 1e6
_STALL_S = 60.0
_TICK_S = 0.5


class _Job(Slim, frozen=True):
    """A Job, as far as its phase is concerned."""

    status: dict[str, Any] = msgspec.field(default_factory=dict)


def options(parser: argparse.ArgumentParser) -> None:
    """The sizes."""
    parser.add_argument("--members", type=int, help="member clusters, played")
    parser.add_argument("--nodes", type=int, help="nodes per member, 8 GPUs each")
    parser.add_argument("--pending", type=int, help="Jobs that wait for quota all the time")
    parser.add_argument("--rate", type=float, help="Jobs that come per second")
    parser.add_argument("--minutes", type=float, help="for how long they come")
    parser.add_argument("--run-time", type=float, help="seconds that each pod runs")
    parser.add_argument("--players", type=int, help="processes that play the members")
    parser.add_argument("--directory", type=Path, help="keep data and logs here (default: a folder that is removed)")


def measure(chosen: argparse.Namespace, told: Progress = progress) -> Report:
    """Run it."""
    return measured(chosen, told, _measure, NAME, QUICK, FULL, bound=BOUND)


async def _measure(report: Report, params: dict[str, Any], directory: Path, told: Progress) -> None:
    # The model of the configuration asks for a member, the federation does not.
    config = FederationConfig.model_construct(members=[], raised_limits=True)
    federation = AtollFederation(config, directory, on_progress=told)
    async with federation, await federation.host.connect() as api:
        told(f"joining {params['members']} members")
        names = [f"member{number:03}" for number in range(params["members"])]
        at = await install.endpoint(federation.host.kubeconfig)
        files = list((await joined(api, at, names, directory / "members")).items())
        orders = [Orders(dict(files[each :: params["players"]]), params["nodes"]) for each in range(params["players"])]
        async with playing(orders) as children:
            played = {f"played agents {number}": child.pid for number, child in enumerate(children, start=1)}
            await _fill(report, federation, api, params["pending"], told)
            before = machine.sample(pids(federation) | played)
            refused = await _flow(report, federation, api, params, told)
            after = machine.sample(pids(federation) | played)
        await _judge(report, federation, params, before, after, refused)
        for name, pid in pids(federation).items():
            report.add("memory", name, machine.resident(pid) / 1e6, "MB")


async def _fill(report: Report, federation: AtollFederation, api: ApiServer, count: int, told: Progress) -> None:
    """Queues and namespaces, one Job that holds its queue, and those that wait behind it."""
    for name in (_FLOW, _FULL):
        await namespace(api, name, {keys.ENABLED: "true"})
        limit = {"capability": {GPU: "1"}} if name == _FULL else {}
        head = {"apiVersion": QUEUES.api_version, "kind": QUEUES.kind, "metadata": {"name": name}}
        await api.create(QUEUES, {**head, "spec": limit})
    told(f"{count} jobs that wait")
    jobs = [job_object(_FULL, f"wait-{number:06}", _FOREVER_S, _FULL) for number in range(count + 1)]
    began = time.monotonic()
    await send(federation.host, [creation(JOBS, job) for job in jobs])
    report.add("filling", "created_per_s", rate(len(jobs), time.monotonic() - began), "1/s")
    if (seen := await _in_phase(api, _FULL, "Pending", count, _STALL_S)) < count:
        report.remarks.append(f"STUCK: {seen} of {count} waiting jobs say that they wait")
    report.add("filling", "said_to_wait_per_s", rate(seen, time.monotonic() - began), "1/s")


async def _flow(
    report: Report, federation: AtollFederation, api: ApiServer, params: dict[str, Any], told: Progress
) -> int:
    """The steady load; how many Jobs were refused."""
    count = round(params["rate"] * params["minutes"] * 60)
    told(f"{count} jobs, {params['rate']:g} a second")
    timed = [
        (number / params["rate"], creation(JOBS, job_object(_FLOW, f"job-{number:06}", params["run_time"], _FLOW)))
        for number in range(count)
    ]
    refused: list[tuple[float, str]] = []
    late = await open_loop(api, timed, refused)
    if refused:
        at, error = min(refused)
        report.remarks.append(f"REFUSED: {len(refused)} of {count} jobs, the first after {at:.0f} s: {error}")
    made = count - len(refused)
    if (done := await _in_phase(api, _FLOW, "Completed", made, _STALL_S + params["run_time"])) < made:
        report.remarks.append(f"STUCK: {done} of {made} jobs are Completed")
    report.add("the load", "latest_creation", late, "s behind its time")
    report.add("the load", "refused", len(refused), "jobs")
    return len(refused)


async def _in_phase(api: ApiServer, where: str, phase: str, count: int, stall_s: float) -> int:
    """How many Jobs are in a phase, once they are so many or none has come for `stall_s` seconds.

    A server ends watches of clients that are slow: the reflector begins anew.
    """
    cache = Reflector(api, JOBS, msgspec.json.Decoder(_Job).decode, namespace=where)
    running, clock = asyncio.create_task(cache.run()), asyncio.get_running_loop().time
    found, since = 0, clock()
    try:
        while found < count and clock() - since < stall_s:
            await asyncio.sleep(_TICK_S)
            now = sum((each.status.get("state") or {}).get("phase") == phase for each in cache)
            found, since = now, since if now == found else clock()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return found


async def _judge(
    report: Report,
    federation: AtollFederation,
    params: dict[str, Any],
    before: machine.Sample,
    after: machine.Sample,
    refused: int,
) -> None:
    def complete(events: list[audit.Event]) -> bool:
        return bool(len(accounting.stages(events, {}, _FLOW)["completed on the host"]) >= count)

    count = round(params["rate"] * params["minutes"] * 60) - refused
    log = await read_log(federation.host.audit_log, complete)
    times = accounting.stages(log, {}, _FLOW)
    created = times["created"]
    began = min(created.values(), default=0.0)
    for stage in STAGES:
        reached = times[stage]
        report.add("jobs per second", stage, rate(len(reached), max(reached.values(), default=began) - began), "1/s",
                   params["rate"])  # fmt: skip
    for earlier, later in pairwise(STAGES):
        if later != "completed on the host":
            report.add_latency(f"{earlier} -> {later}", accounting.latencies(times, earlier, later))
    said = said_by_members(log, _FLOW)
    for phase, stage in (("Running", "running on the host"), ("Completed", "completed on the host")):
        both = {"said": said[phase], stage: times[stage]}
        report.add_latency(f"a member says {phase} -> {stage}", accounting.latencies(both, "said", stage))
    for (account, verb, resource), number in merged(
        accounting.writes(log, times, _FLOW, set(created)).by_kind
    ).most_common(20):
        report.add("host writes by kind", f"{account} {verb} {resource}", number / max(len(created), 1), "1/job")
    for name, spent in sorted(machine.used(before, after).items(), key=lambda item: -item[1]):
        report.add("CPU", name, spent / (after.at - before.at), "cores")
    others = machine.others(before, after)
    report.add("the machine", "used_by_others", others, "share")
    if others > machine.QUIET:
        report.remarks.append(f"DISTURBED: others used {others:.0%} of the machine; rates and lags mean little")
    lags = {
        f"{earlier} -> {later}": lag(times, earlier, later)
        for earlier, later in pairwise(STAGES)
        if later != "completed on the host"
    }
    report.remarks.append(f"what broke first: {broken(lags, began) or 'nothing'}")


def said_by_members(log: Sequence[audit.Event], where: str) -> Times:
    """Phase -> workload of the namespace -> when an agent reported it first, seconds since the epoch."""
    owner, found = accounting.owners(log, where), Times({"Running": {}, "Completed": {}})
    for event in log:
        workload = owner.get((WORKS.plural, event.object_ref.key))
        if workload is None or not event.wrote(f"{WORKS.plural}/status"):
            continue
        for item in audit.status_in(event.body()).get("manifestStatuses") or ():
            phase = (item["status"].get("state") or {}).get("phase")
            if phase in found:
                found[phase].setdefault(workload, event.at)
    return found


def lag(times: Times, earlier: str, later: str) -> list[tuple[float, float]]:
    """(when a workload was at the earlier stage, seconds until the later one) of all that reached both."""
    return [(times[earlier][name], at - times[earlier][name]) for name, at in times[later].items()
            if name in times[earlier]]  # fmt: skip


def broken(lags: Mapping[str, Sequence[tuple[float, float]]], began: float) -> str:
    """The stage whose median lag in a window of 10 s exceeded 2 s first, in words; empty for none.

    Args:
        lags: stage -> `lag`.
        began: of the load, seconds since the epoch.
    """
    found = [
        (number, stage, value)
        for stage, samples in lags.items()
        for number, value in _windows(samples, began)
        if value > BEHIND_S
    ]
    if not found:
        return ""
    number, stage, value = min(found)
    return f"{stage}, {value:.1f} s behind for jobs that were there {number * WINDOW_S:.0f} s after the first"


def _windows(samples: Iterable[tuple[float, float]], began: float) -> list[tuple[int, float]]:
    """(number of the window, median of its lags)."""
    by_window: dict[int, list[float]] = {}
    for at, value in samples:
        by_window.setdefault(int((at - began) // WINDOW_S), []).append(value)
    return [(number, median(values)) for number, values in sorted(by_window.items())]


if __name__ == "__main__":
    run(NAME, DESCRIPTION, options, measure)
