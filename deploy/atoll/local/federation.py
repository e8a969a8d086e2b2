"""Start and stop a host and its members.

The order matters: etcd, API servers, CRDs, and only then the controller managers (their garbage
collector would not notice later CRDs for half a minute) and kwok; nodes come last.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from atoll.install import embedded
from atoll.kube.errors import NotFound
from atoll.kube.transport import ApiServer
from atoll.local import cluster, kubelets, layout, storage
from atoll.local.binaries import Binaries
from atoll.local.certificates import Authority, write_signing_key
from atoll.local.cluster import ClusterHandle, Keys
from atoll.local.install import create_all, install_crds, wait_until
from atoll.local.ports import free_ports
from atoll.local.processes import ProcessFailed, ProcessGroup, ProcessSpec
from atoll.local.realnodes import leftovers
from atoll.local.realnodes.wave import RealNodes
from atoll.model.apiresource import HYPER_NODES, NODES

HOST = "host"
_READY_DEADLINE_S = 120.0
_PORTS_OF_STORE, _PORTS_PER_CLUSTER = 3, 4
_GRACE_PER_LEASE = 1.25
"""Kubernetes waits 50 s for a node whose lease lasts 40 s."""
_NOT_READY = "node.kubernetes.io/not-ready"


class Federation:
    """One etcd, a host and the members of `config`, all on loopback, in one folder.

    A federation always begins empty: what an earlier one left in `directory` is removed. Use it
    as an async context manager, or call start() and stop(); both may be repeated. The event loop
    must stay in the thread that called start() (see Process).
    """

    def __init__(
        self,
        config: layout.FederationConfig,
        *,
        directory: Path,
        binaries: Binaries,
        crds: Sequence[dict[str, Any]] = (),
        crds_of: Mapping[str, Sequence[dict[str, Any]]] | None = None,
        on_progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        """No I/O happens here.

        Args:
            config: the members.
            directory: everything goes below it.
            binaries: of the control plane.
            crds: of every cluster.
            crds_of: member -> the CRDs that it has instead.
            on_progress: gets a line per step.
        """
        self.config = config
        #: Everything that the federation writes is below this folder.
        self.directory = directory.resolve()
        #: The host cluster; set by start().
        self.host: ClusterHandle
        #: The members by name, in the order of the configuration; filled by start().
        self.members: dict[str, ClusterHandle] = {}
        #: Keys and certificates; set by start(). A proxy in front can serve `keys.serving`.
        self.keys: Keys
        self.processes = ProcessGroup(self.directory / "logs")
        self._binaries = binaries
        self._crds = crds
        self._crds_of = dict(crds_of or {})
        self._progress = on_progress
        #: what does in members what kwok leaves out, while it runs
        self._stand_ins: list[asyncio.Task[None]] = []

    @property
    def clusters(self) -> list[ClusterHandle]:
        """The host, then the members."""
        return [self.host, *self.members.values()]

    async def __aenter__(self) -> Federation:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start everything; when it raises, nothing is left running.

        Raises:
            ProcessFailed: a server exited or did not become ready; carries its last log lines.
        """
        if self.processes.processes:
            raise RuntimeError(f"the federation in {self.directory} is running already")
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        self.clean()
        logs = self.directory / "logs"
        # An audit log of an earlier run would be continued, and mix two measurements.
        shutil.rmtree(logs, ignore_errors=True)
        logs.mkdir(parents=True)
        self.directory.chmod(0o700)
        names = [HOST, *(member.name for member in self.config.members)]
        address = self.config.address
        ports = iter(free_ports(_PORTS_OF_STORE + _PORTS_PER_CLUSTER * len(names), address))

        authority = Authority(self.directory / "pki", "ca")
        etcd_authority = Authority(self.directory / "pki", "etcd-ca")
        self.keys = Keys(
            authority=authority,
            serving=authority.issue("serving"),
            proxy=authority.issue("front-proxy"),
            etcd_authority=etcd_authority,
            etcd=etcd_authority.issue("etcd"),
            service_account=write_signing_key(self.directory / "pki"),
            nodes=Authority(self.directory / "pki", "nodes-ca") if self.config.has_real_nodes else None,
        )
        handles = [
            cluster.new_handle(name, self.directory / "clusters" / name, logs, next(ports), authority, address)
            for name in names
        ]
        self.host, self.members = handles[0], {handle.name: handle for handle in handles[1:]}

        real = {member.name: member.real_nodes for member in self.config.members}
        kubernetes = {HOST: self.config.host, **{each.name: each.kubernetes for each in self.config.members}}

        self._progress("starting etcd")
        etcd_port = next(ports)
        store_ports = (etcd_port, next(ports), next(ports))
        etcd = cluster.etcd(self._binaries, self.keys, self.directory / "etcd", store_ports, address)
        await self.processes.start([etcd])

        self._progress(f"starting {len(handles)} API servers")
        servers = [
            cluster.api_server(
                self._binaries, handle, self.keys, handle.kubeconfig.parent, etcd_port, kubernetes[handle.name],
                raised_limits=self.config.raised_limits, real_nodes=bool(real.get(handle.name)),
            )
            for handle in handles
        ]  # fmt: skip
        # Twenty servers on two cores take a while each.
        await self.processes.start(servers, deadline_s=180 + 20 * len(servers))

        if self._crds:
            self._progress(f"installing {len(self._crds)} CRDs")
        await asyncio.gather(*(self._install_crds(handle) for handle in handles))

        self._progress("starting controller managers, schedulers and kwok")
        wave = [
            cluster.controller_manager(
                self._binaries, self.host, self.keys, next(ports), self.config.host, embedded.CONTROLLERS
            )
        ]
        for member in self.config.members:
            wave += self._member_programs(member, ports)
        await self.processes.start(wave, deadline_s=180 + 20 * len(wave))
        await asyncio.gather(*(self._stand_in(member) for member in self.config.members))
        if self.keys.nodes is not None:
            self._progress(f"starting {sum(real.values())} real nodes")
            nodes = RealNodes(self.config, self.directory, self.members, self.keys.nodes, self._progress)
            specs = await asyncio.to_thread(nodes.prepare)
            await self.processes.start(specs, deadline_s=180 + 20 * len(specs))

    async def _stand_in(self, member: layout.Member) -> None:
        """Start what does here what kwok leaves out."""
        handle = self.members[member.name]
        api = await handle.connect()
        try:
            await storage.install_classes(api)
        except BaseException:
            await api.close()
            raise
        self._stand_ins.append(asyncio.create_task(_run_stand_ins(api, member), name=f"stand-ins in {member.name}"))

    def _member_programs(self, member: layout.Member, ports: Iterator[int]) -> list[ProcessSpec]:
        """All but the API server."""
        handle, binaries, lease = self.members[member.name], self._binaries, member.lease_seconds
        patience = [
            f"--node-monitor-grace-period={lease * _GRACE_PER_LEASE:g}s",
            f"--node-monitor-period={min(lease / 8, 5):g}s",
        ]
        specs = [
            cluster.controller_manager(
                binaries, handle, self.keys, next(ports), member.kubernetes, cluster.MEMBER_CONTROLLERS, patience
            ),
            cluster.kwok(
                binaries, handle, next(ports), member.kubernetes, lease_seconds=lease, strict=member.strict_kubelets
            ),
        ]
        if member.scheduler:
            specs.append(cluster.scheduler(binaries, handle, self.keys, next(ports), member.kubernetes))
        return specs

    async def _install_crds(self, handle: ClusterHandle) -> None:
        async with await handle.connect() as api:
            await install_crds(api, self._crds_of.get(handle.name, self._crds), _READY_DEADLINE_S)

    async def populate(self) -> None:
        """Create the nodes and HyperNodes of every member and wait until all nodes are Ready.

        The HyperNode CRD must be among `crds` if the configuration has a topology.
        """
        total = sum(len(member.node_names()) for member in self.config.members)
        self._progress(f"creating {total} nodes")
        populated = asyncio.create_task(self._populate_all())
        # A real node that gave up would be waited for in vain.
        watching = asyncio.create_task(self.watch())
        try:
            await asyncio.wait([populated, watching], return_when=asyncio.FIRST_COMPLETED)
            if not populated.done():
                await watching
            await populated
        finally:
            populated.cancel()
            watching.cancel()
            await asyncio.gather(populated, watching, return_exceptions=True)

    async def _populate_all(self) -> None:
        await asyncio.gather(*(self._populate(member) for member in self.config.members))

    async def _populate(self, member: layout.Member) -> None:
        async with await self.members[member.name].connect() as api:
            # Side by side: an API server holds the first object of a new CRD back for 2 s.
            await asyncio.gather(self._create_hypernodes(api, member), _create_nodes(api, member))

    async def _create_hypernodes(self, api: ApiServer, member: layout.Member) -> None:
        try:
            await create_all(api, HYPER_NODES, layout.hypernode_objects(member))
        except NotFound as error:
            raise RuntimeError(
                f"member {member.name} has a topology, but no HyperNode CRD is installed: "
                "pass it in crds, or leave topology out"
            ) from error

    async def start_processes(self, specs: Sequence[ProcessSpec], deadline_s: float = 60) -> None:
        """Start more processes together; they stop before the clusters do."""
        await self.processes.start(specs, deadline_s)

    async def watch(self) -> None:
        """Start programs again that exit by themselves: see `ProcessGroup.keep`."""
        await self.processes.keep(self._progress)

    async def stop(self) -> None:
        """Stop everything, in reverse order. Data and logs stay."""
        for task in self._stand_ins:
            task.cancel()
        await asyncio.gather(*self._stand_ins, return_exceptions=True)
        self._stand_ins.clear()
        await self.processes.stop()
        await asyncio.to_thread(leftovers.remove, self.directory)

    def clean(self) -> None:
        """Remove data, keys and kubeconfigs of an earlier run; its logs stay."""
        clean(self.directory)


