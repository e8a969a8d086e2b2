"""A process that reads all pods of an API server and holds them, and says what that took: `python -m bench.follower`.

A process of its own, because what a cache costs in memory can't be told apart in one that did other things before.
Prints one JSON object: seconds from the first request to the last object, resident memory before and after, its peak,
and the longest time that the process computed without giving its event loop a turn (CPU time, so that it does not
depend on who else is on the machine).
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path

import msgspec
import orjson

from atoll.agent.objects import decode_pod
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.model.apiresource import PODS, ApiResource
from atoll.model.objects import Slim

MODES = ("bare", "pages", "stream", "agent")


class _Spec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    node_name: str = ""


class _Status(msgspec.Struct, frozen=True, gc=False):
    phase: str = ""


class SlimPod(Slim, frozen=True, rename="camel"):
    """Metadata, where it runs, and its phase: what counting needs."""

    spec: _Spec = _Spec()
    status: _Status = _Status()


decode_slim = msgspec.json.Decoder(SlimPod).decode


async def read_and_discard(api: ApiServer, resource: ApiResource = PODS) -> int:
    """The bound: every page fetched, nothing of it looked at but where the next one begins. Bytes read."""
    total, follow = 0, ""
    mark = b'"continue":"'
    while True:
        params = {"limit": "500", **({"continue": follow} if follow else {})}
        body = await api.request("GET", resource.path(), params=params)
        total += len(body)
        # Built-in resources begin with the list's metadata, custom ones end with it.
        at = body.find(mark, 0, 1024)
        if at < 0:
            at = body.find(mark, max(len(body) - 1024, 0))
        if at < 0:
            return total
        follow = body[at + len(mark) : body.index(b'"', at + len(mark))].decode()
        if not follow:
            # Custom resources say so in so many words on their last page.
            return total


def resident(field: str = "VmRSS") -> float:
    """MB of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (value,) = (line.split()[1] for line in lines if line.startswith(f"{field}:"))
    return int(value) / 1024


async def _worst_turn(worst: list[float]) -> None:
    """Keep the most CPU seconds between two turns of this task, which asks for one every millisecond."""
    before = time.thread_time()
    while True:
        await asyncio.sleep(0.001)
        now = time.thread_time()
        worst[0] = max(worst[0], now - before)
        before = now


async def _follow(kubeconfig: Path, mode: str) -> dict[str, float]:
    async with await ApiServer.from_kubeconfig(kubeconfig, user_agent="bench") as api:
        before, worst, objects = resident(), [0.0], 0
        started = time.perf_counter()
        if mode == "bare":
            await read_and_discard(api)
            seconds = time.perf_counter() - started
        else:
            watcher = asyncio.create_task(_worst_turn(worst))
            decode = decode_pod if mode == "agent" else decode_slim
            cache: Reflector[SlimPod] = Reflector(api, PODS, decode, watch_list=mode == "stream")  # type: ignore[arg-type]
            following = asyncio.create_task(cache.run())
            await cache.synced.wait()
            seconds = time.perf_counter() - started
            await asyncio.sleep(0.5)
            objects = len(cache)
            for task in (following, watcher):
                task.cancel()
            await asyncio.gather(following, watcher, return_exceptions=True)
        return {
            "seconds": seconds, "objects": objects, "rss_before": before, "rss": resident(),
            "peak": resident("VmHWM"), "worst_turn": worst[0],
        }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.follower", description=__doc__.partition("\n")[0])
    parser.add_argument("--kubeconfig", type=Path, required=True, help="of the API server")
    parser.add_argument(
        "--mode", choices=MODES, default="pages",
        help="bare: fetch and discard; pages, stream: a Reflector; agent: a Reflector with what the agent keeps",
    )  # fmt: skip
    chosen = parser.parse_args()
    sys.stdout.buffer.write(orjson.dumps(asyncio.run(_follow(chosen.kubeconfig, chosen.mode))) + b"\n")


if __name__ == "__main__":
    main()
