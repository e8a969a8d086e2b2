"""Statuses of Volcano Jobs: which one counts, when a change is due, and its write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from atoll.agent.cache import MemberCache
from atoll.agent.jobs import state
from atoll.agent.settings import JobSettings
from atoll.kube import errors
from atoll.kube.pace import URGENT
from atoll.kube.transport import ApiServer
from atoll.kube.workqueue import WorkQueue
from atoll.model import keys, numbers, versions
from atoll.model.apiresource import JOBS
from atoll.model.objects import Full

log = structlog.get_logger(__name__)


class Statuses:
    """Writes statuses of Jobs; a status that was written counts before the watch shows it."""

    def __init__(self, api: ApiServer, cache: MemberCache, queue: WorkQueue[str], settings: JobSettings) -> None:
        self._api = api
        self._cache = cache
        self._queue = queue
        self._settings = settings
        #: whether delivery sent a dispatch (binding UID, epoch) to the member a moment ago
        self.just_sent: Callable[[str, int], bool] = lambda _, __: False
        #: job UID -> when it was seen first, of Jobs without status that were just sent
        self._begun: dict[str, float] = {}
        #: job UID -> when its status was last written
        self._written_at: dict[str, float] = {}
        #: job UID -> the status that was written and the resourceVersion it got, while the cache is older than that
        self._ahead: dict[str, tuple[dict[str, Any], str]] = {}

    def forget(self, uid: str) -> None:
        for memory in (self._begun, self._written_at, self._ahead):
            memory.pop(uid, None)

    def known(self, cached: Full) -> dict[str, Any]:
        """The Job with the status that we wrote, where the watch has not shown it yet."""
        job, uid = cached.body, cached.metadata.uid
        if uid not in self._ahead:
            return job
        status, version = self._ahead[uid]
        late = asyncio.get_running_loop().time() >= self._written_at[uid] + self._settings.trust
        # The watch never shows it, where the store was put back to an earlier state.
        if late or not versions.older(cached.metadata.resource_version, version):
            del self._ahead[uid]
            return job
        return {**job, "status": {**(job.get("status") or {}), **status}}

    async def write_when_due(self, job: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
        """The Job with these fields of its status; before the change is due, as it is, to be looked at again then."""
        present = {key: value for key, value in (job.get("status") or {}).items() if key in wanted}
        patch = state.difference(present, wanted)
        if not patch:
            return job
        if (wait := self._wait(job, patch)) > 0:
            self._queue.add(f"{job['metadata']['namespace']}/{job['metadata']['name']}", after=wait)
            return job
        return await self.write(job, wanted)

    def _wait(self, job: dict[str, Any], patch: dict[str, Any]) -> float:
        """Seconds until this change of the status is due."""
        uid = job["metadata"]["uid"]
        clock, pace = asyncio.get_running_loop().time(), self._api.pace.delay(self._queue.waiting(URGENT))
        if "state" not in patch and uid in self._written_at:
            return self._written_at[uid] + max(self._settings.counts_after, pace) - clock
        notes, phase = job["metadata"].get("annotations") or {}, (patch.get("state") or {}).get("phase")
        epoch = numbers.whole(notes.get(keys.EPOCH))
        new = not job.get("status") and phase == "Pending" and epoch is not None
        if new and (
            uid in self._begun or keys.ARRAY_TRY in notes or self.just_sent(notes.get(keys.BINDING_UID, ""), epoch or 0)
        ):
            # It runs in a moment, mostly, and one write says both.
            return self._begun.setdefault(uid, clock) + self._settings.pending_after - clock
        return 0.0

    async def write(self, job: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
        """Write these fields of the status; the Job with them."""
        meta, status = job["metadata"], job.get("status") or {}
        uid = meta["uid"]
        patch = state.difference({key: value for key, value in status.items() if key in wanted}, wanted)
        body = {"metadata": {"uid": uid}, "status": patch}
        try:
            answer = await self._api.merge_patch(JOBS, meta["name"], body, meta["namespace"], subresource="status")
        except errors.NotFound as error:
            # Nothing may follow an unwritten status.
            raise errors.Retry(1.0, f"job {meta['namespace']}/{meta['name']} is gone") from error
        self._written_at[uid] = asyncio.get_running_loop().time()
        version = str(answer["metadata"]["resourceVersion"])
        cached = self._cache.jobs.get(f"{meta['namespace']}/{meta['name']}")
        if cached is not None and versions.older(cached.metadata.resource_version, version):
            self._ahead[uid] = ({**status, **wanted}, version)
            self._queue.add(cached.metadata.key, after=self._settings.trust)
        phase = (wanted.get("state") or {}).get("phase")
        if phase and state.phase_of(job) != phase:
            log.info("job phase", job=f"{meta['namespace']}/{meta['name']}", phase=phase)
        # Not from the cache: the watch may or may not have shown it by now.
        return {**job, "status": {**status, **wanted}}
