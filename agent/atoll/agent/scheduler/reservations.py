"""Holds with the world around them: the clock, the PodGroups that outlive the process, and those who wait for answers.

The PodGroup `<workload>-hold` has no pods; it is the memory of a reservation, best effort: without it a restarted
agent plans again when delivery asks again. Its namespace is made as delivery would make it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from atoll.agent.cache import MemberCache
from atoll.agent.objects import PodGroup
from atoll.agent.scheduler import holds
from atoll.agent.scheduler.expected import Expected
from atoll.agent.scheduler.holds import Hold, Holds
from atoll.agent.scheduler.room import Room
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.kube.workqueue import WorkQueue
from atoll.model import keys
from atoll.model.apiresource import NAMESPACES, POD_GROUPS
from atoll.model.decision import Gone, Spots
from atoll.model.gang import Gang
from atoll.model.timestamps import rfc3339

FIELD_MANAGER = "atoll-agent"
_SUFFIX = "-hold"
_NAME_MAX = 253

log = structlog.get_logger(__name__)


class Reservations:
    """Serves `atoll.delivery.reservations.Reservations`; the scheduler drives it with `start`, `refresh` and `run`."""

    def __init__(
        self, api: ApiServer, cache: MemberCache, room: Room, *, promise: Callable[[], int], wake: Callable[[], None]
    ) -> None:
        """No I/O happens here.

        Args:
            api: the member.
            cache: of the member, for the PodGroups of an earlier process.
            room: where nodes are reserved.
            promise: gives the generation of the published capacity that will contain what is so now.
            wake: asks for a pass of the scheduler.
        """
        self.holds = Holds(room)
        self.expected = Expected()
        self._api, self._cache, self._promise, self._wake = api, cache, promise, wake
        self._room = room
        #: whether the last pass refused a hold that had nodes
        self._lost = False
        self._observers: list[Callable[[str], None]] = []
        #: calls of `hold` from before `start`, the last one of each binding; None after it
        self._early: dict[str, tuple[int, Gang, str, str, Gone | None]] | None = {}
        self._writes: WorkQueue[str] = WorkQueue("holds", self._about)
        #: binding UID -> (namespace, name) of the PodGroup that is, or may be, in the member
        self._groups: dict[str, tuple[str, str]] = {}
        #: wall clock minus the loop's, taken once so that equal deadlines give equal texts
        self._offset: float | None = None
        self._alarm: asyncio.TimerHandle | None = None

    # -- for delivery ------------------------------------------------------------------------------------------------

    def hold(self, uid: str, epoch: int, gang: Gang, name: str, namespace: str, *, gone: Gone | None = None) -> None:
        """See `atoll.delivery.reservations.Reservations.hold`."""
        if self._early is not None:
            self._early[uid] = (epoch, gang, name, namespace, gone)
            return
        self.holds.hold(uid, epoch, gang, name, namespace, self._now(), gone=gone)
        self.tell()

    def expect(self, uid: str, epoch: int, spots: Spots) -> None:
        """See `atoll.delivery.reservations.Reservations.expect`."""
        self.expected.expect(uid, epoch, spots)

    def state(self, uid: str) -> dict[str, Any] | None:
        """See `atoll.delivery.reservations.Reservations.state`."""
        hold = self.holds.get(uid)
        return holds.describe(hold, self._expires(hold)) if hold is not None else None

    def release(self, uid: str) -> None:
        """See `atoll.delivery.reservations.Reservations.release`."""
        if self._early is not None:
            self._early.pop(uid, None)
        self.expected.forget(uid)
        self.holds.release(uid)
        self.tell()

    def on_change(self, callback: Callable[[str], None]) -> None:
        """See `atoll.delivery.reservations.Reservations.on_change`."""
        self._observers.append(callback)

    # -- for the scheduler -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Take over what an earlier process reserved, then answer who asked meanwhile; the cache has synced."""
        assert self._early is not None
        for group in sorted(self._cache.pod_groups, key=lambda each: each.metadata.key):
            if is_plan(group):
                self._adopt(group)
        early, self._early = self._early, None
        for uid, (epoch, gang, name, namespace, gone) in early.items():
            self.holds.hold(uid, epoch, gang, name, namespace, self._now(), gone=gone)
        self._lost = self.holds.check()
        self.tell()

    def refresh(self) -> None:
        """At the beginning of a pass, before `room.grew` is reset: end, try again and check."""
        self.holds.expire(self._now())
        if self._room.grew or self._lost:
            self.holds.retry()
        # Last, so that one that is lost is said to be refused before it is tried again by the next pass.
        self._lost = self.holds.check()
        self.tell()

    def tell(self) -> None:
        """Pass on what has changed: to the host's capacity, to observers, to the PodGroups."""
        changed, self.holds.changed = self.holds.changed, set()
        for uid in sorted(changed):
            hold = self.holds.get(uid)
            if hold is not None and hold.slots and not hold.generation:
                hold.generation = self._promise()
            self._writes.add(uid)
        for uid in sorted(changed):
            for observer in self._observers:
                observer(uid)
        if changed:
            self._wake()
            self._set_alarm()

    async def run(self) -> None:
        """Keep the PodGroups equal to the holds until cancelled."""
        await self._writes.run(self._write, workers=4)

    # -- clock -------------------------------------------------------------------------------------------------------

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _expires(self, hold: Hold) -> str:
        if self._offset is None:
            self._offset = time.time() - self._now()
        return rfc3339(hold.told + self._offset)

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if (deadline := self.holds.deadline) is not None:
            self._alarm = asyncio.get_running_loop().call_at(deadline, self._ring)

    def _ring(self) -> None:
        # Renewals move deadlines without a change that is told.
        if (deadline := self.holds.deadline) is not None and deadline > self._now():
            self._set_alarm()
        else:
            self._wake()

    # -- PodGroups ---------------------------------------------------------------------------------------------------

    def _adopt(self, group: PodGroup) -> None:
        meta = group.metadata
        try:
            plan = holds.decode_plan(meta.annotations[keys.PLAN])
        except ValueError as error:
            log.warning("a reservation can't be read and is ignored", pod_group=meta.key, error=str(error))
            return
        settled = [
            (pod.task, pod.node)
            for pod in self._cache.pods.by_index("binding", plan.uid)
            if pod.node and pod.metadata.annotations.get(keys.EPOCH) == str(plan.epoch)
        ]
        self._groups[plan.uid] = (meta.namespace, meta.name)
        self.holds.adopt(plan, meta.namespace, settled, self._now())

    def _about(self, uid: str) -> dict[str, str]:
        hold = self.holds.get(uid)
        return {"binding_uid": uid, **({"workload": f"{hold.namespace}/{hold.name}"} if hold is not None else {})}

    async def _write(self, uid: str) -> None:
        hold = self.holds.get(uid)
        if hold is None or not hold.slots:
            if (there := self._groups.get(uid)) is not None:
                await self._api.delete(POD_GROUPS, there[1], there[0])
                self._groups.pop(uid, None)
            return
        body = hold_group(hold, self._expires(hold))
        namespace, name = hold.namespace, body["metadata"]["name"]
        others = [place for other, place in self._groups.items() if other != uid]
        found = self._cache.pod_groups.get(f"{namespace}/{name}")
        if (namespace, name) in others or (found is not None and not is_plan(found)):
            log.warning("the name of a reservation is taken; it would not survive a restart", pod_group=name)
            return
        # Before the request: one whose answer is lost may have been carried out.
        self._groups[uid] = (namespace, name)
        try:
            await self._apply(body)
        except (errors.Invalid, errors.Forbidden) as error:
            text = "a reservation can't be written and would not survive a restart"
            log.warning(text, pod_group=name, error=str(error))

    async def _apply(self, body: Mapping[str, Any]) -> None:
        try:
            await self._api.apply(POD_GROUPS, body, field_manager=FIELD_MANAGER)
        except errors.NotFound:
            metadata = {"name": body["metadata"]["namespace"], "labels": {keys.MANAGED: "true", keys.MADE: "true"}}
            namespace = {"apiVersion": NAMESPACES.api_version, "kind": NAMESPACES.kind, "metadata": metadata}
            try:
                await self._api.create(NAMESPACES, namespace, field_manager=FIELD_MANAGER)
            except errors.AlreadyExists:
                log.debug("somebody else made it", namespace=metadata["name"])
            await self._api.apply(POD_GROUPS, body, field_manager=FIELD_MANAGER)


def is_plan(group: PodGroup) -> bool:
    """Whether this is the memory of a reservation and no gang."""
    return keys.PLAN in group.metadata.annotations


def hold_group(hold: Hold, expires: str) -> dict[str, Any]:
    """The PodGroup that remembers a hold."""
    return {
        "apiVersion": POD_GROUPS.api_version,
        "kind": POD_GROUPS.kind,
        "metadata": {
            "name": hold.name[: _NAME_MAX - len(_SUFFIX)] + _SUFFIX,
            "namespace": hold.namespace,
            "annotations": {keys.PLAN: holds.encode_plan(hold, expires)},
        },
        "spec": {"minMember": hold.slots.total(), "queue": hold.gang.queue or keys.DEFAULT_QUEUE},
    }
