"""Whether members are alive: the Ready condition of each Cluster follows its agent's lease; condition Placer says who
places there.

The agent renews its lease while it runs and says in it whether the member's API server is ready. How long a lease has
been silent is measured here by when it last changed, on the loop's clock, never by the dates in it.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from atoll.control.caches import Caches
from atoll.control.objects import ClusterObject, LeaseObject
from atoll.kube.conditions import with_condition
from atoll.kube.events import Recorder
from atoll.kube.transport import ApiServer
from atoll.kube.workqueue import WorkQueue
from atoll.model import keys
from atoll.model.apiresource import CLUSTERS
from atoll.model.placer import Placer
from atoll.model.reports import readable

Json = dict[str, Any]

_PLACERS: dict[str, str] = {
    Placer.ATOLL: "Atoll", Placer.VOLCANO: "Volcano", Placer.KUBE_SCHEDULER: "KubeScheduler", Placer.KUEUE: "Kueue",
}  # fmt: skip
"""Placer -> reason of condition Placer."""


class Clusters:
    """Keeps Ready on every Cluster."""

    def __init__(self, host: ApiServer, caches: Caches, recorder: Recorder) -> None:
        self._host, self._caches, self._recorder = host, caches, recorder
        self._queue: WorkQueue[str] = WorkQueue("clusters", lambda key: {"cluster": key})
        #: cluster -> when its lease last changed, on the loop's clock
        self._heard: dict[str, float] = {}
        caches.clusters.on_change(self._cluster_changed)
        caches.leases.on_change(self._lease_changed)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        await self._queue.run(self._reconcile)

    def _cluster_changed(self, old: ClusterObject | None, new: ClusterObject | None) -> None:
        if new is not None:
            self._queue.add(new.metadata.name)

    def _lease_changed(self, old: LeaseObject | None, new: LeaseObject | None) -> None:
        lease = new or old
        if lease is None or not lease.metadata.namespace.startswith(keys.EXECUTION_PREFIX):
            return
        cluster = keys.cluster_of(lease.metadata.namespace)
        if new is not None and (old is None or old.spec.renew_time != new.spec.renew_time):
            self._heard[cluster] = asyncio.get_running_loop().time()
        self._queue.add(cluster)

    async def _reconcile(self, name: str) -> None:
        cluster = self._caches.clusters.get(name)
        if cluster is None:
            self._heard.pop(name, None)
            return
        lease = self._caches.leases.get(f"{keys.execution_namespace(name)}/atoll-agent")
        ready, reason, message = self._judge(name, lease)
        conditions = list(cluster.status.get("conditions") or ())
        wanted = with_condition(conditions, "Ready", ready, reason, message, now=time.time())
        if lease is not None and (placer := _PLACERS.get(lease.metadata.annotations.get(keys.PLACER, ""))) is not None:
            why = readable(lease.metadata.annotations.get(keys.PLACER_WHY, ""))
            wanted = with_condition(wanted, "Placer", True, placer, why, now=time.time())
        if wanted != conditions:
            await self._host.merge_patch(
                CLUSTERS, name, {"status": {"conditions": wanted}}, subresource="status", field_manager="atoll-control"
            )
            before = cluster.ready
            if before and before.get("status") != str("Unknown" if ready is None else ready):
                about = {"apiVersion": CLUSTERS.api_version, "kind": CLUSTERS.kind, "name": name}
                self._recorder.record(
                    {**about, "uid": cluster.metadata.uid}, reason, message, warning=ready is not True
                )
        if lease is not None and name in self._heard:
            silent = asyncio.get_running_loop().time() - self._heard[name]
            if silent < lease.spec.lease_duration_seconds:
                self._queue.add(name, after=lease.spec.lease_duration_seconds - silent + 0.1)

    def _judge(self, name: str, lease: LeaseObject | None) -> tuple[bool | None, str, str]:
        if lease is None or name not in self._heard:
            return (
                False,
                "AgentNotSeen",
                f"no agent has reported from {name} yet: is atoll-agent --cluster {name} running?",
            )
        silent = asyncio.get_running_loop().time() - self._heard[name]
        if silent >= lease.spec.lease_duration_seconds:
            return None, "AgentSilent", f"the agent has not reported for {lease.spec.lease_duration_seconds} s"
        health = lease.metadata.annotations.get(keys.READYZ, "ok")
        if health != "ok":
            return False, "MemberNotReady", f"the member's API server is not ready: {health}"
        return True, "ClusterReady", "the agent reports and the member's API server is ready"
