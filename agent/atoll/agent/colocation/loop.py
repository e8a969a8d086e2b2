"""Looks at use, one after the other: publishes reclaimed capacity, evicts offline pods, reports.

A node gets its amounts and the annotation that repeats them in one write of its status. The report is ConfigMap
`atoll-colocation-report`.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

import orjson
import structlog
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client import Counter as CounterMetric

from atoll.agent.colocation.pressure import Choice, Leave, choose, left
from atoll.agent.colocation.reclaim import Memory, Share, lowered, shares
from atoll.agent.descheduler import sources
from atoll.agent.descheduler.cluster import Cluster
from atoll.agent.descheduler.policy import MetricsApi, Prometheus
from atoll.agent.descheduler.reports import write_report
from atoll.agent.descheduler.settings import DeschedulerSettings
from atoll.agent.evictions import ask_host, evict
from atoll.kube import errors
from atoll.kube.crds import crds, wake
from atoll.kube.events import Recorder, reference
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import KOORDINATOR_NODE_METRICS, NODES, PODS
from atoll.model.colocation import BATCH
from atoll.model.objects import Slim, decode_meta
from atoll.model.timestamps import rfc3339_micro
from atoll.model.vector import total

REPORT: Final = "atoll-colocation-report"
FIELD_MANAGER: Final = "atoll-colocation"
_WINDOW: Final = 300.0
"""Seconds over which a Prometheus averages."""
_MOST: Final = 300

log = structlog.get_logger(__name__)


class Metrics:
    """Gauges and counters of colocation."""

    def __init__(self, registry: CollectorRegistry) -> None:
        name = "atoll_colocation_"
        self.amounts = Gauge(
            f"{name}capacity",
            "Of all nodes, by resource: published, and requested by pods with a node.",
            ["resource", "state"],
            registry=registry,
        )
        self.nodes = Gauge(
            f"{name}nodes",
            "Published, held (no new offline work), or left to another agent.",
            ["state"],
            registry=registry,
        )
        self.evictions = CounterMetric(
            f"{name}evictions", "Gangs and pods that pressure evicted, by result.", ["result"], registry=registry
        )
        self.blind = Gauge(f"{name}blind", "1 while there are no figures.", registry=registry)


class Loop:
    """Looks at one cluster, publishes, and evicts."""

    def __init__(
        self,
        api: ApiServer,
        cluster: Cluster,
        settings: DeschedulerSettings,
        *,
        recorder: Recorder | None = None,
        metrics: Metrics | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """No I/O happens here."""
        self._api, self._cluster, self._settings, self._rules = api, cluster, settings, settings.colocation
        self._recorder, self._metrics, self._clock = recorder, metrics, clock
        address = settings.prometheus.address
        self._source = Prometheus(address.rstrip("/"), _WINDOW) if address else MetricsApi()
        self._memory = Memory()
        self._koordinated: Reflector[Slim] = Reflector(
            api, KOORDINATOR_NODE_METRICS, decode_meta, metadata_only=True, optional=True
        )
        self._crds = crds(api)
        wake(self._crds, (self._koordinated,))

    async def run(self) -> None:
        """Look until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._crds.run(), name="watch CRDs for colocation")
            tasks.create_task(self._koordinated.run(), name="watch NodeMetrics")
            await self._cluster.wait()
            await self._koordinated.synced.wait()
            while True:
                try:
                    await self.once()
                except Exception:
                    # One odd object must not end all looks; nodes keep their amounts.
                    log.exception("a look of colocation failed")
                await asyncio.sleep(self._settings.every)

    async def once(self) -> tuple[list[Share], Choice]:
        """One look, with its writes unless this is a dry run."""
        stale = self._settings.rules.stale
        names = [each.metadata.name for each in self._cluster.nodes]
        figures = await sources.take(
            self._source, self._api, names, self._settings.prometheus, stale=stale, clock=self._clock
        )
        world, now, memory = self._cluster.world(), self._clock(), self._memory
        others = frozenset(each.metadata.name for each in self._koordinated)
        found = shares(world, figures, others, memory, self._rules, stale=stale, now=now)
        choice = choose(world, found, figures, memory, self._rules, now=now, wall=time.time())
        # Before they leave: the host may place a gang anew at once.
        going = {each.metadata.uid for leave in choice.leaves for each in leave.unit.pods}
        found = lowered(found, world, memory.leaving.keys() | going)
        if self._rules.mode != "dry-run":
            for share in found:
                if share.wanted is not None and share.wanted != share.published:
                    await self._publish(share)
            for leave in list(choice.leaves):
                await self._leave(leave, choice)
        await self._tell(found, choice, figures.problem)
        return found, choice

    async def _publish(self, share: Share) -> None:
        wanted = share.wanted or {}
        amounts = {name: str(wanted[name]) if name in wanted else None for name in BATCH.values()}
        note = orjson.dumps(wanted, option=orjson.OPT_SORT_KEYS).decode() if wanted else None
        patch = {
            # Whoever else wrote meanwhile is looked at first.
            "metadata": {
                "resourceVersion": share.node.metadata.resource_version,
                "annotations": {keys.RECLAIMED: note},
            },
            # A kubelet makes allocatable amounts of the capacity.
            "status": {"capacity": amounts, "allocatable": amounts},
        }
        name = share.node.metadata.name
        try:
            await self._api.merge_patch(NODES, name, patch, subresource="status", field_manager=FIELD_MANAGER)
        except errors.ApiError as error:
            log.info("a node's reclaimed capacity was not written", node=name, error=str(error))

    async def _leave(self, leave: Leave, choice: Choice) -> None:
        """Evict a unit; the pods of a gang of the member's own go one after the other, all or up to a refusal."""
        unit = leave.unit
        try:
            if unit.binding:
                await ask_host(self._api, unit.group, field_manager=FIELD_MANAGER)
            else:
                for each in unit.pods:
                    await evict(self._api, each.metadata.key, each.metadata.uid)
        except errors.ApiError as error:
            self._count("refused")
            choice.leaves.remove(leave)
            choice.skips.append((unit.name, f"not evicted: {error.said}"))
            log.warning("offline work was not evicted", about=unit.name, error=str(error))
            if not isinstance(error, errors.Unreachable):
                return
        else:
            self._count("asked" if unit.binding else "evicted")
            log.info("offline work leaves", about=unit.name, node=leave.node, reason=leave.reason)
        left(leave, self._memory, self._rules, self._clock())
        if self._recorder is not None:
            for each in unit.pods:
                meta = each.metadata
                about = reference(PODS, meta.namespace, meta.name, meta.uid)
                note = f"{leave.node}: {leave.reason}; offline work leaves first"
                self._recorder.record(about, "Colocation", note, action="Evicting")

    def _count(self, result: str) -> None:
        if self._metrics is not None:
            self._metrics.evictions.labels(result).inc()

    async def _tell(self, found: Sequence[Share], choice: Choice, problem: str) -> None:
        told = report(found, choice, problem, mode=self._rules.mode)
        if self._metrics is not None:
            self._metrics.blind.set(bool(problem))
            for state, count in told["nodes"].items():
                self._metrics.nodes.labels(state).set(count)
            for state in ("published", "placed"):
                for name, amount in told[state].items():
                    self._metrics.amounts.labels(name, state).set(amount)
        await write_report(self._api, REPORT, told, field_manager=FIELD_MANAGER)


