"""What a Cluster shows of how its member is trusted: its circuit breaker, what of its figures is not used, its
ceiling.

Conditions `TakesWork`, `CapacityAccepted` and `CeilingValid` are there once there was something to say. The state of
the breaker is beside them (`status.circuit`), so that the next leader goes on from it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import structlog

from atoll.dispatcher.core import Dispatcher
from atoll.dispatcher.core.events import Circuit, Failure
from atoll.dispatcher.metrics import MemberMetrics
from atoll.dispatcher.objects import ClusterObject, ceiling_of
from atoll.dispatcher.settings import ReportSettings
from atoll.kube import errors
from atoll.kube.backoff import Backoff
from atoll.kube.events import Recorder
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.model import conditions
from atoll.model.apiresource import CLUSTERS
from atoll.model.plurals import counted
from atoll.model.timestamps import rfc3339_seconds

TAKES_WORK, CAPACITY_ACCEPTED, CEILING_VALID = "TakesWork", "CapacityAccepted", "CeilingValid"

_FAILED = {
    Failure.NOT_BOUND: "it did not bind in time what was sent to it",
    Failure.NOT_REMOVED: "it did not confirm in time that what was evicted is gone",
}

Json = dict[str, Any]
Said = tuple[str, bool | None, str, str]
"""A condition: type, status, reason, message."""

log = structlog.get_logger(__name__)


class MemberReporter:
    """Keeps these conditions, while one leader lasts."""

    def __init__(
        self,
        host: ApiServer,
        core: Dispatcher,
        clusters: Reflector[ClusterObject],
        not_used: Callable[[str], dict[str, str]],
        metrics: MemberMetrics,
        recorder: Recorder | None = None,
        *,
        settings: ReportSettings = ReportSettings(),
    ) -> None:
        """No I/O happens here; `run` does it.

        Args:
            host: where the Clusters are.
            core: whose breakers are published.
            clusters: as they are.
            not_used: member -> name of each ClusterCapacity object of it that is not used -> why.
            metrics: to count in.
            recorder: of Events; None for none.
            settings: its times and bounds.
        """
        self._settings = settings
        self._host, self._core, self._clusters, self._not_used = host, core, clusters, not_used
        self._metrics, self._recorder = metrics, recorder
        self._marked: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._refused: Backoff[str] = Backoff(self._settings.interval, self._settings.longest_pause)
        #: cluster -> how often its breaker was opened, as was counted
        self._counted: dict[str, int] = {}
        clusters.on_change(self._cluster_changed)

    def mark(self, cluster: str) -> None:
        """Something about it may be another than its Cluster says."""
        self._marked[cluster] = None
        self._wake.set()

    def decided(self) -> None:
        """The core has decided."""
        for cluster in self._core.changes.members:
            self.mark(cluster)

    async def run(self) -> None:
        """Report until cancelled."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                marked, self._marked = self._marked, {}
                for cluster in marked:
                    await self._report(cluster)
                await asyncio.sleep(self._settings.interval)
        finally:
            # The figures are the next leader's to tell.
            self._metrics.open.clear()
            self._metrics.not_used.clear()

    def _cluster_changed(self, old: ClusterObject | None, new: ClusterObject | None) -> None:
        found = new or old
        if found is not None:
            self.mark(found.metadata.name)

    async def _report(self, name: str) -> None:
        cluster, circuit = self._clusters.get(name), self._core.breakers.circuit(name)
        not_used = self._not_used(name)
        self._count(name, circuit, len(not_used))
        if cluster is None or self._refused.pauses(name):
            return
        patch = status_patch(cluster, circuit, not_used, time.time())
        if patch is None:
            return
        try:
            await self._host.merge_patch(CLUSTERS, name, patch, subresource="status", field_manager="atoll-dispatcher")
        except errors.NotFound:
            return
        except errors.ApiError as error:
            # A conflict is a change of another controller's: the watch is about to show it.
            log.info("state of a member not written, will try again", cluster=name, error=str(error))
            pause = self._refused.failed(name, at_least=min(error.retry_after or 0.0, self._settings.longest_pause))
            asyncio.get_running_loop().call_later(pause, self.mark, name)
            return
        self._refused.forget(name)
        self._record(cluster, patch["status"]["conditions"])

    def _count(self, name: str, circuit: Circuit | None, not_used: int) -> None:
        opened = circuit.opened if circuit is not None else 0
        if circuit is not None:
            self._metrics.open.labels(name).set(circuit.open)
            if opened > self._counted.get(name, opened - 1):
                self._metrics.opened.labels(name, circuit.failure.value).inc()
        elif name in self._counted:
            self._metrics.open.labels(name).set(0)
        self._counted[name] = opened
        self._metrics.not_used.labels(name).set(not_used)

    def _record(self, cluster: ClusterObject, wanted: list[Json]) -> None:
        """An Event for each of our conditions of which the status or the reason is another one now."""
        if self._recorder is None:
            return
        before = {each["type"]: (each["status"], each["reason"]) for each in cluster.status.conditions}
        about = {"apiVersion": CLUSTERS.api_version, "kind": CLUSTERS.kind, "name": cluster.metadata.name}
        for each in wanted:
            now = (each["status"], each["reason"])
            if each["type"] in (TAKES_WORK, CAPACITY_ACCEPTED, CEILING_VALID) and before.get(each["type"]) != now:
                self._recorder.record(
                    {**about, "uid": cluster.metadata.uid},
                    each["reason"],
                    each["message"],
                    warning=each["status"] == "False",
                )


