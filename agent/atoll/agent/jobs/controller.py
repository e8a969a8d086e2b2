"""Volcano Jobs become a PodGroup and pods, and their status tells the truth.

Level-based: every look compares what the Job asks for with what exists, so a Job that was left half made is finished
by the next look, and watch lag costs at most a refused create.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

import structlog

from atoll.agent.cache import MemberCache
from atoll.agent.jobs import done, policies, rejections, stages, state
from atoll.agent.jobs import pods as made
from atoll.agent.jobs.plugin_objects import NameTaken, PluginObjects, check_owner
from atoll.agent.jobs.probes import Probes
from atoll.agent.jobs.statuses import Statuses
from atoll.agent.objects import Pod
from atoll.agent.settings import JobSettings
from atoll.kinds.volcano_job.tasks import task_name
from atoll.kube import errors
from atoll.kube.backoff import Backoff
from atoll.kube.events import Recorder, reference
from atoll.kube.pace import URGENT
from atoll.kube.transport import ApiServer
from atoll.kube.workqueue import WorkQueue, every
from atoll.model import keys
from atoll.model.apiresource import CLAIMS, JOBS, POD_GROUPS, PODS, ApiResource
from atoll.model.gang import MOST_PODS
from atoll.model.objects import Full
from atoll.model.timestamps import rfc3339_seconds, to_seconds

log = structlog.get_logger(__name__)


class JobController:
    """Reconciles the Volcano Jobs of a member, while it is enabled."""

    def __init__(
        self, api: ApiServer, cache: MemberCache, recorder: Recorder, *, settings: JobSettings = JobSettings()
    ) -> None:
        """No I/O happens here; `run` does it."""
        self._settings = settings
        #: whether no other controller makes the pods of Volcano Jobs
        self._enabled = True
        #: UIDs of pods to make again though they have not ended
        self._again: set[str] = set()
        #: (job UID, pod name) -> pauses of pods that their kubelets refuse
        self._refused: Backoff[tuple[str, str]] = Backoff(self._settings.again, self._settings.longest_again)
        #: job UID -> names of its pods in `_refused`
        self._refused_of: defaultdict[str, set[str]] = defaultdict(set)
        #: UIDs of refused pods whose pause has begun -> when it ends, by the loop's clock
        self._pause_until: dict[str, float] = {}
        self._api = api
        self._cache = cache
        self._recorder = recorder
        self._queue: WorkQueue[str] = WorkQueue("jobs", lambda key: {"workload": key})
        self._writes = asyncio.Semaphore(self._settings.writes)
        #: job UID -> names of pods made by us that no watch event has shown yet -> when they were made
        self._unseen: defaultdict[str, dict[str, float]] = defaultdict(dict)
        self.statuses = Statuses(api, cache, self._queue, settings)
        #: job UIDs whose PodGroup and claims were made or seen
        self._grouped: set[str] = set()
        self._plugged = PluginObjects(api)
        self._probes = Probes(cache, lambda key: self._queue.add(key), settings=settings.probes)
        #: UIDs of pods that we deleted and that the cache still has
        self._removed: set[str] = set()
        #: job UID -> name -> pod that was removed from outside before it had ended; until the next look at the Job
        self._lost: defaultdict[str, dict[str, Pod]] = defaultdict(dict)
        #: job UIDs that this process has looked at
        self._known_jobs: set[str] = set()
        cache.jobs.on_change(self._job_changed)
        cache.pods.on_change(self._pod_changed)
        cache.pod_groups.on_change(lambda old, new: self._group_gone(old) if new is None and old else None)

    def enable(self, enabled: bool) -> None:
        """Whether the Jobs are this controller's: never while Volcano's own runs."""
        if enabled and not self._enabled:
            for key in self._cache.jobs.store:
                self._queue.add(key)
        self._enabled = enabled

    def remake(self, pod: Pod) -> None:
        """Make the pod of a Job again: it can't go where it was to."""
        owner = next((o for o in pod.metadata.owner_references if o.controller and o.kind == "Job"), None)
        if owner is not None and self._cache.jobs.by_index("uid", owner.uid):
            self._again.add(pod.metadata.uid)
            self._queue.add(f"{pod.metadata.namespace}/{owner.name}")

    def _job_changed(self, old: Full | None, new: Full | None) -> None:
        for gone in (old,) if old is not None and (new is None or new.metadata.uid != old.metadata.uid) else ():
            self._forget(gone.metadata.uid)
        if new is not None and (old is None or old.body.get("spec") != new.body.get("spec")):
            self._queue.add(new.metadata.key, priority=URGENT)
        elif new is not None:
            self._queue.add(new.metadata.key, after=self._settings.coalesce)

    def _forget(self, uid: str) -> None:
        for memory in (self._unseen, self._lost):
            memory.pop(uid, None)
        self.statuses.forget(uid)
        for name in self._refused_of.pop(uid, ()):
            self._refused.forget((uid, name))
        self._grouped.discard(uid)
        self._plugged.forget(uid)
        self._known_jobs.discard(uid)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        assert pod is not None
        owner = next((o for o in pod.metadata.owner_references if o.controller and o.kind == "Job"), None)
        replaced = old is not None and (new is None or new.metadata.uid != old.metadata.uid)
        ours = replaced and old is not None and old.metadata.uid in self._removed
        if replaced and old is not None:
            self._removed.discard(old.metadata.uid)
            self._again.discard(old.metadata.uid)
            self._pause_until.pop(old.metadata.uid, None)
        if new is not None and new.phase in ("Running", "Succeeded") and owner is not None:
            self._refused.forget((owner.uid, new.metadata.name))
        if owner is None or f"{pod.metadata.namespace}/{owner.name}" not in self._cache.jobs.store:
            return
        if replaced and old is not None and not ours and (not old.finished or rejections.pushed_out(old)):
            self._lost[owner.uid][old.metadata.name] = old
        self._unseen.get(owner.uid, {}).pop(pod.metadata.name, None)
        if old is None or new is None or _told(old) != _told(new):
            ended = new is not None and new.finished
            key, after = f"{pod.metadata.namespace}/{owner.name}", self._settings.coalesce
            self._queue.add(key, priority=URGENT if ended else 0, after=after)

    def _group_gone(self, group: Any) -> None:
        for owner in group.metadata.owner_references:
            if owner.controller and owner.kind == "Job":
                self._grouped.discard(owner.uid)
                self._queue.add(f"{group.metadata.namespace}/{owner.name}")

    async def run(self, *, workers: int = 8) -> None:
        """Reconcile until cancelled; the cache must have synced."""
        for key in self._cache.jobs.store:
            self._queue.add(key)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._probes.run())
            tasks.create_task(self._queue.run(self.reconcile, workers=workers))

    async def reconcile(self, key: str) -> None:
        cached = self._cache.jobs.get(key)
        if cached is None or cached.metadata.deletion_timestamp is not None or not self._enabled:
            return
        try:
            await self._look(cached)
        finally:
            # It may have gone while a write was under way; its event came too early to forget later notes.
            now = self._cache.jobs.get(key)
            if now is None or now.metadata.uid != cached.metadata.uid:
                self._forget(cached.metadata.uid)

    async def _look(self, cached: Full) -> None:
        uid = cached.metadata.uid
        job, there = self.statuses.known(cached), self._cache.pods.by_index("owner", uid)
        gone = done.remembered(job, there)
        existing = [*there, *gone]
        again = self._made_again(job, existing)
        pods = [pod for pod in existing if pod.metadata.uid not in again]
        if (asked := made.asked(job)) > MOST_PODS:
            text = f"asks for {asked} pods at once, and one Job gets at most {MOST_PODS}: make several Jobs of it"
            self._recorder.record(_reference(job), "TooManyPods", text, warning=True)
            return
        # 1. What the host or a policy wants is written down first, so that it can't be half done.
        lost = dict(self._lost.get(uid, {}))
        intent = self._intent(job, pods, self._evicted(job, existing, lost, first_look=uid not in self._known_jobs))
        if intent.changes:
            job = await self.statuses.write(job, intent.changes)
            # A restart forgets succeeded pods.
            gone = done.remembered(job, there)
            existing = [*there, *gone]
            pods = [*(pod for pod in pods if pod.metadata.uid), *gone]
        # Only now: what could not be written must be seen again.
        self._known_jobs.add(uid)
        for name, pod in lost.items():
            if self._lost[uid].get(name) is pod:
                del self._lost[uid][name]
        if "state" in intent.changes:
            phase = state.phase_of(job)
            self._recorder.record(_reference(job), phase, intent.message, warning=phase != "Completing")
        # 2. Remove doomed pods.
        doomed = state.doomed(job, pods)
        leaving = {pod.metadata.uid for pod in doomed}
        doomed += [pod for pod in existing if again.get(pod.metadata.uid)]
        staying = [pod for pod in pods if pod.metadata.uid not in leaving]
        # Surplus goes before the gang's minimum shrinks, or it would be bound in between.
        await self._remove(job, [*doomed, *made.surplus(job, staying)])
        # 3. Make missing pods, and write the status of both.
        missing, made_now = {}, set[str]()
        unseen = self._made_lately(uid)
        begun = {position for position, _ in made.places(job, unseen).values()}
        opened = stages.open_tasks(job, (pod for pod in staying if not pod.terminating), begun)
        if (state.phase_of(job) or "Pending") in state.MAKING:
            wanted, seen = made.present(job, staying), {pod.metadata.name for pod in existing}
            wanted = {name: at for name, at in wanted.items() if at[0] in opened}
            missing = {name: at for name, at in wanted.items() if name not in seen | unseen}
            # Pods just made count as pending at once, so a new Job costs one write of its status, not one per pod.
            made_now = wanted.keys() - seen if missing or unseen else set()
        census = state.Census(pods, _by_task(job, made_now), leaving=leaving)
        ended = done.recorded(job, staying)
        status = asyncio.ensure_future(self._write_status(job, census, intent, opened, ended))
        outcomes = await every(status, self._make(job, missing, status, opened, gone))
        # 4. Leftovers of a Job that has just ended.
        if isinstance(outcomes[0], dict):
            await self._remove(job, state.doomed(outcomes[0], pods))

    def _made_again(self, job: dict[str, Any], pods: Iterable[Pod]) -> dict[str, bool]:
        """UIDs of pods that count for nothing, as they are made again, and whether that is due."""
        if (state.phase_of(job) or "Pending") not in state.MAKING:
            return {}
        found: dict[str, bool] = {}
        now = asyncio.get_running_loop().time()
        for pod in pods:
            uid = pod.metadata.uid
            if uid in self._again and not pod.node:
                found[uid] = True
            elif rejections.blameless(pod, evictions_count=policies.watches_evictions(job, pod.task)):
                if uid not in self._pause_until:
                    owner = job["metadata"]["uid"]
                    self._refused_of[owner].add(pod.metadata.name)
                    pause = self._refused.failed((owner, pod.metadata.name))
                    # The first time it is probably another node's turn.
                    first = pause <= self._settings.again
                    self._pause_until[uid] = now if first else now + pause
                    text = f"pod {pod.metadata.name} is made again: {pod.reason or 'it was disrupted'}"
                    self._recorder.record(_reference(job), "PodMadeAgain", text, warning=True)
                found[uid] = self._pause_until[uid] <= now
                if not found[uid]:
                    key = f"{job['metadata']['namespace']}/{job['metadata']['name']}"
                    self._queue.add(key, after=self._pause_until[uid] - now)
        return found

    # -- policies and commands ---------------------------------------------------------------------------------------

    def _intent(self, job: dict[str, Any], pods: list[Pod], lost: dict[str, float]) -> _Intent:
        now = time.time()
        if (command := policies.commanded(job)) is not None:
            action, text = command
            message = f"{action} was asked for on the host"
            changes = state.act(job, action, reason="CommandIssued", message=message, now=now, command=text)
            return _Intent(_with_done(job, changes, action, ()) if changes else {"lastAction": text}, message)
        phase = state.phase_of(job) or "Pending"
        if phase not in state.MAKING and phase != "Restarting":
            return _Intent()
        kept = {name: rfc3339_seconds(at) for name, at in lost.items()}
        changes = {"evicted": kept} if kept != ((job.get("status") or {}).get("evicted") or {}) else {}
        wishes = policies.wishes(job, pods, lost)
        if (update := policies.update_of(job)) != ((job.get("status") or {}).get("seenUpdate") or ""):
            changes["seenUpdate"] = update
        if not wishes:
            return _Intent(changes)
        due = [wish for wish in wishes if wish.due <= now]
        if not due:
            self._queue.add(f"{job['metadata']['namespace']}/{job['metadata']['name']}", after=wishes[0].due - now)
            return _Intent(changes, hold=True)
        first = next((wish for wish in due if wish.action in policies.WHOLE), due[0])
        if first.action in policies.WHOLE and policies.is_divided(job):
            return _Intent(changes, first.message, hold=True, required=True)
        # Restarts of parts that are due together are one restart.
        targets = sorted({wish.target for wish in due if wish.target})
        acted = state.act(job, first.action, targets, reason=first.event, message=first.message, now=now)
        if acted is None:
            return _Intent(changes)
        acted = _with_done(job, acted, first.action, targets)
        over = set(lost) if first.action in policies.WHOLE else {wish.pod for wish in due}
        left = {name: at for name, at in kept.items() if name not in over}
        return _Intent({**changes, **acted, **({"evicted": left} if kept else {})}, first.message)

    def _evicted(
        self, job: dict[str, Any], pods: list[Pod], fresh: dict[str, Pod], *, first_look: bool
    ) -> dict[str, float]:
        """Name -> time of eviction, of pods that a policy may still ask about."""
        now = time.time()
        if not policies.watches_evictions(job):
            return {}
        known = (job.get("status") or {}).get("evicted") or {}
        lost = {name: to_seconds(at) for name, at in known.items()}
        lost |= {name: now for name, pod in fresh.items() if not state.outdated(job, pod)}
        if first_look and state.phase_of(job) == "Running":
            lost |= dict.fromkeys(made.vanished(job, pods), now)
        # What runs again, or was asked for no longer, is forgiven.
        back = {pod.metadata.name for pod in pods if pod.phase != "Pending"}
        asked = made.places(job, lost)
        return {name: at for name, at in lost.items() if name not in back and name in asked}

    async def _write_status(
        self,
        job: dict[str, Any],
        census: state.Census,
        intent: _Intent,
        opened: Collection[int],
        ended: dict[str, str],
    ) -> dict[str, Any]:
        """The Job with the status that it has now."""
        required = intent.message if intent.required else ""
        wanted = state.desired_status(job, census, time.time(), hold=intent.hold, required=required, opened=opened)
        if ended or (job.get("status") or {}).get("done"):
            wanted["done"] = ended
        if (probed := self._probes.of(job["metadata"]["uid"])) is not None:
            wanted["probes"] = probed
        return await self.statuses.write_when_due(job, wanted)

    # -- objects -----------------------------------------------------------------------------------------------------

    async def _make(
        self,
        job: dict[str, Any],
        missing: dict[str, tuple[int, int]],
        told: asyncio.Future[dict[str, Any]],
        opened: Collection[int],
        gone: Iterable[Pod],
    ) -> None:
        uid = job["metadata"]["uid"]
        namespace = job["metadata"]["namespace"]
        if (state.phase_of(job) or "Pending") not in state.MAKING:
            return
        over = Counter(pod.task for pod in gone)
        group = self._cache.pod_groups.get(f"{namespace}/{made.group_name(job)}")
        if group is not None:
            present = {"minMember": group.spec.min_member, "minTaskMember": group.spec.min_task_member}
            if change := made.group_change(present, job, opened, over):
                await self._api.merge_patch(POD_GROUPS, group.metadata.name, change, namespace)
        elif uid not in self._grouped:
            # The gang before its pods: a pod without its gang's size could be taken for a complete gang.
            await self._create(job, POD_GROUPS, made.pod_group(job, opened, over))
            await asyncio.gather(*(self._create(job, CLAIMS, claim) for claim in made.claims(job)))
        # Before the pods, which mount what plugins make.
        try:
            await self._plugged.keep(job)
        except (NameTaken, errors.ApiError) as error:
            self._tell(job, error)
            raise
        self._grouped.add(uid)
        # A watch that was silent tells of Jobs that are long gone: the first write of their status says so.
        await asyncio.shield(told)
        await every(*(self._create_pod(job, name, *at) for name, at in missing.items()))

    async def _create(self, job: dict[str, Any], resource: ApiResource, obj: dict[str, Any]) -> None:
        async with self._writes:
            try:
                await self._api.create(resource, obj)
            except errors.AlreadyExists:
                if resource == CLAIMS:
                    self._check_claim(job, obj["metadata"])
            except errors.ApiError as error:
                self._tell(job, error)
                raise

    def _tell(self, job: dict[str, Any], error: NameTaken | errors.ApiError) -> None:
        """What the API server refused only the Job's author, or that of a rule of the namespace, can mend."""
        refused = isinstance(error, errors.Invalid | errors.Forbidden) and not isinstance(error, errors.Unauthorized)
        if refused or isinstance(error, NameTaken):
            said = str(error) if isinstance(error, NameTaken) else error.said
            self._recorder.record(_reference(job), "FailedCreate", said, warning=True)

    def _check_claim(self, job: dict[str, Any], wanted: dict[str, Any]) -> None:
        """Make sure that a claim which is there already is of the Job, or of its workload: it outlives their Jobs."""
        found = self._cache.claims.get(f"{wanted['namespace']}/{wanted['name']}")
        which = f"{CLAIMS.kind} {wanted['namespace']}/{wanted['name']}"
        if found is None or found.metadata.deletion_timestamp is not None:
            raise errors.Retry(0.5, f"{which} goes, or was not heard of yet")
        owners = {each["uid"] for each in wanted.get("ownerReferences") or ()}
        binding = (wanted.get("labels") or {}).get(keys.BINDING_UID)
        same = binding is not None and found.metadata.labels.get(keys.BINDING_UID) == binding
        if not same and owners.isdisjoint(each.uid for each in found.metadata.owner_references):
            error = NameTaken(which)
            self._tell(job, error)
            raise error

    async def _create_pod(self, job: dict[str, Any], name: str, position: int, index: int) -> None:
        uid, namespace = job["metadata"]["uid"], job["metadata"]["namespace"]
        async with self._writes:
            # Before the request, because the watch may tell of the pod before the answer does.
            self._unseen[uid][name] = asyncio.get_running_loop().time()
            try:
                await self._api.create(PODS, made.pod(job, position, index))
            except errors.AlreadyExists:
                self._unseen[uid].pop(name, None)
                known = self._cache.pods.get(f"{namespace}/{name}")
                if known is None or known.metadata.controller_uid != uid:
                    await self._check_pod(job, name)
            except BaseException as error:
                self._unseen[uid].pop(name, None)
                if isinstance(error, errors.ApiError):
                    self._tell(job, error)
                raise
            self._queue.add(f"{namespace}/{job['metadata']['name']}", after=self._settings.trust)

    def _made_lately(self, uid: str) -> set[str]:
        """Names of pods that were made and not yet seen.

        The watch may never show one: where it was removed at once, or the store was put back to an earlier state.
        """
        until = asyncio.get_running_loop().time() - self._settings.trust
        made_at = self._unseen[uid]
        for name in [name for name, at in made_at.items() if at <= until]:
            del made_at[name]
        return set(made_at)

    async def _check_pod(self, job: dict[str, Any], name: str) -> None:
        """Make sure that a pod which is there already is of the Job."""
        namespace = job["metadata"]["namespace"]
        try:
            check_owner(await self._api.get(PODS, name, namespace), PODS, job["metadata"]["uid"])
        except errors.NotFound as error:
            raise errors.Retry(0.5, f"pod {namespace}/{name} was in the way") from error
        except NameTaken as error:
            self._tell(job, error)
            raise

    async def _remove(self, job: dict[str, Any], pods: Iterable[Pod]) -> None:
        async def remove(pod: Pod) -> None:
            async with self._writes:
                # Before the request: the watch may tell of it before the answer does.
                self._removed.add(pod.metadata.uid)
                try:
                    await self._api.delete(PODS, pod.metadata.name, pod.metadata.namespace, uid=pod.metadata.uid)
                except errors.Conflict:
                    log.debug("pod was replaced meanwhile", pod=pod.metadata.key, job=job["metadata"]["name"])

        going = [
            pod for pod in pods if pod.metadata.uid and not pod.terminating and pod.metadata.uid not in self._removed
        ]
        outcomes = await asyncio.gather(*(remove(pod) for pod in going), return_exceptions=True)
        for pod, outcome in zip(going, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                self._removed.discard(pod.metadata.uid)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome


@dataclass(frozen=True)
class _Intent:
    """What commands and policies make of a Job at one look."""

    changes: dict[str, Any] = field(default_factory=dict)
    """Of the status, to be written before anything is done."""
    message: str = ""
    hold: bool = False
    """An action is still to come."""
    required: bool = False
    """The action is the host's to decide."""


def _with_done(job: dict[str, Any], changes: dict[str, Any], action: str, targets: Collection[str]) -> dict[str, Any]:
    """The changes by which an action begins, with what of the Job has succeeded and stays so."""
    return {**changes, "done": done.after(job, action, targets)} if (job.get("status") or {}).get("done") else changes


def _told(pod: Pod) -> tuple[object, ...]:
    """What of a pod the Job's phase, counts or policies depend on."""
    return pod.phase, pod.ready, pod.terminating, pod.restarts, pod.exit_codes, pod.reason, pod.metadata.uid


def _by_task(job: dict[str, Any], names: Iterable[str]) -> Counter[str]:
    tasks = job["spec"].get("tasks") or ()
    return Counter(task_name(tasks[position], position) for position, _ in made.places(job, names).values())


def _reference(job: dict[str, Any]) -> dict[str, Any]:
    meta = job["metadata"]
    return reference(JOBS, meta["namespace"], meta["name"], meta["uid"])
