"""The whole verdict on one workload: its place, what blocks it with numbers, what would let it start.

Questions only: no question here changes a decision, which tests prove by histories with and without
questions. The cost follows the shapes in its queue and the members, not the number of waiting workloads.
"""

from __future__ import annotations

import bisect
import heapq
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

import msgspec

from atoll.dispatcher.core.admission import standing_verdict
from atoll.dispatcher.core.backfill.permits import QueueRules
from atoll.dispatcher.core.backfill.reservation import Reservation
from atoll.dispatcher.core.backlog.backlog import Key, differs, first_key, shared
from atoll.dispatcher.core.backlog.binding import Binding, withheld
from atoll.dispatcher.core.backlog.order import order_key
from atoll.dispatcher.core.capacity.member import Member
from atoll.dispatcher.core.capacity.members import Members
from atoll.dispatcher.core.capacity.shape import Shape, shape_key, shape_of
from atoll.dispatcher.core.elastic.resizing import Stop
from atoll.dispatcher.core.events import BindingView
from atoll.dispatcher.core.placement.choice import Choice, alone
from atoll.dispatcher.core.placement.choosing import choose
from atoll.dispatcher.core.preemption.candidates import Victim
from atoll.dispatcher.core.preemption.search import Plan, plan
from atoll.dispatcher.core.preemption.trial import Claimant
from atoll.dispatcher.core.quota.queue import Queue, Standing, path, subtree
from atoll.dispatcher.explain import relaxing
from atoll.dispatcher.explain.departures import departures
from atoll.dispatcher.explain.excess import exceeded, higher, limit_of
from atoll.dispatcher.explain.figures import figures
from atoll.dispatcher.explain.protection import protected
from atoll.dispatcher.explain.rooms import UNCORDON, Survey, domain_of, wrong_hyper_nodes
from atoll.fit import Placement, place
from atoll.fit.pods import joined
from atoll.model import keys, quantity, selectors
from atoll.model.decision import Phase
from atoll.model.flavors import SIGN
from atoll.model.gang import Gang
from atoll.model.plurals import counted
from atoll.model.query import Account, Change, ChangeKind, Limit, Named, Place, Position, Reserved
from atoll.model.queues import Strategy
from atoll.model.timestamps import rfc3339
from atoll.model.vector import Vector
from atoll.model.verdict import Blocker, Reason, Verdict, kind_for_people

if TYPE_CHECKING:
    from atoll.dispatcher.core.dispatcher import Dispatcher


def account(core: Dispatcher, uid: str, now: float | None = None) -> Account | None:
    """All about a binding; None when the core does not know it.

    Args:
        core: unchanged afterwards.
        uid: of the binding.
        now: seconds since the epoch; None for the time of the last pass.
    """
    binding = core.bindings.get(uid)
    if binding is None:
        return None
    found = _account(core, binding, core.state.now if now is None else now)
    return msgspec.structs.replace(found, figures=figures(binding.leaf))


def _account(core: Dispatcher, binding: Binding, now: float) -> Account:
    uid = binding.view.uid
    verdict = core.verdict(uid)
    if binding.shape is None:
        reason = verdict.reason if verdict is not None else binding.view.decision.reason
        said = verdict or Verdict(reason, binding.view.decision.blocker)
        return Account(
            phase=binding.phase.value,
            reason=reason.value,
            message=said.sentence(),
            blocker=said.blocker if said.reason is Reason.QUEUE_NOT_OPEN else None,
            since=_since(binding, said),
            changes=_by_itself(said),
        )
    look = _Look(core, binding, binding.shape, core.members)
    with core.reservations.untouched():
        outcome = look.outcome()
        if verdict is None:
            verdict = outcome if isinstance(outcome, Verdict) else Verdict(Reason.SUBMITTED)
        elif isinstance(outcome, Verdict) and (_has_numbers(verdict) or not differs(verdict, outcome)):
            # Numbers are of now, and so is their subject: another member may come nearest by now.
            verdict = outcome
        verdict = look.in_full(verdict)
        return Account(
            phase=binding.phase.value,
            reason=verdict.reason.value,
            message=verdict.sentence(),
            blocker=verdict.blocker,
            since=_since(binding, verdict),
            queue=_position(core, binding, waits=True),
            limits=look.limits,
            clusters=look.survey.rooms,
            reserved=_reserved(core, uid),
            changes=[*look.changes(verdict), *(look.protected(now) if verdict.reason in _SEARCHED else ())],
            never=look.never(verdict),
            moves=core.defragmentation.declined(uid) if verdict.reason is Reason.NO_DOMAIN_FITS else "",
        )


