"""Holds with the world around them: the clock, the PodGroups that outlive the process, and Works that wait for answers.

The PodGroup `<workload>-hold` has no pods; it is the memory of a reservation, best effort: without it a restarted
agent plans again when delivery asks again. Its namespace is made as delivery would make it. Others may write such a
PodGroup as well: it counts where the host asks for that very part, and is removed where it does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import structlog

from atoll.agent.cache import MemberCache
from atoll.agent.objects import PodGroup
from atoll.agent.scheduler.core import Answer, Event, MemberCore, holds
from atoll.agent.scheduler.core.events import Granted, HoldAdopted, HoldAsked, Released, SpotsExpected
from atoll.agent.scheduler.core.holds import Hold, Plan
from atoll.delivery.reservations import Asked
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
    """Serves `atoll.delivery.reservations.Reservations`; the scheduler drives it with `start`, `answered` and `run`."""

    def __init__(
        self,
        api: ApiServer,
        cache: MemberCache,
        core: MemberCore,
        *,
        promise: Callable[[], int],
        handle: Callable[[Event], None],
    ) -> None:
        """No I/O happens here.

        Args:
            api: the member.
            cache: of the member, for the PodGroups of an earlier process.
            core: whose holds these are.
            promise: gives the generation of the published capacity that will contain the present state.
            handle: tells the core.
        """
        self._api, self._cache, self._core, self._promise, self._handle = api, cache, core, promise, handle
        self._observers: list[Callable[[str], None]] = []
        #: calls of `hold` from before `start`, the last one of each binding; None after it
        self._early: dict[str, tuple[int, Gang, str, str, Gone | None]] | None = {}
        #: binding UID -> what the host asked for when this process began
        self._asked: dict[str, Asked] = {}
        #: set once that is known
        self.recalled = asyncio.Event()
        #: binding UIDs, and `namespace/name` of PodGroups with a plan that is not asked for
        self._writes: WorkQueue[str] = WorkQueue("holds", self._about)
        #: binding UID -> (choice of nodes, generation of the published capacity that contains it)
        self._generations: dict[str, tuple[int, int]] = {}
        #: binding UID -> (namespace, name) of the PodGroup that is, or may be, in the member
        self._groups: dict[str, tuple[str, str]] = {}
        #: wall clock minus the loop's, taken once so that equal deadlines give equal texts
        self._offset: float | None = None

    # -- for delivery ------------------------------------------------------------------------------------------------

    def recall(self, parts: Iterable[Asked]) -> None:
        """See `atoll.delivery.reservations.Reservations.recall`."""
        self._asked = {part.uid: part for part in parts}
        self.recalled.set()

    def hold(self, uid: str, epoch: int, gang: Gang, name: str, namespace: str, *, gone: Gone | None = None) -> None:
        """See `atoll.delivery.reservations.Reservations.hold`."""
        if self._early is not None:
            self._early[uid] = (epoch, gang, name, namespace, gone)
            return
        self._handle(HoldAsked(uid, epoch, gang, name, namespace, self._now(), gone))

    def expect(self, uid: str, epoch: int, spots: Spots) -> None:
        """See `atoll.delivery.reservations.Reservations.expect`."""
        self._handle(SpotsExpected(uid, epoch, spots))

    def grant(self, uid: str, epoch: int, gang: Gang) -> None:
        """See `atoll.delivery.reservations.Reservations.grant`."""
        self._handle(Granted(uid, epoch, gang))

    def state(self, uid: str) -> dict[str, Any] | None:
        """See `atoll.delivery.reservations.Reservations.state`."""
        hold = self._core.holds.get(uid)
        if hold is None:
            return None
        return holds.describe(hold, self._expires(hold), self._generations.get(uid, (0, 0))[1])

    def release(self, uid: str) -> None:
        """See `atoll.delivery.reservations.Reservations.release`."""
        if self._early is not None:
            self._early.pop(uid, None)
        self._handle(Released(uid))

    def on_change(self, callback: Callable[[str], None]) -> None:
        """See `atoll.delivery.reservations.Reservations.on_change`."""
        self._observers.append(callback)

    # -- for the scheduler -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Take over what an earlier process reserved, then answer who asked meanwhile; the cache has synced, and it was
        `recalled`.
        """
        assert self._early is not None
        for group in sorted(self._cache.pod_groups, key=lambda each: each.metadata.key):
            if is_plan(group):
                self._adopt(group)
        self._asked.clear()
        early, self._early = self._early, None
        for uid, (epoch, gang, name, namespace, gone) in early.items():
            self._handle(HoldAsked(uid, epoch, gang, name, namespace, self._now(), gone))

    def answered(self, answer: Answer) -> None:
        """Pass on what became of a hold: to the host's capacity, to observers, to the PodGroups."""
        if not answer.nodes:
            self._generations.pop(answer.uid, None)
        elif self._generations.get(answer.uid, (0, 0))[0] != answer.kept:
            self._generations[answer.uid] = (answer.kept, self._promise())
        self._writes.add(answer.uid)
        for observer in self._observers:
            observer(answer.uid)

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

    # -- PodGroups ---------------------------------------------------------------------------------------------------

    def _adopt(self, group: PodGroup) -> None:
        meta = group.metadata
        try:
            plan = holds.decode_plan(meta.annotations[keys.PLAN])
        except ValueError as error:
            log.warning("a reservation can't be read and is ignored", pod_group=meta.key, error=str(error))
            return
        asked = self._asked.get(plan.uid)
        if asked is None or not _is_of(plan, meta.key, asked):
            log.warning("the host asks for no such reservation: removed", pod_group=meta.key, binding_uid=plan.uid)
            self._writes.add(meta.key)
            return
        settled = tuple(
            (pod.gang_task, pod.node)
            for pod in self._cache.pods.by_index("binding", plan.uid)
            if pod.node and pod.metadata.annotations.get(keys.EPOCH) == str(plan.epoch)
        )
        self._groups[plan.uid] = (meta.namespace, meta.name)
        self._handle(HoldAdopted(plan, meta.namespace, settled, self._now()))

    def _about(self, uid: str) -> dict[str, str]:
        hold = self._core.holds.get(uid)
        return {"binding_uid": uid, **({"workload": f"{hold.namespace}/{hold.name}"} if hold is not None else {})}

    async def _write(self, uid: str) -> None:
        if "/" in uid:
            await self._remove(uid)
            return
        hold = self._core.holds.get(uid)
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

    async def _remove(self, key: str) -> None:
        """Delete a PodGroup whose plan is not asked for, unless it has become the memory of a hold meanwhile."""
        group = self._cache.pod_groups.get(key)
        if group is None or tuple(key.split("/")) in self._groups.values():
            return
        metadata = group.metadata
        with contextlib.suppress(errors.NotFound, errors.Conflict):
            await self._api.delete(POD_GROUPS, metadata.name, metadata.namespace, uid=metadata.uid)

    async def _apply(self, body: Mapping[str, Any]) -> None:
        try:
            await self._api.apply(POD_GROUPS, body, field_manager=FIELD_MANAGER)
        except errors.NotFound:
            metadata = {"name": body["metadata"]["namespace"], "labels": {keys.MANAGED: "true", keys.MADE: "true"}}
            namespace = {"apiVersion": NAMESPACES.api_version, "kind": NAMESPACES.kind, "metadata": metadata}
            try:
                await self._api.create(NAMESPACES, namespace, field_manager=FIELD_MANAGER)
            except errors.AlreadyExists:
                log.debug("the namespace is there already", namespace=metadata["name"])
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
            "name": _name(hold.name),
            "namespace": hold.namespace,
            "annotations": {keys.PLAN: holds.encode_plan(hold, expires)},
        },
        "spec": {"minMember": hold.slots.total(), "queue": hold.gang.queue or keys.DEFAULT_QUEUE},
    }


def _name(workload: str) -> str:
    """Of the PodGroup that remembers a hold."""
    return workload[: _NAME_MAX - len(_SUFFIX)] + _SUFFIX


def _is_of(plan: Plan, key: str, asked: Asked) -> bool:
    """Whether a plan in PodGroup `key` keeps nodes for what the host asks for, and for no more than that."""
    pods: Counter[int] = Counter()
    for task, _, count in plan.slots:
        pods[task] += count
    mine = (f"{asked.namespace}/{_name(asked.name)}", asked.epoch, asked.name, asked.gang)
    return (key, plan.epoch, plan.name, plan.gang) == mine and all(
        count <= plan.gang.tasks[task].replicas for task, count in pods.items()
    )
