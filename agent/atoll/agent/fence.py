"""The fence: an agent that has no contact to the host ends exclusive workloads, so that the host may run it elsewhere.

The host counts from the last sign of life that it got; here the time counts from when the last one that was answered
was sent, which is earlier. It stands on the agents' Lease in the member, so neither a restart nor another leader begins
it anew. Ended workloads are made again by delivery alone, once the host says that its epoch still stands.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import structlog

from atoll.agent.settings import HeartbeatSettings
from atoll.kinds import BY_RESOURCE, DELIVERED
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import PODS, ApiResource
from atoll.model.lost import OnLost
from atoll.model.timestamps import is_time, rfc3339, to_seconds

Json = dict[str, Any]

log = structlog.get_logger(__name__)


class Fence:
    """Ends exclusive workloads in a member that is cut off from the host."""

    def __init__(self, member: ApiServer, *, settings: HeartbeatSettings = HeartbeatSettings()) -> None:
        """No I/O happens here; `run` does it.

        Args:
            member: where the pods are.
            settings: its times.
        """
        self._member, self._settings = member, settings
        #: when the host was last heard, by the monotonic clock and by the date; the process' begin until it is known
        self._heard, self._date = time.monotonic(), 0.0
        #: whether something was ended, or may be, since the host was last heard
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether nothing that is exclusive may start."""
        return time.monotonic() - self._heard >= self._settings.fence

    def contact(self, sent: float) -> None:
        """The host answered a request sent then, by `time.monotonic`."""
        if sent > self._heard or not self._date:
            self._heard, self._date = sent, time.time() - (time.monotonic() - sent)

    def annotations(self, present: Mapping[str, str]) -> dict[str, str]:
        """Annotations of the member's Lease about the last contact; learn from the present ones."""
        text = present.get(keys.CONTACT, "")
        if is_time(text) and (date := to_seconds(text)) > self._date:
            # Of an earlier leader. Where clocks differ, that of the future was now.
            self._heard, self._date = time.monotonic() - max(time.time() - date, 0.0), date
        return {keys.CONTACT: rfc3339(self._date)} if self._date else {}

    async def run(self, leads: Callable[[], bool]) -> None:
        """Watch the time until cancelled; only what leads ends anything."""
        while True:
            if self.closed and leads():
                if not self._closed:
                    log.error("no contact to the host: ends what is exclusive", seconds=self._settings.fence)
                self._closed = True
                await self._end()
            elif self._closed and not self.closed:
                log.info("contact to the host: what is exclusive may start again")
                self._closed = False
            await asyncio.sleep(self._settings.probe)

    async def _end(self) -> None:
        ended = 0
        for kind in DELIVERED:
            try:
                found = await self._member.list(kind.resource, label_selector=f"{keys.ON_LOST}={OnLost.EXCLUSIVE}")
                for obj in found:
                    if BY_RESOURCE[kind.resource].finished(obj.get("status") or {}) is None:
                        await self._end_one(kind.resource, obj["metadata"])
                        ended += 1
            except errors.NotFound:
                # The member has no such kind.
                continue
            except errors.ApiError as error:
                log.warning("can't end what is exclusive yet", kind=kind.resource.kind, error=str(error))
        if ended:
            log.warning("ended what is exclusive", workloads=ended)

    async def _end_one(self, resource: ApiResource, metadata: Json) -> None:
        """Its controllers make no pods for an object that is being deleted; its pods end with it, and at once."""
        name, namespace = metadata["name"], metadata["namespace"]
        try:
            if not metadata.get("deletionTimestamp"):
                await self._member.delete(resource, name, namespace, uid=metadata["uid"], propagation="Foreground")
        except (errors.NotFound, errors.Conflict):
            log.debug("gone meanwhile", kind=resource.kind, workload=f"{namespace}/{name}")
        uid = (metadata.get("annotations") or {}).get(keys.BINDING_UID)
        for pod in _of_binding(await self._member.list(PODS, namespace), uid):
            if not pod["metadata"].get("deletionTimestamp"):
                try:
                    about = pod["metadata"]
                    await self._member.delete(PODS, about["name"], namespace, uid=about["uid"])
                except (errors.NotFound, errors.Conflict):
                    continue


def _of_binding(pods: list[Json], uid: str | None) -> Iterator[Json]:
    for pod in pods:
        if uid and (pod["metadata"].get("annotations") or {}).get(keys.BINDING_UID) == uid:
            yield pod