def report(found: Sequence[Share], choice: Choice, problem: str, *, mode: str) -> dict[str, Any]:
    """A look as JSON: figures, sums, nodes that are held or another agent's, evictions; 300 of each at most."""
    ours = [each.published for each in found if each.published is not None]
    states = Counter("other" if each.publisher else "held" if each.held else "published" for each in found)
    nodes = [
        {"node": each.node.metadata.name, "reason": each.held or f"{each.publisher} publishes and isolates here"}
        for each in found
        if each.held or each.publisher
    ]
    return {
        "time": rfc3339_micro(time.time()),
        "mode": mode,
        "condition": {
            "type": "FiguresAvailable",
            "status": "False" if problem else "True",
            "message": f"{problem}: no new offline work once figures are stale" if problem else "",
        },
        "published": {name: total(ours).get(name, 0) for name in BATCH.values()},
        "placed": {name: total(each.placed for each in found).get(name, 0) for name in BATCH.values()},
        "nodes": {state: states[state] for state in ("published", "held", "other")},
        "isolation": "by kubelets alone (pods of class BestEffort), where no other agent is named",
        "left": nodes[:_MOST],
        "evictions": [
            {"about": each.unit.name, "node": each.node, "reason": each.reason} for each in choice.leaves[:_MOST]
        ],
        "skips": [{"about": about, "reason": reason} for about, reason in choice.skips[:_MOST]],
    }
