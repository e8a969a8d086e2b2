"""The kopf operator: HyperNodes are watched, judged when they are applied, and given their status.

kopf watches HyperNodes and serves admission; nodes and pods, of which there are many, come by reflectors. kopf's own
annotations, finalizers, Events and peering are off: it writes status, and nothing else.
"""

from __future__ import annotations

import asyncio
import copy
import os
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import kopf
import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from atoll.kube import errors
from atoll.kube.authority import CA_LIFE, make_signer
from atoll.kube.certificates import issue
from atoll.kube.events import Recorder
from atoll.kube.transport import ApiServer
from atoll.model.apiresource import HYPER_NODES
from atoll.model.conditions import condition
from atoll.model.topology import AVAILABLE, VALID
from atoll.model.vector import Vector
from atoll.topology.cluster import Watched
from atoll.topology.findings import judge, look
from atoll.topology.observed import statuses

Json = dict[str, Any]

FIELD_MANAGER = "atoll-topology"
_COALESCE = 0.2
"""Seconds for which events are gathered before statuses are worked out."""
_RELIST = 300.0
"""Seconds between two lists of all HyperNodes: a watch that was interrupted does not tell of deletions."""
_AGAIN = 5.0
"""Seconds until a status that could not be written is tried again."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Rules:
    """What the flags say."""

    slot: Vector
    """What one slot takes of a node, in integer units."""
    lost_share: float
    """Share of a domain's nodes that must be lost for the domain to be lost."""
    recovery: float
    """Seconds that a node must be Ready before it counts again."""
    counts_every: float
    """Least seconds between two writes of one status when only counts differ."""


