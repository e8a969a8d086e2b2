"""The scheduler's shell: events mark gangs dirty, a pass decides, plans are bound, PodGroups tell the outcome."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import structlog

from atoll.agent.cache import MemberCache
from atoll.agent.objects import Node, Pod, PodGroup
from atoll.agent.ours import Ours
from atoll.agent.podgroups import serves
from atoll.agent.scheduler import gangs, planner
from atoll.agent.scheduler.binder import Binder
from atoll.agent.scheduler.claims import PAUSE, Claims
from atoll.agent.scheduler.gangs import Standing
from atoll.agent.scheduler.lifted import Lifted, refusal
from atoll.agent.scheduler.notices import Notices
from atoll.agent.scheduler.planner import Parked, Plan, Wait
from atoll.agent.scheduler.reservations import Reservations, is_plan
from atoll.agent.scheduler.room import Room
from atoll.agent.scheduler.status import group_status
from atoll.kube import errors
from atoll.kube.backoff import Backoff
from atoll.kube.events import Recorder
from atoll.kube.logs import working_on
from atoll.kube.transport import ApiServer
from atoll.kube.workqueue import WorkQueue
from atoll.model.apiresource import POD_GROUPS

_COALESCE = 0.005
"""Seconds for which events are gathered before a pass."""
_SLICE = 0.01
"""Seconds of planning after which other tasks get their turn."""
_COUNTS_AFTER = 1.0
"""Seconds that a status write waits when only counters differ."""
_MESSAGE_AFTER = 10.0
"""Seconds between two writes when only the sentence differs: free room changes all the time, and so do its numbers."""
_TELL_AFTER = 60.0
"""Seconds between two events about a gang that waits for the same reason."""
_TASKS_AFTER = 0.5
"""Seconds that a gang may take to get its pods before it is said to have too few."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
"""Seconds after which a gang that broke the planner is planned again."""

log = structlog.get_logger(__name__)


