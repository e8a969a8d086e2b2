"""What Karmada knows of a member's capacity, as the ClusterCapacity that the dispatcher reads.

Karmada's summary has sums and no nodes. So each resource is taken to be free on as few nodes of the average size as can
hold it: no pod that is larger than such a node fits, and pods may turn out to be unplaceable where free amounts are
scattered. Pods that started lately are not in the summary, and are taken off until it must be.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from typing import Any, Final

import structlog

from atoll.control.karmada.caches import Caches, spec
from atoll.control.objects import ClusterObject
from atoll.control.settings import KarmadaSettings
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.kube.workqueue import WorkQueue
from atoll.model import conditions, gang, keys, quantity, vector
from atoll.model.apiresource import CAPACITIES, CLUSTERS
from atoll.model.objects import Full
from atoll.model.placer import REASONS, Placer
from atoll.model.timestamps import rfc3339_seconds, to_seconds
from atoll.model.vector import Vector

Json = dict[str, Any]

NAME: Final = "nodes"
"""Of the ClusterCapacity of a member: the nodes are in no domain."""

log = structlog.get_logger(__name__)


class Summaries:
    """Publishes a member's capacity when its Cluster, or what starts there, changes."""

    def __init__(self, host: ApiServer, caches: Caches, *, settings: KarmadaSettings) -> None:
        self._host, self._caches, self._settings = host, caches, settings
        self._queue: WorkQueue[str] = WorkQueue("summaries", lambda key: {"cluster": key})
        #: cluster -> its last published summary, without its generation
        self._published: dict[str, Json] = {}
        caches.clusters.on_change(self._cluster_changed)
        caches.bindings.on_change(self._binding_changed)

    async def run(self) -> None:
        """Publish until cancelled."""
        await self._queue.run(self._reconcile)

    def _cluster_changed(self, old: ClusterObject | None, new: ClusterObject | None) -> None:
        changed = new or old
        if changed is not None and (old is None or new is None or old.status != new.status):
            self._queue.add(changed.metadata.name)

    def _binding_changed(self, old: Full | None, new: Full | None) -> None:
        if new is not None and _bound_at(new) is not None and (old is None or _bound_at(old) is None):
            for target in spec(new).get("clusters") or ():
                self._queue.add(target["name"])
                # It is in Karmada's summary by then.
                self._queue.add(target["name"], after=self._settings.summary_age)

    async def _reconcile(self, name: str) -> None:
        cluster = self._caches.clusters.get(name)
        namespace = keys.execution_namespace(name)
        if cluster is None or cluster.metadata.deletion_timestamp is not None:
            self._published.pop(name, None)
            return
        await self._say_placer(cluster)
        wanted = capacity(cluster.status, self._started(name))
        if wanted is None or self._published.get(name) == wanted:
            return
        body = {
            "apiVersion": CAPACITIES.api_version,
            "kind": CAPACITIES.kind,
            "metadata": {"name": NAME, "namespace": namespace},
            "spec": {"cluster": name, "generation": int(time.time() * 1000), **wanted},
        }
        try:
            await self._host.apply(CAPACITIES, body, field_manager="atoll-summaries")
        except errors.NotFound as error:
            # Karmada makes the namespace of a member a moment after its Cluster.
            raise errors.Retry(1.0) from error
        self._published[name] = wanted

    def _started(self, cluster: str) -> Vector:
        """Requests of workloads bound there so lately that the summary may not have it."""
        now = time.time()
        found: Vector = {}
        for binding in self._caches.bindings.by_index("cluster", cluster):
            at = _bound_at(binding)
            if at is not None and now - at < self._settings.summary_age:
                vector.add(found, gang.decode(binding.metadata.annotations[keys.GANG]).total())
        return found

    async def _say_placer(self, cluster: ClusterObject) -> None:
        """Condition Placer: the dispatcher leaves to the member the checks of its own scheduler."""
        if conditions.find(cluster.status.get("conditions") or [], "Placer") is not None:
            return
        condition = {
            "type": "Placer",
            "status": "True",
            "reason": REASONS[Placer.KUBE_SCHEDULER],
            "message": "Karmada's member: its own scheduler places pods",
            "lastTransitionTime": rfc3339_seconds(time.time()),
        }
        operations: list[Json] = [
            {"op": "test", "path": "/metadata/resourceVersion", "value": cluster.metadata.resource_version},
            {"op": "add", "path": "/status/conditions/-", "value": condition},
        ]
        if not cluster.status.get("conditions"):
            return
        await self._host.json_patch(
            CLUSTERS, cluster.metadata.name, operations, subresource="status", field_manager="atoll-summaries"
        )


def capacity(status: Mapping[str, Any], started: Vector) -> Json | None:
    """The spec of a ClusterCapacity, without cluster and generation; None where Karmada has not summarised yet.

    Args:
        status: of the Cluster.
        started: requests that the summary may lack.
    """
    summary, nodes = status.get("resourceSummary") or {}, status.get("nodeSummary") or {}
    count = int(nodes.get("readyNum") or 0)
    total = quantity.capacity(summary.get("allocatable") or {})
    if not count or not total:
        return None
    used: Vector = dict(started)
    for part in ("allocated", "allocating"):
        vector.add(used, quantity.requests(summary.get(part) or {}))
    free = {name: max(amount - used.get(name, 0), 0) for name, amount in total.items()}
    size = {name: amount // max(int(nodes.get("totalNum") or count), 1) for name, amount in total.items()}
    return {
        "root": "",
        "objects": 1,
        "total": total,
        "profiles": [
            {"labels": {}, "allocatable": {name: quantity.format_units(name, size[name]) for name in sorted(size)}}
        ],
        "classes": packed(free, size, count),
    }


def packed(free: Vector, size: Vector, count: int) -> list[Json]:
    """Classes of `count` nodes on which each resource is free on as few nodes of a size as hold it, the last one in
    part.
    """
    whole = {name: (count, 0) if not size[name] else divmod(amount, size[name]) for name, amount in free.items()}
    borders = sorted({0, count, *(min(each, count) for n, _ in whole.values() for each in (n, n + 1))})
    found = []
    for first, after in itertools.pairwise(borders):
        amounts = {
            name: size[name] if first < full else rest if first == full else 0
            for name, (full, rest) in sorted(whole.items())
        }
        found.append({"domain": "", "nodes": after - first, "profile": 0, "free": amounts})
    return found


def _bound_at(binding: Full) -> float | None:
    """Since when Karmada has applied a binding of ours; None while it has not, or when it has ended."""
    if keys.GANG not in binding.metadata.annotations:
        return None
    known = (binding.body.get("status") or {}).get("conditions") or []
    bound = conditions.find(known, "Bound") or {}
    if bound.get("status") != "True" or (conditions.find(known, "Finished") or {}).get("status") == "True":
        return None
    return to_seconds(bound["lastTransitionTime"])