def _has_numbers(verdict: Verdict) -> bool:
    return verdict.blocker is not None and bool(verdict.blocker.resource)


def what_if(core: Dispatcher, view: BindingView, now: float) -> Account:
    """Whether a workload that does not exist would start if it came now, where, or the smallest change that would
    admit it.

    Args:
        core: unchanged afterwards.
        view: of a binding that can be read; its UID is no other binding's.
        now: seconds since the epoch.
    """
    gang = view.gang
    assert gang is not None, "what can't be read is refused before"
    if not gang.submitted:
        gang = msgspec.structs.replace(gang, submitted=rfc3339(now))
        view = replace(view, gang=gang)
    leaf = core.tree.queues.get(gang.queue)
    if leaf is None:
        return _refused(standing_verdict(gang.queue, Standing.MISSING))
    if gang.hold:
        kept = withheld(gang)
        return Account(reason=kept.reason.value, message=kept.sentence(), changes=_by_itself(kept))
    if (outside := core.state.outside(leaf, view.namespace)) is not None:
        return _refused(outside)
    binding = Binding(view, 0, Phase.SUSPENDED, {}, gang, None, order_key(view), leaf, {})
    view = core.state.filed_as(binding)
    binding = replace(binding, view=view, wish=view.gang, variants=view.variants)
    members = core.members.aside()
    shape = shape_of(view, shape_key(view, core.state.restricted(binding)))
    binding.amount = shape.request
    members.enroll(shape)
    look = _Look(core, binding, shape, members)
    with core.reservations.untouched(), core.tree.supposing(core.tree.wait, leaf, shape.request):
        outcome = look.outcome()
        position = _position(core, binding, waits=False)
        for variant, other in zip(binding.variants[1:], shape.others, strict=True):
            if isinstance(outcome, Choice):
                break
            # With another flavor than the first; where none will do, it waits for that one.
            second = replace(binding, wish=variant.gang, amount=other.request, variants=(variant,))
            beside = _Look(core, second, other, members)
            found = beside.outcome()
            if isinstance(found, Choice):
                outcome, look, binding = found, beside, second
        if isinstance(outcome, Choice):
            flavors = [f"{each.resource}{SIGN}{each.flavor}" for each in binding.flavors]
            return Account(starts=True, places=_places(look.whole(outcome)), queue=position, flavors=flavors)
        outcome = look.in_full(outcome)
        changes = look.changes(outcome)
        if outcome.reason in _SEARCHED:
            changes = sorted([*changes, *look.search(now)], key=lambda change: not change.enough)
        return Account(
            reason=outcome.reason.value,
            message=outcome.sentence(),
            blocker=outcome.blocker,
            queue=position,
            limits=look.limits,
            clusters=look.survey.rooms,
            changes=changes,
            never=look.never(outcome),
        )


_SEARCHED = (Reason.QUOTA_EXCEEDED, Reason.INSUFFICIENT_RESOURCES, Reason.NO_DOMAIN_FITS, Reason.WOULD_DELAY)
"""Verdicts that the end of others can change."""


