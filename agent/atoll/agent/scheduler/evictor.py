"""Victims are evicted, and pods get the name of the node kept for them.

Evictions go through the API that counts PodDisruptionBudgets: a refused eviction is repeated as long as the nodes
are kept for the gang that needs them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from atoll.agent.cache import MemberCache
from atoll.agent.evictions import eviction
from atoll.agent.scheduler.core.commands import Evict, Nominate
from atoll.agent.settings import SchedulerSettings
from atoll.kube import errors
from atoll.kube.backoff import pause
from atoll.kube.events import Recorder, reference
from atoll.kube.transport import ApiServer
from atoll.model.apiresource import PODS

log = structlog.get_logger(__name__)


class Evictor:
    """Writes the core's decisions on victims and on the pods that follow them."""

    def __init__(
        self,
        api: ApiServer,
        cache: MemberCache,
        recorder: Recorder,
        wanted: Callable[[str, str], bool],
        *,
        settings: SchedulerSettings = SchedulerSettings(),
    ) -> None:
        """No I/O happens here.

        Args:
            api: the member.
            cache: of the member.
            recorder: for the Events of victims.
            wanted: whether a pod, by (gang that needs its node, UID), is still to go.
            settings: its times and bounds.
        """
        self._api, self._cache, self._recorder, self._wanted = api, cache, recorder, wanted
        self._settings = settings
        self._writes = asyncio.Semaphore(settings.binds)
        self._running: set[asyncio.Task[None]] = set()

    def evict(self, command: Evict) -> None:
        """Begin to evict these pods."""
        for key, uid in command.pods:
            self._begin(self._evict(command.gang, key, uid, command.message))

    def nominate(self, command: Nominate) -> None:
        """Begin to tell these pods."""
        for key, uid, node in command.pods:
            self._begin(self._nominate(key, uid, node))

    def _begin(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _evict(self, gang: str, key: str, uid: str, message: str) -> None:
        namespace, _, name = key.partition("/")
        failures = 0
        while self._wanted(gang, uid):
            try:
                async with self._writes:
                    await self._api.create_in(PODS, name, namespace, "eviction", eviction(namespace, name, uid))
            except (errors.NotFound, errors.Conflict):
                return
            except errors.ApiError as error:
                # Most often a PodDisruptionBudget, which may allow it later.
                log.warning("not evicted yet, will try again", pod=key, needed_by=gang, error=str(error))
            else:
                log.info("evicted", pod=key, needed_by=gang)
                about = reference(PODS, namespace, name, uid)
                self._recorder.record(about, "Preempted", message, action="Preempting")
                return
            failures += 1
            await asyncio.sleep(pause(0.1, failures, self._settings.longest_pause))

    async def _nominate(self, key: str, uid: str, node: str) -> None:
        known = self._cache.pods.get(key)
        if known is None or known.metadata.uid != uid or known.nominated == node:
            return
        namespace, _, name = key.partition("/")
        patch = {"metadata": {"uid": uid}, "status": {"nominatedNodeName": node or None}}
        try:
            async with self._writes:
                await self._api.merge_patch(PODS, name, patch, namespace, subresource="status", strategic=True)
        except errors.ApiError as error:
            # The name is for other readers: the core itself knows the kept node.
            log.warning("a pod was not told its node", pod=key, node=node, error=str(error))
