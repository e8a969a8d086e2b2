"""The agent's sign of life on the host: a Lease that also says whether the member's API server is ready."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import structlog

from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import LEASES
from atoll.model.timestamps import rfc3339_micro

NAME = "atoll-agent"
PERIOD = 10.0
DURATION = 40
_PROBE_EVERY = 2.0
_PROBE_DEADLINE = 3.0

log = structlog.get_logger(__name__)


class Heartbeat:
    """Renews the Lease `atoll-agent` in the member's execution namespace."""

    def __init__(
        self,
        host: ApiServer,
        member: ApiServer,
        cluster: str,
        identity: str,
        *,
        notes: Callable[[], dict[str, str]] = dict,
    ) -> None:
        """No I/O happens here; `run` does it.

        Args:
            host: where the Lease is.
            member: whose /readyz is probed.
            cluster: name of the member.
            identity: of this process.
            notes: annotations that tell the host of the member besides.
        """
        self._host = host
        self._member = member
        self._namespace = keys.execution_namespace(cluster)
        self._identity = identity
        self._notes = notes
        #: last answer of the probe
        self.readyz = ""
        #: other annotations as last written
        self._told: dict[str, str] = {}

    async def run(self) -> None:
        """Probe and renew until cancelled; a change is told at once."""
        renewed = -PERIOD
        clock = asyncio.get_running_loop().time
        while True:
            readyz = await self._probe()
            notes = self._notes()
            if (readyz, notes) != (self.readyz, self._told) or clock() - renewed >= PERIOD:
                try:
                    await self._renew({**notes, keys.READYZ: readyz})
                    self.readyz, self._told, renewed = readyz, notes, clock()
                except errors.ApiError as error:
                    log.warning("the host did not take the heartbeat", error=str(error))
            await asyncio.sleep(_PROBE_EVERY)

    async def _probe(self) -> str:
        try:
            await self._member.request("GET", "/readyz", deadline=_PROBE_DEADLINE)
        except errors.ApiError as error:
            return error.message[:250]
        return "ok"

    async def _renew(self, annotations: dict[str, str]) -> None:
        lease = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {
                "name": NAME,
                "namespace": self._namespace,
                "annotations": annotations,
            },
            "spec": {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": DURATION,
                "renewTime": rfc3339_micro(time.time()),
            },
        }
        await self._host.apply(LEASES, lease, field_manager=NAME)
