"""Client certificates of agents: the request of an agent for the name of its own account is approved, no other."""

from __future__ import annotations

import asyncio

import structlog

from atoll.control.caches import Caches
from atoll.control.objects import ClusterObject
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.kube.workqueue import WorkQueue
from atoll.model import certificates
from atoll.model.apiresource import SIGNING_REQUESTS
from atoll.model.objects import Full, decode_full
from atoll.model.reports import readable

_PREFIX = certificates.request_name("")

log = structlog.get_logger(__name__)


class Certificates:
    """Approves requests; the host's own signer signs."""

    def __init__(self, host: ApiServer, caches: Caches) -> None:
        self._host, self._clusters = host, caches.clusters
        self._queue: WorkQueue[str] = WorkQueue("certificates", lambda key: {"cluster": key})
        self._requests = Reflector(
            host, SIGNING_REQUESTS, decode_full, field_selector=f"spec.signerName={certificates.SIGNER}", optional=True
        )
        self._requests.on_change(self._asked)
        caches.clusters.on_change(self._joined)

    async def run(self) -> None:
        """Approve until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._requests.run())
            group.create_task(self._queue.run(self._look))

    def _asked(self, _: Full | None, new: Full | None) -> None:
        if new is not None and new.metadata.name.startswith(_PREFIX):
            self._queue.add(new.metadata.name.removeprefix(_PREFIX))

    def _joined(self, old: ClusterObject | None, new: ClusterObject | None) -> None:
        if old is None and new is not None:
            self._queue.add(new.metadata.name)

    async def _look(self, cluster: str) -> None:
        request = self._requests.get(certificates.request_name(cluster))
        if request is None or (request.body.get("status") or {}).get("conditions"):
            return
        if self._clusters.get(cluster) is None:
            return
        # Parsing certificates is a large import, and most hosts have no such members.
        from atoll.kube import client_certificates

        if problem := client_certificates.fault(request.body, cluster):
            log.warning("a request for a certificate is not the agent's", cluster=cluster, problem=readable(problem))
            return
        await client_certificates.approve(self._host, request.body, "atoll-control")
        log.info("the certificate of an agent is approved", cluster=cluster)
