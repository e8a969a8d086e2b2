"""The agents' sign of life on the host: a Lease that also says whether the member's API server is ready.

The agent that leads writes it. Where none leads, as when the member is away, one of them says so.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import structlog

from atoll.agent.settings import HeartbeatSettings
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import LEASES
from atoll.model.timestamps import rfc3339_micro

NAME = "atoll-agent"

_NOBODY = f"none of its agents holds Lease {keys.SYSTEM_NAMESPACE}/{NAME} in the member"

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
        leads: Callable[[], bool] = lambda: True,
        notes: Callable[[], dict[str, str]] = dict,
        figures: Callable[[], dict[str, str]] = dict,
        contact: Callable[[float], None] = lambda _: None,
        asked: Callable[[str], None] = lambda _: None,
        settings: HeartbeatSettings = HeartbeatSettings(),
    ) -> None:
        """No I/O happens here; `run` does it.

        Args:
            host: where the Lease is.
            member: whose /readyz is probed.
            cluster: name of the member.
            identity: of this process.
            leads: whether this process leads.
            notes: annotations with more about the member; a change is written at once.
            figures: others, which wait for the next renewal.
            contact: called after an answer of the host to the leader, with the time of the request, by
              `time.monotonic`.
            asked: called with the shapes of claims that the host asks about (`atoll.model.claim_shapes`), in the
              answer to each renewal.
            settings: its times and bounds.
        """
        self._settings = settings
        self._host = host
        self._member = member
        self._namespace = keys.execution_namespace(cluster)
        self._identity = identity
        self._notes, self._figures = notes, figures
        self._leads, self._contact, self._asked = leads, contact, asked
        #: annotations as last written, and when, on the loop's clock
        self._told: dict[str, str] = {}
        self._told_at = -self._settings.period
        #: renewTime of another agent's sign of life, and since when none leads as far as is known here
        self._theirs: str | None = None
        self._since = 0.0

    async def run(self) -> None:
        """Probe and renew until cancelled; a change is written at once."""
        clock = asyncio.get_running_loop().time
        self._since, looked = clock(), -self._settings.period
        while True:
            readyz = await self._probe()
            try:
                if self._leads():
                    self._since = clock()
                    sent = time.monotonic()
                    if await self._tell(readyz):
                        self._contact(sent)
                elif clock() - looked >= self._settings.period:
                    looked = clock()
                    if await self._falls_to_us(readyz):
                        await self._tell(readyz if readyz != "ok" else _NOBODY)
            except errors.ApiError as error:
                log.warning("the host did not take the heartbeat", error=str(error))
            await asyncio.sleep(self._settings.probe)

    async def _falls_to_us(self, readyz: str) -> bool:
        """Whether this agent, which does not lead, must report the problem."""
        now = asyncio.get_running_loop().time()
        try:
            spec = (await self._host.get(LEASES, NAME, self._namespace)).get("spec") or {}
        except errors.NotFound:
            spec = {}
        if spec.get("holderIdentity") == self._identity and readyz != "ok":
            return True
        if spec.get("holderIdentity") != self._identity and spec.get("renewTime") != self._theirs:
            self._theirs, self._since = spec.get("renewTime"), now
        return now - self._since >= self._settings.silent

    async def _tell(self, readyz: str) -> bool:
        """Renew if there is something new, or it is time; whether that was so."""
        annotations = {**self._notes(), keys.READYZ: readyz}
        now = asyncio.get_running_loop().time()
        if annotations == self._told and now - self._told_at < self._settings.period:
            return False
        await self._renew({**annotations, **self._figures()})
        self._told, self._told_at = annotations, now
        return True

    async def _probe(self) -> str:
        try:
            await self._member.request("GET", "/readyz", deadline=self._settings.probe_deadline)
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
                "leaseDurationSeconds": self._settings.duration,
                "renewTime": rfc3339_micro(time.time()),
            },
        }
        found = await self._host.apply(LEASES, lease, field_manager=NAME)
        self._asked((found["metadata"].get("annotations") or {}).get(keys.CLAIM_SHAPES, ""))
