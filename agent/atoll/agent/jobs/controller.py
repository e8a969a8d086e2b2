"""Volcano Jobs become a PodGroup and pods, and their status tells the truth.

Level-based: every look compares what the Job asks for with what exists, so a Job that was left half made is finished by
the next look, and watch lag costs at most a refused create.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import structlog

from atoll.agent.cache import MemberCache
from atoll.agent.jobs import pods as made
from atoll.agent.jobs import state
from atoll.agent.objects import Pod
from atoll.kube import errors
from atoll.kube.events import Recorder
from atoll.kube.transport import ApiServer
from atoll.kube.workqueue import WorkQueue
from atoll.model.apiresource import JOBS, POD_GROUPS, PODS, ApiResource
from atoll.model.objects import Full

_CLAIMS = ApiResource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
_COALESCE = 0.03
"""Seconds for which pod events of one Job are gathered."""
_COUNTS_AFTER = 0.25
"""Seconds that must lie between two status writes when only counters differ; a new phase never waits."""
_WRITES_AT_ONCE = 32

log = structlog.get_logger(__name__)


class JobController:
    """Reconciles the Volcano Jobs of a member."""

    def __init__(self, api: ApiServer, cache: MemberCache, recorder: Recorder) -> None:
        """No I/O happens here; `run` does it."""
        self._api = api
        self._cache = cache
        self._recorder = recorder
        self._queue: WorkQueue[str] = WorkQueue("jobs")
        self._writes = asyncio.Semaphore(_WRITES_AT_ONCE)
        #: job UID -> names of pods made by us that no watch event has shown yet
        self._unseen: defaultdict[str, set[str]] = defaultdict(set)
        #: job UID -> when its status was last written
        self._written_at: dict[str, float] = {}
        #: job UID -> the status that was written and the resourceVersion it got, while the cache is older than that
        self._ahead: dict[str, tuple[dict[str, Any], int]] = {}
        #: job UIDs whose PodGroup and claims were made or seen
        self._grouped: set[str] = set()
        cache.jobs.on_change(self._job_changed)
        cache.pods.on_change(self._pod_changed)
        cache.pod_groups.on_change(lambda old, new: self._group_gone(old) if new is None and old else None)

    def _job_changed(self, old: Full | None, new: Full | None) -> None:
        for gone in (old,) if old is not None and (new is None or new.metadata.uid != old.metadata.uid) else ():
            self._unseen.pop(gone.metadata.uid, None)
            self._written_at.pop(gone.metadata.uid, None)
            self._ahead.pop(gone.metadata.uid, None)
            self._grouped.discard(gone.metadata.uid)
        if new is not None and (ahead := self._ahead.get(new.metadata.uid)) and _version(new) >= ahead[1]:
            del self._ahead[new.metadata.uid]
        if new is not None and (old is None or old.body.get("spec") != new.body.get("spec")):
            self._queue.add(new.metadata.key)
        elif new is not None:
            self._queue.add(new.metadata.key, after=_COALESCE)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        assert pod is not None
        owner = next((o for o in pod.metadata.owner_references if o.controller and o.kind == "Job"), None)
        if owner is None or f"{pod.metadata.namespace}/{owner.name}" not in self._cache.jobs.store:
            return
        self._unseen[owner.uid].discard(pod.metadata.name)
        if old is None or new is None or (old.phase, old.terminating) != (new.phase, new.terminating):
            self._queue.add(f"{pod.metadata.namespace}/{owner.name}", after=_COALESCE)

    def _group_gone(self, group: Any) -> None:
        for owner in group.metadata.owner_references:
            if owner.controller and owner.kind == "Job":
                self._grouped.discard(owner.uid)
                self._queue.add(f"{group.metadata.namespace}/{owner.name}")

    async def run(self, *, workers: int = 8) -> None:
        """Reconcile until cancelled; the cache must have synced."""
        for key in self._cache.jobs.store:
            self._queue.add(key)
        await self._queue.run(self._reconcile, workers=workers)

    async def _reconcile(self, key: str) -> None:
        cached = self._cache.jobs.get(key)
        if cached is None or cached.metadata.deletion_timestamp is not None:
            return
        job, uid = cached.body, cached.metadata.uid
        pods = self._cache.pods.by_index("owner", uid)
        if state.phase_of(self._known(job, uid)) in state.FINAL:
            await self._remove([pod for pod in pods if not pod.finished and not pod.terminating])
            await self._write_status(job, uid, state.Census(pods))
            return
        present = {pod.metadata.name for pod in pods} | self._unseen[uid]
        missing = {name: at for name, at in made.names(job).items() if name not in present}
        # Pods just made count as pending at once, so a new Job costs one write of its status, not one per pod event.
        seen = {pod.metadata.name for pod in pods}
        made_now = made.names(job).keys() - seen if missing or self._unseen[uid] else set()
        census = state.Census(pods, _by_task(job, made_now))
        # Surplus goes before the gang's minimum shrinks, or it would be bound in between.
        await self._remove(made.surplus(job, pods))
        writes = (self._make(job, missing), self._write_status(job, uid, census))
        for outcome in await asyncio.gather(*writes, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome
        if state.phase_of(self._known(job, uid)) in state.FINAL:
            await self._remove([pod for pod in pods if not pod.finished and not pod.terminating])

    # -- objects -----------------------------------------------------------------------------------------------------

    async def _make(self, job: dict[str, Any], missing: dict[str, tuple[int, int]]) -> None:
        uid = job["metadata"]["uid"]
        namespace = job["metadata"]["namespace"]
        group = self._cache.pod_groups.get(f"{namespace}/{made.group_name(job)}")
        if group is not None:
            present = {
                "minMember": group.spec.min_member,
                "minTaskMember": group.spec.min_task_member,
            }
            if change := made.group_change(present, job):
                await self._api.merge_patch(POD_GROUPS, group.metadata.name, change, namespace)
        elif uid not in self._grouped:
            # The gang before its pods: a pod without its gang's size could be taken for a complete gang.
            await self._create(POD_GROUPS, made.pod_group(job))
            await asyncio.gather(*(self._create(_CLAIMS, claim) for claim in made.claims(job)))
        self._grouped.add(uid)
        tasks = [self._create_pod(job, name, *at) for name, at in missing.items()]
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        if failures := [outcome for outcome in outcomes if isinstance(outcome, BaseException)]:
            raise failures[0]

    async def _create(self, resource: ApiResource, obj: dict[str, Any]) -> None:
        async with self._writes:
            try:
                await self._api.create(resource, obj)
            except errors.AlreadyExists:
                return

    async def _create_pod(self, job: dict[str, Any], name: str, position: int, index: int) -> None:
        uid, namespace = job["metadata"]["uid"], job["metadata"]["namespace"]
        async with self._writes:
            # Before the request, because the watch may tell of the pod before the answer does.
            self._unseen[uid].add(name)
            try:
                await self._api.create(PODS, made.pod(job, position, index))
            except errors.AlreadyExists as error:
                self._unseen[uid].discard(name)
                known = self._cache.pods.get(f"{namespace}/{name}")
                if known is None or known.metadata.controller_uid != uid:
                    raise errors.Retry(0.5, f"pod {namespace}/{name} of another owner is in the way") from error
            except BaseException as error:
                self._unseen[uid].discard(name)
                if isinstance(error, errors.Invalid | errors.Forbidden):
                    # Only the Job's author can help: a template or a quota of the namespace is wrong.
                    self._recorder.record(_reference(job), "FailedCreate", error.message, warning=True)
                raise

    async def _remove(self, pods: Iterable[Pod]) -> None:
        async def remove(pod: Pod) -> None:
            async with self._writes:
                await self._api.delete(PODS, pod.metadata.name, pod.metadata.namespace, uid=pod.metadata.uid)

        await asyncio.gather(*(remove(pod) for pod in pods))

    # -- status ------------------------------------------------------------------------------------------------------

    def _known(self, job: dict[str, Any], uid: str) -> dict[str, Any]:
        """The Job with the status that we wrote, where the watch has not told of it yet."""
        ahead = self._ahead.get(uid)
        return job if ahead is None else {**job, "status": {**(job.get("status") or {}), **ahead[0]}}

    async def _write_status(self, job: dict[str, Any], uid: str, census: state.Census) -> None:
        known = self._known(job, uid)
        now, clock = time.time(), asyncio.get_running_loop().time()
        wanted = state.desired_status(known, census, now)
        present = {key: value for key, value in (known.get("status") or {}).items() if key in wanted}
        patch = state.difference(present, wanted)
        if not patch:
            return
        if "state" not in patch and uid in self._written_at:
            wait = self._written_at[uid] + _COUNTS_AFTER - clock
            if wait > 0:
                self._queue.add(f"{job['metadata']['namespace']}/{job['metadata']['name']}", after=wait)
                return
        meta = job["metadata"]
        try:
            answer = await self._api.merge_patch(
                JOBS,
                meta["name"],
                {"metadata": {"uid": uid}, "status": patch},
                meta["namespace"],
                subresource="status",
            )
        except errors.NotFound:
            return
        self._written_at[uid] = clock
        version = int(answer["metadata"]["resourceVersion"])
        cached = self._cache.jobs.get(f"{meta['namespace']}/{meta['name']}")
        if cached is not None and _version(cached) < version:
            self._ahead[uid] = (wanted, version)
        if state.phase_of(known) != wanted["state"]["phase"]:
            log.info(
                "job phase",
                job=f"{meta['namespace']}/{meta['name']}",
                phase=wanted["state"]["phase"],
            )


def _by_task(job: dict[str, Any], names: Iterable[str]) -> Counter[str]:
    places, tasks = made.names(job), job["spec"].get("tasks") or ()
    return Counter(state.task_name(tasks[places[name][0]], places[name][0]) for name in names if name in places)


def _version(obj: Full) -> int:
    # Versions of one object are comparable numbers (Kubernetes 1.35 promises it; etcd has always made it so).
    return int(obj.metadata.resource_version or 0)


def _reference(job: dict[str, Any]) -> dict[str, Any]:
    meta = job["metadata"]
    about = {"apiVersion": JOBS.api_version, "kind": JOBS.kind}
    return {**about, "namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]}
