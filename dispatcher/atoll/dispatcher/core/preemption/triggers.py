"""When to search victims for blocked workloads of a higher priority, or of an entitled queue, and among which."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from operator import add, sub

from atoll.dispatcher.core.backfill.allocation import Allocation
from atoll.dispatcher.core.backlog.backlog import ROOM, ShapeClass
from atoll.dispatcher.core.backlog.binding import Binding, as_it_runs
from atoll.dispatcher.core.backlog.deadlines import earliest
from atoll.dispatcher.core.elastic.growth import size_of
from atoll.dispatcher.core.events import QueueView
from atoll.dispatcher.core.lifecycle.state import State
from atoll.dispatcher.core.preemption.budget import Searches
from atoll.dispatcher.core.preemption.candidates import Victim
from atoll.dispatcher.core.preemption.claims import Claims
from atoll.dispatcher.core.quota.lending import entitled, may_lend, may_reclaim
from atoll.dispatcher.core.quota.queue import Queue
from atoll.fit.pods import first_pods
from atoll.fit.sizes import Spare, full, spares
from atoll.model import vector
from atoll.model.decision import Phase
from atoll.model.vector import Vector
from atoll.model.verdict import Reason


class Triggers:
    """Knows which claimants may evict, and what could be a victim."""

    def __init__(self, state: State, claims: Claims) -> None:
        self._state, self._claims = state, claims
        self._settings = settings = state.settings.preemption
        self.waiting, self.members, self.bindings = state.waiting, state.members, state.bindings
        self.reservations = state.reservations
        #: classes blocked by quota or capacity, with a search for victims due
        self.searches = Searches(settings)
        #: classes that need victims, and may evict none
        self.rightless: dict[ShapeClass, None] = {}
        #: when it is looked at again whether that is still so, infinite while nothing has changed; when that was last;
        #: how many of them are still to be looked at this time
        self._rights_due, self._rights_seen, self._rights_left = math.inf, -math.inf, 0
        #: UID -> (where it runs, its facts, both as a victim)
        self._candidates: dict[str, tuple[Allocation, Binding, QueueView | None, Victim]] = {}
        #: classes whose head changed so that it may preempt; until the end of the pass
        self.headed: dict[ShapeClass, None] = {}
        state.on_entered.append(self._rights_may_change)
        state.on_changed.append(self._rights_may_change)
        state.on_waits.append(self._waits)
        state.on_waits_no_more.append(self._waits_no_more)
        state.charges.on_charged.append(self._charged)

    def _waits(self, binding: Binding, group: ShapeClass) -> None:
        if group.members[0] == binding.key:
            if any(key[0] > binding.key[0] for key in group.members[1:2]):
                self.headed[group] = None
        elif self._claims and self._claims.awaits(group.before(binding.key)[2]):
            # The first without a claim.
            self.headed[group] = None

    def _waits_no_more(self, binding: Binding, group: ShapeClass) -> None:
        if not group.members:
            self.rightless.pop(group, None)
        elif self._claims.awaits(binding.view.uid):
            self.headed[group] = None
        self._rights_may_change()

    def _charged(self, binding: Binding, times: int) -> None:
        self._rights_may_change()
        if times < 0:
            self._candidates.pop(binding.view.uid, None)

    def starts_soon(self, binding: Binding) -> bool:
        """Whether its reservation begins before others would be gone; once its first time has passed for as
        long, estimates are wrong.
        """
        reservation = self.reservations.made.get(binding.view.uid)
        if reservation is None:
            return False
        grace = self._state.settings.backfill.grace
        return reservation.at <= self._state.now + grace and self._state.now < reservation.first + grace

    def new_heads(self) -> None:
        """Look anew at classes whose head changed so that it may preempt."""
        for group in self.headed:
            # It may sleep on without being looked at, and this one may evict what the one before might not.
            if _helpable(group):
                self.searches.look_anew(group)
        self.headed.clear()

    def can_spare(self, leaf: Queue) -> None:
        """A workload of a queue has grown: its new pods may help workloads that wait there."""
        for group in filter(_helpable, self.waiting.classes(leaf).values()):
            self.searches.look_soon(group)

    def _rights_may_change(self, *_: Binding) -> None:
        """Queues, what runs or what waits are others now; each may decide who may be a victim of which claimant."""
        if self.rightless:
            self._rights_due = min(self._rights_due, max(self._state.now, self._rights_seen + self._settings.pause))

    @property
    def next(self) -> float | None:
        """When claimants without victims are looked at again, or the next search may be made."""
        due = self._state.now + self._settings.look_pause if self._rights_left else self._rights_due
        rights = due if self.rightless and due < math.inf else None
        return earliest(rights, self.searches.next_due(self._state.now))

    def look_at_rights(self) -> None:
        """Consider claimants again that may evict by now; not often, and some in each pass, for it is asked of each."""
        if not self._rights_left:
            if self._state.now < self._rights_due:
                return
            self._rights_due, self._rights_seen, self._rights_left = math.inf, self._state.now, len(self.rightless)
        several = list(itertools.islice(self.rightless, min(self._settings.looks, self._rights_left)))
        self._rights_left = self._rights_left - len(several) if several else 0
        for group in several:
            del self.rightless[group]
            if not group.members or group.lot is None:
                # Whoever files it again looks at it.
                continue
            if self.may_evict(group):
                self.searches.consider(group)
            else:
                self.rightless[group] = None

    def may_evict(self, group: ShapeClass, priority: int | None = None) -> bool:
        """Whether its first workload, or one of that priority, may evict at all: most often it may not."""
        if not group.shape.gang.preempts:
            return False
        return self._yields_to(group, priority) or may_reclaim(group.leaf, group.shape.request)

    def _yields_to(self, group: ShapeClass, priority: int | None = None) -> bool:
        """Whether something in its own queue might go for it, or shrink."""
        priority = -group.members[0][0] if priority is None else priority
        return any(each < priority for each in self._state.charges.priorities.get(group.leaf, ())) or any(
            each <= priority for each in self._state.sizes.spare.get(group.leaf, ())
        )

    def running(self) -> Iterator[Victim]:
        """What runs and could go; each is made once."""
        return (victim for leaf in self._state.charges.of for victim in self._victims_in(leaf))

    def _victims_in(self, leaf: Queue) -> Iterator[Victim]:
        return filter(None, map(self.victim, self._state.charges.of.get(leaf, ())))

    def victim(self, uid: str) -> Victim | None:
        """It as a victim; None where it does not run, or is being changed."""
        binding, stay = self.bindings.get(uid), self.reservations.timeline.get(uid)
        if binding is None or stay is None:
            return None
        if binding.phase is not Phase.DISPATCHED or not binding.written:
            return None
        known, view = self._candidates.get(uid), binding.leaf.view
        if known is None or known[0] is not stay or known[1] is not binding or known[2] is not view:
            made = victim_of(binding, stay, self._settings.protection, self._claims.cleared_for(uid))
            known = self._candidates[uid] = stay, binding, view, made
        return known[3]

    def possible_victims(self, group: ShapeClass) -> list[Victim]:
        """Running workloads of queues that may have to give something up for a class; the search selects from them."""
        leaf, request = group.leaf, group.shape.request
        lends = may_lend(leaf, entitled(leaf, request))
        own = self._yields_to(group)
        # A member that is not ready can't say that they have gone: no capacity would follow.
        away = {member.name for member in self.members.by_name.values() if not member.ready}
        return [
            victim
            for each in self._state.charges.of
            if (own if each is leaf else lends(each))
            for victim in self._victims_in(each)
            if away.isdisjoint(victim.parts)
        ]

    def leavers(self) -> list[Victim]:
        """Leaving workloads without a claimant: their capacity is there for the next."""
        claimed = self._claims.victims()
        found = []
        for uid in self._state.leaving:
            binding, stay = self.bindings[uid], self.reservations.timeline.get(uid)
            if uid not in claimed and stay is not None and binding.parts and self._claims.leaves(binding):
                found.append(victim_of(binding, stay, self._settings.protection))
        return found


def _helpable(group: ShapeClass) -> bool:
    """Whether the departure of others could change what blocks it."""
    return bool(group.members) and group.parked is not None and group.parked.reason in (*ROOM, Reason.QUOTA_EXCEEDED)


def _charged(steps: Sequence[Spare], amount: Vector) -> list[Spare]:
    """The first steps of a surplus, as far as it is charged: pods that have ended have nothing to give."""
    left, found = dict(amount), []
    for step in steps:
        vector.add(left, step.amount, -1)
        if any(rest < 0 for rest in left.values()):
            break
        found.append(step)
    return found


def _steps(binding: Binding, stay: Allocation) -> list[Spare]:
    """The surplus step by step: of the last part all of it before the part before gives anything."""
    [first, *others] = binding.parts
    found, total = list[Spare](), size_of(binding)
    for name in (*reversed(others), first):
        part, pods = full(binding.parts[name]), stay.parts[name][1]
        gang = as_it_runs(binding.view, name, binding.gang)
        rest, last = tuple(map(sub, total, part)), part
        for step in spares(gang, part, name, pods):
            last = step.stays
            found.append(Spare(step.amount, step.pods, tuple(map(add, rest, last))))
        if name != first:
            gone = [(node, gang.tasks[task].requests, count) for task, node, count in first_pods(pods, last)]
            found.append(Spare(gang.sized(last).total(), {name: gone} if gone else {}, rest))
        total = rest
    return found


def victim_of(binding: Binding, stay: Allocation, protection: float, cleared: tuple[str, ...] = ()) -> Victim:
    """What runs, as one that could go. `protection`: where its queue says nothing."""
    own, surplus = binding.leaf.said.protection, []
    if binding.bound and (len(binding.parts) == 1 or binding.scattered) and not binding.view.divided:
        surplus = _charged(_steps(binding, stay), binding.amount)
    return Victim(
        binding.view.uid,
        binding.leaf,
        -binding.key[0],
        stay.start,
        binding.amount,
        {
            name: [(node, gang.tasks[task].requests, count) for task, node, count in pods]
            for name, (gang, pods) in stay.parts.items()
        },
        surplus,
        preemptable=binding.gang.preemptable,
        evictions=len(binding.view.decision.evictions),
        protection=protection if own is None else own,
        cleared=cleared,
    )
