"""The scheduler's shell: events go to the core, its plans are bound, PodGroups and Events show its answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import structlog

from atoll.agent.cache import MemberCache
from atoll.agent.objects import Pod, PodGroup
from atoll.agent.ours import Ours
from atoll.agent.podgroups import serves
from atoll.agent.scheduler.binder import Binder
from atoll.agent.scheduler.claims import Claims
from atoll.agent.scheduler.core import (
    Answer,
    Bind,
    Changed,
    Command,
    Deallocate,
    Event,
    Evict,
    Explain,
    MemberCore,
    Nominate,
    Pass,
    Remake,
    Reserve,
    gangs,
    planner,
)
from atoll.agent.scheduler.core import events as told
from atoll.agent.scheduler.core.events import Whose
from atoll.agent.scheduler.core.log import MemberBegin
from atoll.agent.scheduler.core.planner import Wait
from atoll.agent.scheduler.core.room import Room
from atoll.agent.scheduler.device_claims import DeviceClaims
from atoll.agent.scheduler.evictor import Evictor
from atoll.agent.scheduler.notices import Notices
from atoll.agent.scheduler.reservations import Reservations, is_plan
from atoll.agent.scheduler.status import group_status
from atoll.agent.settings import AgentSettings
from atoll.kube import errors
from atoll.kube.events import Recorder, reference
from atoll.kube.logs import working_on
from atoll.kube.recording import BestEffort
from atoll.kube.transport import ApiServer
from atoll.kube.workqueue import WorkQueue
from atoll.model.apiresource import POD_GROUPS
from atoll.model.objects import Slim

_MOVE_DEADLINES = (Pass, told.HoldAsked, told.HoldAdopted)

Json = dict[str, Any]

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
        log: BestEffort[MemberBegin, Event, Command] | None = None,
        settings: AgentSettings = AgentSettings(),
    ) -> None:
        """No I/O happens here; `run` does it.

        Args:
            api: the member.
            cache: of the member; handlers are added to it.
            recorder: tells of gangs that wait.
            ours: tells which pods and PodGroups are.
            remake: makes a pod again that another scheduler did not bind, where its workload is ours to make.
            promise: gives the generation of the published capacity that will contain the present state.
            log: keeps events to the core and its answers; a core of this scheduler begins in it.
            settings: its times and bounds.
        """
        self._settings = settings
        self.core = MemberCore(settings.core)
        self._log = log if log is not None else BestEffort(None)
        self._api = api
        self._cache = cache
        self._recorder = recorder
        self.ours = ours if ours is not None else Ours(cache)
        self._remake = remake
        self._binder = Binder(api, self.room, self._not_bound, settings=settings.scheduler)
        self._claims = Claims(api, cache, self.core, self._not_bound, settings=settings.volumes)
        self._devices = DeviceClaims(api, cache, self.core, self._not_bound, settings=settings.devices)
        self._wake = asyncio.Event()
        self._wake.set()
        self._alarm: asyncio.TimerHandle | None = None
        #: for parts of gangs that are not applied yet
        self.reservations = Reservations(api, cache, self.core, promise=promise, handle=self._handle)
        self._binding: set[asyncio.Task[None]] = set()
        self._status: WorkQueue[str] = WorkQueue("podgroups", self._about)
        #: gang key -> when its status was last written
        self._written: dict[str, float] = {}
        #: gang key -> since when its status differs, where that may wait
        self._changed_at: dict[str, float] = {}
        #: gang key -> reason of the last event about it, and when
        self._told: dict[str, tuple[str, float]] = {}
        self._observers: list[Callable[[set[str]], None]] = []
        #: binding UIDs whose placement or wait changed by the pass that runs
        self._changed: set[str] = set()
        self._notices = Notices(api, cache, self.room, self.waits, recorder, settings=settings.notices)
        self._evictor = Evictor(api, cache, recorder, self._makes_room, settings=settings.scheduler)
        cache.budgets.on_change(self._forward(told.BudgetSet, told.BudgetGone))
        cache.nodes.on_change(self._forward(told.NodeSet, told.NodeGone))
        cache.hyper_nodes.on_change(self._forward(told.HyperNodeSet, told.HyperNodeGone))
        cache.claims.on_change(self._forward(told.ClaimSet, told.ClaimGone))
        cache.volumes.on_change(self._forward(told.VolumeSet, told.VolumeGone))
        cache.storage_classes.on_change(self._forward(told.StorageClassSet, told.StorageClassGone))
        cache.csi_nodes.on_change(self._forward(told.CsiNodeSet, told.CsiNodeGone))
        cache.queues.on_change(self._forward(told.QueueSet, told.QueueGone))
        cache.numa.on_change(self._forward(told.NumaSet, told.NumaGone))
        cache.zones.on_change(self._forward(partial(told.NumaSet, zones=True), partial(told.NumaGone, zones=True)))
        cache.koordinator.on_change(self._forward(told.KoordinatorSet, told.KoordinatorGone))
        cache.slices.on_change(self._forward(told.SliceSet, told.SliceGone))
        cache.taint_rules.on_change(self._forward(told.TaintRuleSet, told.TaintRuleGone))
        cache.device_classes.on_change(self._forward(told.DeviceClassSet, told.DeviceClassGone))
        cache.resource_claims.on_change(self._forward(told.ResourceClaimSet, told.ResourceClaimGone))
        cache.namespaces.on_change(self._namespace_changed)
        cache.pods.on_change(self._pod_changed)
        cache.pod_groups.on_change(self._group_changed)
        self.ours.on_change(self._look_at_all, self._look_at_owned)

    @property
    def room(self) -> Room:
        """Free amounts; only the core changes it."""
        return self.core.room

    @property
    def waits(self) -> Mapping[str, Wait]:
        """Gang key -> why its pods wait."""
        return self.core.waits

    def on_pass(self, observer: Callable[[set[str]], None]) -> None:
        """Call `observer(binding UIDs whose placement or wait changed)` after every pass and every burst of events."""
        self._observers.append(observer)

    # -- events ------------------------------------------------------------------------------------------------------

    def _forward(self, there: Callable[[Any], Event], gone: Callable[[str], Event]) -> Callable[[Any, Any], None]:
        """What tells the core that an object came, changed or went."""
        return lambda old, new: self._handle(there(new) if new is not None else gone(old.metadata.key))

    def _namespace_changed(self, old: Slim | None, new: Slim | None) -> None:
        if new is not None and (old is None or old.metadata.labels != new.metadata.labels):
            self._handle(told.NamespaceSet(new.metadata.name, new.metadata.labels))
        elif new is None and old is not None:
            self._handle(told.NamespaceGone(old.metadata.name))

    def configure(self, event: told.Configured | told.Measured) -> None:
        """Prefer other nodes from now on."""
        self._handle(event)

    @property
    def use_matters(self) -> bool:
        """Whether nodes are preferred by how much of them is in use."""
        return self.room.arrays.use_matters or "usage" in self.room.arrays.scoring.terms

    def use_nodes(self, selector: str) -> None:
        """Place on nodes with these labels and no others from now on."""
        self._handle(told.NodesUsed(selector))

    def _look_at_all(self) -> None:
        self._tell_of(self._cache.pods)
        for group in self._cache.pod_groups:
            self._group_changed(group, group)

    def _look_at_owned(self, uid: str) -> None:
        self._tell_of(self._cache.pods.by_index("owner", uid))

    def _tell_of(self, pods: Iterable[Pod]) -> None:
        for pod in list(pods):
            self._pod_changed(pod, pod)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if new is not None:
            self._handle(told.PodSet(new, self._whose(new)))
        elif old is not None:
            self._handle(told.PodGone(old.metadata.key))

    def _whose(self, pod: Pod) -> Whose:
        if self.ours.pod(pod):
            return Whose.JOINING if serves(pod, self.ours.pod) else Whose.OURS
        return Whose.LET_GO if self.ours.was_held(pod) else Whose.OTHERS

    def _group_changed(self, old: PodGroup | None, new: PodGroup | None) -> None:
        group = new or old
        assert group is not None
        key = group.metadata.key
        if new is None:
            for memory in (self._written, self._changed_at, self._told):
                memory.pop(key, None)
        if is_plan(group):
            return
        self._handle(told.PodGroupSet(new, self.ours.group(new, ())) if new is not None else told.PodGroupGone(key))

    def _handle(self, event: Event) -> None:
        """Pass an event to the core, and carry out its commands."""
        commands = self.core.handle(event)
        self._log.record(event, commands)
        for command in commands:
            self._do(command)
        if self.core.due:
            self._wake.set()
        if type(event) in _MOVE_DEADLINES:
            self._set_alarm()

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if (deadline := self.core.deadline) is not None:
            self._alarm = asyncio.get_running_loop().call_at(deadline, self._wake.set)

    # -- passes ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Schedule until cancelled; the cache must have synced."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._status.run(self._write_status, workers=8))
            tasks.create_task(self._notices.run())
            tasks.create_task(self.reservations.run())
            # Nothing is placed before it is known which nodes are kept.
            await self.reservations.recalled.wait()
            self.reservations.start()
            while True:
                await self._wake.wait()
                # One that goes on lets others have their turn, and no more.
                await asyncio.sleep(0 if self.core.under_way else self._settings.scheduler.coalesce)
                self._wake.clear()
                self._pass()

    def _pass(self) -> None:
        again = self.room.grew and not self.core.under_way
        self._changed = set()
        self._handle(Pass(asyncio.get_running_loop().time(), time.time()))
        if again:
            # Messages of pods contain free amounts of nodes.
            for wait in self.waits.values():
                self._notices.waiting(wait)
        for key in self.core.looked_at:
            if not gangs.bare_pod(key):
                self._status.add(key, after=self._settings.scheduler.coalesce)
        for observer in self._observers:
            observer(self._changed)

    # -- commands ----------------------------------------------------------------------------------------------------

    def _do(self, command: Command) -> None:
        match command:
            case Bind(gang, pods, reserves):
                where = [(self._cache.pods.store[key], node) for key, _, node in pods]
                self._start(gang, where, reserves)
            case Deallocate(claim):
                self._go_on(self._devices.give_back(command), f"deallocate {claim}")
            case Explain(gang, reason):
                if reason:
                    self._explain(self.waits[gang], reworded=command.reworded)
            case Remake(key, uid):
                pod = self._cache.pods.get(key)
                if pod is not None and pod.metadata.uid == uid:
                    log.warning("not bound in time", pod=key, node=pod.planned_node, scheduler=pod.scheduler)
                    self._remake(pod)
            case Answer():
                self.reservations.answered(command)
            case Evict():
                self._evictor.evict(command)
            case Nominate():
                self._evictor.nominate(command)
            case Changed(bindings):
                self._changed.update(bindings)

    def _explain(self, wait: Wait, *, reworded: bool) -> None:
        if wait.error is not None:
            log.error("a gang can't be planned, will try again", **self._about(wait.gang.key), exc_info=wait.error)
        if reworded:
            self._tell(wait)
        self._notices.waiting(wait)

    def _makes_room(self, gang: str, uid: str) -> bool:
        nomination = self.core.nominations.get(gang)
        return nomination is not None and uid in nomination.victims.values()

    def _start(self, gang: str, pods: list[tuple[Pod, str]], reserves: Sequence[Reserve]) -> None:
        self._go_on(self._bind(gang, pods, reserves), f"bind {gang}")
        if not gangs.bare_pod(gang):
            self._status.add(gang)

    def _go_on(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._binding.add(task)
        task.add_done_callback(self._binding.discard)

    async def _bind(self, gang: str, pods: list[tuple[Pod, str]], reserves: Sequence[Reserve]) -> None:
        try:
            with working_on(**self._about(gang)):
                bound = await self._claims.provide(pods)
                if not bound:
                    # What makes volumes gets a moment before it is asked for others.
                    await asyncio.sleep(self._settings.volumes.pause)
                bound = bound and await self._devices.provide(pods, reserves)
                bound = bound and await self._binder.bind(pods)
        except Exception:
            log.exception("binding failed", **self._about(gang))
            self._not_bound(pod for pod, _ in pods)
            bound = False
        if not bound:
            self._handle(told.Again(gang))

    def _not_bound(self, pods: Iterable[Pod]) -> None:
        self._handle(told.NotBound(tuple((pod.metadata.key, pod.metadata.uid) for pod in pods)))

    def _about(self, key: str) -> dict[str, str]:
        return _log_fields(key, self._cache.pod_groups.get(key))

    # -- what people see ---------------------------------------------------------------------------------------------

    def _tell(self, wait: Wait) -> None:
        key, group = wait.gang.key, wait.gang.group
        if group is not None:
            late = wait.reason == planner.NOT_ENOUGH_TASKS
            self._status.add(key, after=self._settings.scheduler.tasks_after if late else 0.0)
            if late:
                return
        if group is None:
            return
        told, now = self._told.get(key), time.monotonic()
        if told is not None and told[0] == wait.reason and now - told[1] < self._settings.scheduler.tell_after:
            return
        self._told[key] = (wait.reason, now)
        meta = group.metadata
        about = reference(POD_GROUPS, meta.namespace, meta.name, meta.uid)
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
            self._status.add(key, after=self._settings.scheduler.tasks_after)
            return
        wanted = group_status(group, pods, self.room, wait, now)
        present = group.status
        if all(present.get(name) == value for name, value in wanted.items()):
            return
        if not wait and not pods and not present:
            return
        pause = self._pause(key, wanted, present, waits=wait is not None or self._late(group, now))
        if pause > 0:
            self._status.add(key, after=pause)
            return
        self._changed_at.pop(key, None)
        self._written[key] = clock
        try:
            patch: Json = {"metadata": {"uid": group.metadata.uid}, "status": wanted}
            if group.binding_uid:
                # Atoll made it; records of who wrote which field cost half as much again.
                patch["metadata"]["managedFields"] = [{}]
            await self._api.merge_patch(POD_GROUPS, group.metadata.name, patch, group.metadata.namespace)
        except errors.NotFound:
            self._written.pop(key, None)

    def _pause(self, key: str, wanted: Json, present: Mapping[str, Any], *, waits: bool) -> float:
        """Seconds until this change is written: the first sign of a gang that waits, and each end, at once."""
        settings, clock = self._settings.scheduler, asyncio.get_running_loop().time()
        if present.get("phase") == wanted["phase"]:
            same = present.get("conditions") == wanted["conditions"]
            pause = settings.counts_after if same else settings.message_after
            return self._written[key] + pause - clock if key in self._written else 0.0
        pauses = {"Running": settings.running_after, "Pending": 0.0 if waits or present else settings.tasks_after}
        if not (pause := pauses.get(wanted["phase"], 0.0)):
            return 0.0
        pause = max(pause, self._api.pace.delay(len(self._binding)))
        return self._changed_at.setdefault(key, clock) + pause - clock

    def _late(self, group: PodGroup, now: float) -> bool:
        # Creation times have whole seconds.
        created = gangs.age(group.metadata.creation_timestamp, now)
        return bool(group.status) or created > 1.0 + self._settings.scheduler.tasks_after


def _log_fields(key: str, group: PodGroup | None) -> dict[str, str]:
    """What log lines about a gang say: itself, and the workload that it belongs to."""
    if name := gangs.bare_pod(key):
        return {"workload": name}
    owners = group.metadata.owner_references if group is not None else []
    name = next((owner.name for owner in owners if owner.controller), "")
    return {"pod_group": key, "workload": f"{key.partition('/')[0]}/{name}" if name else key}
