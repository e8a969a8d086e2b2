"""A process of `atoll.kube.process` for tests of its end: `python -m tests.kube.ending URL HOW [flags]`.

It writes to the API server at URL from a work queue, for ever. HOW is `well`, or what does not want to end: `deaf` is
a task that swallows its cancellation, `blocked` one that stops the loop then, `failing` one that fails at once.
"""

from __future__ import annotations

import asyncio
import sys
import time

from atoll.kube import process
from atoll.kube.config import Connection
from atoll.kube.settings import ProcessSettings, load
from atoll.kube.transport import ApiServer
from atoll.kube.workqueue import WorkQueue
from atoll.model.apiresource import PODS
from tests.kube.servers import nobody


def main() -> None:
    url, how = sys.argv[1:3]
    settings = load(ProcessSettings, "test", "ends", ["--health-port=0", *sys.argv[3:]])

    async def setup(running: process.Process) -> None:
        api = ApiServer(Connection(url, None, nobody))
        running.stack.push_async_callback(api.close)
        queue: WorkQueue[str] = WorkQueue("writes", lambda key: {"workload": key})

        async def write(key: str) -> None:
            await api.merge_patch(PODS, key, {"metadata": {}}, "ns")
            queue.add(key)

        for number in range(4):
            queue.add(f"p{number}")
        running.add_task("writes", queue.run(write, workers=4))
        running.add_task(how, _tasks[how]())

    process.run("test", settings, setup)


async def _well() -> None:
    await asyncio.Event().wait()


async def _deaf() -> None:
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            continue


async def _blocked() -> None:
    try:
        await asyncio.Event().wait()
    finally:
        time.sleep(60)  # noqa: ASYNC251


async def _failing() -> None:
    await asyncio.sleep(0.1)
    raise RuntimeError("a bug, and a secret: Bearer abcdefghijklmnop")


_tasks = {"well": _well, "deaf": _deaf, "blocked": _blocked, "failing": _failing}

if __name__ == "__main__":
    main()