@dataclass
class _Look:
    """One workload against everything as it is; each answer is found once."""

    core: Dispatcher
    binding: Binding
    shape: Shape
    """Enrolled."""
    members: Members
    #: member -> what of it would go there, where a ceiling stops that
    _capped_in: Mapping[str, Vector] = field(default_factory=dict)

    @property
    def _gang(self) -> Gang:
        return self.binding.gang

    @property
    def _leaf(self) -> Queue:
        return self.binding.leaf

    @property
    def _claimant(self) -> Claimant:
        return Claimant(self.binding.view.uid, self._leaf, -self.binding.key[0], self.shape)

    @cached_property
    def _rules(self) -> QueueRules:
        return self.core.policy.rules(self.binding, self.shape)

    def outcome(self) -> Choice | Verdict:
        """What a pass would say of this workload now, also if it does not come to it."""
        core, leaf = self.core, self._leaf
        if core.tree.standing(leaf) is Standing.OPEN and self._is_behind():
            return Verdict(Reason.BEHIND_HEAD, Blocker("Queue", leaf.name))
        found = core.admission.admit(leaf, self.shape, self.binding.view.namespace, lambda: self.choice)
        return found if isinstance(found, Choice) else found.verdict

    def _is_behind(self) -> bool:
        """Whether its queue is strict and another one is first."""
        if self._leaf.view is None or self._leaf.view.strategy is not Strategy.FIFO:
            return False
        head = self.core.waiting.head(self._leaf)
        return head is not None and first_key(head) < _place(self.core, self.binding)

    @cached_property
    def choice(self) -> Choice | Verdict:
        """Where it would go, quota aside."""
        core = self.core
        rules = core.policy.rules(self.binding, self.shape)
        found = choose(self.shape, self._gang, self.members, rules)
        self._capped_in = rules.exceeded
        return found if isinstance(found, Choice) else core.state.exclusions.in_words(self.binding, self.shape, found)

    def whole(self, choice: Choice) -> Choice:
        """The choice with the pods beyond the minimum that it would be given as it starts."""
        if not self.shape.elastic:
            return choice
        [member], [part], [begins] = choice.members, choice.gangs, choice.placements
        nodes = member.nodes.copy()
        nodes.take(part.requests(), begins)
        started = replace(self.binding, parts={member.name: part})
        growth = self.core.resizing.growth(started, nodes, begins.pods, {}, begins)
        if isinstance(growth, Stop):
            return choice
        size, more = growth
        return Choice((member,), (self._gang.sized(size),), (joined(begins, more),))

    # -- what blocks -------------------------------------------------------------------------------------------------

    @cached_property
    def limits(self) -> list[Limit]:
        """Every limit that it would exceed: of the queues on its path, from its own up, and of its namespace; then the
        ceilings of these queues in the members where it could go.
        """
        wanted = [(name, amount) for name, amount in sorted(self.shape.request.items()) if amount > 0]
        above = {node.name: position for position, node in enumerate(path(self._leaf))}
        found = [limit for name, amount in wanted for limit in exceeded(self._leaf, name, amount)]
        found.sort(key=lambda limit: above[limit.name])
        for bound in self.core.namespaces.bounds(self.binding.view.namespace, self.shape.charges):
            for name, amount in sorted(bound.request.items()):
                left = bound.hard.get(name, math.inf) - bound.used.get(name, 0)
                if amount > max(left, 0):
                    found.append(limit_of(bound.kind, bound.name, name, amount, int(left)))
        return [*found, *self._ceilings()] if isinstance(self.choice, Verdict) else found

    def _ceilings(self) -> Iterator[Limit]:
        for member, wanted in self._capped_in.items():
            for queue in path(self._leaf):
                if member in queue.ceilings:
                    used, ceiling = queue.used_in.get(member, {}), queue.ceilings[member]
                    kind, name_of = ("Cluster", member) if queue.parent is None else ("Queue", queue.name)
                    for name, amount in sorted(wanted.items()):
                        left = ceiling.get(name, math.inf) - used.get(name, 0)
                        if amount > max(left, 0):
                            yield limit_of(kind, name_of, name, amount, int(left), cluster=member)

    @cached_property
    def survey(self) -> Survey:
        """What each member could take of it."""
        return Survey(self.core, self.binding, self.shape, self.members, self._rules)

    def never(self, verdict: Verdict) -> str:
        """Why it can't start as things are, whatever ends; empty where it may."""
        asked = [(name, amount) for name, amount in sorted(self.shape.request.items()) if amount > 0]
        views = [queue.view for queue in path(self._leaf) if queue.view is not None]
        bounds = [("queue", view.name, view.capability, asked) for view in views]
        bounds += [
            (kind_for_people(bound.kind), bound.name, bound.hard, sorted(bound.request.items()))
            for bound in self.core.namespaces.bounds(self.binding.view.namespace, self.shape.charges)
        ]
        for kind, name, most, requested in bounds:
            for resource, amount in requested:
                if amount > most.get(resource, amount):
                    wants, has = (quantity.format_units(resource, each) for each in (amount, most[resource]))
                    return f"it asks for {wants} {resource}, and {kind} {name} may use {has} at most"
        if verdict.reason is Reason.NO_NODE_MATCHES:
            return "no node of the members that it may use accepts its pods, whatever ends there"
        if verdict.reason in (Reason.INSUFFICIENT_RESOURCES, Reason.NO_DOMAIN_FITS, Reason.QUOTA_EXCEEDED):
            full = [room.cluster for room in self.survey.rooms if room.reason != Reason.NO_CLUSTER.value]
            cordoned = any(why == UNCORDON for _, why in self.survey.excluded)
            if full and not cordoned and all(name in self.survey.small for name in full):
                return "no member that it may use is large enough, even if all that runs there had ended"
        return ""

    # -- what would help ---------------------------------------------------------------------------------------------

    def _relaxations(self) -> list[Change]:
        """Wishes that it could give up to start now; none where its quota blocks it too."""
        if self.limits or self.shape.divided or self.shape.others:
            return []
        return [
            *relaxing.relaxations(
                self._gang, self.survey.tried, self.survey.excluded[: self.core.settings.reasons.exact], self._would_fit
            )
        ]

    def _would_fit(self, member: Member, gang: Gang) -> bool:
        if member.view is None or not member.ready:
            return False
        placement = place(member.nodes, gang)
        return isinstance(placement, Placement) and self._rules.permits(alone(self.shape, gang, member, placement))

    def changes(self, verdict: Verdict) -> list[Change]:
        """Changes known to help without a search: sufficient ones first."""
        found = self._changes(verdict)
        if verdict.reason in _RELAXED:
            found = [*self._relaxations(), *found]
        return sorted(found, key=lambda change: not change.enough)

    def _changes(self, verdict: Verdict) -> list[Change]:
        queue = self._leaf.name
        match verdict.reason:
            case Reason.QUEUE_NOT_FOUND | Reason.QUEUE_CLOSED | Reason.QUEUE_INVALID | Reason.QUEUE_NOT_LEAF:
                return [_queue_change(verdict.reason, self._leaf)]
            case Reason.BEHIND_HEAD:
                return [Change(ChangeKind.QUEUE, f"the first workload of queue {queue} starts or leaves")]
            case Reason.QUOTA_EXCEEDED:
                stopped = self.choice.blocker if isinstance(self.choice, Verdict) else None
                ceiling = stopped.cluster if stopped is not None else ""
                limits = [limit for limit in self.limits if limit.cluster in ("", ceiling)]
                if not limits:
                    # What stopped it has gone since the last pass.
                    return _by_itself(Verdict(Reason.SUBMITTED))
                enough = bool(ceiling) or isinstance(self.choice, Choice)
                rest = "" if enough else ", and there must be room as well"
                kind = (
                    ChangeKind.LIMITS if any(each.declared or each.guaranteed for each in limits) else ChangeKind.ROOM
                )
                change = Change(kind, f"{higher(limits)}{rest}", enough, limits)
                return [change, *(self._within_limits() if enough else self._more_room())]
            case Reason.INSUFFICIENT_RESOURCES | Reason.NO_DOMAIN_FITS:
                return self._more_room()
            case Reason.WOULD_DELAY:
                return [
                    Change(ChangeKind.WISH, "a shorter estimate of its run time, if that is true"),
                    self._start_of_reserved(),
                ]
            case Reason.NO_CLUSTER:
                allowed = "a policy, and a queue, that allow a member which has room"
                return [*self._missing_members(), Change(ChangeKind.POLICY, allowed)]
            case Reason.NO_TOPOLOGY:
                text = "HyperNodes of a tier that it allows in a member, a higher highestTierAllowed, or none"
                return [Change(ChangeKind.WISH, text)]
            case Reason.TOPOLOGY_INVALID:
                wrong = [
                    f"{wrong_hyper_nodes(member)} in {member.name}"
                    for member in self.members.table.order
                    if member.problems
                ]
                return [Change(ChangeKind.WISH, text) for text in wrong]
            case Reason.NO_PLACER:
                text = "a member where kube-scheduler, Volcano or Kueue places, or pods that do not insist on that"
                return [Change(ChangeKind.POLICY, text)]
            case Reason.FEATURE_MISSING:
                text = "a member whose agent and Kubernetes have that, or a workload without it"
                return [Change(ChangeKind.POLICY, text)]
            case Reason.AGENT_VERSION:
                return [Change(ChangeKind.WAIT, "an operator upgrades the host, or the agents of its members")]
            case Reason.NO_NODE_MATCHES:
                return [Change(ChangeKind.WISH, "nodes that its selectors and tolerations accept")]
        return _by_itself(verdict)

    @cached_property
    def reserved(self) -> list[Reservation]:
        """Reservations that it would delay, the earliest first."""
        found = self.survey.delayed | {each.uid: each for each in self._rules.short_of()}
        return sorted(found.values(), key=lambda each: (each.at, each.uid))

    def _start_of_reserved(self) -> Change:
        """Start of the workloads that it would delay, by name; their queues are no secret."""
        if not self.reserved:
            return Change(ChangeKind.WAIT, "the workload with the reservation starts")
        queues = ", ".join(sorted({each.leaf.name for each in self.reserved}))
        text = f"the start of {{}} with a reservation, of queue {queues}"
        return self._by_others(ChangeKind.WAIT, text, (each.uid for each in self.reserved))

    def in_full(self, verdict: Verdict) -> Verdict:
        """The verdict, with the queue of the reservation that it is about."""
        if verdict.reason is not Reason.WOULD_DELAY or not self.reserved:
            return verdict
        return Verdict(verdict.reason, Blocker("Queue", self.reserved[0].leaf.name))

    def _within_limits(self) -> list[Change]:
        """Options of its user where quota stops it: begin with fewer pods, or go to another queue."""
        tree, found = self.core.tree, []
        if len(self._gang.tasks) == 1 and (most := self._pods_within_limits()):
            text = f"to start with {counted(most, 'pod')}, or to ask for as many: minAvailable of a Volcano Job,"
            found.append(Change(ChangeKind.WISH, f"{text} annotation {keys.GROUP_MIN_MEMBER} of others"))
        namespace, request = self.binding.view.namespace, self.shape.request
        others = (
            queue.name
            for queue in tree.queues.values()
            if queue is not self._leaf
            and tree.standing(queue) is Standing.OPEN
            and self.core.state.outside(queue, namespace) is None
            and tree.shortage(queue, request) is None
            and any(tree.shortage_in(queue, member, request) is None for member in tree.members)
        )
        if names := heapq.nsmallest(_OTHER_QUEUES, others):
            text = f"another queue whose limits have room for it: {', '.join(names)}"
            found.append(Change(ChangeKind.QUEUE, text))
        return found

    def _pods_within_limits(self) -> int:
        """The most pods, fewer than it must start with, within its queue's limits; 0 if only a ceiling stops it."""
        if self.core.tree.shortage(self._leaf, self.shape.request) is None:
            return 0
        least = sum(self.shape.floor)
        return bisect.bisect_left(
            range(1, least),
            True,
            key=lambda pods: self.core.tree.shortage(self._leaf, self._gang.sized([pods]).total()) is not None,
        )

    def _missing_members(self) -> list[Change]:
        """Members that its queue, or one above it, names or selects and that do not exist."""
        found = []
        for queue in path(self._leaf):
            view = queue.view
            if view is None:
                continue
            if queue.serving == frozenset() and view.affinity:
                label = "label one (atollctl cluster label NAME KEY=VALUE)"
                text = (
                    f"no member matches the selector of queue {queue.name} ({selectors.text(view.affinity)}): {label}"
                )
                found.append(f"{text}, or select others (atollctl queue update {queue.name} --clusters SELECTOR)")
            found += [
                f"member {name}, which queue {queue.name} names in spec.extendClusters and which does not exist: join"
                f" it, or name others (atollctl queue update {queue.name} --member NAME)"
                for name in sorted(set(view.members) - set(self.core.tree.members))
            ]
        return [Change(ChangeKind.QUEUE, text) for text in found]

    def _more_room(self) -> list[Change]:
        """Capacity in the member that comes nearest."""
        full = [room for room in self.survey.rooms if room.fits < room.pods and room.reason in _FULL]
        if not full:
            return []
        nearest = next((room for room in full if room.cluster not in self.survey.small), None)
        if nearest is None:
            return [Change(ChangeKind.ROOM, "".join(self.survey.small[full[0].cluster]))]
        parts = sorted((room.fits for room in full), reverse=True)[: self.shape.most_clusters]
        together = sum(parts)
        if self.shape.divided and len(parts) > 1 and together < nearest.pods:
            pods = counted(nearest.pods - together, "more pod")
            return [Change(ChangeKind.ROOM, f"room for {pods} in the members that it may be divided over")]
        where = f"cluster {nearest.cluster}" + (f", domain {nearest.domain}" if nearest.domain else "")
        what = f", such as {nearest.shortage} {nearest.resource}" if nearest.resource else " on its nodes"
        pods = counted(nearest.pods - nearest.fits, "more pod")
        found = [Change(ChangeKind.ROOM, f"room for {pods} in {where}{what}")]
        if not self.shape.divided and not self._gang.whole and together >= nearest.pods:
            text = "a policy that lets it be divided (replicaSchedulingType: Divided): together its members have room"
            found.append(Change(ChangeKind.POLICY, text))
        return found

    def search(self, now: float) -> list[Change]:
        """Its victims if the dispatcher evicts for it, and the workloads whose end would let it start."""
        core, found = self.core, []
        claimant = self._claimant
        running = list(core.triggers.running())
        # As the dispatcher plans: other claimants are counted as having the capacity of their victims.
        evicting = None
        if self._gang.preempts:
            with core.reservations.settled(but=self.binding.view.uid):
                evicting = plan(
                    claimant,
                    running,
                    core.tree,
                    self.members,
                    now=now,
                    rules=self._rules,
                    settings=core.settings.preemption,
                )
        if evicting is not None and evicting.losses:
            verb = "evicted" if evicting.victims else "shrunk"
            if 0 < len(evicting.victims) < len(evicting.losses):
                verb += " or shrunk"
            found.append(self._going(ChangeKind.EVICT, f"{{}} {verb} by the dispatcher", evicting))
        elif self._gang.preempts:
            found += self._protected(running, now)
        ends = {each.uid: self._end(each) for each in running}
        running.sort(key=lambda each: (ends[each.uid], each.uid))
        ending = departures(
            claimant,
            running[: core.settings.reasons.ending],
            core.tree,
            self.members,
            rules=self._rules,
            settings=core.settings.preemption,
        )
        if ending is not None and ending.losses:
            at = max(ends[loss.uid] for loss in ending.losses)
            found.append(self._going(ChangeKind.FINISH, "the end of {}", ending, at))
        return found

    def protected(self, now: float) -> list[Change]:
        """Workloads that the dispatcher may evict for it once they have run long enough."""
        group = self.core.waiting.classes(self._leaf).get(self.shape.key)
        if group is None or not group.members or not self.core.triggers.may_evict(group):
            return []
        with self.core.reservations.settled():
            return self._protected(self.core.triggers.possible_victims(group), now)

    def _protected(self, victims: Sequence[Victim], now: float) -> list[Change]:
        core = self.core
        if core.namespaces.shortage(self.binding.view.namespace, self.shape.charges) is not None:
            # No victim is evicted for a limit of its namespace.
            return []
        rules, settings = self._rules, core.settings.preemption
        found = protected(self._claimant, victims, core.tree, self.members, now=now, rules=rules, settings=settings)
        if not found:
            return []
        end = rfc3339(found[-1].started + found[-1].protection)
        until = f"protected until {end}" if len(found) == 1 else f"the last one protected until {end}"
        return [self._by_others(ChangeKind.WAIT, f"eviction of {{}}, {until}", (each.uid for each in found))]

    def _end(self, victim: Victim) -> float:
        stay = self.core.reservations.timeline.get(victim.uid)
        return stay.end if stay is not None else math.inf

    def _going(self, kind: ChangeKind, text: str, found: Plan, at: float = math.inf) -> Change:
        when = rfc3339(at + self.core.settings.backfill.settle) if at < math.inf else ""
        return self._by_others(kind, text, (loss.uid for loss in found.losses), enough=True, at=when)

    def _by_others(
        self, kind: ChangeKind, text: str, uids: Iterable[str], *, enough: bool = False, at: str = ""
    ) -> Change:
        """A change of other workloads, the first ones by name; `{}` in the text stands for their number."""
        names, most = _named(self.core, uids), self.core.settings.reasons.named
        said = text.format(counted(len(names), "workload"))
        return Change(kind, said, enough, workloads=names[:most], more=max(len(names) - most, 0), at=at)