class Operator:
    """Keeps the status of all HyperNodes true, and judges applied ones."""

    def __init__(self, api: ApiServer, rules: Rules, metrics: CollectorRegistry) -> None:
        """No I/O happens here; `run` does it."""
        self._api, self._rules = api, rules
        self._recorder = Recorder(api, "atoll-topology")
        self._wake = asyncio.Event()
        self.watched = Watched(api, slot=rules.slot, recovery=rules.recovery, changed=self._wake.set)
        #: by name; None until they were listed
        self._hyper_nodes: dict[str, Json] | None = None
        #: name -> the status that was last written, and when on the loop's clock
        self._written: dict[str, tuple[Json, float]] = {}
        #: fields that the cluster's CRD does not keep, for they are written in vain
        self._dropped: set[str] = set()
        self._valid = Gauge(
            "atoll_topology_hyper_node_valid", "0: part of this HyperNode is left out", ["hyper_node"], registry=metrics
        )
        self._available = Gauge(
            "atoll_topology_hyper_node_available",
            "0: this domain is lost and nothing new is placed there",
            ["hyper_node"],
            registry=metrics,
        )
        self._lost = Gauge("atoll_topology_nodes_lost", "Nodes that are lost or not yet back", registry=metrics)
        self._refused = Counter("atoll_topology_refused", "HyperNodes refused at admission", registry=metrics)
        self.ready = False
        """Whether all statuses were worked out once."""

    @property
    def hyper_nodes(self) -> list[Json]:
        """All that there are, as last seen."""
        return list((self._hyper_nodes or {}).values())

    # -- kopf --------------------------------------------------------------------------------------------------------

    def registry(self, *, admission: bool) -> kopf.OperatorRegistry:
        """The handlers."""
        registry = kopf.OperatorRegistry()
        about = (HYPER_NODES.group, HYPER_NODES.version, HYPER_NODES.plural)

        @kopf.on.startup(registry=registry)
        async def begin(**_: Any) -> None:
            # Before kopf watches, so that its later news are newer.
            await self._list()

        @kopf.on.event(*about, registry=registry)
        async def changed(type: str | None, body: kopf.Body, **_: Any) -> None:
            self._changed(type, copy.deepcopy(dict(body)))

        if admission:

            @kopf.on.validate(
                *about, id="hypernodes", operations=["CREATE", "UPDATE"], ignore_failures=True, registry=registry
            )
            async def applied(body: kopf.Body, warnings: list[str], **_: Any) -> None:
                self._judge(dict(body), warnings)

        return registry

    async def _list(self) -> None:
        found = {obj["metadata"]["name"]: obj for obj in await self._api.list(HYPER_NODES)}
        self._hyper_nodes = found
        self._wake.set()

    def _changed(self, kind: str | None, obj: Json) -> None:
        if self._hyper_nodes is None:
            return
        if kind == "DELETED":
            self._hyper_nodes.pop(obj["metadata"]["name"], None)
        else:
            self._hyper_nodes[obj["metadata"]["name"]] = obj
        self._wake.set()

    def _judge(self, obj: Json, warnings: list[str]) -> None:
        if not self.watched.nodes.synced.is_set():
            return
        found = judge(self.hyper_nodes, self.watched.labels(), obj)
        warnings.extend(found.warnings)
        if found.refusals:
            self._refused.inc()
            raise kopf.AdmissionError("; ".join(found.refusals), code=422)

    # -- status ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Write statuses until cancelled; nodes and pods are watched meanwhile."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.watched.nodes.run(), name="nodes")
            tasks.create_task(self.watched.pods.run(), name="pods")
            tasks.create_task(self._relist(), name="list")
            tasks.create_task(self._recorder.run(), name="events")
            while True:
                await self._wake.wait()
                await asyncio.sleep(_COALESCE)
                self._wake.clear()
                if self._hyper_nodes is not None and self.watched.synced:
                    await self._write_all()

    async def _relist(self) -> None:
        while True:
            await asyncio.sleep(_RELIST)
            try:
                await self._list()
            except errors.ApiError as error:
                log.warning("HyperNodes can't be listed", error=str(error))

    async def _write_all(self) -> None:
        now = time.time()
        self.watched.health.recover(now)
        objects = self.hyper_nodes
        findings = look(objects, self.watched.labels())
        cluster = self.watched.seen()
        rules = self._rules
        wanted = statuses(objects, findings, cluster, share=rules.lost_share, recovery=rules.recovery, now=now)
        self._tell(wanted, findings.wrong, len(cluster.lost))
        loop = asyncio.get_running_loop()
        later = [] if self.watched.health.deadline is None else [self.watched.health.deadline - now]
        due = []
        for obj in objects:
            name = obj["metadata"]["name"]
            pause = self._due(obj, wanted[name], loop.time())
            if pause == 0:
                due.append(self._write(obj, wanted[name]))
            elif pause is not None:
                later.append(pause)
        if not all(await _at_once(due)):
            later.append(_AGAIN)
        if later:
            loop.call_later(max(min(later), _COALESCE), self._wake.set)
        self.ready = True

    def _due(self, obj: Json, wanted: Json, now: float) -> float | None:
        """Seconds until this status is to be written; None if it is as it should be."""
        here = obj.get("status") or {}
        last, at = self._written.get(obj["metadata"]["name"], ({}, 0.0))
        differs = {key for key, value in wanted.items() if here.get(key) != value and key not in self._dropped}
        # What the CRD drops is never there.
        if not differs or all(last.get(key) == wanted[key] and key not in here for key in differs):
            return None
        if "conditions" in differs and _told(here) != _told(wanted):
            return 0
        return max(0.0, at + self._rules.counts_every - now) if last else 0

    async def _write(self, obj: Json, wanted: Json) -> bool:
        """Whether that is settled."""
        name = obj["metadata"]["name"]
        # The version guards conditions that others write.
        patch = {"metadata": {"resourceVersion": obj["metadata"]["resourceVersion"]}, "status": wanted}
        try:
            answer = await self._api.merge_patch(
                HYPER_NODES, name, patch, subresource="status", field_manager=FIELD_MANAGER
            )
        except errors.NotFound:
            if self._hyper_nodes is not None:
                self._hyper_nodes.pop(name, None)
            return True
        except errors.Conflict:
            # What changed is on its way to us.
            return True
        except errors.ApiError as error:
            log.warning("the status of a HyperNode can't be written", hyper_node=name, error=str(error))
            return False
        self._record(obj, wanted)
        self._written[name] = (wanted, asyncio.get_running_loop().time())
        dropped = wanted.keys() - (answer.get("status") or {}).keys()
        if dropped - self._dropped:
            self._dropped |= dropped
            log.warning("the HyperNode CRD of this cluster does not keep part of the status", fields=sorted(dropped))
        return True

    def _record(self, obj: Json, wanted: Json) -> None:
        """Events where a condition became false, or true again."""
        about = {"apiVersion": HYPER_NODES.api_version, "kind": HYPER_NODES.kind, "name": obj["metadata"]["name"]}
        about["uid"] = obj["metadata"]["uid"]
        for each in wanted["conditions"]:
            before, wrong = condition(obj, each["type"]).get("status"), each["status"] == "False"
            if each["type"] in (VALID, AVAILABLE) and before != each["status"] and (wrong or before == "False"):
                self._recorder.record(about, each["reason"], each["message"], warning=wrong)

    def _tell(self, wanted: Mapping[str, Json], wrong: Mapping[str, str], lost: int) -> None:
        self._valid.clear()
        self._available.clear()
        for name in wanted:
            if name in wrong:
                self._valid.labels(name).set(0)
            if condition({"status": wanted[name]}, AVAILABLE).get("status") == "False":
                self._available.labels(name).set(0)
        self._lost.set(lost)


