"""JobArrays of a member: a Volcano Job for each index that runs, and the state of all indices in the status."""

from __future__ import annotations

import asyncio
import copy
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import msgspec
import structlog

from atoll.agent.cache import MemberCache
from atoll.agent.jobs import array_steps
from atoll.agent.jobs.array_steps import Child
from atoll.agent.settings import JobSettings
from atoll.kinds import BY_GVK, Outcome
from atoll.kinds.job_array import at_once, counted, indices_of, job_of, share_in, states_in
from atoll.kube import errors
from atoll.kube.events import Recorder, reference
from atoll.kube.transport import ApiServer
from atoll.kube.workqueue import WorkQueue, every
from atoll.model import array_failures, array_states, keys, numbers, versions
from atoll.model.apiresource import JOB_ARRAYS, JOBS
from atoll.model.array_states import index_at, position_of
from atoll.model.objects import Full
from atoll.model.timestamps import rfc3339_seconds

Json = dict[str, Any]
_RATE = 10_000
"""Characters of states that one array may write in a second."""
_CARRIED = (keys.BINDING_UID, keys.EPOCH, *keys.WAITING_TIMES)
"""Annotations of an array that its Jobs get."""

log = structlog.get_logger(__name__)


class ArrayController:
    """Reconciles the JobArrays of a member."""

    def __init__(
        self, api: ApiServer, cache: MemberCache, recorder: Recorder, *, settings: JobSettings = JobSettings()
    ) -> None:
        """No I/O happens here; `run` does it."""
        self._api, self._cache, self._recorder, self._settings = api, cache, recorder, settings
        self._arrays = cache.workloads[JOB_ARRAYS]
        self._queue: WorkQueue[str] = WorkQueue("arrays", lambda key: {"workload": key})
        self._writes = asyncio.Semaphore(settings.writes)
        #: array UID -> the status that was written, the resourceVersion it got and when, by the loop's clock
        self._written: dict[str, tuple[Json, str, float]] = {}
        #: array UID -> names of Jobs made by us that no watch event has shown yet -> when they were made
        self._unseen: defaultdict[str, dict[str, float]] = defaultdict(dict)
        #: UIDs of Jobs that we deleted and that the cache still has
        self._removed: set[str] = set()
        cache.jobs.add_index("controller", lambda job: [job.metadata.controller_uid])
        cache.jobs.on_change(self._job_changed)
        self._arrays.on_change(self._array_changed)

    def _array_changed(self, old: Full | None, new: Full | None) -> None:
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._written.pop(old.metadata.uid, None)
            self._unseen.pop(old.metadata.uid, None)
        if new is not None:
            self._queue.add(new.metadata.key)

    def _job_changed(self, old: Full | None, new: Full | None) -> None:
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._removed.discard(old.metadata.uid)
        job = new or old
        owner = job.metadata.controller_uid if job is not None else ""
        if job is None or not owner:
            return
        self._unseen.get(owner, {}).pop(job.metadata.name, None)
        if old is None or new is None or _phase(old) != _phase(new):
            for array in self._arrays.by_index("uid", owner):
                self._queue.add(array.metadata.key, after=self._settings.coalesce)

    async def run(self) -> None:
        """Reconcile until cancelled; the cache must have synced."""
        for key in self._arrays.store:
            self._queue.add(key)
        await self._queue.run(self.reconcile, workers=4)

    async def reconcile(self, key: str) -> None:
        cached = self._arrays.get(key)
        if cached is None or cached.metadata.deletion_timestamp is not None:
            return
        try:
            runs = indices_of(cached.body)
            slots = at_once(cached.body)
        except ValueError as error:
            # Only one that was made in the member, past admission.
            self._recorder.record(_reference(cached.body), "BadArray", str(error), warning=True)
            return
        status, version = await self._known(cached)
        share = share_in(cached.body)
        written = states_in(cached.body, status) if "states" in status else self._begun(cached.body)
        # Of several members each gets the states of indices that others had before.
        states = written if share is None else array_states.further(written, self._begun(cached.body))
        jobs = self._jobs(cached, runs)
        children = {at: child for at, (_, child) in jobs.items()}
        retries = int((cached.body.get("spec") or {}).get("retries") or 0)
        wanted = array_steps.following(states, children, at_once=slots, retries=retries, share=share)
        if wanted != written or "states" not in status:
            if (wait := self._wait(cached.metadata.uid, status)) > 0:
                self._queue.add(key, after=wait)
            elif not await self._write(cached, version, _status(cached.body, states, wanted, status, jobs)):
                return
            else:
                written = wanted
        await self._follow(cached, runs, written, jobs)

    async def _follow(
        self, array: Full, runs: list[range], states: bytes, jobs: Mapping[int, tuple[Full, Child]]
    ) -> None:
        """Have the Jobs that the written states ask for."""
        uid, children = array.metadata.uid, {at: child for at, (_, child) in jobs.items()}
        lately = self._made_lately(uid)
        making = []
        for at, tried in array_steps.missing(states, children):
            index = index_at(runs, at)
            if _name(array.metadata.name, index) not in lately:
                making.append(self._make(array, child_of(array.body, index, tried)))
        going = [jobs[at][0] for at in array_steps.surplus(states, children)]
        await every(*making, *map(self._remove, going))

    async def _known(self, cached: Full) -> tuple[Json, str]:
        """The status with its resourceVersion: the one that we wrote, where the watch has not shown it yet. Where it
        should have by now, the server is asked: by older states, Jobs that have ended and are gone would run again.

        Raises:
            errors.ApiError: no answer.
        """
        about = cached.metadata
        status, version, at = self._written.get(about.uid, ({}, "", 0.0))
        if not version or not versions.older(about.resource_version, version):
            return cached.body.get("status") or {}, about.resource_version
        if asyncio.get_running_loop().time() < at + self._settings.trust:
            return status, version
        found = await self._api.get(JOB_ARRAYS, about.name, about.namespace)
        return found.get("status") or {}, found["metadata"]["resourceVersion"]

    def _begun(self, array: Json) -> bytes:
        """States with which an array was sent: as other members left them."""
        notes = array["metadata"].get("annotations") or {}
        return array_states.unstarted(states_in(array, {"states": notes.get(keys.ARRAY_STATES)}))

    def _jobs(self, array: Full, runs: list[range]) -> dict[int, tuple[Full, Child]]:
        found = {}
        for job in self._cache.jobs.by_index("controller", array.metadata.uid):
            index = numbers.whole(job.metadata.labels.get(keys.ARRAY_INDEX))
            at = position_of(runs, index) if index is not None else None
            if at is not None:
                tried = numbers.whole(job.metadata.annotations.get(keys.ARRAY_TRY)) or 0
                found[at] = (job, Child(tried, _outcome(job), job.metadata.deletion_timestamp is not None))
        return found

    def _wait(self, uid: str, status: Json) -> float:
        """Seconds until the next write of states is due."""
        if uid not in self._written:
            return 0.0
        pause = self._settings.states_after + len(str(status.get("states") or "")) / _RATE
        return self._written[uid][2] + pause - asyncio.get_running_loop().time()

    async def _write(self, array: Full, version: str, status: Json) -> bool:
        """Write the status over the one that it follows from; whether that was still there."""
        meta = array.metadata
        old = array.body.get("status") or {}
        patch = {**{name: None for name in old if name not in status}, **status}
        body = {"metadata": {"uid": meta.uid, "resourceVersion": version}, "status": patch}
        try:
            answer = await self._api.merge_patch(JOB_ARRAYS, meta.name, body, meta.namespace, subresource="status")
        except errors.NotFound:
            return False
        except errors.Conflict:
            # Its spec has changed, or the cache is behind: nothing is made before that is known.
            self._queue.add(meta.key, after=self._settings.states_after)
            return False
        version = str(answer["metadata"]["resourceVersion"])
        self._written[meta.uid] = (status, version, asyncio.get_running_loop().time())
        self._queue.add(meta.key, after=self._settings.trust)
        if status["phase"] != old.get("phase"):
            log.info("array phase", array=meta.key, phase=status["phase"])
        return True

    async def _make(self, array: Full, job: Json) -> None:
        uid, name = array.metadata.uid, job["metadata"]["name"]
        async with self._writes:
            # Before the request, because the watch may tell of the Job before the answer does.
            self._unseen[uid][name] = asyncio.get_running_loop().time()
            self._queue.add(array.metadata.key, after=self._settings.trust)
            try:
                await self._api.create(JOBS, job)
            except errors.AlreadyExists:
                found = self._cache.jobs.get(f"{array.metadata.namespace}/{name}")
                if found is not None and found.metadata.controller_uid != uid:
                    text = f"Job {name}, which is not of this array, has the name of one of its Jobs: rename it"
                    self._recorder.record(_reference(array.body), "NameTaken", text, warning=True)
            except errors.ApiError as error:
                self._unseen[uid].pop(name, None)
                if isinstance(error, errors.Invalid | errors.Forbidden):
                    self._recorder.record(_reference(array.body), "FailedCreate", error.said, warning=True)
                raise

    async def _remove(self, job: Full) -> None:
        about = job.metadata
        known = self._cache.jobs.get(about.key)
        if about.uid in self._removed or known is None or known.metadata.uid != about.uid:
            # The last one: it went while the states were written.
            return
        async with self._writes:
            # Before the request: the watch may tell of it before the answer does.
            self._removed.add(about.uid)
            try:
                await self._api.delete(JOBS, about.name, about.namespace, uid=about.uid)
            except errors.Conflict:
                log.debug("job was replaced meanwhile", job=about.key)
            except BaseException:
                self._removed.discard(about.uid)
                raise

    def _made_lately(self, uid: str) -> set[str]:
        """Names of Jobs that were made and not yet seen; the watch may never show one."""
        until, made_at = asyncio.get_running_loop().time() - self._settings.trust, self._unseen[uid]
        for name in [name for name, at in made_at.items() if at <= until]:
            del made_at[name]
        return set(made_at)