_RELAXED = (
    Reason.INSUFFICIENT_RESOURCES, Reason.NO_DOMAIN_FITS, Reason.NO_TOPOLOGY, Reason.NO_NODE_MATCHES, Reason.NO_CLUSTER,
)  # fmt: skip
"""Verdicts that follow from its own wishes as well as from what members have."""
_OTHER_QUEUES = 3
"""Other queues that are named."""
_FULL = (Reason.INSUFFICIENT_RESOURCES.value, Reason.NO_DOMAIN_FITS.value)


def _refused(verdict: Verdict) -> Account:
    assert verdict.blocker is not None, "it names the queue"
    changes = [_queue_change(verdict.reason, Queue(verdict.blocker.name))]
    return Account(reason=verdict.reason.value, message=verdict.sentence(), blocker=verdict.blocker, changes=changes)


def _queue_change(reason: Reason, queue: Queue) -> Change:
    name = queue.name
    leaves = ", ".join(sorted(each.name for each in subtree(queue) if each is not queue and not each.children))
    text = {
        Reason.QUEUE_NOT_FOUND: f"queue {name} is created",
        Reason.QUEUE_CLOSED: f"queue {name}, or the closed one above it, is opened",
        Reason.QUEUE_INVALID: f"fix queue {name}",
        Reason.QUEUE_NOT_LEAF: f"it goes to one of the queues below {name}: {leaves}",
        Reason.QUEUE_NOT_OPEN: f"its namespace gets labels that queue {name} is open to, or it goes to another queue",
    }[reason]
    return Change(ChangeKind.QUEUE, text)