def _told(status: Json) -> list[tuple[Any, Any, Any]]:
    """What of conditions is told at once; a message may wait, for it has numbers."""
    return [(c.get("type"), c.get("status"), c.get("reason")) for c in status.get("conditions") or ()]


async def _at_once(writes: list[Any], most: int = 16) -> list[bool]:
    """All of them, so many at a time."""
    gate = asyncio.Semaphore(most)

    async def one(write: Any) -> bool:
        async with gate:
            return bool(await write)

    return await asyncio.gather(*map(one, writes))


# -- running kopf ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Admission:
    """Where admission is served, and how the API server reaches it."""

    address: str
    port: int
    service: str = ""
    """`namespace/name` of a Service with port 443; empty where the API server reaches the address itself."""


async def run_kopf(
    operator: Operator, stopping: asyncio.Event, kubeconfig: Path | None, admission: Admission | None
) -> None:
    """Watch HyperNodes and serve admission until `stopping` is set; then wait to be cancelled."""
    registry = operator.registry(admission=admission is not None)

    @kopf.on.login(registry=registry)
    def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        if kubeconfig is not None:
            os.environ["KUBECONFIG"] = str(kubeconfig)
        return kopf.login_with_kubeconfig(**kwargs) or kopf.login_with_service_account(**kwargs)

    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = False
    if admission is not None:
        settings.admission.server = _server(admission)
        settings.admission.managed = "topology.atoll.sh"
    await kopf.operator(registry=registry, settings=settings, standalone=True, clusterwide=True, stop_flag=stopping)
    # kopf takes signals for itself: it ends first, and the process with it.
    stopping.set()
    await asyncio.Event().wait()


def _server(admission: Admission) -> Any:
    # Each process has an authority of its own, which the webhook configuration trusts as long as it runs.
    namespace, _, name = admission.service.partition("/")
    now = datetime.now(UTC)
    leaf = issue(
        make_signer(now, name="atoll-topology"),
        [f"{name}.{namespace}.svc" if name else admission.address],
        now,
        CA_LIFE,
    )

    # kopf reads certificates from files, and looks at them now and then.
    directory = tempfile.TemporaryDirectory(prefix="atoll-topology-")
    certificate, key = Path(directory.name, "tls.crt"), Path(directory.name, "tls.key")
    certificate.write_bytes(leaf.chain)
    key.write_bytes(leaf.key)
    server = kopf.WebhookServer(
        addr=admission.address, port=admission.port, certfile=certificate, pkeyfile=key, cadata=leaf.issuer
    )

    async def serve(fn: Any) -> AsyncIterator[Any]:
        with directory:
            async for config in server(fn):
                service = {"namespace": namespace, "name": name, "port": 443}
                yield {"caBundle": config["caBundle"], "service": service} if name else config

    return serve