def child_of(array: Json, index: int, tried: int) -> Json:
    """The Job of an index.

    Args:
        array: the whole object, in the member.
        index: of `spec.indices`.
        tried: how often the index has failed.
    """
    meta = array["metadata"]
    about = (array["spec"].get("template") or {}).get("metadata") or {}
    marks = {keys.ARRAY: meta["name"], keys.ARRAY_INDEX: str(index)}
    notes = meta.get("annotations") or {}
    spec = copy.deepcopy(job_of(array)["spec"])
    values = {"JOB_COMPLETION_INDEX": str(index), "ATOLL_ARRAY_INDEX": str(index)}
    if arguments := array["spec"].get("arguments"):
        values[keys.ARGUMENT_VARIABLE] = str(arguments[position_of(indices_of(array), index) or 0])
    environment = [{"name": name, "value": value} for name, value in values.items()]
    for task in spec.get("tasks") or ():
        template = task.setdefault("template", {})
        head = template["metadata"] = dict(template.get("metadata") or {})
        head["labels"] = {**(head.get("labels") or {}), **marks}
        pod = template.get("spec") or {}
        for container in (*(pod.get("initContainers") or ()), *(pod.get("containers") or ())):
            container["env"] = [*environment, *(container.get("env") or ())]
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {
            "name": _name(meta["name"], index),
            "namespace": meta["namespace"],
            "labels": {**(about.get("labels") or {}), **marks},
            "annotations": {
                **(about.get("annotations") or {}),
                **{key: notes[key] for key in _CARRIED if key in notes},
                keys.ARRAY_TRY: str(tried),
            },
            "ownerReferences": [{**_owner(meta), "controller": True, "blockOwnerDeletion": True}],
        },
        "spec": spec,
    }


