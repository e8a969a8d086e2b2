"""The API servers of a federation and their store: killed, started again, and the pods that are there afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Iterable

from atoll.kube import errors
from atoll.local.atoll_federation import AtollFederation
from atoll.local.processes import Process
from atoll.model.apiresource import LEASES, PODS
from tests.chaos.plan import NAMESPACE
from tests.chaos.record import ENDED, HOST, Checkpoint

STORE = "etcd"
_NODE_LEASES = "kube-node-lease"


class Servers:
    """Those of one federation."""

    def __init__(self, federation: AtollFederation, ready_s: float) -> None:
        """No I/O happens here. `ready_s`: seconds within which each must be back."""
        self._federation, self._ready_s = federation, ready_s

    def of(self, name: str) -> Process:
        """The API server of a cluster, or the store."""
        return self.process(name if name == STORE else f"{name}-apiserver")

    def process(self, name: str) -> Process:
        """One of those that are not Atoll's."""
        return next(each for each in self._federation.federation.processes.processes if each.spec.name == name)

    async def outage(self, name: str, seconds: float) -> list[Checkpoint] | None:
        """Kill one and start it again after so many seconds; the pods of members afterwards. None: it was down."""
        server, began = self.of(name), time.time()
        if server.pid is None or not server.running:
            return None
        await self.kill(server)
        await asyncio.sleep(seconds)
        await server.start()
        await server.wait_ready(self._ready_s)
        return await self.settle(self._federation.members if name == STORE else (name,), began, store=name == STORE)

    async def kill(self, server: Process) -> None:
        """End it at once."""
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        await server.wait()

    async def settle(self, members: Iterable[str], since: float, *, store: bool) -> list[Checkpoint]:
        """Wait for what needs a server that is back; the pods of these members now."""
        if store:
            for cluster in (HOST, *self._federation.members):
                await self.of(cluster).wait_ready(self._ready_s)
        found = []
        for member in members:
            if member != HOST:
                found.append(await self.checkpoint(member, since))
                # Real kubelets repeat a status that was refused; the simulated ones do when they start.
                kubelets = self.process(f"{member}-kwok")
                await kubelets.stop()
                await self._free_nodes(member)
                await kubelets.start()
                await kubelets.wait_ready(self._ready_s)
        return found

    async def _free_nodes(self, member: str) -> None:
        """Drop the Leases of a member's nodes: kwok has another identity after each start, and waits 40 s for its own."""
        async with await self._federation.members[member].connect() as api:
            for lease in await api.list(LEASES, _NODE_LEASES):
                with contextlib.suppress(errors.ApiError):
                    await api.delete(LEASES, lease["metadata"]["name"], _NODE_LEASES)

    async def checkpoint(self, member: str, since: float) -> Checkpoint:
        """The suite's pods in a member that has just come back."""
        end = time.monotonic() + self._ready_s
        async with await self._federation.members[member].connect() as api:
            while True:
                at = time.time()
                try:
                    pods = await api.list(PODS, NAMESPACE)
                except errors.ApiError:
                    if time.monotonic() > end:
                        raise
                    await asyncio.sleep(0.2)
                else:
                    phases = {pod["metadata"]["uid"]: pod["status"].get("phase") for pod in pods}
                    ended = {uid: phase == "Succeeded" for uid, phase in phases.items() if phase in ENDED}
                    return Checkpoint(member, since, at, frozenset(phases), ended)
