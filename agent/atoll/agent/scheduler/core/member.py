"""Which pods go where in a member: events in, commands out; no input, no output, no clock.

A pass decides on a bounded number of gangs, so that the shell gets its turn; the next one goes on where it ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

import msgspec

from atoll.agent.objects import Budget, Pod, PodGroup
from atoll.agent.scheduler.core import gangs, planner, preemption
from atoll.agent.scheduler.core.aside import Aside
from atoll.agent.scheduler.core.commands import Answer, Bind, Changed, Command, Evict, Explain, Nominate, Remake
from atoll.agent.scheduler.core.events import (
    Again,
    BudgetGone,
    BudgetSet,
    ClaimGone,
    ClaimSet,
    Configured,
    CsiNodeGone,
    CsiNodeSet,
    DeviceClassGone,
    DeviceClassSet,
    Event,
    Granted,
    HoldAdopted,
    HoldAsked,
    HyperNodeGone,
    HyperNodeSet,
    KoordinatorGone,
    KoordinatorSet,
    Measured,
    NamespaceGone,
    NamespaceSet,
    NodeGone,
    NodeSet,
    NodesUsed,
    NotBound,
    NumaGone,
    NumaSet,
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
    SliceGone,
    SliceSet,
    SpotsExpected,
    StorageClassGone,
    StorageClassSet,
    TaintRuleGone,
    TaintRuleSet,
    VolumeGone,
    VolumeSet,
    Whose,
)
from atoll.agent.scheduler.core.expected import Expected
from atoll.agent.scheduler.core.gangs import Standing
from atoll.agent.scheduler.core.grants import Grants
from atoll.agent.scheduler.core.heat import Heat
from atoll.agent.scheduler.core.holds import Holds
from atoll.agent.scheduler.core.index import Index, index
from atoll.agent.scheduler.core.kept import Kept
from atoll.agent.scheduler.core.lifted import Lifted, refusal
from atoll.agent.scheduler.core.mounts import Mounts, claims_of
from atoll.agent.scheduler.core.nominations import Nomination, Nominations
from atoll.agent.scheduler.core.planner import Parked, Plan, Wait
from atoll.agent.scheduler.core.queues import Queues
from atoll.agent.scheduler.core.resource_claims import ResourceClaims
from atoll.agent.scheduler.core.room import Room
from atoll.agent.scheduler.core.settings import MemberCoreSettings
from atoll.agent.volumes import IN_USE
from atoll.fit import Placement, place
from atoll.model import gpu_partitions, keys, koordinator
from atoll.model.gang import Task
from atoll.model.placer import parse_selector
from atoll.model.selectors import label_selector_matches


class MemberCore:
    """Places the gangs of a member; one per member, or two would overbook nodes. Nothing else changes its state."""

    def __init__(self, settings: MemberCoreSettings = MemberCoreSettings()) -> None:
        """Begin without nodes and pods."""
        self._settings = settings
        self.room = Room(hami=settings.hami)
        self.holds = Holds(self.room, settings.holds)
        #: gang key -> why its pods wait; only of gangs with pods that wait
        self.waits: dict[str, Wait] = {}
        #: claims and their volumes, and the pods that mount them
        self.mounts = Mounts(self.room, self.pod)
        #: claims of devices, and the pods that use them
        self.claims = ResourceClaims(self.room.devices)
        #: whether a pass would find something to do
        self.due = True
        #: gangs that the last pass looked at, for events were about them
        self.looked_at: list[str] = []
        self._pods: dict[str, PodSet] = {}
        #: gang key -> keys of its pods, in the order in which they came
        self._gangs: Index = {}
        self._groups: dict[str, PodGroupSet] = {}
        self._expected = Expected()
        self._grants = Grants()
        self._lifted = Lifted(settings.lifted)
        self._parked = Parked()
        #: nodes that are kept for gangs while their victims leave
        self.nominations = Nominations(self.room)
        #: places that are kept for pods that the descheduler moves
        self.kept = Kept(self.room)
        #: nodes too hot for pods of low priority
        self._heat = Heat(self.room)
        #: of the member, for what entered there
        self.queues = Queues(self.room)
        self._budgets: dict[str, Budget] = {}
        #: whether the member's configuration lets others be evicted for gangs
        self._preempts = True
        #: UIDs of victims that did not leave in time: they free nothing for now
        self._stuck: set[str] = set()
        #: searches for victims in this pass
        self._searches = 0
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
        parts = (self.holds, self._lifted, self._aside, self.nominations, self.queues, self.kept, self._heat)
        found = [part.deadline for part in parts]
        return min((each for each in found if each is not None), default=None)

    @property
    def under_way(self) -> bool:
        """Whether the last pass left gangs for the next one."""
        return self._outcomes is not None

    def pod(self, key: str) -> Pod | None:
        """The pod as last reported; None where it is gone."""
        found = self._pods.get(key)
        return found.pod if found is not None else None

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
            case NodeSet() | NodeGone() | NodesUsed() | HyperNodeSet() | HyperNodeGone():
                self._nodes_changed(event)
            case Configured(scoring, preempts, waiting_time):
                self.room.arrays.scoring_changed(scoring)
                if waiting_time != self.queues.waiting_time:
                    self.queues.waiting_time = waiting_time
                    self._look_at_waiting()
                if preempts != self._preempts:
                    self._preempts = preempts
                    self._look_again_for_victims()
            case QueueSet(queue):
                if self.queues.changed(queue.metadata.name, queue):
                    self._look_at_waiting()
            case QueueGone(name):
                if self.queues.changed(name, None):
                    self._look_at_waiting()
            case Measured(uses):
                self.room.arrays.measured(uses)
            case ClaimSet() | ClaimGone() | VolumeSet() | VolumeGone() | StorageClassSet() | StorageClassGone():
                self._look_at_claims(self.mounts.changed(event))
            case CsiNodeSet(csi_node):
                self.room.limits_changed(csi_node.metadata.name, csi_node.limits)
                self.due = self.due or self.room.grew
            case CsiNodeGone(name):
                self.room.limits_changed(name, {})
                self.due = self.due or self.room.grew
            case NumaSet(numa, zones):
                self.room.numa_changed(numa.metadata.name, numa, zones=zones)
                self.due = self.due or self.room.grew
            case NumaGone(name, zones):
                self.room.numa_changed(name, None, zones=zones)
                self.due = self.due or self.room.grew
            case KoordinatorSet(device):
                about = device.metadata
                table = gpu_partitions.of_device(about.annotations, about.labels)
                self.room.koordinator_changed(about.name, koordinator.devices(device.spec), table)
                self.due = self.due or self.room.grew
            case KoordinatorGone(name):
                self.room.koordinator_changed(name, {})
            case SliceSet() | SliceGone() | DeviceClassSet() | DeviceClassGone() | TaintRuleSet() | TaintRuleGone():
                self._devices_changed(event)
            case ResourceClaimSet(claim):
                self._look_at_users(self.claims.changed(claim.metadata.key, claim))
            case ResourceClaimGone(key):
                self._look_at_users(self.claims.changed(key, None))
            case BudgetSet(budget):
                self._budget_changed(budget.metadata.key, budget)
            case BudgetGone(key):
                self._budget_changed(key, None)
            case NamespaceSet(name, labels):
                self.room.namespace_changed(name, labels)
                self.due = self.due or self.room.grew
            case NamespaceGone(name):
                self.room.namespace_changed(name, None)
            case HoldAsked(uid, epoch, gang, name, namespace, now, gone):
                if gone is None:
                    self.kept.drop(uid)
                self.holds.hold(uid, epoch, gang, name, namespace, now, gone=gone)
            case HoldAdopted(plan, namespace, settled, now):
                self.holds.adopt(plan, namespace, settled, now)
            case SpotsExpected(uid, epoch, spots):
                self._expected.expect(uid, epoch, spots)
            case Granted(uid, epoch, gang):
                self._mark_all(self._grants.grant(uid, epoch, gang))
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
                self._heat.expire(now, clock)
                self._pass(commands)
        self._answer(commands)
        return commands

    # -- events ------------------------------------------------------------------------------------------------------

    def _nodes_changed(self, event: NodeSet | NodeGone | NodesUsed | HyperNodeSet | HyperNodeGone) -> None:
        room, version = self.room, self.room.version
        match event:
            case NodeSet(node):
                room.node_changed(node.metadata.name, self._heat.node_changed(node))
                self.kept.node_changed(node.metadata.name, node.metadata.annotations.get(keys.KEPT_PLACES, ""))
            case NodeGone(name):
                room.node_changed(name, None)
                self.kept.node_changed(name, "")
                self._heat.node_gone(name)
            case NodesUsed(text):
                selector = parse_selector(text)
                room.use_nodes(lambda node: label_selector_matches(selector, node.metadata.labels))
            case HyperNodeSet(domain):
                room.hyper_node_changed(domain.metadata.name, domain)
            case HyperNodeGone(name):
                room.hyper_node_changed(name, None)
        self.due = self.due or room.version != version

    def _devices_changed(
        self, event: SliceSet | SliceGone | DeviceClassSet | DeviceClassGone | TaintRuleSet | TaintRuleGone
    ) -> None:
        book = self.room.devices
        match event:
            case SliceSet(found):
                book.slice_changed(found.metadata.name, found)
            case SliceGone(name):
                book.slice_changed(name, None)
            case DeviceClassSet(made):
                book.class_changed(made.metadata.name, made)
            case DeviceClassGone(name):
                book.class_changed(name, None)
            case TaintRuleSet(rule):
                book.rule_changed(rule.metadata.name, rule)
            case TaintRuleGone(name):
                book.rule_changed(name, None)
        self.due = self.due or self.room.grew

    def _look_at_users(self, claims: Iterable[str]) -> None:
        """The pods of these ResourceClaims may start now, or no more."""
        for key in self.claims.users_of(claims):
            if not self._pods[key].pod.node:
                self._mark(gangs.key_of(self._pods[key].pod))
        self.due = self.due or self.room.grew

    def _pod_changed(self, key: str, told: PodSet | None) -> None:
        before = self._pods.get(key)
        old, new = _placed(before), _placed(told)
        if told is not None:
            self._pods[key] = told
        else:
            self._pods.pop(key, None)
            self._stuck.discard(before.pod.metadata.uid if before is not None else "")
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
                    index(self._gangs, gang, key, there=pod is new)
                    self.mounts.index(pod, there=pod is new)
                    self.claims.index(pod, there=pod is new)
        if old is not None and old.claims and (new is None or new.finished):
            self._look_at_claims(claims_of(old))
        if was != now:
            self._mark(was)
        if now:
            self._mark(now)

    def _group_changed(self, key: str, told: PodGroupSet | None) -> None:
        before = self._groups.get(key)
        if told is not None:
            self._groups[key] = told
        else:
            self._groups.pop(key, None)
        if told is None or before is None or before.group.spec.queue != told.group.spec.queue:
            for name in self._gangs.get(key, ()):
                self._charge(name, self._pods[name])
        alike = before is not None and told is not None and before.group.spec == told.group.spec
        if not alike or (before is not None and told is not None and before.ours != told.ours):
            self._mark(key)

    def _budget_changed(self, key: str, budget: Budget | None) -> None:
        before = self._budgets.pop(key, None)
        if budget is not None:
            self._budgets[key] = budget
        alike = before is not None and budget is not None and before.spec == budget.spec
        if not (alike and before is not None and budget is not None and before.status == budget.status):
            self._look_again_for_victims()

    def _charge(self, key: str, told: PodSet | None) -> None:
        """Charge a pod that has a node to its queue, where it entered here; else count it as granted."""
        self._count(key, told)
        if told is None or told.whose is Whose.OTHERS or told.pod.binding_uid or told.pod.finished:
            self._uncharge(key)
        elif told.pod.node or self.room.node_of(told.pod):
            group = self._group(gangs.key_of(told.pod))
            self.queues.charge(told.pod, group.spec.queue if group is not None else "")
        else:
            self._uncharge(key)

    def _count(self, key: str, told: PodSet | None) -> None:
        pod = told.pod if told is not None else None
        holds = pod is not None and not (pod.finished or pod.terminating) and (pod.node or self.room.node_of(pod))
        self._mark_all(self._grants.count(key, pod if holds else None))

    def _mark_all(self, keys: Iterable[str]) -> None:
        for gang in sorted(keys):
            self._mark(gang)

    def _uncharge(self, key: str) -> None:
        if self.queues.release(key):
            for gang in self.queues.capped():
                self._mark(gang)

    def _look_at_waiting(self) -> None:
        for gang in (*self.waits, *self.queues.capped()):
            self._mark(gang)

    def _look_again_for_victims(self) -> None:
        """More may be evicted now, of what gangs wait for."""
        self._parked.hopeless.clear()
        for gang, wait in self.waits.items():
            if wait.shape is not None:
                self._mark(gang)

    def _look_at_claims(self, claims: Iterable[str]) -> None:
        """What pods wait for that mount one of these may be another thing now."""
        for key in self.mounts.users_of(claims):
            if not self._pods[key].pod.node:
                self._mark(gangs.key_of(self._pods[key].pod))

    def _not_bound(self, pods: Iterable[tuple[str, str]]) -> None:
        for key, uid in pods:
            known = self._pods.get(key)
            if known is not None and known.pod.metadata.uid == uid and self.room.forget(known.pod):
                self._uncharge(key)
                self._count(key, known)
                self._look_at_claims(claims_of(known.pod))
                self.due = True

    def _mark(self, gang: str) -> None:
        self._dirty[gang] = None
        self.due = True

    # -- passes ------------------------------------------------------------------------------------------------------

    def _pass(self, commands: list[Command]) -> None:
        if not self._began:
            self._began = True
            self.room.numa.begin()
        self.due, self.looked_at, self._searches = False, [], 0
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
        for gang in (*self.nominations.overdue(self._now), *self.queues.overdue(self._now)):
            self._mark(gang)
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
        views = list(self._pending.values()) if again else [self._pending[key] for key in dirty if key in self._pending]
        return [view for view in views if not self._aside.pauses(view.key)]

    def _take(self, outcome: Plan | Wait, commands: list[Command]) -> None:
        key = outcome.gang.key
        if isinstance(outcome, Wait):
            if outcome.error is None:
                self._aside.forget(key)
                try:
                    outcome = self._preempt(outcome, commands)
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
            self._charge(pod.metadata.key, self._pods.get(pod.metadata.key))
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

    def _preempt(self, wait: Wait, commands: list[Command]) -> Wait:
        """Evict others for a gang that does not fit, where that is allowed and helps; its new wait."""
        view, key = wait.gang, wait.gang.key
        nomination = self.nominations.get(key)
        if nomination is not None:
            left = self.nominations.left(nomination, self.room.uid_on)
            waiting = {pod.metadata.uid for pod in view.waiting}
            if left and self._now < nomination.deadline and all(uid in waiting for _, uid, _ in nomination.spots):
                return replace(wait, message=f"{wait.message}; {_leaving(nomination, left)}")
            if left:
                self._stuck.update(nomination.victims.values())
            self._forget_nomination(key, commands)
        settings = self._settings.preemption
        allowed = settings.enabled and self._preempts and view.missing and not any(pod.held for pod in view.waiting)
        if wait.shape is None or not allowed:
            return wait
        if not (all(pod.preempts for pod in view.waiting) and self._grants.preempts(view.binding_uid)):
            return replace(wait, message=f"{wait.message}; preemption: not eligible due to preemptionPolicy=Never")
        shape = (*wait.shape, view.priority)
        if shape in self._parked.hopeless:
            return wait
        if self._searches >= settings.searches:
            self._mark(key)
            return wait
        self._searches += 1
        found = self._search(view)
        if found is None:
            self._parked.hopeless.add(shape)
            return wait
        self._evict(view, found, commands)
        nomination = self.nominations.get(key)
        assert nomination is not None
        return replace(wait, message=f"{wait.message}; {_leaving(nomination, len(nomination.victims))}")

    def _search(self, view: Standing) -> Nomination | None:
        """Nodes to keep for a gang, and the victims that leave for it; nodes of lower gangs are not in its way."""
        victims = [
            victim
            for key, names in self._gangs.items()
            if key != view.key and (victim := self._victim(key, names)) is not None and victim.priority < view.priority
        ]
        leaving = [key for key in self.room.leaving() if self.room.uid_on(key) not in self._stuck]
        if not victims and not leaving:
            return None
        lifted = self.nominations.lift(view.key, view.priority)
        try:
            gang, pods, within = planner.asked(self.room, view)
            settings = self._settings.preemption
            way = preemption.find(self.room, gang, within, victims, self._budgets, leaving, settings)
        finally:
            self.nominations.put_back(lifted)
        if way is None:
            return None
        spots = planner.spread(pods, way.nodes, way.placement)
        slots = [(gang.tasks[task], way.nodes.names[node], count) for task, node, count in way.placement.pods]
        again = any(pod.nominated for pod in view.waiting)
        if not way.victims and not again and not any(self._meets(each, slots) for each in lifted):
            # What leaves anyway is enough, and nothing else is to get it.
            return None
        goes = {pod.metadata.key: pod.metadata.uid for pod in way.victims}
        waited = {key: uid for key in way.awaited if (uid := self.room.uid_on(key)) is not None}
        graces = [self._pods[key].pod.grace for key in (*goes, *waited) if key in self._pods]
        return Nomination(
            view.key,
            view.priority,
            [(pod.metadata.key, pod.metadata.uid, node) for pod, node in spots],
            slots,
            {**waited, **goes},
            self._now + max(graces, default=0) + settings.patience,
        )

    def _victim(self, key: str, names: Iterable[str]) -> preemption.Victim | None:
        told = [self._pods[name] for name in names]
        pods = [each.pod for each in told if each.whose in (Whose.OURS, Whose.JOINING)]
        # One of which pods are on their way is not known yet.
        if len(pods) < len(told) or any(pod.metadata.key in self.room.assumed for pod in pods):
            return None
        return preemption.victim(key, self._group(key), pods)

    def _meets(self, lower: Nomination, slots: Sequence[tuple[Task, str, int]]) -> bool:
        return not {node for _, node, _ in lower.slots}.isdisjoint(node for _, node, _ in slots)

    def _evict(self, view: Standing, found: Nomination, commands: list[Command]) -> None:
        for lower in self.nominations.below(view.priority):
            if self._meets(lower, found.slots):
                self._forget_nomination(lower.gang, commands)
                self._mark(lower.gang)
        self.nominations.add(found)
        commands.append(Nominate(view.key, tuple(found.spots)))
        goes = tuple((key, uid) for key, uid in found.victims.items() if self._stays(key))
        if goes:
            name = gangs.bare_pod(view.key) or view.key
            kind = "pod" if gangs.bare_pod(view.key) else "PodGroup"
            commands.append(Evict(view.key, goes, f"Preempted by {kind} {name} of priority {view.priority}"))

    def _stays(self, key: str) -> bool:
        known = self._pods.get(key)
        return known is not None and not known.pod.terminating

    def _forget_nomination(self, key: str, commands: list[Command]) -> None:
        """Keep no nodes for the gang any more, and say so of its pods that still wait."""
        found = self.nominations.drop(key)
        told = [each for each in (found.spots if found is not None else ()) if self._is_unbound(*each[:2])]
        if told:
            commands.append(Nominate(key, tuple((name, uid, "") for name, uid, _ in told)))

    def _is_unbound(self, key: str, uid: str) -> bool:
        known = self._pods.get(key)
        return known is not None and known.pod.metadata.uid == uid and not self.room.node_of(known.pod)

    def _settle(self, key: str, commands: list[Command]) -> None:
        """No pod of it waits, as far as is known."""
        self._forget_nomination(key, commands)
        self._let_others(self.queues.forget(key))
        self._pending.pop(key, None)
        before = self.waits.pop(key, None)
        if before is not None:
            self._reworded |= {before.gang.binding_uid} - {""}
            commands.append(Explain(key, "", ""))

    def _look(self, key: str, commands: list[Command]) -> None:
        try:
            wait = self._look_at(key)
        except Exception as error:
            pod = self.pod(gangs.bare_pod(key))
            view = Standing(key, self._group(key), [pod] if pod is not None else [])
            wait = planner.failed(view, error)
        if isinstance(wait, Standing):
            self._pending[key] = wait
            return
        self._pending.pop(key, None)
        if wait is not None:
            self._let_others(self.queues.forget(key))
            self._forget_nomination(key, commands)
            self._wait(wait, commands)
            commands += self.claims.left_over(wait.gang) if wait.reason == planner.DEVICES else ()
        else:
            self._settle(key, commands)
            self._aside.forget(key)

    def _look_at(self, key: str) -> Standing | Wait | None:
        """Pods of a gang to plan, or the reason for none; None where nothing waits."""
        group, pods = self._groups.get(key), [self._pods[name] for name in self._gangs.get(key, ())]
        if gangs.bare_pod(key):
            # A pod that is to get a PodGroup is no gang on its own, and others' pods are none.
            if not pods or pods[0].whose in (Whose.JOINING, Whose.OTHERS):
                return None
        elif group is not None and not _is_ours(group, pods):
            return None
        ours = {told.pod.metadata.uid for told in pods if told.whose in (Whose.OURS, Whose.JOINING)}
        view = gangs.standing(
            key, self._group(key), [told.pod for told in pods], self.room, lambda pod: pod.metadata.uid in ours
        )
        if not gangs.bare_pod(key) and group is None:
            return Wait(view, planner.NO_POD_GROUP, f"PodGroup {key} does not exist") if view.waiting else None
        unbound = [p.pod for p in pods if p.pod.planned_node and not p.pod.finished and not self.room.is_bound(p.pod)]
        if not view.waiting and any(pod.unscheduled for pod in unbound):
            # Another scheduler was to bind these pods, and says that it can't.
            return Wait(view, planner.NOT_BOUND, refusal(unbound))
        if view.waiting:
            found = self.mounts.narrowed(view)
            return found if isinstance(found, Wait) else self.claims.narrowed(found)
        over = group is not None and group.group.status.get("phase") == "Completed"
        if not view.missing or over:
            return None
        return Wait(view, planner.NOT_ENOUGH_TASKS, f"{view.settled.total()} of {view.min_member} pods exist")

    def _group(self, key: str) -> PodGroup | None:
        found = self._groups.get(key)
        return found.group if found is not None else None

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


def _leaving(nomination: Nomination, left: int) -> str:
    return f"preemption: {left} of {len(nomination.victims)} victims have not ended yet"


def _is_delegated(told: PodSet) -> bool:
    """Whether it came by a binding and another scheduler decided alone where it goes."""
    return bool(told.pod.binding_uid) and not told.pod.planned_node and told.whose is Whose.OTHERS


def _is_ours(group: PodGroupSet, pods: Iterable[PodSet]) -> bool:
    """Whether some pod of the gang is or was this core's to place; without pods nothing else says."""
    known = list(pods)
    return any(told.whose is not Whose.OTHERS for told in known) if known else group.ours


def _names(wait: Wait) -> list[str]:
    return [pod.metadata.uid for pod in wait.gang.waiting]