def _owner(meta: Json) -> Json:
    return {"apiVersion": JOB_ARRAYS.api_version, "kind": JOB_ARRAYS.kind, "name": meta["name"], "uid": meta["uid"]}


def _reference(array: Json) -> Json:
    meta = array["metadata"]
    return reference(JOB_ARRAYS, meta["namespace"], meta["name"], meta["uid"])


def _name(array: str, index: int) -> str:
    return f"{array}-{index}"


def _phase(job: Full) -> object:
    return ((job.body.get("status") or {}).get("state") or {}).get("phase"), job.metadata.deletion_timestamp


def _message(job: Full) -> str:
    state = (job.body.get("status") or {}).get("state") or {}
    return str(state.get("message") or state.get("reason") or state.get("phase") or "")


def _outcome(job: Full) -> Outcome | None:
    """How a Job ended; one that a policy aborted is never resumed."""
    kind, status = BY_GVK[JOBS.api_version, JOBS.kind], job.body.get("status") or {}
    return Outcome.FAILED if kind.stopped(status) else kind.finished(status)


def _known_failures(array: Json, status: Json) -> list[Json]:
    """Entries of the status, or the ones with which the array came from another member."""
    if "states" in status:
        return array_failures.read(status.get("failures") or [])
    notes = array["metadata"].get("annotations") or {}
    try:
        return array_failures.read(msgspec.json.decode(notes.get(keys.ARRAY_FAILURES) or "[]"))
    except msgspec.DecodeError:
        return []


def _status(array: Json, before: bytes, states: bytes, old: Json, jobs: Mapping[int, tuple[Full, Child]]) -> Json:
    """The status with these states.

    Args:
        array: the whole object.
        before: states that the new ones follow from.
        states: to write.
        old: the status with `before`; empty for none.
        jobs: position -> Job, which has the messages of new failures.
    """
    runs = indices_of(array)
    found, now = counted(runs, states), rfc3339_seconds(time.time())
    new = array_steps.newly_failed(before, states)
    why = array_failures.added(_known_failures(array, old), {index_at(runs, at): _message(jobs[at][0]) for at in new})
    if why:
        found["failures"] = why
    left = found["pending"] + found["running"]
    phase = "Running" if found["running"] or any(states) else "Pending"
    if not left:
        phase = "Failed" if found["failed"] else "Completed"
    started = old.get("startTime") or now
    return {**found, "phase": phase, "startTime": started, **({} if left else {"completionTime": now})}
