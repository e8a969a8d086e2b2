"""Plans become bindings: every pod of a gang at once, and again until the API server has accepted or finally refused
it.

A pod that waits at our gate is another scheduler's to bind: its gate is lifted and the pod restricted to its node, in
one write, so that this scheduler can't put it anywhere else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

import structlog

from atoll.agent.objects import Pod
from atoll.agent.scheduler.core.lifted import pinned
from atoll.agent.scheduler.core.room import Room
from atoll.agent.scheduler.node_locks import Locked, NodeLocks
from atoll.agent.settings import SchedulerSettings
from atoll.kube import errors
from atoll.kube.backoff import pause
from atoll.kube.transport import ApiServer
from atoll.model import hami, keys
from atoll.model.apiresource import PODS

log = structlog.get_logger(__name__)
_LOCKED_FAILURES = 3
"""Pauses between two looks at a lock stay short: it lasts no longer than one allocation."""


class Binder:
    """Writes bindings of pods that are assumed in `room`."""

    def __init__(
        self,
        api: ApiServer,
        room: Room,
        not_bound: Callable[[Iterable[Pod]], None],
        *,
        settings: SchedulerSettings = SchedulerSettings(),
    ) -> None:
        """No I/O happens here.

        Args:
            api: the member.
            room: knows which pods are still on their way to their node.
            not_bound: called with each pod that won't get there.
            settings: its times and bounds.
        """
        self._settings = settings
        self._api = api
        self._room = room
        self._not_bound = not_bound
        self._locks = NodeLocks(api, room)
        self._writes = asyncio.Semaphore(self._settings.binds)

    async def bind(self, pods: Iterable[tuple[Pod, str]]) -> bool:
        """Bind all of these pods to their nodes, or let another scheduler bind them.

        Returns:
            Whether all are bound or released; pods that can't be are given up, and the gang must be planned again.
        """
        outcomes = await asyncio.gather(*(self._bind(pod, node) for pod, node in pods))
        return all(outcomes)

    async def _bind(self, pod: Pod, node: str) -> bool:
        bound = await self._try(pod, node)
        if not bound and pod.gpus:
            await self._locks.give_back(pod, node)
        return bound

    async def _try(self, pod: Pod, node: str) -> bool:
        meta = pod.metadata
        failures = 0
        while True:
            try:
                async with self._writes:
                    await (self._lift(pod, node) if pod.held else self._create(pod, node))
                return True
            except (errors.Unreachable, errors.Busy) as error:
                log.warning("will bind again", pod=meta.key, node=node, error=str(error))
            except Locked as lock:
                log.debug("node is locked", pod=meta.key, node=node, by=str(lock))
                failures = min(failures, _LOCKED_FAILURES)
            except errors.Conflict:
                # Either a binding whose answer was lost, or the pod is on its way out: the pod itself knows.
                if not pod.held and await self._bound(pod):
                    return True
                return self._give_up(pod, "the pod changed meanwhile")
            except errors.ApiError as error:
                return self._give_up(pod, str(error))
            if self._room.node_of(pod) != node:
                return False
            failures += 1
            await asyncio.sleep(pause(0.05, failures, self._settings.longest_pause))

    async def _lift(self, pod: Pod, node: str) -> None:
        meta = pod.metadata
        # Gates can't be added to a pod that exists: others' gates were removed before.
        required = {"nodeSelectorTerms": pinned(pod.node_terms, node)}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        spec: dict[str, object] = {"schedulingGates": None, "affinity": affinity}
        if pod.needs:
            # We did not check its requirements: the plan grants capacity, its scheduler selects the node.
            del spec["affinity"]
        notes = {keys.PLANNED_NODE: node, **self._room.gpus.notes_of(pod, node)}
        patch = {"metadata": {"uid": meta.uid, "annotations": notes}, "spec": spec}
        await self._api.merge_patch(PODS, meta.name, patch, meta.namespace)

    async def _create(self, pod: Pod, node: str) -> None:
        meta = pod.metadata
        notes = self._room.gpus.notes_of(pod, node)
        if hami.ALLOCATED in notes:
            await self._locks.take(pod, node)
            notes |= hami.bound(int(time.time()))
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            # The UID makes the server refuse a pod of the same name that was made meanwhile.
            "metadata": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid}
            # The server copies annotations of a binding to its pod.
            | ({"annotations": notes} if notes else {}),
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self._api.create_in(PODS, meta.name, meta.namespace, "binding", body)

    async def _bound(self, pod: Pod) -> bool:
        try:
            found = await self._api.get(PODS, pod.metadata.name, pod.metadata.namespace)
        except errors.ApiError:
            return False
        return found["metadata"]["uid"] == pod.metadata.uid and bool(found["spec"].get("nodeName"))

    def _give_up(self, pod: Pod, why: str) -> bool:
        log.warning("bind refused", pod=pod.metadata.key, why=why)
        self._not_bound([pod])
        return False
