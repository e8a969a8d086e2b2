"""A federation with Atoll in it: host and members prepared by `init` and `join`, and every process of Atoll running.

Tests, benchmarks and the demo use `AtollFederation`; the command line reaches the same through `EXTENSION`.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from atoll import install
from atoll.local import keeper
from atoll.local.binaries import Binaries, ensure
from atoll.local.cluster import ClusterHandle, at
from atoll.local.federation import Federation
from atoll.local.install import wait_until
from atoll.local.keeper import KeptProcess
from atoll.local.layout import FederationConfig, Member
from atoll.local.ports import free_ports
from atoll.local.processes import ProcessSpec, python_path
from atoll.local.supervisor import Extension
from atoll.model.apiresource import CLUSTERS
from atoll.model.conditions import condition, is_true

_START_S = 60.0
_START_S_PER_PROCESS = 5.0
"""Twenty Python processes on two cores take a while each."""
QUICK_ELECTION = ("--lease-seconds=5", "--renew-deadline=3.5", "--retry-period=1")
"""Flags of control, dispatcher and agents: a standby takes over in seconds. Too brief for a machine under load."""
_ENABLED = ("default",)
"""Namespaces that are opted in on the host, and accepted by the members, which all have them."""

_USUAL = {"webhook": ("--linger-seconds=1",)}
"""Nothing is in front of the webhook here that has to hear of its end."""
OWN_NODES = "!atoll.sh/shared"
"""Nodes of a member with placer `atoll`: all but those with this label, so that nodes that are added count as well."""
_REPLICATED = ("control", "dispatcher", "agent")
"""The webhook's replicas would need a Service in front of them."""

Progress = Callable[[str], None]
Through = Callable[[str, Path], Path]
"""Given a process' name and one of its kubeconfigs, names the file to start it with instead."""


