"""A host without members: the real API server with Atoll's APIs and, when a benchmark wants one, a real dispatcher.

Members are objects only, and whoever measures plays the parts of control and of the agents.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path

import aiohttp

from atoll import install
from atoll.kube.transport import ApiServer
from atoll.local.binaries import ensure
from atoll.local.cluster import ClusterHandle
from atoll.local.federation import Federation
from atoll.local.layout import FederationConfig
from atoll.local.ports import free_ports
from atoll.local.processes import Process, ProcessSpec, python_path
from atoll.model import keys
from atoll.model.apiresource import CAPACITIES, CLUSTERS, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from bench import machine
from bench.load import namespace, without_policies
from bench.objects import capacity_object, cluster_object, condition
from bench.report import Progress

DISPATCHER_ACCOUNT = f"system:serviceaccount:{keys.SYSTEM_NAMESPACE}:atoll-dispatcher"
RESUMED = b'"suspension":{"scheduling":false}'
"""Marks a dispatched binding in its JSON."""
_PENDING = re.compile(r"^atoll_queue_pending\{[^}]*\} ([0-9.e+]+)$", re.MULTILINE)
_PASSES = re.compile(r"^atoll_dispatcher_pass_seconds_count ([0-9.e+]+)$", re.MULTILINE)
_PENDING_S = 120.0


@contextlib.asynccontextmanager
async def bare(directory: Path, told: Progress) -> AsyncIterator[tuple[Federation, ApiServer]]:
    """The API server with Atoll's APIs alone, and an administrator's client."""
    binaries = await asyncio.to_thread(ensure, report=lambda _: None)
    # The model of the configuration asks for a member, the federation does not.
    config = FederationConfig.model_construct(members=[], raised_limits=True)
    async with (
        Federation(
            config, directory=directory, binaries=binaries, crds=install.host_crds(), on_progress=told
        ) as federation,
        await federation.host.connect() as api,
    ):
        yield federation, api


@contextlib.asynccontextmanager
async def installed(directory: Path, told: Progress) -> AsyncIterator[Host]:
    """A host on which `init` was run, and where an administrator may write what is otherwise Atoll's processes' own."""
    async with bare(directory, told) as (federation, api):
        out = directory / "credentials"
        at = await install.endpoint(federation.host.kubeconfig)
        await install.init(api, at, out=out, webhook_client_config={"url": "https://127.0.0.1:1"})
        await without_policies(api)
        for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
            # No webhook runs.
            await api.delete(resource, keys.WEBHOOKS)
        yield Host(federation, api, install.kubeconfig_of(out, "dispatcher"))


class Host:
    """See `installed`."""

    def __init__(self, federation: Federation, api: ApiServer, dispatcher_kubeconfig: Path) -> None:
        self.federation, self.api = federation, api
        self._kubeconfig = dispatcher_kubeconfig
        #: the one that runs, or ran last
        self._dispatcher: Dispatcher | None = None

    @property
    def handle(self) -> ClusterHandle:
        """Address, credentials and audit log."""
        return self.federation.host

    async def add_members(self, names: Iterable[str]) -> None:
        """Members that are ready and have not said what they hold."""
        for name in names:
            await namespace(self.api, keys.execution_namespace(name))
            await self.api.create(CLUSTERS, cluster_object(name))
            status = {"conditions": [condition("Ready")]}
            await self.api.merge_patch(CLUSTERS, name, {"status": status}, subresource="status")

    async def give_room(self, names: Iterable[str], nodes: int) -> None:
        """So many empty nodes in each of the members."""
        await asyncio.gather(*(self.api.create(CAPACITIES, capacity_object(name, nodes)) for name in names))

    @contextlib.asynccontextmanager
    async def dispatcher(
        self, name: str = "atoll-dispatcher", *flags: str, query: bool = False
    ) -> AsyncIterator[Dispatcher]:
        """A dispatcher that was just started, with a log of its own; with the query API where that is wanted."""
        log = self.federation.directory / "logs" / f"{name}.log"
        log.unlink(missing_ok=True)
        started = self._dispatcher = Dispatcher(self._kubeconfig, log, *flags, query=query)
        await started.process.start()
        try:
            yield started
        finally:
            await started.process.stop()

    def sample(self) -> machine.Sample:
        """CPU clocks of the host's processes and of the dispatcher."""
        processes = [*self.federation.processes.processes]
        if self._dispatcher is not None:
            processes.append(self._dispatcher.process)
        return machine.sample({process.spec.name: process.pid for process in processes})


class Dispatcher:
    """The production process."""

    def __init__(self, kubeconfig: Path, log: Path, *flags: str, query: bool = False) -> None:
        self._port, asked = free_ports(2)
        #: those on which it listens
        self.ports = [self._port, asked] if query else [self._port]
        argv = [sys.executable, "-m", "atoll.dispatcher", f"--kubeconfig={kubeconfig}", *flags]
        argv += [f"--health-port={self._port}", f"--query-port={asked if query else 0}"]
        self.process = Process(ProcessSpec("atoll-dispatcher", argv, {"PYTHONPATH": python_path()}), log)

    async def leads(self) -> None:
        """Wait until it leads and has decided on something.

        Raises:
            ProcessFailed: it exited.
            RuntimeError: that is not so after two minutes.
        """
        await self._until(lambda passes, _: passes > 0, "it leads")

    async def follows(self) -> None:
        """Wait until it stands by and has read everything.

        Raises:
            ProcessFailed: it exited.
            RuntimeError: that is not so after two minutes.
        """
        deadline = time.monotonic() + 120.0
        while b'"event":"following"' not in self.process.log.read_bytes().replace(b" ", b""):
            if not self.process.running:
                raise self.process.failure()
            if time.monotonic() > deadline:
                raise RuntimeError(f"it did not follow within 120 s, see {self.process.log}")
            await asyncio.sleep(0.05)

    async def pending(self, count: int) -> None:
        """Wait until it leads, has looked at everything, and so many bindings wait, as its metrics tell.

        Raises:
            ProcessFailed: it exited.
            RuntimeError: that is not so after two minutes.
        """
        await self._until(lambda passes, waiting: bool(passes) and waiting == count, f"{count} bindings wait")

    async def _until(self, met: Callable[[float, float], bool], what: str) -> None:
        end = time.monotonic() + _PENDING_S
        async with aiohttp.ClientSession(f"http://127.0.0.1:{self._port}") as session:
            while time.monotonic() < end:
                if not self.process.running:
                    raise self.process.failure()
                with contextlib.suppress(aiohttp.ClientConnectorError):
                    async with session.get("/metrics") as answer:
                        text = await answer.text()
                    passes, waiting = (sum(map(float, each.findall(text))) for each in (_PASSES, _PENDING))
                    if met(passes, waiting):
                        return
                await asyncio.sleep(0.05)
        raise RuntimeError(f"the dispatcher does not say within {_PENDING_S:.0f} s that {what}")