def clean(directory: Path) -> None:
    """Remove data, keys, kubeconfigs and what real nodes left of a federation that is not running; logs stay."""
    leftovers.remove(directory)
    for name in ("etcd", "clusters", "pki"):
        shutil.rmtree(directory / name, ignore_errors=True)


async def _run_stand_ins(api: ApiServer, member: layout.Member) -> None:
    async with api, asyncio.TaskGroup() as group:
        group.create_task(storage.Provisioner(api).run())
        if member.strict_kubelets:
            group.create_task(kubelets.Kubelets(api).run())


async def _create_nodes(api: ApiServer, member: layout.Member) -> None:
    await create_all(api, NODES, layout.node_objects(member))
    names = set(member.node_names())

    async def missing() -> str:
        late = names - await _ready_nodes(api)
        return f"{len(late)} nodes, {min(late)} among them" if late else ""

    what = f"nodes of {member.name}"
    await wait_until(missing, what, _READY_DEADLINE_S, poll_s=0.1 + len(names) / 5000)


async def _ready_nodes(api: ApiServer) -> set[str]:
    """Names of the nodes that are Ready and that pods may be bound to."""
    return {item["metadata"]["name"] for item in await api.list(NODES) if _is_ready(item)}


def _is_ready(node: dict[str, Any]) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    taints = (node.get("spec") or {}).get("taints") or ()
    # The node-lifecycle controller takes this taint off after it has seen that the node is ready.
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions) and not any(
        taint["key"] == _NOT_READY for taint in taints
    )


__all__ = ["HOST", "ClusterHandle", "Federation", "ProcessFailed", "ProcessSpec"]
