"""Does what `flow`, `cron` and `hyper` decide, for objects of namespaces that have opted in."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import structlog

from atoll.control.caches import Caches, about_workload
from atoll.control.makers import cron, flow, hyper
from atoll.control.makers.making import Json, Plan
from atoll.control.settings import MakerSettings
from atoll.control.statuses import put_status
from atoll.kinds.overriding import digest
from atoll.kube import errors
from atoll.kube.events import Recorder
from atoll.kube.ratelimit import RateLimit
from atoll.kube.transport import ApiServer
from atoll.kube.workqueue import WorkQueue
from atoll.model.apiresource import HYPER_JOBS, JOB_FLOWS, JOB_TEMPLATES, JOBS, VOLCANO_CRON_JOBS, ApiResource
from atoll.model.objects import Full, Slim
from atoll.model.timestamps import rfc3339_seconds

log = structlog.get_logger(__name__)

Key = tuple[ApiResource, str]
_RATE, _AT_ONCE = 2.0, 200
"""Jobs that all makers of a namespace make a second, and at once: each costs every process of the host, and a schedule
such as `@every 1s` is a line.
"""
_MAKERS = (JOB_FLOWS, VOLCANO_CRON_JOBS, HYPER_JOBS)


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Why the API server did not take a Job when that was tried last."""

    why: str
    of: str
    """Digest of the Job."""
    at: float
    """On the monotonic clock."""


