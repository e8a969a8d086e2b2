"""What admission costs: creates at a steady rate with the webhook and without it, on the same API server.

Open loop: requests leave at their time, whatever became of those before, as those of users do. The rates are parts of
the bound, which is what the same server creates without the webhook as fast as it can. Latencies are the API server's
own (audit log); the handler's come from the histogram of the webhook process, read as the upper end of the bucket.

Most of what admission costs is the API server's own: it encodes, calls, patches, decodes and checks. So the same loads
are played with a webhook that looks at nothing (`bench.bare`) as well: what that adds is the least that any can add.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import enum
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from prometheus_client.parser import text_string_to_metric_families
from yarl import URL

from atoll import install
from atoll.kinds.volcano_job import admission as jobs
from atoll.kube.transport import ApiServer
from atoll.local import audit
from atoll.local.binaries import ensure
from atoll.local.federation import Federation
from atoll.local.layout import FederationConfig
from atoll.local.ports import free_ports
from atoll.local.processes import Process, ProcessSpec, python_path
from atoll.model import keys
from atoll.model.apiresource import JOBS, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, ApiResource
from bench import bare, machine
from bench.load import clear, creation, measured, namespace, open_loop, read_log, send
from bench.report import Progress, Report, percentile, progress, rate, run

NAME = "webhook"
DESCRIPTION = "Creates of Volcano Jobs at a steady rate, with the webhook and without it."
BOUND = (
    "of creates: the same Jobs created by 32 connections as fast as the server takes them, without the webhook; "
    "of what is added: what a webhook adds that looks at nothing"
)
FULL: dict[str, Any] = {"bound_objects": 1500, "seconds": 5.0, "loads": [25, 50, 75], "repeats": 2}
QUICK: dict[str, Any] = {"bound_objects": 40, "seconds": 0.3, "loads": [50], "repeats": 1}
SIZES_KB = (2, 50)
TARGET_LOADS = (25, 50)
HANDLER_P99_MS = {2: 1.0, 50: 3.0}
ADDED_P50_MS = 3.0
_WHERE = "team"
_BARE = "bare"
_READY_S = 60.0
_SETTLE_S = 0.5
"""A configuration that was just written, until every part of the server has it."""


class State(enum.StrEnum):
    """Who is asked about a Job."""

    OFF = "webhook off"
    BARE = "bare webhook"
    ON = "webhook on"


def options(parser: argparse.ArgumentParser) -> None:
    """The sizes."""
    parser.add_argument(
        "--bound-objects", type=int, help="Jobs of 2 kB that measure the bound (a fifth of it at 50 kB)"
    )
    parser.add_argument("--seconds", type=float, help="length of each steady load")
    parser.add_argument("--loads", type=int, nargs="+", help="percent of the bound")
    parser.add_argument("--repeats", type=int, help="turns of webhook off and on, for each size")
    parser.add_argument("--directory", type=Path, help="keep data and logs here (default: a folder that is removed)")


def measure(chosen: argparse.Namespace, told: Progress = progress) -> Report:
    """Run it."""
    return measured(chosen, told, _measure, NAME, QUICK, FULL, sizes_kb=list(SIZES_KB), bound=BOUND)


async def _measure(report: Report, params: dict[str, Any], directory: Path, told: Progress) -> None:
    binaries = await asyncio.to_thread(ensure, report=lambda _: None)
    config = FederationConfig.model_construct(members=[], raised_limits=True)
    async with (
        Federation(config, directory=directory, binaries=binaries, crds=install.host_crds()) as federation,
        await federation.host.connect() as api,
    ):
        port, health_port, bare_port = free_ports(3)
        at = await install.endpoint(federation.host.kubeconfig)
        address = {"url": f"https://127.0.0.1:{port}"}
        await install.init(api, at, out=directory, webhook_client_config=address)
        await namespace(api, _WHERE, {keys.ENABLED: "true"})
        patches = {size: jobs.default_job(job_object("any", size)) for size in SIZES_KB}
        floor, ca = bare.prepare(directory / "bare", bare_port, patches)
        webhook = Process(_spec(directory, health_port), directory / "logs" / "atoll-webhook.log")
        turns = _Turns(report, params, federation, api, webhook, health_port, told)
        try:
            for process in (webhook, floor):
                await process.start()
                await process.wait_ready(_READY_S)
            await turns.register_bare(f"https://127.0.0.1:{bare_port}", ca)
            await turns.run()
        finally:
            for process in (webhook, floor):
                await process.stop()


def _spec(directory: Path, health_port: int) -> ProcessSpec:
    argv = [sys.executable, "-m", "atoll.webhook", f"--kubeconfig={install.kubeconfig_of(directory, 'webhook')}"]
    return ProcessSpec(
        name="atoll-webhook",
        argv=[*argv, f"--health-port={health_port}", "--linger-seconds=0"],
        env={"PYTHONPATH": python_path()},
        ready_url=f"http://127.0.0.1:{health_port}/readyz",
    )


class _Turns:
    """The webhook off and on in turns, the same loads each time."""

    def __init__(
        self,
        report: Report,
        params: dict[str, Any],
        federation: Federation,
        api: ApiServer,
        webhook: Process,
        health_port: int,
        told: Progress,
    ) -> None:
        self._report, self._params, self._api, self._told = report, params, api, told
        self._host, self._webhook = federation.host, webhook
        self._pids = {each.spec.name: each.pid for each in federation.processes.processes}
        self._metrics = f"http://127.0.0.1:{health_port}/metrics"
        #: (resource, configuration) of each webhook; nothing is registered before the first turn
        self._configurations: dict[State, list[tuple[ApiResource, dict[str, Any]]]] = {State.OFF: []}
        self._state = State.ON
        self._serial = 0
        self._warm_up_s = min(1.0, params["seconds"])
        #: (kB, load, state) -> seconds of each create
        self._seconds: dict[tuple[int, int, State], list[float]] = {}
        #: kB -> upper end of a bucket -> reviews
        self._handled: dict[int, dict[float, float]] = {}

    async def run(self) -> None:
        """Measure everything and add it to the report."""
        before = machine.sample({**self._pids, "webhook": self._webhook.pid})
        for kilobytes in SIZES_KB:
            await self._size(kilobytes)
        after = machine.sample({**self._pids, "webhook": self._webhook.pid})
        self._add_latencies()
        self._add_handler()
        others = machine.others(before, after)
        self._report.add("the machine", "used_by_others", others, "share")
        if others > machine.QUIET:
            self._report.remarks.append(f"DISTURBED: others used {others:.0%} of the machine; latencies mean little")

    async def _size(self, kilobytes: int) -> None:
        count = self._params["bound_objects"] if kilobytes < 10 else max(self._params["bound_objects"] // 5, 20)
        self._told(f"{kilobytes} kB: the bound")
        reached = {}
        for state in State:
            await self._switch(state)
            reached[state] = await self._fast(kilobytes, count)
        bound = reached[State.OFF]
        for state in (State.ON, State.BARE):
            case = f"{kilobytes} kB, as fast as it goes, {state}"
            self._report.add(case, "creates_per_s", reached[state], "1/s", bound)
        histogram: dict[float, float] = {}
        for turn in range(self._params["repeats"]):
            # Whoever goes second finds a larger database: they take turns at it.
            for state in list(State) if turn % 2 == 0 else reversed(State):
                await self._switch(state)
                before = await self._buckets()
                for load in self._params["loads"]:
                    self._told(f"{kilobytes} kB, {load} % of {bound:.0f}/s, {state}")
                    taken, refused = await self._steady(kilobytes, bound * load / 100)
                    if refused:
                        case = f"{kilobytes} kB at {load} % of the bound, {state}"
                        self._report.add(case, "not_carried_out", refused, "creates")
                    self._seconds.setdefault((kilobytes, load, state), []).extend(taken)
                    if state is State.ON and load in TARGET_LOADS:
                        now = await self._buckets()
                        for end, number in now.items():
                            histogram[end] = histogram.get(end, 0.0) + number - before.get(end, 0.0)
                    before = await self._buckets()
        self._handled[kilobytes] = histogram

    # -- the webhook, on and off -------------------------------------------------------------------------------------

    async def register_bare(self, url: str, ca: bytes) -> None:
        """Learn what the webhook has registered, and have the bare one called for the same, at this address."""
        self._configurations[State.ON] = found = []
        for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
            configuration = await self._api.get(resource, "atoll")
            meta = {key: configuration["metadata"][key] for key in ("name", "labels", "annotations")}
            found.append((resource, {**configuration, "metadata": meta}))
        bundle = base64.b64encode(ca).decode()
        self._configurations[State.BARE] = [
            (
                resource,
                {
                    **configuration,
                    "metadata": {"name": _BARE},
                    "webhooks": [
                        {
                            **each,
                            "clientConfig": {"url": url + URL(each["clientConfig"]["url"]).path, "caBundle": bundle},
                        }
                        for each in configuration["webhooks"]
                        if each["rules"][0]["apiGroups"] == [JOBS.group]
                    ],
                },
            )
            for resource, configuration in found
        ]

    async def _switch(self, state: State) -> None:
        """Remove the configurations of one state and create those of another."""
        if state is not self._state:
            for resource, configuration in self._configurations[self._state]:
                await self._api.delete(resource, configuration["metadata"]["name"])
            for resource, configuration in self._configurations[state]:
                await self._api.create(resource, configuration)
            self._state = state
        probe = creation(JOBS, self._job(1))
        end = asyncio.get_running_loop().time() + _READY_S
        while asyncio.get_running_loop().time() < end:
            raw = await self._api.request("POST", probe.path, body=probe.body, params={"dryRun": "All"})
            if ("queue" in orjson.loads(raw)["spec"]) == (state is not State.OFF):
                # From one webhook to the other the probe shows nothing: the server has had its time nevertheless.
                await asyncio.sleep(_SETTLE_S)
                return
            await asyncio.sleep(0.1)
        raise RuntimeError(f"the server does not follow to '{state}' within {_READY_S:.0f} s")

    async def _buckets(self) -> dict[float, float]:
        """Reviews of Jobs so far, by the upper end of their bucket (not cumulative)."""
        async with aiohttp.ClientSession() as session, session.get(self._metrics) as answer:
            text = await answer.text()
        cumulative: dict[float, float] = {}
        for family in text_string_to_metric_families(text):
            if family.name == "atoll_webhook_review_seconds":
                for sample in family.samples:
                    if sample.name.endswith("_bucket"):
                        end = float(sample.labels["le"])
                        cumulative[end] = cumulative.get(end, 0.0) + sample.value
        found, below = {}, 0.0
        for end in sorted(cumulative):
            found[end] = cumulative[end] - below
            below = cumulative[end]
        return found

    # -- load --------------------------------------------------------------------------------------------------------

    def _job(self, kilobytes: int) -> dict[str, Any]:
        self._serial += 1
        return job_object(f"job-{self._serial:07}", kilobytes)

    async def _fast(self, kilobytes: int, count: int) -> float:
        jobs = [self._job(kilobytes) for _ in range(count)]
        answers = await send(self._host, [creation(JOBS, job) for job in jobs], lossy=True)
        made = [job for job, answer in zip(jobs, answers, strict=True) if answer]
        if not made:
            raise RuntimeError(f"the server carried out none of {count} creates of {kilobytes} kB")
        events = await self._logged({job["metadata"]["name"] for job in made})
        began = min(each.request_received_timestamp.timestamp() for each in events)
        return rate(len(events), max(each.at for each in events) - began)

    async def _steady(self, kilobytes: int, per_second: float) -> tuple[list[float], int]:
        """Seconds that the server took for each create, and how many it did not carry out."""
        warm, count = (max(int(per_second * seconds), 5) for seconds in (self._warm_up_s, self._params["seconds"]))
        jobs = [self._job(kilobytes) for _ in range(warm + count)]
        refused: list[tuple[float, str]] = []
        timed = [(number / per_second, creation(JOBS, job)) for number, job in enumerate(jobs)]
        await open_loop(self._api, timed, refused)
        lost = {at for at, _ in refused}
        made = {job["metadata"]["name"] for job, (at, _) in zip(jobs, timed, strict=True) if at not in lost}
        events = await self._logged(made)
        # The first ones open the connections between server and webhook.
        measured = {job["metadata"]["name"] for job in jobs[warm:]}
        taken = [
            each.at - each.request_received_timestamp.timestamp() for each in events if each.object_ref.name in measured
        ]
        return taken, len(refused)

    async def _logged(self, names: set[str]) -> list[audit.Event]:
        def made(events: Sequence[audit.Event]) -> list[audit.Event]:
            return [each for each in events if each.wrote(JOBS.plural, "create") and each.object_ref.name in names]

        events = made(await read_log(self._host.audit_log, lambda all_: len(made(all_)) >= len(names)))
        await clear(self._api, JOBS, _WHERE)
        return events

    # -- figures -----------------------------------------------------------------------------------------------------

    def _add_latencies(self) -> None:
        for kilobytes, load in dict.fromkeys((each, load) for each, load, _ in self._seconds):
            taken = {state: self._seconds[kilobytes, load, state] for state in State}
            case = f"{kilobytes} kB at {load} % of the bound"
            if not all(taken.values()):
                self._report.remarks.append(f"no latencies of {case}: the server carried nothing out")
                continue
            for state in State:
                self._report.add_latency(f"{case}, {state}", taken[state])
            added, least = (
                {p: (percentile(taken[state], p) - percentile(taken[State.OFF], p)) * 1000 for p in (50, 99)}
                for state in (State.ON, State.BARE)
            )
            for p in (50, 99):
                self._report.add(case, f"added_p{p}", added[p], "ms", least[p])
            if load in TARGET_LOADS:
                self._judge(f"added P50, {case}", added[50], ADDED_P50_MS, f"; a bare webhook adds {least[50]:.2f} ms")

    def _add_handler(self) -> None:
        for kilobytes, histogram in self._handled.items():
            case = f"handler, {kilobytes} kB"
            self._report.add(case, "reviews", sum(histogram.values()), "reviews")
            for percent in (50, 99):
                self._report.add(case, f"p{percent}", quantile(histogram, percent) * 1000, "ms")
            self._judge(f"P99 of the {case}", quantile(histogram, 99) * 1000, HANDLER_P99_MS[kilobytes])

    def _judge(self, what: str, value: float, most: float, beside: str = "") -> None:
        verdict = "met" if value <= most else "MISSED"
        self._report.remarks.append(f"target {what}: at most {most:g} ms: {verdict} with {value:.2f} ms{beside}")


def quantile(histogram: dict[float, float], percent: float) -> float:
    """The upper end of the bucket that the nearest-rank percentile is in; 0 where nothing was counted."""
    rank = math.ceil(percent / 100 * sum(histogram.values()))
    seen = 0.0
    for end in sorted(histogram):
        seen += histogram[end]
        if rank and seen >= rank:
            # What is beyond the last bucket has no end: one that fits into JSON and misses every target.
            return end if math.isfinite(end) else 60.0
    return 0.0


def job_object(name: str, kilobytes: int) -> dict[str, Any]:
    """A Job of about this size, filled as real ones are: tasks, containers, resources and environment."""
    job: dict[str, Any] = {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {"name": name, "namespace": _WHERE, "labels": {"app": "train"}},
        "spec": {"tasks": []},
    }
    while not job["spec"]["tasks"] or len(orjson.dumps(job)) < kilobytes * 1000 - 2000:
        share = {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1"}
        env = [{"name": f"SETTING_{n}", "value": f"value-of-setting-{n}"} for n in range(24)]
        container: dict[str, Any] = {
            "name": "main",
            "image": "registry.example/train:1",
            "command": ["python", "-m", "train"],
        }
        container |= {"env": env, "resources": {"requests": share, "limits": share}}
        pod = {"restartPolicy": "Never", "containers": [container]}
        task = {"name": f"role-{len(job['spec']['tasks'])}", "replicas": 4, "template": {"spec": pod}}
        job["spec"]["tasks"].append(task)
    missing = kilobytes * 1000 - len(orjson.dumps(job)) - len(',"annotations":{"note":""}')
    job["metadata"]["annotations"] = {"note": "x" * max(missing, 0)}
    return job


if __name__ == "__main__":
    run(NAME, DESCRIPTION, options, measure)