def _by_itself(verdict: Verdict) -> list[Change]:
    if verdict.reason is Reason.QUEUE_NOT_OPEN and verdict.blocker is not None:
        return [_queue_change(verdict.reason, Queue(verdict.blocker.name))]
    text = {
        Reason.HELD: (ChangeKind.WISH, "its user releases it"),
        Reason.NO_PODS: (ChangeKind.WISH, "its user gives it pods"),
        Reason.POLICY_SUSPENDED: (ChangeKind.WISH, "spec.suspension of its propagation policy is lifted"),
        Reason.GANG_GROUP_INCOMPLETE: (
            ChangeKind.WAIT,
            "enough of its gang group can start, or fewer have to",
        ),
        Reason.CLUSTERS_NOT_READY: (ChangeKind.WAIT, "a member that it may use is ready again"),
        Reason.NAMESPACE_NOT_ACCEPTED: (ChangeKind.WISH, "the member's administrator lets the namespace in"),
        Reason.OVERRIDE_FAILED: (ChangeKind.WISH, "fix the override policy, or the workload"),
        Reason.REFUSED_BY_MEMBER: (ChangeKind.WISH, "fix what the member names, there or in the workload"),
        Reason.DEACTIVATED: (ChangeKind.WISH, "fix what the member names, and then: atollctl job retry"),
        Reason.AVOIDED: (ChangeKind.WAIT, "the room in the members that failed it changes, or their pause is over"),
        Reason.MEMBER_FAILING: (ChangeKind.WAIT, "what is tried in the members that fail is bound there"),
        Reason.ASKING_MEMBERS: (ChangeKind.WAIT, "the members that are asked answer, within seconds"),
        Reason.AWAITING_VICTIMS: (ChangeKind.WAIT, "its victims end"),
        Reason.NOT_READY_IN_TIME: (ChangeKind.WAIT, "its pause is over; until then, fix what its containers wait for"),
        Reason.SUBMITTED: (ChangeKind.WAIT, "the next pass of the dispatcher looks at it"),
    }.get(verdict.reason)
    return [Change(*text)] if text is not None else []


