"""How busy the pods of workloads are, by a Prometheus or the metrics API of the member: the mean of each run.

The means go to the host with reports that are written anyway; no figure of its own makes a write. An agent that starts
anew begins its means anew.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import structlog

from atoll.agent.cache import MemberCache
from atoll.agent.objects import Pod
from atoll.agent.settings import BusySettings
from atoll.kube.transport import ApiServer
from atoll.model import keys, numbers, quantity

_WINDOW = 60.0
"""Seconds over which a Prometheus averages."""
_STALE = 180.0
"""Seconds after which a figure says nothing."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Sum:
    epoch: int
    seconds: float = 0.0
    amounts: dict[str, float] = field(default_factory=dict)
    """Resource -> cores or bytes times seconds, of all pods of the run."""


class PodUse:
    """Looks at the figures of all pods from time to time, where that is asked for."""

    def __init__(self, member: ApiServer, cache: MemberCache, *, settings: BusySettings = BusySettings()) -> None:
        """No I/O happens here; `run` does it."""
        self._member, self._cache, self._settings = member, cache, settings
        #: binding UID -> its present run
        self._sums: dict[str, _Sum] = {}

    async def run(self) -> None:
        """Look until cancelled; nothing where `every` is 0."""
        if not self._settings.every:
            return
        # It brings an HTTP client and retries, which an agent without figures does without.
        from atoll.agent.descheduler import sources
        from atoll.agent.descheduler.policy import MetricsApi, Prometheus

        address = self._settings.prometheus.address
        source = Prometheus(address.rstrip("/"), _WINDOW) if address else MetricsApi()
        problem = ""
        while True:
            await asyncio.sleep(self._settings.every)
            nodes = [node.metadata.name for node in self._cache.nodes]
            found = await sources.take(
                source, self._member, nodes, self._settings.prometheus, stale=_STALE, clock=time.monotonic
            )
            if found.problem and found.problem != problem:
                log.warning("the use of pods is not known", error=found.problem)
            problem = found.problem
            self.add(found.pods, self._settings.every)

    def add(self, figures: Mapping[str, Mapping[str, float]], seconds: float) -> None:
        """Count one look.

        Args:
            figures: `namespace/name` of a pod -> resource -> use in thousandths of cores, and bytes.
            seconds: for which they stand.
        """
        pods: dict[str, list[Pod]] = defaultdict(list)
        for pod in self._cache.pods:
            pods[pod.binding_uid].append(pod)
        self._sums = {uid: known for uid, known in self._sums.items() if uid in pods}
        for uid, present in pods.items():
            running = [pod for pod in present if pod.phase == "Running"]
            if not uid or not running:
                continue
            found = [figures.get(pod.metadata.key) for pod in running]
            uses = [each for each in found if each]
            if len(uses) < len(running):
                # Figures of some pods are not the use of all.
                continue
            epoch = max(numbers.whole(pod.metadata.annotations.get(keys.EPOCH)) or 0 for pod in running)
            known = self._sums.get(uid)
            if known is None or known.epoch != epoch:
                known = self._sums[uid] = _Sum(epoch)
            known.seconds += seconds
            for name in set.intersection(*map(set, uses)):
                amount = sum(each[name] for each in uses) / quantity.scale_of(name)
                known.amounts[name] = known.amounts.get(name, 0.0) + amount * seconds

    def of(self, binding_uid: str) -> dict[str, float]:
        """Resource -> mean cores or bytes in use by all pods of its run, with two digits; empty where not known."""
        known = self._sums.get(binding_uid)
        if known is None:
            return {}
        # With more digits each report would differ from the one before.
        return {name: float(f"{amount / known.seconds:.2g}") for name, amount in sorted(known.amounts.items())}