class Scheduler:
    """Places the gangs of a member; one per member, or two would overbook nodes."""

    def __init__(
        self,
        api: ApiServer,
        cache: MemberCache,
        recorder: Recorder,
        *,
        ours: Ours | None = None,
        remake: Callable[[Pod], None] = lambda _: None,
        promise: Callable[[], int] = lambda: 0,
    ) -> None:
        """No I/O happens here; `run` does it.

        Args:
            api: the member.
            cache: of the member; handlers are added to it.
            recorder: tells of gangs that wait.
            ours: tells which pods and PodGroups are.
            remake: has a pod that another scheduler did not bind made again, where its workload is ours to make.
            promise: gives the generation of the published capacity that will contain what is so now.
        """
        self.room = Room()
        #: gang key -> why its pods wait; only of gangs with pods that wait
        self.waits: dict[str, Wait] = {}
        self._api = api
        self._cache = cache
        self._recorder = recorder
        self.ours = ours if ours is not None else Ours(cache)
        self._remake = remake
        self._binder = Binder(api, self.room)
        self._claims = Claims(api, cache, self.room, lambda pod: self._mark(gangs.key_of(pod)))
        self._parked = Parked()
        #: gangs that must be looked at
        self._dirty: set[str] = set()
        #: gang key -> its standing; those that had pods waiting when last looked at
        self._pending: dict[str, Standing] = {}
        #: gang keys that could not be looked at or planned for a defect of ours; each is in `waits`
        self._aside: Backoff[str] = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        self._wake = asyncio.Event()
        #: what is kept for parts of gangs that are not applied yet
        self.reservations = Reservations(api, cache, self.room, promise=promise, wake=self._wake.set)
        self._binding: set[asyncio.Task[None]] = set()
        self._lifted = Lifted(self._wake.set)
        #: binding UIDs whose wait changed outside of a plan since somebody was told
        self._reworded: set[str] = set()
        self._status: WorkQueue[str] = WorkQueue("podgroups", self._about)
        #: gang key -> when its status was last written
        self._written: dict[str, float] = {}
        #: gang key -> reason of the last event about it, and when
        self._told: dict[str, tuple[str, float]] = {}
        self._observers: list[Callable[[set[str]], None]] = []
        self._notices = Notices(api, cache, self.room, self.waits, recorder)
        cache.nodes.on_change(self._node_changed)
        cache.hyper_nodes.on_change(self._hyper_node_changed)
        cache.pods.on_change(self._pod_changed)
        cache.pod_groups.on_change(self._group_changed)
        self.ours.on_change(self._look_at_all, self._look_at_owned)

    def on_pass(self, observer: Callable[[set[str]], None]) -> None:
        """Call `observer(binding UIDs whose placement or wait changed)` after every pass and every burst of events."""
        self._observers.append(observer)

    # -- events ------------------------------------------------------------------------------------------------------

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        version = self.room.version
        self.room.node_changed(old, new)
        if self.room.version != version:
            self._wake.set()

    def use_nodes(self, selected: Callable[[Node], bool]) -> None:
        """Place on these nodes and no others from now on."""
        self.room.use_nodes(selected)
        self._wake.set()

    def _look_at_all(self) -> None:
        self._dirty.update(gangs.key_of(pod) for pod in self._cache.pods)
        self._wake.set()

    def _look_at_owned(self, uid: str) -> None:
        self._dirty.update(gangs.key_of(pod) for pod in self._cache.pods.by_index("owner", uid))
        self._wake.set()

    def _hyper_node_changed(self, old: Any, new: Any) -> None:
        self.room.hyper_node_changed(old, new)
        self._wake.set()

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        self._lifted.pod_changed(old, new)
        if old is not None and new is not None and new.placed_alike(old) and not new.planned_node:
            # Most often the echo of what it was told.
            return
        self.room.pod_changed(old, new)
        if new is not None and new.node and (old is None or not old.node) and self._is_delegated(new):
            self.reservations.holds.bound_by_others(new)
        for pod in (old, new):
            if pod is not None:
                self._dirty.add(gangs.key_of(pod))
        self._wake.set()

    def _is_delegated(self, pod: Pod) -> bool:
        """Whether it came by a binding and another scheduler decided alone where it goes."""
        return bool(pod.binding_uid) and not pod.planned_node and not self.ours.pod(pod)

    def _group_changed(self, old: PodGroup | None, new: PodGroup | None) -> None:
        group = new or old
        assert group is not None
        if is_plan(group):
            return
        if new is None:
            self._written.pop(group.metadata.key, None)
            self._told.pop(group.metadata.key, None)
        if old is not None and new is not None and old.spec == new.spec:
            return
        self._dirty.add(group.metadata.key)
        self._wake.set()

    # -- passes ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Schedule until cancelled; the cache must have synced."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._status.run(self._write_status, workers=8))
            tasks.create_task(self._notices.run())
            tasks.create_task(self.reservations.run())
            self.reservations.start()
            self._wake.set()
            while True:
                await self._wake.wait()
                await asyncio.sleep(_COALESCE)
                self._wake.clear()
                await self._pass()

    async def _pass(self) -> None:
        # 1. Reservations first: they were asked for before the pods that come now. Look again at gangs that events
        # were about.
        self.reservations.refresh()
        self._give_up()
        dirty, self._dirty = self._dirty, set()
        for key in dirty:
            self._look(key)
        # 2. Everything that waits gets a try when room grew; else only what changed. What failed has its pause.
        if self.room.grew:
            self.room.grew = False
            self._parked = Parked()
            candidates = list(self._pending.values())
        else:
            candidates = [self._pending[key] for key in dirty if key in self._pending]
        candidates = [view for view in candidates if not self._aside.pauses(view.key)]
        # 3. Decide, and start to bind at once.
        changed: set[str] = set()
        began = time.monotonic()
        for outcome in planner.plan(
            self.room, candidates, self._parked, self.reservations.holds, self.reservations.expected
        ):
            key = outcome.gang.key
            before = self.waits.get(key)
            if isinstance(outcome, Wait) and outcome.error is not None:
                self._set_aside(outcome)
            else:
                self._aside.forget(key)
            if isinstance(outcome, Plan):
                self.waits.pop(key, None)
                self._pending.pop(key, None)
                # What did not fit beside the plan is looked at again once the plan is known to the next view.
                if len(outcome.nodes) < len(outcome.gang.waiting):
                    self._mark(key)
                self._start(outcome)
            else:
                self.waits[key] = outcome
                if before is None or before.message != outcome.message:
                    self._tell(outcome)
                self._notices.waiting(outcome)
            if before is not self.waits.get(key) and outcome.gang.binding_uid:
                changed.add(outcome.gang.binding_uid)
            if time.monotonic() - began > _SLICE:
                await asyncio.sleep(0)
                began = time.monotonic()
        # 4. Tell who wants to know.
        self.reservations.tell()
        if self.room.grew:
            self._wake.set()
        for key in dirty:
            if not gangs.bare_pod(key):
                self._status.add(key, after=_COALESCE)
        changed |= self.room.touched | self._reworded
        self.room.touched, self._reworded = set(), set()
        for observer in self._observers:
            observer(changed)

    def _look(self, key: str) -> None:
        try:
            self._look_at(key)
        except Exception as error:
            self._pending.pop(key, None)
            name = gangs.bare_pod(key)
            pod = self._cache.pods.get(name) if name else None
            view = Standing(key, self._cache.pod_groups.get(key), [pod] if pod is not None else [])
            self.waits[key] = planner.failed(view, error)
            self._set_aside(self.waits[key])
            self._tell(self.waits[key])
            self._notices.waiting(self.waits[key])

    def _look_at(self, key: str) -> None:
        if name := gangs.bare_pod(key):
            pod = self._cache.pods.get(name)
            # A pod that is to get a PodGroup is no gang on its own.
            ours = pod is not None and not pod.group and not serves(pod, self.ours.pod)
            pods = [pod] if pod is not None and ours else []
            view = gangs.standing(key, None, pods, self.room, self.ours.pod) if pods else None
        else:
            group = self._cache.pod_groups.get(key)
            pods = self._cache.pods.by_index("group", key)
            view = gangs.standing(key, group, pods, self.room, self.ours.pod)
            if group is None:
                self._wait_for_group(view)
                return
            if not self.ours.group(group, pods):
                view = None
        over = view is not None and view.group is not None and view.group.status.get("phase") == "Completed"
        unbound = [pod for pod in pods if pod.planned_node and not pod.finished and not self.room.is_bound(pod)]
        if view is not None and unbound and not view.waiting and any(pod.unscheduled for pod in unbound):
            self._pending.pop(key, None)
            self._wait_for_others(view, unbound)
        elif view is None or not (view.waiting or (view.missing and not over)):
            if self.waits.get(key) is not None and self.waits[key].gang.binding_uid:
                self._reworded.add(self.waits[key].gang.binding_uid)
            self._pending.pop(key, None)
            self.waits.pop(key, None)
            self._aside.forget(key)
            if view is None:
                self._told.pop(key, None)
        elif view.waiting:
            self._await_claims(*self._claims.narrow(view))
        else:
            self._pending.pop(key, None)
            self.waits[key] = Wait(
                view,
                planner.NOT_ENOUGH_TASKS,
                f"{view.settled.total()} of {view.min_member} pods exist",
            )

    def _wait_for_group(self, view: Standing) -> None:
        """Its pods name a PodGroup that is not there, or not yet."""
        key = view.key
        self._pending.pop(key, None)
        self.waits.pop(key, None)
        self._aside.forget(key)
        self._told.pop(key, None)
        if view.waiting:
            wait = self.waits[key] = Wait(view, planner.NO_POD_GROUP, f"PodGroup {key} does not exist")
            self._notices.waiting(wait)

    def _await_claims(self, view: Standing, problem: str) -> None:
        """It may be placed, or waits for claims of its pods."""
        if not problem:
            self._pending[view.key] = view
            return
        self._pending.pop(view.key, None)
        before, wait = self.waits.get(view.key), Wait(view, planner.VOLUMES, problem)
        self.waits[view.key] = wait
        if before is None or before.message != wait.message:
            self._reworded |= {view.binding_uid} - {""}
            self._tell(wait)
        self._notices.waiting(wait)

    def _wait_for_others(self, view: Standing, unbound: list[Pod]) -> None:
        """Another scheduler was to bind these pods, and says that it can't."""
        before, wait = self.waits.get(view.key), Wait(view, planner.NOT_BOUND, refusal(unbound))
        self.waits[view.key] = wait
        if before is None or before.message != wait.message:
            self._reworded.add(unbound[0].binding_uid)
            if view.group is not None:
                self._tell(wait)

    def _give_up(self) -> None:
        """Keep nodes no longer for pods that another scheduler did not bind in time."""
        for pod in self._lifted.overdue():
            log.warning("not bound in time", pod=pod.metadata.key, node=pod.planned_node, scheduler=pod.scheduler)
            self.room.give_up(pod)
            self._dirty.add(gangs.key_of(pod))
            self._remake(pod)

    def _set_aside(self, wait: Wait) -> None:
        """One gang that breaks us is no reason to place none; later the world may be another one."""
        key = wait.gang.key
        log.error("a gang can't be planned, will try again", **self._about(key), exc_info=wait.error)
        asyncio.get_running_loop().call_later(self._aside.failed(key), self._mark, key)

    def _mark(self, key: str) -> None:
        self._dirty.add(key)
        self._wake.set()

    def _start(self, plan: Plan) -> None:
        task = asyncio.create_task(self._bind(plan), name=f"bind {plan.gang.key}")
        self._binding.add(task)
        task.add_done_callback(self._binding.discard)
        if not gangs.bare_pod(plan.gang.key):
            self._status.add(plan.gang.key)

    async def _bind(self, plan: Plan) -> None:
        try:
            with working_on(**_log_fields(plan.gang.key, plan.gang.group)):
                bound = await self._claims.provide(plan)
                if not bound:
                    # What makes volumes gets a moment before it is asked for others.
                    await asyncio.sleep(PAUSE)
                bound = bound and await self._binder.bind(plan)
        except Exception:
            log.exception("binding failed", **_log_fields(plan.gang.key, plan.gang.group))
            for pod, _ in plan.nodes:
                self.room.forget(pod)
            bound = False
        if not bound:
            self._mark(plan.gang.key)

    def _about(self, key: str) -> dict[str, str]:
        return _log_fields(key, self._cache.pod_groups.get(key))

    # -- what people see ---------------------------------------------------------------------------------------------

    def _tell(self, wait: Wait) -> None:
        key, group = wait.gang.key, wait.gang.group
        if group is not None:
            late = wait.reason == planner.NOT_ENOUGH_TASKS
            self._status.add(key, after=_TASKS_AFTER if late else 0.0)
            if late:
                return
        if group is None:
            return
        told, now = self._told.get(key), time.monotonic()
        if told is not None and told[0] == wait.reason and now - told[1] < _TELL_AFTER:
            return
        self._told[key] = (wait.reason, now)
        about: dict[str, Any] = {"apiVersion": POD_GROUPS.api_version, "kind": POD_GROUPS.kind}
        meta = group.metadata
        about |= {"namespace": meta.namespace, "name": meta.name, "uid": meta.uid}
        self._recorder.record(about, "Unschedulable", wait.message, warning=True, action="Scheduling")

    async def _write_status(self, key: str) -> None:
        group = self._cache.pod_groups.get(key)
        if group is None or group.metadata.deletion_timestamp is not None:
            return
        now, clock = time.time(), asyncio.get_running_loop().time()
        wait = self.waits.get(key)
        pods = self._cache.pods.by_index("group", key)
        if not self.ours.group(group, pods):
            return
        if wait is not None and wait.reason == planner.NOT_ENOUGH_TASKS and not self._late(group, now):
            self._status.add(key, after=_TASKS_AFTER)
            return
        wanted = group_status(group, pods, self.room, wait, now)
        present = group.status
        if all(present.get(name) == value for name, value in wanted.items()):
            return
        if key in self._written and present.get("phase") == wanted["phase"]:
            pause = _COUNTS_AFTER if present.get("conditions") == wanted["conditions"] else _MESSAGE_AFTER
            due = self._written[key] + pause - clock
            if due > 0:
                self._status.add(key, after=due)
                return
        if not wait and not pods and not present:
            return
        self._written[key] = clock
        try:
            patch = {"metadata": {"uid": group.metadata.uid}, "status": wanted}
            await self._api.merge_patch(POD_GROUPS, group.metadata.name, patch, group.metadata.namespace)
        except errors.NotFound:
            self._written.pop(key, None)

    def _late(self, group: PodGroup, now: float) -> bool:
        # Creation times have whole seconds.
        created = gangs.age(group.metadata.creation_timestamp, now)
        return bool(group.status) or created > 1.0 + _TASKS_AFTER


def _log_fields(key: str, group: PodGroup | None) -> dict[str, str]:
    """What log lines about a gang say: itself, and the workload that it belongs to."""
    if name := gangs.bare_pod(key):
        return {"workload": name}
    owners = group.metadata.owner_references if group is not None else []
    name = next((owner.name for owner in owners if owner.controller), "")
    return {"pod_group": key, "workload": f"{key.partition('/')[0]}/{name}" if name else key}
