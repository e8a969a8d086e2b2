"""SIGKILL of every process of Atoll, of every API server and of the store while 100 jobs run."""

from __future__ import annotations

from tests.chaos.plan import Submission
from tests.faults.ground import Ground, jobs

EXEMPT: frozenset[str] = frozenset()


def wishes(quick: bool) -> list[Submission]:
    return jobs("killed", 20 if quick else 100)


async def play(ground: Ground) -> None:
    """Each process once, alone; then all of Atoll at one moment; then each server."""
    processes = ground.federation.processes
    for process in processes.values():
        async with ground.fault("killed", process.name):
            process.kill()
            await process.ready(ground.ready_s)
    async with ground.fault("killed", "all of Atoll"):
        for process in processes.values():
            process.kill()
        for process in processes.values():
            await process.ready(ground.ready_s)
    for server in ("host", *ground.members, "etcd"):
        await ground.outage(server, 1)