class Makers:
    """Makes the Volcano Jobs of JobFlows, CronJobs and HyperJobs."""

    def __init__(
        self, host: ApiServer, caches: Caches, recorder: Recorder, *, settings: MakerSettings = MakerSettings()
    ) -> None:
        """No I/O happens here; `run` does it."""
        self._host, self._caches, self._recorder, self._settings = host, caches, recorder, settings
        self._queue: WorkQueue[Key] = WorkQueue("makers", about_workload, owns=caches.owns)
        #: object -> Job that the API server did not take
        self._refused: dict[Key, dict[str, _Refusal]] = {}
        #: namespace -> of the Jobs that are made there
        self._limits: dict[str, RateLimit] = {}
        for resource in _MAKERS:
            caches.makers[resource].on_change(partial(self._changed, resource))
        caches.makers[JOB_TEMPLATES].on_change(self._template_changed)
        caches.jobs.on_change(self._job_changed)
        caches.namespaces.on_change(self._namespace_changed)

    async def run(self) -> None:
        """Make Jobs until cancelled."""
        await self._queue.run(self.reconcile, workers=self._settings.workers)

    # -- observation -------------------------------------------------------------------------------------------------

    def _changed(self, resource: ApiResource, old: Full | None, new: Full | None) -> None:
        if (changed := new or old) is not None:
            self._queue.add((resource, changed.metadata.key))

    def _template_changed(self, old: Full | None, new: Full | None) -> None:
        changed = new or old
        assert changed is not None
        self._all_of(changed.metadata.namespace, JOB_FLOWS)

    def _job_changed(self, old: Full | None, new: Full | None) -> None:
        job = new or old
        assert job is not None
        for owner in job.metadata.owner_references:
            for resource in _MAKERS:
                if owner.controller and owner.kind == resource.kind:
                    self._queue.add((resource, f"{job.metadata.namespace}/{owner.name}"))
        if new is None and not job.metadata.controller_uid:
            # Its name is free again.
            for (_, maker), refused in self._refused.items():
                if maker.partition("/")[0] == job.metadata.namespace:
                    refused.pop(job.metadata.name, None)
            self._all_of(job.metadata.namespace, JOB_FLOWS, HYPER_JOBS)

    def _namespace_changed(self, old: Slim | None, new: Slim | None) -> None:
        if new is None and old is not None:
            self._limits.pop(old.metadata.name, None)
        if new is not None and (old is None or old.metadata.labels != new.metadata.labels):
            self._all_of(new.metadata.name, *_MAKERS)

    def _all_of(self, namespace: str, *resources: ApiResource) -> None:
        for resource in resources:
            for name in self._caches.makers[resource].keys_of("namespace", namespace):
                self._queue.add((resource, name))

    # -- actions ------------------------------------------------------------------------------------------------------

    async def reconcile(self, key: Key) -> None:
        resource, name = key
        obj = self._caches.makers[resource].get(name)
        if obj is None:
            self._refused.pop(key, None)
        if obj is None or not self._caches.enabled(obj.metadata.namespace):
            return
        plan = self._plan(key, obj)
        namespace = obj.metadata.namespace
        for each in plan.delete:
            await self._host.delete(JOBS, each, namespace)
        for name, notes in plan.note:
            with suppress(errors.NotFound):
                patch = {"metadata": {"annotations": notes}}
                await self._host.merge_patch(JOBS, name, patch, namespace, field_manager="atoll-control")
        known = self._why(key)
        rest = await self._create(key, plan, self._limits.setdefault(namespace, RateLimit(_RATE, _AT_ONCE)))
        refused = self._why(key)
        if resource == JOB_FLOWS and refused != known:
            # The reason of its wait is written at once.
            plan = self._plan(key, obj)
        elif (refused or rest) and resource == VOLCANO_CRON_JOBS:
            # That run is still due.
            plan.status.pop("lastScheduleTime", None)
            if before := (obj.body.get("status") or {}).get("lastScheduleTime"):
                plan.status["lastScheduleTime"] = before
        about = {"apiVersion": resource.api_version, "kind": resource.kind}
        about |= {"namespace": namespace, "name": obj.metadata.name, "uid": obj.metadata.uid}
        for job, why in refused.items():
            self._recorder.record(about, "FailedCreate", f"Job {job}: {why}", warning=True)
        if rest:
            note = f"{rest} Jobs are made later: those of a namespace are {_AT_ONCE} at once and {_RATE:g} a second"
            self._recorder.record(about, "MadeLater", note, warning=True)
        for news in () if refused or rest else plan.news:
            self._recorder.record(about, news.reason, news.note, warning=news.warning)
        if plan.status != (obj.body.get("status") or {}):
            await put_status(self._host, resource, obj.body, plan.status, seen=obj.metadata.resource_version)
        if rest:
            self._queue.add(key, after=1 / _RATE)
        elif refused:
            since = min((each.at for each in self._refused.get(key, {}).values()), default=-math.inf)
            self._queue.add(key, after=max(0.0, since + self._settings.again - time.monotonic()))
        elif plan.again is not None:
            self._queue.add(key, after=max(0.0, plan.again - time.time()))

    def _plan(self, key: Key, obj: Full) -> Plan:
        namespace = obj.metadata.namespace
        if key[0] == JOB_FLOWS:
            templates, jobs = self._caches.makers[JOB_TEMPLATES], self._caches.jobs
            return flow.plan(
                obj.body, _by_name(templates.get, namespace), _by_name(jobs.get, namespace), self._why(key)
            )
        if key[0] == HYPER_JOBS:
            mine = [each.body for each in self._caches.jobs_of(obj.metadata.uid)]
            return hyper.plan(obj.body, mine, lambda name: self._of_another(obj, name), rfc3339_seconds(time.time()))
        return cron.plan(obj.body, [each.body for each in self._caches.jobs_of(obj.metadata.uid)], time.time())

    def _of_another(self, obj: Full, name: str) -> bool:
        """Whether a Job of this name exists that the object did not make; the object gets a message."""
        found = self._caches.jobs.get(f"{obj.metadata.namespace}/{name}")
        if found is None or found.metadata.controller_uid == obj.metadata.uid:
            return False
        about = {"apiVersion": HYPER_JOBS.api_version, "kind": HYPER_JOBS.kind}
        about |= {"namespace": obj.metadata.namespace, "name": obj.metadata.name, "uid": obj.metadata.uid}
        note = f"there is a Job {name} that is not of this HyperJob; it is made once that is gone"
        self._recorder.record(about, "FailedCreate", note, warning=True)
        return True

    def _why(self, key: Key) -> dict[str, str]:
        """Job of an object -> why the API server did not take it last."""
        return {job: each.why for job, each in self._refused.get(key, {}).items()}

    async def _create(self, key: Key, plan: Plan, limit: RateLimit) -> int:
        """Make Jobs, and remember refused ones; number of Jobs to make later.

        A Job that was refused comes after the others, and again after a while or when it is another: it costs as much
        as one that is made.
        """
        known = self._refused.pop(key, {})
        fresh, due, refused = list[Json](), list[Json](), dict[str, _Refusal]()
        for job in plan.create:
            before = known.get(job["metadata"]["name"])
            if before is None or before.of != digest(job):
                fresh.append(job)
                continue
            refused[job["metadata"]["name"]] = before
            if time.monotonic() - before.at >= self._settings.again:
                due.append(job)
        if refused:
            self._refused[key] = refused
        for number, job in enumerate([*fresh, *due]):
            if limit.reserve(time.monotonic(), 0) is None:
                return len(fresh) + len(due) - number
            refused.pop(job["metadata"]["name"], None)
            if why := await self._make(job):
                self._refused.setdefault(key, refused)[job["metadata"]["name"]] = _Refusal(
                    why, digest(job), time.monotonic()
                )
        return 0

    async def _make(self, job: Json) -> str:
        """Make a Job; why it was not taken."""
        name = job["metadata"]["name"]
        try:
            await self._host.create(JOBS, job, field_manager="atoll-control")
            log.info("job made", job=f"{job['metadata']['namespace']}/{name}")
        except errors.AlreadyExists as error:
            uid = job["metadata"]["ownerReferences"][0]["uid"]
            found = await self._host.get(JOBS, name, job["metadata"]["namespace"])
            owners = found["metadata"].get("ownerReferences") or ()
            if not any(each["uid"] == uid for each in owners):
                return error.said
        except (errors.Invalid, errors.Forbidden) as error:
            return error.said
        return ""


def _by_name(get: Callable[[str], Full | None], namespace: str) -> Callable[[str], Json | None]:
    def find(name: str) -> Json | None:
        found = get(f"{namespace}/{name}")
        return None if found is None else found.body

    return find
