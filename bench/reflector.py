"""What a cache costs: events decoded per second of one core, and 100,000 pods read from a real API server.

In process, watch events made beforehand go through the very path that a stream's lines go through; seconds are CPU
seconds, so that a busy machine does not count. The cache of real pods is a process of its own (`bench.follower`), since
what it costs in memory could not be told apart in this one.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import orjson

from atoll.agent.objects import decode_pod
from atoll.kube.reflector import Reflector
from atoll.local.layout import RAISED_LIMITS
from atoll.local.processes import python_path
from atoll.model.apiresource import PODS
from bench import machine
from bench.follower import SlimPod, decode_slim
from bench.host import bare
from bench.load import namespace, workspace
from bench.report import Progress, Report, median, progress, rate, run, sizes
from bench.seed import pod_object, put

NAME = "reflector"
DESCRIPTION = "Decoded watch events per second of one core; time and memory of a cache of many pods."
BOUND = (
    "events: one bare msgspec decode of the same lines into the same structs, nothing kept; synced: a bare aiohttp "
    "client that reads the same pages (500 pods) and drops them, before and after; memory: the target"
)
FULL: dict[str, Any] = {"events": 50_000, "pods": 100_000, "repeats": 3}
QUICK: dict[str, Any] = {"events": 2_000, "pods": 2_000, "repeats": 1}
TARGET_EVENTS = 50_000.0
TARGET_MB = 250.0
_CHILD_S = 600.0


class _Whole(msgspec.Struct, frozen=True, gc=False):
    type: str
    object: SlimPod


def options(parser: argparse.ArgumentParser) -> None:
    """The sizes."""
    parser.add_argument("--events", type=int, help="watch events, each of another pod")
    parser.add_argument("--pods", type=int, help="pods in the API server; 0 leaves it out")
    parser.add_argument("--repeats", type=int, help="of the events; medians count")
    parser.add_argument("--directory", type=Path, help="keep data and logs here (default: a folder that is removed)")


def measure(chosen: argparse.Namespace, told: Progress = progress) -> Report:
    """Run it."""
    params = sizes(chosen, QUICK, FULL)
    report = Report(NAME, {**params, "in_flight_limits": RAISED_LIMITS, "bound": BOUND})
    told("events in process")
    asyncio.run(_events(report, params["events"], params["repeats"]))
    if params["pods"]:
        with workspace(chosen.directory) as directory:
            asyncio.run(_pods(report, params["pods"], directory, told))
    return report


async def _events(report: Report, count: int, repeats: int) -> None:
    lines = [_line("ADDED", number, number + 1) for number in range(count)]
    whole = msgspec.json.Decoder(_Whole).decode

    def bare() -> None:
        for line in lines:
            whole(line)

    def through(decode: Callable[[Any], Any]) -> Callable[[], None]:
        def feed() -> None:
            cache: Reflector[Any] = Reflector(None, PODS, decode)  # type: ignore[arg-type]
            for line in lines:
                cache.take_line(line)
            assert len(cache) == count

        return feed

    bound = rate(count, median(_cpu(bare, repeats)))
    case = f"{count} pods added, {len(lines[0])} bytes each"
    reached = rate(count, median(_cpu(through(decode_slim), repeats)))
    report.add(case, "decoded_events_per_s", reached, "1/s", bound)
    report.add(
        f"{case}, all that the agent keeps",
        "decoded_events_per_s", rate(count, median(_cpu(through(decode_pod), repeats))), "1/s", bound,
    )  # fmt: skip
    met = "met" if reached >= TARGET_EVENTS else "MISSED"
    report.remarks.append(f"target: at least {TARGET_EVENTS:,.0f} decoded events per second of a core; {met}")


def _line(type_: str, number: int, version: int) -> bytes:
    obj = pod_object("bench", number)
    obj["metadata"]["resourceVersion"] = str(version)
    return orjson.dumps({"type": type_, "object": obj})


def _cpu(work: Callable[[], None], repeats: int) -> list[float]:
    """CPU seconds of each repeat."""
    found = []
    for _ in range(repeats):
        before = time.thread_time()
        work()
        found.append(time.thread_time() - before)
    return found


async def _pods(report: Report, count: int, directory: Path, told: Progress) -> None:
    async with bare(directory, told) as (federation, api):
        # Its garbage collector would remove pods whose owners and nodes there are not.
        for process in federation.processes.processes:
            if process.spec.name == "host-controller-manager":
                await process.stop()
        await namespace(api, "bench")
        told(f"{count} pods")
        await put(federation, PODS, (pod_object("bench", number) for number in range(count)))
        found: dict[str, list[dict[str, float]]] = {}
        before = machine.sample({})
        # The first reader finds a cold server, the last one a warm one: the bare client is both.
        for mode in ("bare", "pages", "stream", "agent", "bare"):
            told(f"{mode}: {count} pods")
            found.setdefault(mode, []).append(await _follower(federation.host.kubeconfig, mode))
        others = machine.others(before, machine.sample({}))
    bound = median(each["seconds"] for each in found.pop("bare"))
    names = {
        "pages": "slim pods, listed", "stream": "slim pods, by watch-list", "agent": "all that the agent keeps, listed",
    }  # fmt: skip
    for mode, (seen,) in found.items():
        if seen["objects"] != count:
            raise RuntimeError(f"{mode}: {seen['objects']:.0f} of {count} pods were read")
        case = f"{count} {names[mode]}"
        report.add(case, "synced", seen["seconds"], "s", bound)
        report.add(case, "rss", seen["rss"], "MB", TARGET_MB)
        report.add(case, "rss_before", seen["rss_before"], "MB")
        report.add(case, "longest_turn", seen["worst_turn"] * 1000, "ms")
    report.add("the machine", "not_idle", others, "share")
    met = "met" if found["pages"][0]["rss"] <= TARGET_MB else "MISSED"
    report.remarks.append(f"target: a cache of 100,000 pods in {TARGET_MB:.0f} MB, process included; {met}")


async def _follower(kubeconfig: Path, mode: str) -> dict[str, float]:
    argv: Sequence[str] = [sys.executable, "-m", "bench.follower", f"--kubeconfig={kubeconfig}", f"--mode={mode}"]
    child = await asyncio.create_subprocess_exec(
        *argv, env={"PYTHONPATH": python_path()}, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(_CHILD_S):
            out, err = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode:
        raise RuntimeError(f"bench.follower --mode={mode} failed: {err.decode()[-2000:]}")
    result: dict[str, float] = orjson.loads(out.splitlines()[-1])
    return result


if __name__ == "__main__":
    run(NAME, DESCRIPTION, options, measure)
