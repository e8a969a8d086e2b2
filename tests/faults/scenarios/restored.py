"""The store is put back to an earlier state: versions and epochs go back, and every cache must list again."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path

from tests.chaos.plan import Submission
from tests.chaos.servers import STORE
from tests.faults.ground import Ground, jobs

#: The log tells of a time that the store has forgotten: it has epochs, pods and statuses that were undone, and those
#: which were made since are made once more.
EXEMPT = frozenset(
    {"decided once", "decisions kept", "final stays final", "ran once", "one epoch at a time", "lost pods go"}
)


def wishes(quick: bool) -> list[Submission]:
    """All are known to the store before it is copied; what it never knew its users must apply again."""
    return jobs("restored", 16 if quick else 60, every=0.05)


async def play(ground: Ground) -> None:
    store = ground.servers.of(STORE)
    data = Path(next(each for each in store.spec.argv if each.startswith("--data-dir=")).partition("=")[2])
    copy = data.with_name("etcd-copy")
    await ground.sleep(ground.size(8, 4))
    copied = await _stopped(ground, lambda: shutil.copytree(data, copy), "copied")
    await ground.sleep(ground.size(20, 8))

    def put_back() -> None:
        shutil.rmtree(data)
        shutil.copytree(copy, data)
        shutil.rmtree(copy)

    ground.undone = copied, await _stopped(ground, put_back, "put back")
    await _begin_anew(ground)


async def _stopped(ground: Ground, change: object, what: str) -> float:
    """Change the store's files while it and all API servers are down; when that was."""
    servers = [ground.servers.of(name) for name in (STORE, "host", *ground.members)]
    began = time.time()
    async with ground.fault(f"outage (the store is {what})", STORE):
        for server in reversed(servers):
            await ground.servers.kill(server)
        changed = time.time()
        await asyncio.to_thread(change)  # type: ignore[arg-type]
        for server in servers:
            await server.start()
            await server.wait_ready(ground.ready_s)
        ground.checkpoints += await ground.servers.settle(ground.members, began, store=True)
    return changed


async def _begin_anew(ground: Ground) -> None:
    """Restart Kubernetes' controllers: their caches hold later versions, and they do not list again.

    https://kubernetes.io/docs/tasks/administer-cluster/configure-upgrade-etcd/#restoring-an-etcd-cluster asks for it.
    """
    for process in ground.federation.federation.processes.processes:
        if process.spec.name.endswith(("-controller-manager", "-scheduler")):
            await process.stop()
            await process.start()
            await process.wait_ready(ground.ready_s)