def _position(core: Dispatcher, binding: Binding, *, waits: bool) -> Position:
    """Its place in the queue, by bisection in each class of it."""
    ahead, waiting = 0, 0 if waits else 1
    near: list[Key] = []
    most = core.settings.reasons.ahead
    place = _place(core, binding)
    for group in core.waiting.classes(binding.leaf).values():
        before = bisect.bisect_left(group.members, place, key=partial(shared, share=group.share))
        ahead += before
        waiting += len(group.members)
        near += [shared(key, group.share) for key in group.members[max(before - most, 0) : before]]
    named = heapq.nlargest(most, near)[::-1]
    return Position(
        binding.leaf.name,
        ahead + 1,
        waiting,
        _named(core, (key[2] for key in named)),
        ahead - len(named),
        core.state.fair.standing(binding.leaf, binding.view.namespace, binding.amount),
    )


def _place(core: Dispatcher, binding: Binding) -> Key:
    """By which it is ordered among all that wait in its queue."""
    return core.state.fair.key(binding.leaf, binding.view.namespace, binding.amount, binding.key)


def _named(core: Dispatcher, uids: Iterable[str]) -> list[Named]:
    return [Named(view.namespace, view.name) for uid in uids for view in (core.bindings[uid].view,)]


def _reserved(core: Dispatcher, uid: str) -> Reserved | None:
    reservation = core.reservations.own(uid)
    if reservation is None:
        return None
    names = ", ".join(member.name for member in (reservation.member, *reservation.also))
    return Reserved(names, rfc3339(reservation.at) if reservation.at < math.inf else "")


def _since(binding: Binding, verdict: Verdict) -> str:
    """When the reason was first written, by the story; empty while the binding does not say it."""
    at = ""
    for line in reversed(binding.view.decision.story):
        if line.reason is not verdict.reason:
            break
        at = line.at
    return at


def _places(choice: Choice) -> list[Place]:
    parts: Sequence[tuple[Member, Gang, Placement]] = list(
        zip(choice.members, choice.gangs, choice.placements, strict=True)
    )
    return [
        Place(member.name, sum(placement.counts), domain_of(member, placement)) for member, _, placement in parts
    ]  # fmt: skip
