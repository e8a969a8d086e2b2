"""Capacity reserved for heads: the start of each, and which workloads may run before without delaying it.

Backfill (Lifka 1995; Mu'alem and Feitelson 2001) on nodes instead of processors. From the expected ends of what runs
follows the earliest time at which a workload fits a member and the limits of its queues, beside workloads with
reservations already. From then on it is a reservation like theirs: its time stays, and what starts in the member must
leave all of them their places, its limits their share. The places of a member are computed anew, by `arrange`, where
their inputs have changed.

A time is computed again where it has passed, where it was not known, or where a better rank took the place. A wrong
estimate moves the time and costs use, never the rank.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from atoll.dispatcher.core.backfill.allocation import Allocation
from atoll.dispatcher.core.backfill.arrange import Plan, arrange
from atoll.dispatcher.core.backfill.book import Book
from atoll.dispatcher.core.backfill.limits import Limits
from atoll.dispatcher.core.backfill.reservation import Reservation, Spot
from atoll.dispatcher.core.backfill.spots import Spots
from atoll.dispatcher.core.backfill.starts import Starts
from atoll.dispatcher.core.backfill.timeline import Timeline
from atoll.dispatcher.core.backlog.binding import Binding, estimate
from atoll.dispatcher.core.capacity.member import Member
from atoll.dispatcher.core.capacity.members import Members
from atoll.dispatcher.core.capacity.shape import Shape
from atoll.dispatcher.core.placement.choice import Choice
from atoll.dispatcher.core.quota.queue import Queue, Supposed, path
from atoll.dispatcher.core.settings import BackfillSettings
from atoll.fit import Placement, place
from atoll.model import vector
from atoll.model.gang import Gang
from atoll.model.vector import Vector


class Reservations:
    def __init__(self, members: Members, settings: BackfillSettings = BackfillSettings()) -> None:
        self._members, self._settings = members, settings
        self._book = Book()
        #: UID of the waiting workload -> its reservation; a view
        self.made = self._book.made
        #: the same of claimants
        self.claims = self._book.claims
        self.timeline = Timeline(members, self, settings)
        self._limits = Limits(self._book, self.timeline, settings)
        self._spots = Spots(self._book, self.timeline)
        self._starts = Starts(self._book, members, self.timeline, self._limits, self._spots, settings)
        #: the latest end at which the choice that was refused last would have been permitted
        self.latest_end = -math.inf
        #: where others will be beside the choice that was judged last
        self._moved: dict[Reservation, Placement] = {}
        #: inside `settled`
        self._settled = False
        #: UID -> a reservation that is computed again, or gives way to one that is
        self._aside: dict[str, Reservation] = {}
        #: member -> (its changes then, UID -> (an end, the reservations that it would delay there))
        self._refused: dict[str, tuple[int, dict[str, tuple[float, list[Reservation]]]]] = {}

    def all(self) -> Iterator[Reservation]:
        """Whatever binds others, of one workload perhaps two."""
        return self._book.all()

    @property
    def empty(self) -> bool:
        """Whether nothing is reserved."""
        return not self.made and not self.claims

    def own(self, uid: str) -> Reservation | None:
        """By what a workload starts: its claim, else its reservation; None without one."""
        return self._book.own(uid)

    def each(self) -> Iterator[Reservation]:
        """One for each workload: as it starts if its victims go."""
        return self._book.each()

    def spot(self, reservation: Reservation) -> Spot:
        """Where it will be, beside all others of its member."""
        return self._spots.spot(reservation)

    def known(self, uid: str) -> Reservation | None:
        """The workload's reservation, or the one before it was set aside."""
        return self.made.get(uid) or self._aside.get(uid)

    # -- what changes ------------------------------------------------------------------------------------------------

    def counted(self, uid: str, allocation: Allocation, sign: int, *, changes: bool) -> None:
        """Work that ends before a reservation starts counts as gone from the beginning; other changes count now."""
        self._limits.counted(uid, allocation, sign)
        for claim in self.claims.values() if not changes else ():
            # If it starts again, that is something else.
            claim.leaving.pop(uid, None)

    def outdated(self, name: str) -> None:
        """Forget the known future of a member."""
        for each in self._book.all():
            if each.member.name == name:
                each.future = each.spot = None

    def renumber(self, member: Member, moved: Mapping[int, int | None]) -> None:
        """Nodes of a member have other indices (`Member.moved`)."""
        for each in self._book.all():
            if each.member is member:
                each.placement = None
        self.timeline.renumber(member, moved)

    def _changed(self, reservation: Reservation) -> None:
        """It is there or not, or has another time."""
        self.timeline.outdate(reservation.member.name)
        for each in self._book.all():
            each.spare = None
            if reservation.claim and reservation.leaving:
                each.left = None

    # -- reserving ---------------------------------------------------------------------------------------------------

    def reserve(self, binding: Binding, members: Iterable[Member]) -> Reservation | None:
        """Reserve capacity in the member where a waiting workload can start first; None where it never fits.

        Its earlier reservation keeps its first time and its age.
        """
        uid, leaf, shape, lasts = binding.view.uid, binding.leaf, binding.shape, estimate(binding)
        assert shape is not None, f"{uid} does not wait"
        old, now = self.known(uid), self.timeline.now
        self.forget(uid)
        self._aside.pop(uid, None)
        since = old.since if old is not None else now
        rows, before = self._members.table.counts, old.member if old is not None else None

        def preference(member: Member) -> tuple[bool, int, str]:
            held = int(rows[shape.rows[0], self._members.table.column(member.name)]) if shape.rows else 0
            return member is not before, -held, member.name

        able = sorted(members, key=preference)
        if not able:
            return None
        admitted = self._limits.admitted_from(uid, leaf, shape.request, lasts)
        best: Reservation | None = None
        plan: Plan = {}
        for member in able[: self._settings.members]:
            if best is not None and best.at <= max(admitted, now):
                break
            limit = best.at if best is not None else math.inf
            wanted = Reservation(uid, leaf, shape, member, limit, math.inf, since, lasts, now, settings=self._settings)
            wanted.placement = old.placement if old is not None and member is before else None
            found = self._starts.first_fit(wanted, admitted)
            if found is not None and (best is None or wanted.at < limit):
                best, plan = wanted, found
        if best is None or (best.at == math.inf and not self._starts.are_open_ended(best.member)):
            return None
        best.first = old.first if old is not None and old.first < math.inf else best.at
        best.overtaken = old is not None and old.overtaken
        for each, spot in plan.items():
            each.placement = spot.placement
        best.future = None
        self.made[uid] = best
        self._changed(best)
        return best

    def moves(self, uid: str) -> bool:
        """Whether a place is kept for the workload because it is moved."""
        claim = self.claims.get(uid)
        return claim is not None and claim.moved

    def expected_start(self, binding: Binding, members: Sequence[Member]) -> float:
        """When a waiting workload could start in one of these members, as estimates say; infinite where not known."""
        uid, leaf, shape, lasts = binding.view.uid, binding.leaf, binding.shape, estimate(binding)
        assert shape is not None, f"{uid} does not wait"
        now, best = self.timeline.now, math.inf
        admitted = self._limits.admitted_from(uid, leaf, shape.request, lasts)
        for member in members[: self._settings.members]:
            wanted = Reservation(uid, leaf, shape, member, best, math.inf, now, lasts, now, settings=self._settings)
            if self._starts.first_fit(wanted, admitted) is not None:
                best = min(best, wanted.at)
        return best

    @contextmanager
    def giving_way(self, reservation: Reservation) -> Iterator[dict[str, Reservation]]:
        """Inside, this one and younger ones that may have its nodes are set aside: by UID, in order of age, each to
        be reserved something again. The new reservation keeps its first time and its age.
        """
        short = {node for node, _ in self._limits.short("", reservation.leaf, reservation.shape.request)}
        younger = [
            each
            for each in self.made.values()
            if reservation.age < each.age
            and (each.member is reservation.member or not short.isdisjoint(path(each.leaf)))
        ]
        self._aside = {each.uid: each for each in sorted([reservation, *younger], key=lambda each: each.age)}
        for uid in self._aside:
            self.forget(uid)
        try:
            yield dict(self._aside)
        finally:
            self._aside.clear()

    def claim(
        self,
        binding: Binding,
        members: Iterable[Member],
        leaving: Iterable[str],
        expected: Placement | None = None,
        until: float = math.inf,
        moved: Shape | None = None,
    ) -> None:
        """Reserve what a waiting workload needs in these members, and of the limits on its queue's path, until it
        starts: others are about to be evicted for it there.

        In several members no other workload takes anything. Its earlier reservation stays its own.

        Args:
            binding: of the workload.
            members: where it goes.
            leaving: UIDs of the victims that are evicted whole.
            expected: where it goes once they have, if that is one member.
            until: the end of the claim.
            moved: the shape of a workload that leaves its present place first, and does not wait yet.
        """
        uid, shape, now = binding.view.uid, moved or binding.shape, self.timeline.now
        assert shape is not None, f"{uid} does not wait"
        self.withdraw(uid)
        before = self.made.get(uid)
        first, *rest = members
        since = now if before is None else before.since
        known = {each: None for each in leaving if each in self.timeline}
        self.claims[uid] = claim = Reservation(
            uid, binding.leaf, shape, first, math.inf, math.inf, since, computed=now, placement=expected,
            settings=self._settings, claim=True, also=tuple(rest), until=until,
            moved=moved is not None, leaving=known,
        )  # fmt: skip
        self._changed(claim)

    def drop(self, uid: str) -> bool:
        """The workload goes, or waits for something else now. Whether anything was reserved for it."""
        claimed, reserved = self.withdraw(uid), self.forget(uid)
        return claimed or reserved

    def withdraw(self, uid: str) -> bool:
        """The workload has no claim any more: its earlier reservation is left. Whether it had one."""
        return self._remove(self.claims, uid)

    def forget(self, uid: str) -> bool:
        """Nothing is reserved for the workload any more, claims apart. Whether it was."""
        return self._remove(self.made, uid)

    def _remove(self, known: dict[str, Reservation], uid: str) -> bool:
        reservation = known.pop(uid, None)
        if reservation is not None:
            self._changed(reservation)
        return reservation is not None

    def asks_otherwise(self, uid: str) -> bool:
        """The workload is another one: forget the known one. Whether it had a reservation."""
        for _, known in self._refused.values():
            known.pop(uid, None)
        return self.forget(uid)

    # -- judging -----------------------------------------------------------------------------------------------------

    def delayed(self, uid: str, leaf: Queue, amount: Vector, choice: Choice, end: float) -> list[Reservation]:
        """Reservations that a choice for a workload would delay, if it ran until `end`."""
        self._moved = {}
        broken, doubtful = [], []
        for each, short in self._bound_by(uid, leaf, amount, end):
            if short:
                broken.append(each)
            elif each.limited:
                continue
            elif each.member in choice.members or any(member in each.also for member in choice.members):
                doubtful.append(each)
        for each in self._without_place(uid, choice, doubtful, end):
            if each not in broken:
                broken.append(each)
            if choice.members == (each.member,):
                self._note_refusal(uid, each, end)
        self._widen(broken, end)
        return broken + [each for each in self._over_ceilings(uid, leaf, choice) if each not in broken]

    def follow(self) -> None:
        """The choice that was judged last is carried out: the others' places are those beside it."""
        for each, placement in self._moved.items():
            each.placement = placement
        self._moved = {}

    def short_of(self, uid: str, leaf: Queue, amount: Vector, end: float) -> list[Reservation]:
        """Reservations that any choice delays, if the workload runs until `end`: it uses their part of limits."""
        return [each for each, short in self._bound_by(uid, leaf, amount, end) if short]

    def _bound_by(self, uid: str, leaf: Queue, amount: Vector, end: float) -> Iterator[tuple[Reservation, bool]]:
        """Reservations that a workload running until `end` must not delay, and whether it uses their part of limits."""
        own = self._book.own(uid)
        for each in self._book.all():
            if each.uid != uid and each.binds(own, end):
                # What a settled claim takes is charged already; and so is the workload's share where it has one.
                counted = self._settled if each.claim else own is not None and own.runs_at(each.at)
                yield each, not counted and self._limits.exceeds(each, leaf, amount)

    def _over_ceilings(self, uid: str, leaf: Queue, choice: Choice) -> Iterator[Reservation]:
        """Reservations of claimants that a choice would delay by a ceiling in a member on both paths."""
        for claim in self.claims.values():
            if claim.uid == uid or claim.member not in choice.members:
                continue
            name, gang = claim.member.name, choice.gangs[choice.members.index(claim.member)]
            gone = [self.timeline[each] for each in claim.leaving]
            for queue in path(leaf):
                if name not in queue.ceilings or queue not in path(claim.leaf):
                    continue
                used = dict(queue.used_in.get(name, {}))
                vector.add(used, claim.shape.request)
                for each in gone:
                    if queue in path(each.leaf):
                        vector.add(used, each.uses_in(name), -1)
                if vector.shortage(used, gang.total(), queue.ceilings[name]):
                    yield claim
                    break

    def refused_before(self, uid: str, member: Member, end: float) -> list[Reservation]:
        """Reservations that the workload would delay there, remembered from a trial until anything changes."""
        changes, known = self._refused.get(member.name, (-1, {}))
        then, broken = known.get(uid, (math.inf, [])) if changes == member.changes else (math.inf, [])
        if then > end:
            return []
        self._widen(broken, end)
        return broken

    def _note_refusal(self, uid: str, reservation: Reservation, end: float) -> None:
        member = reservation.member
        changes, known = self._refused.get(member.name, (-1, {}))
        if changes != member.changes:
            known = {}
            self._refused[member.name] = member.changes, known
        then, broken = known.get(uid, (end, []))
        known[uid] = end, [*broken, reservation] if then == end else [reservation]

    def _widen(self, broken: Sequence[Reservation], end: float) -> None:
        """Note until when a workload that would run until `end` could have run without delaying these."""
        if not broken or math.inf in {each.at for each in broken}:
            return
        first = min(each.at for each in broken)
        if end + self._settings.settle <= first:
            # Others would take their places, any of the workloads that start before.
            members = {each.member for each in broken}
            first = min(each.at for each in self.made.values() if each.member in members)
        self.latest_end = max(self.latest_end, first)

    def _without_place(self, uid: str, choice: Choice, others: Sequence[Reservation], end: float) -> list[Reservation]:
        """The others that would have no place in their members beside a choice."""
        lost: list[Reservation] = []
        own = self._book.own(uid)
        for member, gang, placement in zip(choice.members, choice.gangs, choice.placements, strict=True):
            here = [each for each in others if (each.member is member or member in each.also) and each not in lost]
            lost += [each for each in here if each.uncertain]
            here = [each for each in here if not each.uncertain]
            if own is not None and own in self._book.placed(member) and self._spots.spot(own).is_at(placement):
                # Its own place, arranged beside all that fit. A younger one that does not, as happens for a moment
                # while figures contradict each other, may have its place there.
                here = [each for each in here if self._spots.spot(each).placement is not None or each.age < own.age]
            needs = gang.requests()
            if all(self._spots.spot(each).leaves(needs, placement) for each in here):
                continue
            # They may do with other nodes, if all with reservations do.
            plan = arrange(self._book.placed(member, but=uid), self._spots.future, (needs, placement, end))
            gone = [each for each, spot in plan.items() if spot.placement is None]
            # One that starts after its end loses its place to one that must do with other nodes.
            lost += [each for each in gone if each in here or self._spots.spot(each).placement is not None]
            self._moved |= {each: spot.placement for each, spot in plan.items() if spot.placement is not None}
        return lost

    def aside(self, uid: str, member: Member, gang: Gang, end: float) -> Placement | None:
        """Where a gang takes nothing of the reservations in its member, if it runs until `end`; None where there is no
        such place.
        """
        own = self._book.own(uid)
        if own is not None and own in self._book.placed(member) and own.gang.full() == gang.full():
            expected = self._spots.spot(own).placement
            if expected is not None and member.nodes.holds(gang.requests(), expected):
                return expected
        nodes = member.nodes.copy()
        for each in self._book.all():
            if each.uid == uid or each.limited or not each.binds(own, end):
                continue
            if each.member is member or member in each.also:
                if each.uncertain or self._spots.spot(each).placement is None:
                    return None
                np.minimum(nodes.free, self._spots.spot(each).rest.free, out=nodes.free)
        placement = place(nodes, gang)
        return placement if isinstance(placement, Placement) else None

    @contextmanager
    def untouched(self) -> Iterator[None]:
        """Questions asked inside leave nothing behind, not even in caches."""
        for each in self._book.all():
            # They follow from the real use.
            self._limits.spare(each)
        before = [(each, each.future, each.spot, each.placement, each.lost) for each in self._book.all()]
        latest, refused, self._refused = self.latest_end, self._refused, {}
        try:
            yield
        finally:
            self.latest_end, self._refused, self._moved = latest, refused, {}
            for each, future, spot, placement, lost in before:
                each.future, each.spot, each.placement, each.lost = future, spot, placement, lost

    @contextmanager
    def settled(self, *, but: str = "") -> Iterator[None]:
        """Inside, queues are charged as if claimants had started and their victims had gone; all but the workload of
        that UID. Capacity still to come is nothing that a queue could give up.
        """
        for each in self._book.all():
            # They follow from the real use.
            self._limits.spare(each)
        supposed = Supposed()
        coming: dict[Queue, None] = {}
        for claim in self.claims.values():
            if claim.uid != but:
                gone = [self.timeline[each] for each in claim.leaving]
                for node in path(claim.leaf):
                    left = vector.total(each.amount for each in gone if node in path(each.leaf))
                    for name, value in claim.shape.request.items():
                        if value > left.get(name, 0):
                            node.coming[name] = node.coming.get(name, 0) + value - left.get(name, 0)
                            coming[node] = None
                supposed.use(claim.leaf, claim.shape.request)
                for victim in gone:
                    supposed.use(victim.leaf, victim.amount, -1)
        self._settled = True
        try:
            yield
        finally:
            self._settled = False
            supposed.undo()
            for node in coming:
                node.coming = {}
