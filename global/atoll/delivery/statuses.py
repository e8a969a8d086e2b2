"""Status of each Work: what the member says of the workload, written at the right moment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, MutableMapping
from typing import Any

from atoll.delivery.memory import WorkMemory
from atoll.delivery.settings import DeliverySettings
from atoll.delivery.work import WorkObject, gang_of, identifier
from atoll.delivery.written import as_written, replace_status
from atoll.kinds import Kind
from atoll.kube import errors
from atoll.kube.pace import MOST, SOON, URGENT
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.kube.workqueue import WorkQueue
from atoll.model import keys, numbers, versions
from atoll.model.apiresource import WORKS
from atoll.model.conditions import with_condition
from atoll.model.gang import beyond
from atoll.model.objects import Full

Json = dict[str, Any]
PlacementOf = Callable[[str], Json | None]
"""Binding UID -> where its pods are: {generation, nodes, domain, tier, waiting}."""


class Statuses:
    """Writes them."""

    def __init__(
        self,
        host: ApiServer,
        cluster: str,
        works: Reflector[WorkObject],
        queue: WorkQueue[str],
        memory: MutableMapping[str, WorkMemory],
        *,
        differences: Callable[[WorkObject], tuple[str, str]],
        placement: PlacementOf,
        hold: PlacementOf,
        pods: Callable[[str], int],
        refusal: Callable[[str], str],
        settings: DeliverySettings,
    ) -> None:
        """No I/O happens here.

        Args:
            host: its API server.
            cluster: name of the member.
            works: the Works.
            queue: of Works to look at again.
            memory: by key of the Work.
            differences: of a workload's needs in the member: (reason, text).
            placement: where the pods of a binding are.
            hold: the state of a binding's reservation; None for none.
            pods: how many pods of a binding (UID) the member has.
            refusal: why pods of an object (UID) could not be made, in the member's words; empty for none.
            settings: of delivery.
        """
        self._host, self._cluster, self._works, self._queue, self._memory = host, cluster, works, queue, memory
        self._differences, self._placement, self._hold = differences, placement, hold
        self._pods, self._refusal, self._settings = pods, refusal, settings

    def as_written(self, work: WorkObject) -> WorkObject:
        """The Work with the status that it has got since, where the cache is behind: else that is written again."""
        memory = self._memory[work.metadata.key]
        if memory.written is None or memory.written_at is None:
            return work
        version, status = memory.written
        found = as_written(work, status, version, memory.written_at + self._settings.trust)
        if found is work:
            memory.written = None
        return found

    async def report(self, work: WorkObject, kind: Kind, found: Full, problem: str) -> None:
        """Tell the host what the member says, at the right moment; with a change that it refused, if it did."""
        reported: Json = dict(found.body.get("status") or {})
        placement = self._placement(work.binding_uid)
        if placement is not None:
            reported["placement"] = _placed(work, kind, placement)
        if (hold := self._hold(work.binding_uid)) is not None:
            reported["reservation"] = hold
        if words := self._refused(work, kind, found):
            reported["refused"] = {"epoch": work.epoch, "message": words}
        elif kind.finished(reported) is None and self._pods(work.binding_uid) < gang_of(work, kind).min_available:
            reported["unmade"] = True
        if words := kind.suspended(reported):
            reported["suspended"] = words
        if generation := numbers.whole(found.metadata.annotations.get(keys.GENERATION)):
            reported["delivered"] = {"generation": generation, "own": found.metadata.generation}
        wanted = self._status(work, kind, reported, problem)
        memory, now = self._memory[work.metadata.key], asyncio.get_running_loop().time()
        if wanted == work.status:
            memory.changed_at = None
            return
        if memory.changed_at is None:
            memory.changed_at = now
        if kind.finished(reported) is None:
            soon = "refused" in reported or (placement and (placement.get("nodes") or placement.get("waiting")))
            first = soon and not (work.reported.get("placement") or {}).get("nodes")
            pace = self._host.pace.delay(self._queue.waiting(URGENT), most=SOON if first else MOST)
            due = memory.changed_at + (max(self._settings.settle, pace) if soon else self._settings.patience + pace)
            if memory.written_at is not None:
                # That it runs is news at once, for any kind.
                quiet = kind.in_member.quiet if kind.in_member is not None and kind.running(work.reported) else 0.0
                due = max(due, memory.written_at + max(self._settings.quiet, quiet, pace))
            if due > now:
                self._queue.add(work.metadata.key, after=due - now)
                return
        await self.put(work, wanted)

    async def explain(self, work: WorkObject, kind: Kind | None, problem: str) -> None:
        """Tell the host why the workload is not there."""
        await self.put(work, self._status(work, kind, work.reported, problem))

    async def refuse(self, work: WorkObject, kind: Kind, words: str) -> None:
        """Tell the host why the member refused the workload."""
        reported = {**work.reported, "refused": {"epoch": work.epoch, "message": words}}
        await self.put(work, self._status(work, kind, reported, f"refused by {self._cluster}: {words}"))

    async def reserve(self, work: WorkObject, kind: Kind, state: Json) -> None:
        """Tell the host the state of a reservation."""
        item = {"identifier": identifier(work, kind), "status": {"reservation": state}, "health": "Unknown"}
        await self.put(work, {"conditions": list(work.status.get("conditions") or ()), "manifestStatuses": [item]})

    async def leave(self, work: WorkObject, kind: Kind, found: Full) -> None:
        """Say what keeps the pods of a part that was withdrawn, and that nothing does any more; and from where another
        member goes on.
        """
        placement, reported = self._placement(work.binding_uid), dict(work.reported)
        said = reported.get("placement") or {}
        if placement is not None and placement.get("leaving") != said.get("leaving"):
            reported["placement"] = _placed(work, kind, placement)
        kept = kind.in_member.keeps if kind.in_member is not None else ""
        if kept and (last := (found.body.get("status") or {}).get(kept)):
            reported[kept] = last
        if reported != work.reported:
            await self.put(work, self._status(work, kind, reported, ""))

    def _refused(self, work: WorkObject, kind: Kind, found: Full) -> str:
        """Why not all pods of the workload could be made, in the words of the member; empty where they are there."""
        words = self._refusal(found.metadata.uid)
        if not words or kind.finished(found.body.get("status") or {}) is not None:
            return ""
        return words if self._pods(work.binding_uid) < gang_of(work, kind).replicas else ""

    def _status(self, work: WorkObject, kind: Kind | None, reported: Json, problem: str) -> Json:
        """The Work's status: whether it is applied, and what the member says of it."""
        conditions = with_condition(
            list(work.status.get("conditions") or ()),
            "Applied",
            not problem,
            "AppliedFailed" if problem else "AppliedSuccessful",
            problem,
            now=time.time(),
        )
        reason, text = self._differences(work)
        if text or any(each["type"] == "NeedsAgree" for each in conditions):
            conditions = with_condition(
                conditions, "NeedsAgree", not text, reason if text else "NeedsAgree", text, now=time.time()
            )
        if kind is None:
            return {"conditions": conditions}
        health = {True: "Healthy", False: "Unhealthy", None: "Unknown"}[kind.healthy(reported)]
        item: Json = {"identifier": identifier(work, kind), "status": reported, "health": health}
        return {"conditions": conditions, "manifestStatuses": [item]}

    async def put(self, work: WorkObject, status: Json) -> None:
        """Write a status that differs."""
        if status == work.status:
            return
        key = work.metadata.key
        memory = self._memory[key]
        memory.changed_at, memory.written_at = None, asyncio.get_running_loop().time()
        try:
            answer = await replace_status(self._host, WORKS, work.metadata, status)
        except errors.Conflict:
            # The cache is behind, and its event brings us back; an earlier one may have done so before this answer.
            self._queue.add(key, priority=URGENT, after=self._settings.settle)
            return
        if answer is None:
            self._memory.pop(key, None)
            return
        # What changed since then has not waited yet.
        memory.written_at = asyncio.get_running_loop().time()
        seen, version = self._works.get(key), answer["metadata"]["resourceVersion"]
        if seen is not None and versions.older(seen.metadata.resource_version, version):
            memory.written = (version, status)
            # The watch may never show it, where the store was put back to an earlier state.
            self._queue.add(key, after=self._settings.trust)


def _placed(work: WorkObject, kind: Kind, placement: Json) -> Json:
    """The placement as reported to the host: requests of pods only where they exceed the workload's."""
    told = {name: value for name, value in placement.items() if name != "requests"}
    requests = placement.get("requests")
    if requests and (more := beyond(gang_of(work, kind), requests)):
        told["requests"] = more
    return told