def status_patch(cluster: ClusterObject, circuit: Circuit | None, not_used: dict[str, str], now: float) -> Json | None:
    """The merge patch that makes a Cluster's status current; None when it does.

    Args:
        cluster: as its object is.
        circuit: of its breaker; None where nothing is known against the member.
        not_used: name of each ClusterCapacity object that is not used -> why.
        now: seconds since the epoch.
    """
    before = cluster.status.conditions
    wanted = before
    for type_, status, reason, message in (
        _takes_work(circuit),
        _capacity_accepted(not_used),
        _ceiling_valid(cluster),
    ):
        if status is not True or conditions.find(wanted, type_) is not None:
            wanted = conditions.with_condition(wanted, type_, status, reason, message, now=now)
    written = None
    if circuit is not None:
        written = {
            "open": circuit.open,
            "opened": circuit.opened,
            "until": rfc3339_seconds(circuit.until),
            "reason": circuit.failure.value,
        }
    if (wanted, written) == (before, cluster.status.circuit):
        return None
    # Lists are replaced whole, and control writes other conditions of the same list.
    version = cluster.metadata.resource_version
    return {
        "metadata": {"uid": cluster.metadata.uid, "resourceVersion": version},
        "status": {"conditions": wanted, "circuit": written},
    }


def _takes_work(circuit: Circuit | None) -> Said:
    if circuit is None or not circuit.open:
        return TAKES_WORK, True, "CircuitClosed", "it binds what is sent to it"
    why = _FAILED[circuit.failure]
    if circuit.pausing:
        times = f", for the {circuit.opened}th time" if circuit.opened > 3 else ""
        note = f"{why}{times}: nothing is sent there until one workload is tried at {rfc3339_seconds(circuit.until)}"
        return TAKES_WORK, False, circuit.failure.value, note
    return TAKES_WORK, None, "OnTrial", f"{why}: one workload is tried there; once it is bound, others follow"


def _capacity_accepted(not_used: dict[str, str]) -> Said:
    if not not_used:
        return CAPACITY_ACCEPTED, True, "Consistent", "all that it publishes is used"
    name, why = sorted(not_used.items())[0]
    others = f" (and {counted(len(not_used) - 1, 'other')})" if len(not_used) > 1 else ""
    return CAPACITY_ACCEPTED, False, "NotUsed", f"ClusterCapacity {name}{others} is not used: {why}"


def _ceiling_valid(cluster: ClusterObject) -> Said:
    _, problem = ceiling_of(cluster)
    if problem:
        return CEILING_VALID, False, "CantBeRead", f"{problem}; until it is corrected nothing more is sent there"
    return CEILING_VALID, True, "Read", "the ceiling of the member is kept"
