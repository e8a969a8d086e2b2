"""Backfill: which workloads get a reservation, and for how long."""

from __future__ import annotations

import math

import numpy as np

from atoll.dispatcher.core.backfill.permits import QueueRules
from atoll.dispatcher.core.backfill.reservation import Reservation
from atoll.dispatcher.core.backlog.backlog import ShapeClass
from atoll.dispatcher.core.backlog.binding import Binding, patient_until
from atoll.dispatcher.core.backlog.deadlines import Deadlines, earliest
from atoll.dispatcher.core.backlog.wake_index import KEPT
from atoll.dispatcher.core.capacity.member import Member
from atoll.dispatcher.core.capacity.shape import Shape
from atoll.dispatcher.core.lifecycle.decisions import Decisions
from atoll.dispatcher.core.lifecycle.state import State
from atoll.dispatcher.core.preemption.claims import Claims
from atoll.dispatcher.core.quota.lending import is_claimed, is_due
from atoll.dispatcher.core.quota.queue import Queue, Standing
from atoll.model.queues import Strategy
from atoll.model.timestamps import seconds_or, to_seconds
from atoll.model.verdict import Reason


class Policy:
    """Makes reservations, computes them again and drops them."""

    def __init__(self, state: State, claims: Claims, decisions: Decisions) -> None:
        self._state, self._claims = state, claims
        self._settings = state.settings.backfill
        self.unwritten = decisions.unwritten
        self.tree, self.waiting, self.members, self.bindings = state.tree, state.waiting, state.members, state.bindings
        self.namespaces, self.reservations = state.namespaces, state.reservations
        #: UIDs of workloads for which nothing could be reserved -> (when to try again, the reservation before)
        self.unreserved: dict[str, tuple[float, Reservation | None]] = {}
        #: UIDs of workloads that had a reservation long enough -> when they may have one again; others have a turn
        self._rests: dict[str, float] = {}
        #: queues in which a workload came first or waits no longer, or shares changed, so that another one may be the
        #: head; until the end of the pass
        self.reordered: dict[Queue, None] = {}
        #: when workloads have waited long enough for a reservation; stale ones are skipped
        self.patience = Deadlines()
        #: UIDs of waiting bindings that have waited that long
        self.impatient: dict[str, None] = {}
        #: UIDs of waiting bindings with capacity that an earlier leader reserved, until the next pass; reservations of
        #: this one for them are not news
        self.kept_before: dict[str, None] = {}
        self.kept_here: dict[str, None] = {}
        state.fair.on_reordered.append(lambda leaf: self.reordered.setdefault(leaf))
        state.on_waits.append(self._waits)
        state.on_waits_no_more.append(self._waits_no_more)
        state.on_dropped.append(self._dropped)

    def _waits(self, binding: Binding, group: ShapeClass) -> None:
        uid = binding.view.uid
        if group.members[0] == binding.key:
            self.reordered[binding.leaf] = None
        if (until := patient_until(binding)) < math.inf:
            self.patience.set(uid, until)
        if binding.view.decision.kept is not None and uid not in self.kept_here:
            self.kept_before[uid] = None

    def _waits_no_more(self, binding: Binding, _: ShapeClass) -> None:
        self.reordered[binding.leaf] = None

    def _dropped(self, uid: str) -> None:
        for known in (self.impatient, self.kept_here, self.kept_before, self.unreserved, self._rests):
            known.pop(uid, None)

    def pass_begins(self) -> None:
        """Take up what an earlier leader reserved; compute times again that have passed."""
        if self.kept_before:
            self.keep_as_before()
        if not self.reservations.empty or self.patience.first is not None or self.unreserved:
            self.renew()

    @property
    def next(self) -> float | None:
        """Next time to compute a start again, or at which a workload has waited long."""
        times = [self._renewed_at(each) for each in self.reservations.each()]
        return earliest(*times, *(when for when, _ in self.unreserved.values()), self.patience.first)

    def keep_as_before(self) -> None:
        """What an earlier leader reserved is reserved again before anything is decided, in the same order: each keeps
        its age and its first time.
        """
        uids, self.kept_before = self.kept_before, {}
        found = [self.bindings[uid] for uid in uids if uid in self.bindings]
        for binding in sorted(found, key=lambda each: (_since(each), each.key)):
            uid = binding.view.uid
            if binding.shape is None or self.reservations.own(uid) is not None or not self.may_start(binding):
                continue
            if patient_until(binding) <= self._state.now:
                self.impatient[uid] = None
            elif not self._is_backfilled_head(binding):
                continue
            made = self._reserve(binding)
            kept = binding.view.decision.kept
            if made is not None and kept is not None:
                made.since = min(made.since, to_seconds(kept.since))
                made.first = seconds_or(kept.first, made.first)

    def rules(self, binding: Binding, shape: Shape) -> QueueRules:
        """What decides, beside nodes, where a workload may go."""
        return QueueRules(self._state, self._claims, binding, shape)

    def keep_room(self, group: ShapeClass, *, certain: bool = False) -> None:
        """The first of the class does not start now: reserve capacity if it is a head that must not be delayed, and if
        asked for only where there is a time at which it can start.
        """
        leaf, uid = group.leaf, group.members[0][2]
        if uid not in self.impatient:
            if leaf.said.strategy is not Strategy.BACKFILL or self.waiting.head(leaf) is not group:
                return
            for other in [p for p in self.reservations.made.values() if p.leaf is leaf and p.uid != uid]:
                if other.uid not in self.impatient:
                    # It is the head no more: an elder came back.
                    other.overtaken = True
                    self.reservations.forget(other.uid)
                    self._state.wakes.fire(KEPT)
        if self.reservations.own(uid) is None:
            made = self._reserve(self.bindings[uid])
            if certain and made is not None and made.at == math.inf:
                self.reservations.drop(uid)

    def keep_room_for_new_heads(self) -> None:
        """One that was parked behind others may be the head now, and nothing wakes it."""
        for leaf in self.reordered:
            if leaf.said.strategy is Strategy.BACKFILL:
                head = self.waiting.head(leaf)
                if head is not None and head.parked is not None and self.tree.standing(leaf) is Standing.OPEN:
                    self.keep_room(head, certain=head.parked.reason is Reason.WOULD_DELAY)
        self.reordered.clear()

    def _reserve(self, binding: Binding) -> Reservation | None:
        uid, before = binding.view.uid, self.reservations.known(binding.view.uid)
        by_patience = self._by_patience(binding)
        if by_patience and before is not None and before.since + self._settings.waiting <= self._state.now:
            # Its reservation after the rest is a new one.
            self._rests[uid], before = self._state.now + self._settings.waiting, None
        idle = self._would_go_again(binding) or (by_patience and not self._has_its_turn(binding))
        reservation = self.reservations.reserve(binding, [] if idle else self._members_for(binding))
        if reservation is not None and by_patience and reservation.at > reservation.since + self._settings.waiting:
            # It would end before its workload can start.
            self.reservations.forget(uid)
            reservation = None
        if reservation is None:
            self.unreserved[uid] = (self._state.now + self._settings.again, before)
        else:
            self.unreserved.pop(uid, None)
            self.kept_here[uid] = None
            if before is None:
                self.unwritten[uid] = None
        return reservation

    def _members_for(self, binding: Binding) -> list[Member]:
        """Those in which it could use a reservation."""
        shape, table = binding.shape, self.members.table
        assert shape is not None, f"{binding.view.uid} does not wait"
        if shape.least_clusters > 1 or shape.sharing is not None:
            # It must be divided, and could not use a reservation in one.
            return []
        short = self.namespaces.shortage(binding.view.namespace, shape.charges)
        if short is not None or self._state.together.incomplete(binding):
            # It could not start with any reservation for it alone.
            return []
        serving, mask = self._state.exclusions.usable(binding), table.allowed(shape)[0] & table.ready
        refusing = self._state.exclusions.refusing(binding)
        able = [table.order[column] for column in np.flatnonzero(mask if serving is None else mask & serving)]
        able = [member for member in able if member.name not in refusing]
        return [each for each in able if self.tree.shortage_in(binding.leaf, each.name, shape.request) is None]

    def _by_patience(self, binding: Binding) -> bool:
        """Whether it has a reservation for no other reason than that it has waited long."""
        return binding.view.uid in self.impatient and not self._is_backfilled_head(binding)

    def _is_backfilled_head(self, binding: Binding) -> bool:
        """Whether it is the first of a queue with backfill."""
        if binding.leaf.said.strategy is not Strategy.BACKFILL:
            return False
        head = self.waiting.head(binding.leaf)
        return head is not None and head.members[0] == binding.key

    def _has_its_turn(self, binding: Binding) -> bool:
        """Whether a long waiting workload may have a reservation: one per queue at a time, within its deserved share,
        and for a while.
        """
        uid, leaf = binding.view.uid, binding.leaf
        others = (each for each in self.reservations.made.values() if each.leaf is leaf and each.uid != uid)
        if any(self._by_patience(self.bindings[each.uid]) for each in others):
            return False
        return self._rests.get(uid, 0.0) <= self._state.now and is_due(leaf, binding.amount)

    def _would_go_again(self, binding: Binding) -> bool:
        """Whether it was evicted not long ago because its queue used more than it deserves, and would be again while
        others want as much: a reservation would be of no use to it, unless it has waited too long.
        """
        taken = binding.view.decision.evictions
        back = [to_seconds(line.at) for line in taken if line.reason is Reason.RECLAIMED]
        if not back or len(taken) >= self._state.settings.preemption.evictions or binding.view.uid in self.impatient:
            return False
        if self._state.now - back[-1] > self._settings.reclaimed * 2 ** (len(back) - 1):
            return False
        return is_claimed(binding.leaf, binding.amount)

    def renew(self) -> None:
        """Compute passed and unknown times again; workloads that have waited long enough get one."""
        for binding in [self.bindings[each.uid] for each in self.reservations.each()]:
            if self.reservations.moves(binding.view.uid) and binding.phase.going:
                continue
            if not self.may_start(binding):
                self._claims.end(binding.view.uid)
                self.reservations.forget(binding.view.uid)
                self._state.wakes.fire(KEPT)
                self.look_again(binding)
        for claim in list(self.reservations.claims.values()):
            self._await_victims(claim)
        for reservation in list(self.reservations.made.values()):
            if self.reservations.own(reservation.uid) is not reservation:
                # It was made anew with an older one; or others go for it, and if they don't it is looked at after that.
                continue
            if reservation.lost < math.inf and self.reservations.spot(reservation).placement is not None:
                self._state.wakes.fire(KEPT)
            elif (
                self._is_to_be_renewed(reservation) and reservation.computed + self._settings.renewal <= self._state.now
            ):
                self._compute_again(reservation)
                self._state.wakes.fire(KEPT)
        self._try_again()
        for uid in self.patience.due(self._state.now):
            waiting = self.bindings.get(uid)
            if waiting is None or waiting.shape is None or patient_until(waiting) > self._state.now:
                # It waits no more, or has more patience by now.
                continue
            if uid not in self.impatient:
                self.impatient[uid] = None
                if self.reservations.own(uid) is None and self.may_start(waiting):
                    self._reserve(waiting)

    def may_start(self, binding: Binding) -> bool:
        """Whether only capacity can be missing: it waits, in an open queue that holds it behind no other."""
        if binding.shape is None or self.tree.standing(binding.leaf) is not Standing.OPEN:
            return False
        return not self.waiting.is_behind(self.waiting.classes(binding.leaf)[binding.shape.key])

    def _compute_again(self, reservation: Reservation) -> None:
        """Compute its time again, and then the times of younger ones that may have its nodes: running work that takes
        longer than expected costs no workload its rank.
        """
        with self.reservations.giving_way(reservation) as given:
            for uid, before in given.items():
                binding = self.bindings[uid]
                made = self._reserve(binding) if binding.shape is not None else None
                if made is not None and reservation.overtaken and made.at > before.at:
                    made.overtaken = True

    def _try_again(self) -> None:
        """What fits nowhere at the moment may do so once a node is back."""
        for uid, (when, before) in list(self.unreserved.items()):
            if when > self._state.now:
                continue
            del self.unreserved[uid]
            waiting = self.bindings.get(uid)
            if waiting is None or waiting.shape is None or uid in self.reservations.made:
                continue
            if uid in self.reservations.claims:
                self.unreserved[uid] = (self._state.now + self._settings.again, before)
                continue
            group = self.waiting.classes(waiting.leaf)[waiting.shape.key]
            first, by_patience = group.members[0] == waiting.key, self._by_patience(waiting)
            able = self.may_start(waiting) and (self._has_its_turn(waiting) if by_patience else first)
            if group.parked is None or not able:
                if by_patience:
                    # Nothing else looks at one that is not the first of its class once it is its turn.
                    self.unreserved[uid] = (self._state.now + self._settings.again, before)
                continue
            head = self.waiting.head(waiting.leaf) is group or uid in self.impatient
            if head and before is not None and (before.leaf, before.shape.key) == (waiting.leaf, waiting.shape.key):
                self._compute_again(before)
            elif not first:
                self._reserve(waiting)
            else:
                self.keep_room(group, certain=group.parked.reason is Reason.WOULD_DELAY)

    def _is_to_be_renewed(self, reservation: Reservation) -> bool:
        now = self._state.now
        if reservation.at < now or reservation.at == math.inf or self._given_up(reservation) <= now:
            return True
        return reservation.since + self._settings.waiting <= now and self._by_patience(self.bindings[reservation.uid])

    def _given_up(self, reservation: Reservation) -> float:
        """When one that its member would not hold gets another time: soon if a better rank took from it.
        Else figures contradict each other, as they do for a moment when a member tells of pods before their binding.
        """
        return reservation.lost + (0.0 if reservation.overtaken else self._settings.doubt)

    def _await_victims(self, reservation: Reservation) -> None:
        """Once all that were to go are gone the claimant waits as others do; its reservation is its own."""
        if not reservation.moved and self._claims.all_gone(reservation.uid):
            # A while longer than that: members report the capacity a moment after the pods are gone.
            reservation.until = min(reservation.until, self._state.now + self._settings.settle)
        if reservation.until <= self._state.now:
            self._claims.end(reservation.uid)
            self._state.wakes.fire(KEPT)
            self.look_again(self.bindings[reservation.uid])

    def look_again(self, binding: Binding) -> None:
        """Its claim has ended: look at its class again, and tell it what that waits for."""
        if binding.shape is not None:
            self.waiting.tell_again(binding.leaf, binding.shape, binding.key, binding.told)
            self.waiting.refresh(self.waiting.classes(binding.leaf)[binding.shape.key])

    def _ends_waiting(self, claim: Reservation) -> float:
        """When it is looked at again whether the victims of a claimant still end."""
        losses = self._claims.losses(claim.uid).items()
        going = [self.bindings[uid] for uid, loss in losses if not self._claims.let_go(uid, loss)]
        bounds = [self._claims.gone_until(each, claim.computed) for each in going]
        # A claim that is past its bound gets another plan in the next pass that may search.
        return min([claim.until, *(each for each in bounds if each > self._state.now)])

    def _renewed_at(self, reservation: Reservation) -> float:
        """When it is computed again, or it is looked at whether victims still end."""
        if reservation.claim:
            return self._ends_waiting(reservation)
        when = again = reservation.computed + self._settings.renewal
        if reservation.at < math.inf and reservation.lost < math.inf:
            when = max(self._given_up(reservation), again)
        elif reservation.at < math.inf:
            when = max(reservation.at + self._settings.renewal, again)
        if self._by_patience(self.bindings[reservation.uid]):
            when = min(when, max(reservation.since + self._settings.waiting, again))
        return when


def _since(binding: Binding) -> str:
    """Time since which it has a reservation, according to its binding."""
    kept = binding.view.decision.kept
    return kept.since if kept is not None else ""
