"""Which pods go where in a member: events in, commands out; no input, no output, no clock.

A pass decides on a bounded number of gangs, so that the shell gets its turn; the next one goes on where it ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec

from atoll.agent.objects import Pod
from atoll.agent.scheduler.core import gangs, planner
from atoll.agent.scheduler.core.aside import Aside
from atoll.agent.scheduler.core.commands import Answer, Bind, Changed, Command, Explain, Remake
from atoll.agent.scheduler.core.events import (
    Again,
    BudgetGone,
    BudgetSet,
    ClaimGone,
    ClaimSet,
    Configured,
    Event,
    Granted,
    HoldAdopted,
    HoldAsked,
    NotBound,
    Pass,
    PodGone,
    PodGroupGone,
    PodGroupSet,
    PodSet,
    QueueGone,
    QueueSet,
    Released,
    ResourceClaimGone,
    ResourceClaimSet,
    SpotsExpected,
    StorageClassGone,
    StorageClassSet,
    VolumeGone,
    VolumeSet,
    Whose,
)
from atoll.agent.scheduler.core.evictions import Evictions
from atoll.agent.scheduler.core.expected import Expected
from atoll.agent.scheduler.core.gangs import Standing
from atoll.agent.scheduler.core.grants import Grants
from atoll.agent.scheduler.core.holds import Holds
from atoll.agent.scheduler.core.index import index
from atoll.agent.scheduler.core.kept import Kept
from atoll.agent.scheduler.core.lifted import Lifted
from atoll.agent.scheduler.core.mounts import Mounts, claims_of
from atoll.agent.scheduler.core.node_events import NodeEvents
from atoll.agent.scheduler.core.nominations import Nominations
from atoll.agent.scheduler.core.planner import Parked, Plan, Wait
from atoll.agent.scheduler.core.queues import Queues
from atoll.agent.scheduler.core.resource_claims import ResourceClaims
from atoll.agent.scheduler.core.room import Room
from atoll.agent.scheduler.core.roster import Roster
from atoll.agent.scheduler.core.settings import MemberCoreSettings
from atoll.agent.volumes import IN_USE
from atoll.fit import Placement, place


class MemberCore:
    """Places the gangs of a member; one per member, or two would overbook nodes. Nothing else changes its state."""

    def __init__(self, settings: MemberCoreSettings = MemberCoreSettings()) -> None:
        """Begin without nodes and pods."""
        self._settings = settings
        #: pods and PodGroups as last reported
        self.roster = Roster()
        self.room = Room(hami=settings.hami)
        self.holds = Holds(self.room, settings.holds)
        #: gang key -> why its pods wait; only of gangs with pods that wait
        self.waits: dict[str, Wait] = {}
        #: claims and their volumes, and the pods that mount them
        self.mounts = Mounts(self.room, self.roster.pod)
        #: claims of devices, and the pods that use them
        self.claims = ResourceClaims(self.room.devices)
        #: whether a pass would find something to do
        self.due = True
        #: gangs that the last pass looked at, for events were about them
        self.looked_at: list[str] = []
        self._expected = Expected()
        self._grants = Grants()
        self._lifted = Lifted(settings.lifted)
        self._parked = Parked()
        #: nodes that are kept for gangs while their victims leave
        self.nominations = Nominations(self.room)
        #: places that are kept for pods that the descheduler moves
        self.kept = Kept(self.room)
        self._node_events = NodeEvents(self.room, self.kept)
        #: of the member, for what entered there
        self.queues = Queues(self.room)
        #: of others, for gangs that do not fit
        self._evictions = Evictions(
            self.room, self.roster, self.nominations, self._grants, self._mark, settings.preemption
        )
        #: gangs that must be looked at, in the order in which that was found; not planned before
        self._dirty: dict[str, None] = {}
        #: gang key -> its standing; gangs with waiting pods at the last look
        self._pending: dict[str, Standing] = {}
        #: gang keys that could not be looked at or planned for a defect of ours; each is in `waits`
        self._aside = Aside(settings.aside)
        #: rest of the pass under way; None between two
        self._outcomes: Iterator[Plan | Wait] | None = None
        #: whether the last pass refused a hold that had nodes
        self._lost = False
        #: binding UIDs whose wait changed since its last report
        self._reworded: set[str] = set()
        self._now = 0.0
        #: whether there was a pass
        self._began = False

    @property
    def deadline(self) -> float | None:
        """When a pass finds something to do though nothing happens before; None for never."""
        heat = self._node_events.heat
        parts = (self.holds, self._lifted, self._aside, self.nominations, self.queues, self.kept, heat)
        found = [part.deadline for part in parts]
        return min((each for each in found if each is not None), default=None)

    @property
    def under_way(self) -> bool:
        """Whether the last pass left gangs for the next one."""
        return self._outcomes is not None

    def handle(self, event: Event) -> list[Command]:
        """Take in what happened, and decide where it is a `Pass`."""
        commands: list[Command] = []
        match event:
            case PodSet():
                self._pod_changed(event.pod.metadata.key, event)
            case PodGone(key):
                self._pod_changed(key, None)
            case PodGroupSet():
                self._group_changed(event.group.metadata.key, event)
            case PodGroupGone(key):
                self._group_changed(key, None)
            case Configured(scoring, preempts, waiting_time):
                self.room.arrays.scoring_changed(scoring)
                if waiting_time != self.queues.waiting_time:
                    self.queues.waiting_time = waiting_time
                    self._look_at_waiting()
                if preempts != self._evictions.allowed:
                    self._evictions.allowed = preempts
                    self._look_again_for_victims()
            case QueueSet(queue):
                if self.queues.changed(queue.metadata.name, queue):
                    self._look_at_waiting()
            case QueueGone(name):
                if self.queues.changed(name, None):
                    self._look_at_waiting()
            case ClaimSet() | ClaimGone() | VolumeSet() | VolumeGone() | StorageClassSet() | StorageClassGone():
                self._look_at_claims(self.mounts.changed(event))
            case ResourceClaimSet(claim):
                self._look_at_users(self.claims.changed(claim.metadata.key, claim))
            case ResourceClaimGone(key):
                self._look_at_users(self.claims.changed(key, None))
            case BudgetSet(budget):
                if self._evictions.budget_changed(budget.metadata.key, budget):
                    self._look_again_for_victims()
            case BudgetGone(key):
                if self._evictions.budget_changed(key, None):
                    self._look_again_for_victims()
            case HoldAsked(uid, epoch, gang, name, namespace, now, gone):
                if gone is None:
                    self.kept.drop(uid)
                self.holds.hold(uid, epoch, gang, name, namespace, now, gone=gone)
            case HoldAdopted(plan, namespace, settled, now):
                self.holds.adopt(plan, namespace, settled, now)
            case SpotsExpected(uid, epoch, spots):
                self._expected.expect(uid, epoch, spots)
            case Granted(uid, epoch, gang):
                self._mark(*sorted(self._grants.grant(uid, epoch, gang)))
            case Released(uid):
                self._expected.forget(uid)
                self._grants.forget(uid)
                self.holds.release(uid)
            case NotBound(pods):
                self._not_bound(pods)
            case Again(gang):
                self._mark(gang)
            case Pass(now, clock):
                self._now = now
                self.queues.tell_time(now, clock)
                self.kept.expire(now, clock)
                self._node_events.heat.expire(now, clock)
                self._pass(commands)
            case _:
                self.due = self._node_events.take(event) or self.due
        self._answer(commands)
        return commands

    # -- events ------------------------------------------------------------------------------------------------------

    def _look_at_users(self, claims: Iterable[str]) -> None:
        """The pods of these ResourceClaims may start now, or no more."""
        self._mark_unbound(self.claims.users_of(claims))
        self.due = self.due or self.room.grew

    def _pod_changed(self, key: str, told: PodSet | None) -> None:
        before = self.roster.put_pod(key, told)
        old, new = _placed(before), _placed(told)
        if told is None and before is not None:
            self._evictions.stuck.discard(before.pod.metadata.uid)
        self._lifted.pod_changed(old, new)
        # Most often an echo of its own command.
        alike = old is not None and new is not None and new.placed_alike(old) and not new.planned_node
        if not alike:
            self.room.pod_changed(old, new)
        elif before is not None and told is not None and told.whose == before.whose:
            return
        self._charge(key, told)
        if told is not None and told.pod.node and (old is None or not old.node) and _is_delegated(told):
            self.holds.bound_by_others(told.pod)
        now = gangs.key_of(new) if new is not None else ""
        was = gangs.key_of(old) if old is not None else now
        if old is None or was != now or _claims(old) != _claims(new):
            for pod, gang in ((old, was), (new, now)):
                if pod is not None:
                    index(self.roster.gangs, gang, key, there=pod is new)
                    self.mounts.index(pod, there=pod is new)
                    self.claims.index(pod, there=pod is new)
        if old is not None and old.claims and (new is None or new.finished):
            self._look_at_claims(claims_of(old))
        if was != now:
            self._mark(was)
        if now:
            self._mark(now)

    def _group_changed(self, key: str, told: PodGroupSet | None) -> None:
        before = self.roster.put_group(key, told)
        if told is None or before is None or before.group.spec.queue != told.group.spec.queue:
            for name in self.roster.gangs.get(key, ()):
                self._charge(name, self.roster.pods[name])
        alike = before is not None and told is not None and before.group.spec == told.group.spec
        if not alike or (before is not None and told is not None and before.ours != told.ours):
            self._mark(key)

    def _charge(self, key: str, told: PodSet | None) -> None:
        """Charge a pod that has a node to its queue, where it entered here; else count it as granted."""
        self._count(key, told)
        entered = told is not None and told.whose is not Whose.OTHERS and not told.pod.binding_uid
        pod = told.pod if told is not None and entered and not told.pod.finished else None
        if pod is not None and (pod.node or self.room.node_of(pod)):
            group = self.roster.group(gangs.key_of(pod))
            self.queues.charge(pod, group.spec.queue if group is not None else "")
        else:
            self._uncharge(key)

    def _count(self, key: str, told: PodSet | None) -> None:
        pod = told.pod if told is not None else None
        holds = pod is not None and not (pod.finished or pod.terminating) and (pod.node or self.room.node_of(pod))
        self._mark(*sorted(self._grants.count(key, pod if holds else None)))

    def _uncharge(self, key: str) -> None:
        if self.queues.release(key):
            self._mark(*self.queues.capped())

    def _look_at_waiting(self) -> None:
        self._mark(*self.waits, *self.queues.capped())

    def _look_again_for_victims(self) -> None:
        """More may be evicted now, of what gangs wait for."""
        self._evictions.hopeless.clear()
        self._mark(*(gang for gang, wait in self.waits.items() if wait.shape is not None))

    def _look_at_claims(self, claims: Iterable[str]) -> None:
        """Pods that mount one of these may wait for another reason now."""
        self._mark_unbound(self.mounts.users_of(claims))

    def _mark_unbound(self, pods: Iterable[str]) -> None:
        for key in pods:
            if not self.roster.pods[key].pod.node:
                self._mark(gangs.key_of(self.roster.pods[key].pod))

    def _not_bound(self, pods: Iterable[tuple[str, str]]) -> None:
        for key, uid in pods:
            known = self.roster.pods.get(key)
            if known is not None and known.pod.metadata.uid == uid and self.room.forget(known.pod):
                self._uncharge(key)
                self._count(key, known)
                self._look_at_claims(claims_of(known.pod))
                self.due = True

    def _mark(self, *gangs: str) -> None:
        self._dirty |= dict.fromkeys(gangs)
        self.due = self.due or bool(gangs)

    # -- passes ------------------------------------------------------------------------------------------------------

    def _pass(self, commands: list[Command]) -> None:
        if not self._began:
            self._began = True
            self.room.numa.begin()
        self.due, self.looked_at, self._evictions.searches = False, [], 0
        self.room.devices.begin_pass()
        if self._outcomes is None:
            views = self._candidates(commands)
            self._outcomes = planner.plan(
                self.room,
                views,
                self._parked,
                self.holds,
                self._expected,
                self._dirty.__contains__,
                self.nominations,
                self.queues,
                self._grants,
                self.kept,
            )
        some = 0
        # One by one: the next gang must see the slots of this one.
        for outcome in islice(self._outcomes, self._settings.gangs):
            some += 1
            self._take(outcome, commands)
        if some < self._settings.gangs:
            self._outcomes = None
        # Gangs that devices were not looked at for are looked at again.
        self.room.grew = self.room.grew or self.room.devices.unfinished
        self.due = self.due or self._outcomes is not None or self.room.grew or self._lost
        if changed := self.room.touched | self._reworded:
            commands.append(Changed(tuple(sorted(changed))))
            self.room.touched, self._reworded = set(), set()

    def _candidates(self, commands: list[Command]) -> list[Standing]:
        """The gangs to decide on."""
        # 1. Reservations first: they were asked for before the pods that come now. The check comes last, so that a
        # lost one is reported as refused before the next pass tries it again.
        self.holds.expire(self._now)
        if self.room.grew or self._lost:
            self.holds.retry()
        self._lost = self.holds.check()
        # 2. Nodes are kept no longer for pods that another scheduler did not bind in time.
        for pod in self._lifted.overdue(self._now):
            self.room.give_up(pod)
            self._mark(gangs.key_of(pod))
            commands.append(Remake(pod.metadata.key, pod.metadata.uid))
        self._mark(*self.nominations.overdue(self._now), *self.queues.overdue(self._now))
        # 3. Look again at gangs that events were about, and at gangs whose pause is over.
        dirty = self._dirty | dict.fromkeys(self._aside.over(self._now))
        self._dirty.clear()
        self.looked_at = list(dirty)
        for key in dirty:
            self._look(key, commands)
        # 4. All waiting gangs get a try when capacity grew; else only changed ones. Failed ones have their pause.
        again = self.room.grew
        if again:
            self.room.grew, self._parked = False, Parked()
            self._evictions.hopeless.clear()
        views = list(self._pending.values()) if again else [self._pending[key] for key in dirty if key in self._pending]
        return [view for view in views if not self._aside.pauses(view.key)]

    def _take(self, outcome: Plan | Wait, commands: list[Command]) -> None:
        key = outcome.gang.key
        if isinstance(outcome, Wait):
            if outcome.error is None:
                self._aside.forget(key)
                try:
                    outcome = self._evictions.preempt(outcome, self._now, commands)
                except Exception as error:
                    outcome = planner.failed(outcome.gang, error)
            self._keep_for(outcome)
            self._wait(outcome, commands)
            return
        self._aside.forget(key)
        if any(self.mounts.in_use(pod) for pod, _ in outcome.nodes):
            # One before it in this pass got the claim.
            for pod, _ in outcome.nodes:
                self.room.forget(pod)
            # It is looked at again once that pod goes.
            self._pending.pop(key, None)
            self._wait(Wait(outcome.gang, planner.VOLUMES, IN_USE), commands)
            return
        self._settle(key, commands)
        for pod, _ in outcome.nodes:
            self._charge(pod.metadata.key, self.roster.pods.get(pod.metadata.key))
        # What did not fit beside the plan is looked at again once the plan is known to the next view.
        if len(outcome.nodes) < len(outcome.gang.waiting):
            self._mark(key)
        where = tuple((p.metadata.key, p.metadata.uid, node) for p, node in outcome.nodes)
        commands.append(Bind(key, where, tuple(self.claims.reserves(pod for pod, _ in outcome.nodes))))

    def _keep_for(self, wait: Wait) -> None:
        """Let nothing else that entered here start before a gang that has waited too long for what these have."""
        view = wait.gang
        if wait.shape is None:
            self._let_others(self.queues.forget(view.key))
        elif not self.queues.lacks_room(view, self._now):
            self._let_others(self.queues.follow(view.key))
        else:
            gang, _, within = planner.asked(self.room, view)
            if isinstance(place(self.room.nodes_but(self.queues.own), gang, within=within), Placement):
                self.queues.lead(view)
            else:
                self._let_others(self.queues.follow(view.key))

    def _let_others(self, waited: bool) -> None:
        """Try again what waited behind a gang."""
        if waited:
            self.room.grew = self.due = True

    def _wait(self, wait: Wait, commands: list[Command]) -> None:
        """Its pods stay where they are, and this is why."""
        key, before = wait.gang.key, self.waits.get(wait.gang.key)
        self.waits[key] = wait
        if wait.error is not None:
            self._aside.failed(key, self._now)
        told = (wait.reason, wait.message)
        reworded = before is None or (before.reason, before.message) != told
        if reworded:
            self._reworded |= {wait.gang.binding_uid} - {""}
        if reworded or wait.error is not None or before is None or _names(before) != _names(wait):
            commands.append(Explain(key, *told, reworded))

    def _settle(self, key: str, commands: list[Command]) -> None:
        """No pod of it waits, as far as is known."""
        self._evictions.forget(key, commands)
        self._let_others(self.queues.forget(key))
        self._pending.pop(key, None)
        before = self.waits.pop(key, None)
        if before is not None:
            self._reworded |= {before.gang.binding_uid} - {""}
            commands.append(Explain(key, "", ""))

    def _look(self, key: str, commands: list[Command]) -> None:
        try:
            wait = self.roster.look_at(key, self.room)
            if isinstance(wait, Standing):
                wait = self.mounts.narrowed(wait)
            if isinstance(wait, Standing):
                wait = self.claims.narrowed(wait)
        except Exception as error:
            pod = self.roster.pod(gangs.bare_pod(key))
            view = Standing(key, self.roster.group(key), [pod] if pod is not None else [])
            wait = planner.failed(view, error)
        if isinstance(wait, Standing):
            self._pending[key] = wait
            return
        self._pending.pop(key, None)
        if wait is not None:
            self._let_others(self.queues.forget(key))
            self._evictions.forget(key, commands)
            self._wait(wait, commands)
            commands += self.claims.left_over(wait.gang) if wait.reason == planner.DEVICES else ()
        else:
            self._settle(key, commands)
            self._aside.forget(key)

    def _answer(self, commands: list[Command]) -> None:
        """Tell what became of holds."""
        if not self.holds.changed:
            return
        changed, self.holds.changed = self.holds.changed, set()
        for uid in sorted(changed):
            hold = self.holds.get(uid)
            commands.append(Answer(uid, -1, "Over") if hold is None else hold.answer())
        self.due = True


def _placed(told: PodSet | None) -> Pod | None:
    """The pod as the `Room` sees it: the core itself knows the kept node of a pod that it places."""
    if told is None:
        return None
    if told.pod.nominated and told.whose in (Whose.OURS, Whose.JOINING):
        return msgspec.structs.replace(told.pod, nominated="")
    return told.pod


def _claims(pod: Pod | None) -> tuple[object, object] | None:
    return (pod.claims, pod.resource_claims) if pod is not None else None


def _is_delegated(told: PodSet) -> bool:
    """Whether it came by a binding and another scheduler decided alone where it goes."""
    return bool(told.pod.binding_uid) and not told.pod.planned_node and told.whose is Whose.OTHERS


def _names(wait: Wait) -> list[str]:
    return [pod.metadata.uid for pod in wait.gang.waiting]