class Atoll:
    """Atoll's processes on top of a running federation."""

    def __init__(
        self,
        federation: Federation,
        *,
        leave_out: Sequence[str] = (),
        replicas: Mapping[str, int] | None = None,
        flags: Mapping[str, Sequence[str]] | None = None,
        through: Through = lambda _, kubeconfig: kubeconfig,
        on_karmada: bool = False,
        progress: Progress = lambda _: None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """No I/O happens here.

        Args:
            federation: started, its nodes created.
            leave_out: names of processes that are prepared but not started, such as `atoll-dispatcher`.
            replicas: `{"control": 2}` for a second one, named `atoll-control-2`; `agent` is about those of each member.
            flags: `{"control": [...]}`, given to each replica in addition; `agent` to all agents, `agent-east` to that
                of member `east`.
            through: called before the processes start, once per kubeconfig of each: twice for an agent, whose file
                for the host ends in `.host.kubeconfig` and whose file for its member in `.member.kubeconfig`.
            on_karmada: the host is a Karmada's API server: no member is joined, no agent runs.
            progress: gets a line per step.
            on_change: called whenever a process was started.

        Raises:
            ValueError: `replicas` or `flags` name what can't have them.
        """
        self._replicas, self._flags = dict(replicas or {}), dict(flags or {})
        if wrong := [name for name in self._replicas if name not in _REPLICATED]:
            raise ValueError(f"replicas of {', '.join(wrong)}: only {' and '.join(_REPLICATED)} can have them here")
        members = [f"agent-{member.name}" for member in federation.config.members]
        known = (*install.PROCESSES, "agent", *members)
        if wrong := [name for name in self._flags if name not in known]:
            raise ValueError(f"flags for {', '.join(wrong)}: there are {', '.join(known)}")
        self._federation = federation
        self._address = federation.config.address
        self._leave_out = frozenset(leave_out)
        self._through = through
        self._on_karmada = on_karmada
        self._progress = progress
        self._on_change = on_change
        #: name -> process, in the order of their start; filled by start()
        self.processes: dict[str, KeptProcess] = {}

    @property
    def credentials(self) -> Path:
        """Folder of the kubeconfigs of all processes; it goes when the federation's data does."""
        return self._federation.host.kubeconfig.parent / "atoll"

    async def start(self) -> None:
        """Init, join every member, start all processes; return when all are ready, and members too if none is left out.

        Raises:
            Refused: a cluster can't be prepared.
            ProcessFailed: a process does not become ready; nothing of Atoll is left running.
            TimeoutError: likewise a member.
        """
        processes = sum(self._replicas.get(name, 1) for name in install.PROCESSES)
        processes += self._replicas.get("agent", 1) * len(self._members)
        dispatchers = self._replicas.get("dispatcher", 1)
        webhook_port, *ports = free_ports(1 + dispatchers + processes, self._address)
        query_ports, health_ports = ports[:dispatchers], ports[dispatchers:]
        await self._install(f"https://{at(self._address, webhook_port)}")
        logs = self._federation.directory / "logs"
        for spec in self._specs(health_ports, query_ports):
            self.processes[spec.name] = KeptProcess(spec, logs, self._on_change)
        started = [process for name, process in self.processes.items() if name not in self._leave_out]
        self._progress(f"starting {len(started)} processes of Atoll")
        try:
            await keeper.start_all(started, _START_S + _START_S_PER_PROCESS * len(started), self._progress)
            if not self._leave_out:
                await self._members_ready()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop all processes. Safe to repeat."""
        await asyncio.gather(*(process.stop() for process in self.processes.values()))

    async def _members_ready(self) -> None:
        """Return once work may go to every member."""
        async with await self._federation.host.connect() as api:

            async def missing() -> str:
                clusters = await api.list(CLUSTERS)
                ready = {each["metadata"]["name"] for each in clusters if is_true(condition(each, "Ready"))}
                return ", ".join(name for name in self._members if name not in ready)

            await wait_until(missing, "members", _START_S)

    async def _install(self, webhook_url: str) -> None:
        host = self._federation.host
        at = await install.endpoint(host.kubeconfig)
        async with await host.connect() as api:
            self._progress("preparing the host")
            await install.init(
                api,
                at,
                out=self.credentials,
                webhook_client_config={"url": webhook_url},
                query_outside=self._query_host,
                enable=() if self._on_karmada else _ENABLED,
                on_karmada=self._on_karmada,
            )
            for layout in () if self._on_karmada else self._federation.config.members:
                self._progress(f"joining {layout.name}")
                await self._join(api, at, self._federation.members[layout.name], layout)

    async def _join(self, host: Any, at: install.Endpoint, member: ClusterHandle, layout: Member) -> None:
        async with await member.connect() as api:
            await install.join(
                host,
                api,
                member.name,
                host_at=at,
                member_at=await install.endpoint(member.kubeconfig),
                out=self.credentials,
                accept=_ENABLED,
                beside_host=layout.push,
                allow_exec=layout.allow_exec,
                facts=install.MemberFacts(labels=layout.labels),
                placing=install.PlacingWish(
                    layout.placer, layout.member_queue, OWN_NODES if layout.placer == "atoll" else None
                ),
            )

    def _specs(self, ports: list[int], query_ports: list[int]) -> list[ProcessSpec]:
        """Every process of Atoll: the one list of them. Each takes a health port from the end of `ports`, a dispatcher
        also one of the others.
        """
        specs = []
        for process in install.PROCESSES:
            kubeconfig = install.kubeconfig_of(self.credentials, process)
            for number in range(1, self._replicas.get(process, 1) + 1):
                name = f"atoll-{process}" if number == 1 else f"atoll-{process}-{number}"
                flags = [
                    f"--kubeconfig={self._through(name, kubeconfig)}",
                    *_USUAL.get(process, ()),
                    *(("--on=karmada",) if self._on_karmada and process == "control" else ()),
                    *(self._query_flags(query_ports.pop()) if process == "dispatcher" else ()),
                    *self._flags.get(process, ()),
                ]
                specs.append(_spec(name, f"atoll.{process}", flags, self._address, ports.pop()))
        layouts = {each.name: each for each in self._federation.config.members}
        for member in self._members:
            for number in range(1, self._replicas.get("agent", 1) + 1):
                name = f"atoll-agent-{member}" if number == 1 else f"atoll-agent-{member}-{number}"
                host, own = install.agent_kubeconfigs(self.credentials, member)
                flags = [f"--cluster={member}", f"--kubeconfig={self._through(name, host)}"]
                beside = layouts[member].push
                flags.append("--member-secret" if beside else f"--member-kubeconfig={self._through(name, own)}")
                flags += [*self._flags.get("agent", ()), *self._flags.get(f"agent-{member}", ())]
                specs.append(_spec(name, "atoll.agent", flags, self._address, ports.pop()))
        return specs

    def _query_flags(self, port: int) -> tuple[str, ...]:
        return (f"--query-port={port}", f"--query-host={self._query_host}", f"--query-address={self._address}")

    @property
    def _members(self) -> Sequence[str]:
        """Those that Atoll has agents for."""
        return () if self._on_karmada else list(self._federation.members)

    @property
    def _query_host(self) -> str:
        """Where dispatchers listen: what a Service leads to can't be an IPv6 address, so that is a name."""
        return "localhost" if ":" in self._address else self._address


class AtollFederation:
    """A federation with Atoll in it, as an async context manager."""

    def __init__(
        self,
        config: FederationConfig,
        directory: Path,
        *,
        binaries: Binaries | None = None,
        leave_out: Sequence[str] = (),
        replicas: Mapping[str, int] | None = None,
        flags: Mapping[str, Sequence[str]] | None = None,
        through: Through = lambda _, kubeconfig: kubeconfig,
        crds_of: Mapping[str, Sequence[dict[str, Any]]] | None = None,
        before_join: Callable[[Federation], Awaitable[None]] | None = None,
        on_progress: Progress = lambda _: None,
    ) -> None:
        """No I/O happens here.

        Args:
            config: the members.
            directory: data, logs and credentials go below it; what an earlier federation left there is removed.
            binaries: of the control plane; found, downloaded or built if not given.
            leave_out: names of processes that are not started at first (`process(name).start()` does it later).
            replicas: see `Atoll`.
            flags: see `Atoll`.
            through: see `Atoll`.
            crds_of: member -> CRDs that it has instead of those of `join`, which then compares.
            before_join: called once the clusters have nodes, to install programs that are in members before Atoll.
            on_progress: gets a line per step.
        """
        # As anywhere else: what only a host has would cost each member's API server time and memory.
        self._crds_of = dict.fromkeys((each.name for each in config.members), install.member_crds()) | dict(
            crds_of or {}
        )
        self._before_join = before_join
        self._config = config
        self._directory = directory
        self._binaries = binaries
        self._leave_out = leave_out
        self._replicas, self._flags, self._through = replicas, flags, through
        self._progress = on_progress
        #: set by start()
        self.federation: Federation
        #: set by start()
        self.atoll: Atoll

    @property
    def host(self) -> ClusterHandle:
        """URL, kubeconfig and audit log of the host; `await fed.host.connect()` gives a client."""
        return self.federation.host

    @property
    def members(self) -> dict[str, ClusterHandle]:
        """The same of every member, by name."""
        return self.federation.members

    @property
    def processes(self) -> dict[str, KeptProcess]:
        """Every process of Atoll by name."""
        return self.atoll.processes

    def process(self, name: str) -> KeptProcess:
        """`atoll-webhook`, `atoll-control`, `atoll-dispatcher` or `atoll-agent-<member>`; the prefix may be left out.

        Raises:
            KeyError: there is no such process; the message lists those that are.
        """
        found = self.processes.get(name) or self.processes.get(f"atoll-{name}")
        if found is None:
            raise KeyError(f"no process {name!r}; there are {', '.join(self.processes)}")
        return found

    async def __aenter__(self) -> AtollFederation:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start everything; when it raises, nothing is left running.

        Raises:
            BinariesError: a control-plane program could not be had.
            ProcessFailed: a process did not become ready; carries its last log lines.
        """
        if self._binaries is None:
            self._binaries = await asyncio.to_thread(ensure, report=lambda _: None)
        self.federation = Federation(
            self._config, directory=self._directory, binaries=self._binaries, crds=install.host_crds(),
            crds_of=self._crds_of, on_progress=self._progress,
        )  # fmt: skip
        self.atoll = Atoll(
            self.federation, leave_out=self._leave_out, replicas=self._replicas, flags=self._flags,
            through=self._through, progress=self._progress,
        )  # fmt: skip
        try:
            await self.federation.start()
            await self.federation.populate()
            if self._before_join is not None:
                await self._before_join(self.federation)
            await self.atoll.start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop everything, Atoll first. Data and logs stay. Safe to repeat."""
        await self.atoll.stop()
        await self.federation.stop()


def _spec(name: str, module: str, flags: list[str], address: str, health_port: int) -> ProcessSpec:
    return ProcessSpec(
        name=name,
        argv=[sys.executable, "-m", module, *flags, f"--health-host={address}", f"--health-port={health_port}"],
        env={"PYTHONPATH": python_path()},
        ready_url=f"http://{at(address, health_port)}/readyz",
    )


@contextlib.asynccontextmanager
async def _kept(
    federation: Federation, progress: Progress, on_change: Callable[[], None]
) -> AsyncIterator[Sequence[KeptProcess]]:
    atoll = Atoll(federation, progress=progress, on_change=on_change)
    await atoll.start()
    try:
        yield list(atoll.processes.values())
    finally:
        await atoll.stop()


EXTENSION = Extension(crds=install.host_crds, kept=_kept)
"""What `atollctl local up` runs on top of the bare clusters."""
EXTENSION_NAME = f"{__name__}:EXTENSION"
