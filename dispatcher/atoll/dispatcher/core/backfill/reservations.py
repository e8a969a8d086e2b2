"""Room kept for those who wait: when a blocked workload can start, and what may go before it without delaying it.

Backfill (Lifka 1995; Mu'alem and Feitelson 2001) on nodes instead of processors. From the expected ends of what runs
follows the earliest time at which the workload fits some member, placed as it would be placed then. Whatever ends
before that time may pass; what does not may pass if the workload still fits at that time beside it. The same holds for
the limits of the queues on its path.

Each queue may have a head, and all of their promises bind: those of one member are planned beside each other, node by
node, and whatever starts there, heads included, must leave all of them a place.

A wrong estimate moves the time and costs use, never the place: where ends are unknown, nothing that would take from the
member passes any more.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from atoll.dispatcher.core.backfill.allocation import end_of
from atoll.dispatcher.core.backfill.reservation import SETTLE, Holdings, Promise, Stay, give_back, holds, left_beside
from atoll.dispatcher.core.backfill.timeline import Planning
from atoll.dispatcher.core.capacity.member import Member
from atoll.dispatcher.core.capacity.members import Members
from atoll.dispatcher.core.capacity.shape import Shape
from atoll.dispatcher.core.placement.choice import Choice
from atoll.dispatcher.core.quota.queue import Queue, bring_up_to_date, path, use
from atoll.fit import Placement, place
from atoll.model import vector
from atoll.model.gang import Gang
from atoll.model.vector import Vector

_LOOKS = 16
"""Members that are considered for a promise: those with the most room now."""
Change = tuple[float, Queue, Vector, int]
"""(when, queue, amount, 1 = given back or -1 = taken)."""


class Promises(Planning):
    """The promises that follow from what runs; see the module."""

    def __init__(self, world: Members) -> None:
        super().__init__(world)
        #: the latest end at which the choice that was refused last would have been permitted
        self.latest_end = -math.inf
        #: inside `settled`
        self._settled = False
        #: UID -> a promise that is made anew, or gives way to one that is
        self._set_aside: dict[str, Promise] = {}

    # -- what changes ------------------------------------------------------------------------------------------------

    def renumber(self, member: Member, moved: Mapping[int, int | None]) -> None:
        """Nodes of a member have other indices (`Member.moved`): what runs is where it was."""
        for promise in self.all():
            if promise.member is member:
                promise.expected = None
        self._left.pop(member.name, None)
        for _, uid in list(self._here.get(member.name, ())):
            stay = self._stays[uid]
            gang, pods = stay.parts[member.name]
            there = [(task, now, count) for task, node, count in pods if (now := moved.get(node, node)) is not None]
            self.enter(uid, replace(stay, parts={**stay.parts, member.name: (gang, there)}))

    def _account(self, uid: str, stay: Stay, sign: int, *, changes: bool) -> None:
        """What ends after a promised time takes from what may be charged beyond it; what ends before does not."""
        for promise in self.all():
            if promise.leaving.get(uid):
                # Counted as gone from the beginning; if it starts again, that is something else.
                promise.leaving[uid] = changes
            elif promise.victims or not stay.over_at(promise.at, promise.looked):
                give_back(promise.spare, promise.leaf, stay.leaf, stay.amount, sign)

    # -- promises ----------------------------------------------------------------------------------------------------

    def promise(
        self, uid: str, leaf: Queue, shape: Shape, gang: Gang, members: Iterable[Member], now: float, lasts: float
    ) -> Promise | None:
        """Keep room for a waiting workload in the member where it can start first; None where it never fits.

        A promise that was made before keeps its first time and its age. `lasts`: seconds that the workload is expected
        to run.
        """
        old = self.known(uid)
        self.forget(uid)
        self._set_aside.pop(uid, None)
        made = old.made if old is not None else now
        rows = self._world.counts
        able = sorted(
            members, key=lambda m: (-int(rows[shape.rows[0], self._world.column(m.name)]) if shape.rows else 0, m.name)
        )
        if not able:
            return None
        quota = self._admitted_from(uid, leaf, shape.request, now, lasts)
        at, found = math.inf, None
        before = old.member if old is not None else None
        able.sort(key=lambda m: m is not before)
        for member in able[:_LOOKS]:
            if found is not None and at <= max(quota, now):
                break
            wanted = Promise(uid, leaf, shape, gang, member, at, at, made, lasts=lasts, looked=now)
            wanted.expected = old.expected if old is not None and member is before else None
            earliest = self._fits_from(wanted)
            if earliest is not None and (found is None or max(earliest, quota) < at):
                at, found = max(earliest, quota), member
        endless = bool(self._by_end) and self._by_end[-1][0] == math.inf
        if found is None or (at == math.inf and not endless and not self._in_doubt(found)):
            # Or it must wait for others who were promised room and may stay for ever.
            return None
        first = old.first if old is not None and old.first < math.inf else at
        overtaken = old.overtaken if old is not None else False
        promise = Promise(uid, leaf, shape, gang, found, at, first, made, overtaken, lasts=lasts)
        promise.looked = now
        promise.expected = old.expected if old is not None and found is before else None
        promise.spare = left_beside(leaf, shape.request)
        if quota < math.inf:
            self._spare(promise, now)
        else:
            # What ends gives to the head first what it lacks.
            short = self._short(uid, leaf, shape.request)
            promise.limited, promise.spare = True, {key: min(left, 0) for key, left in short.items()}
        # Those for whom others go start as soon as these have gone, before it.
        for other in self.made.values():
            if promise.runs_at(other.at) and not promise.uncertain() and other.uid != uid and uid not in other.beside:
                other.beside[uid] = None
                give_back(other.spare, other.leaf, leaf, shape.request, -1)
        self.made[uid] = promise
        self._outdate(found.name)
        return promise

    def _in_doubt(self, member: Member) -> bool:
        """Whether somebody is promised room there of whom nobody can say at the moment when and where it starts."""
        return any(p.uncertain() for p in self.all() if p.member is member) or any(
            self._kept(each).placement is None for each in self._promised(member)
        )

    @contextmanager
    def giving_way(self, promise: Promise) -> Iterator[list[str]]:
        """Inside, it is set aside, and so are those who were promised later what it may need: their UIDs, the first
        first, each to be promised something again. What that is keeps its first time and its age.
        """
        short = {node for node, _ in self._short("", promise.leaf, promise.shape.request)}
        younger = [
            other
            for other in self.made.values()
            if promise.age < other.age and (other.member is promise.member or not short.isdisjoint(path(other.leaf)))
        ]
        self._set_aside = {each.uid: each for each in sorted([promise, *younger], key=lambda each: each.age)}
        for uid in self._set_aside:
            self.forget(uid)
        try:
            yield list(self._set_aside)
        finally:
            self._set_aside.clear()

    def known(self, uid: str) -> Promise | None:
        """What the workload is promised, or was until it was set aside."""
        return self.made.get(uid) or self._set_aside.get(uid)

    def keep(
        self,
        uid: str,
        leaf: Queue,
        shape: Shape,
        gang: Gang,
        members: Iterable[Member],
        now: float,
        leaving: Iterable[str] = (),
        expected: Placement | None = None,
    ) -> None:
        """Let nobody take what the workload needs in these members, or of the limits on its queue's path, until it
        goes: others are about to make room for it there.

        In several members, and where it would not fit yet although those have gone that go whole, nobody takes
        anything. What it was promised before stays its own, where it was expected.

        Args:
            uid: of the workload.
            leaf: its queue.
            shape: of the workload.
            gang: what is to fit.
            members: where it goes.
            now: seconds since the epoch.
            leaving: UIDs of those that go whole.
            expected: where it goes once they have, if that is one member.
        """
        self.withdraw(uid)
        before = self.made.get(uid)
        first, *rest = members
        made = now if before is None else before.made
        promise = Promise(uid, leaf, shape, gang, first, math.inf, math.inf, made, looked=now, also=tuple(rest))
        promise.victims, promise.expected = True, expected
        promise.leaving = {each: True for each in leaving if each in self._stays}
        promise.spare = left_beside(leaf, shape.request)
        for each in promise.leaving:
            give_back(promise.spare, promise.leaf, self._stays[each].leaf, self._stays[each].amount)
        self.claims[uid] = promise
        self._outdate(first.name)

    def is_mended(self, promise: Promise, now: float) -> bool:
        """Note since when its member would not hold it at its time, if anybody has seen that; whether it does again."""
        if not promise.suspect:
            return False
        if self._kept(promise).placement is not None:
            promise.doubted, promise.suspect = math.inf, False
            return True
        promise.doubted = min(promise.doubted, now)
        return False

    def drop(self, uid: str) -> bool:
        """The workload goes, or waits for something else now. Whether room was kept for it."""
        claimed, promised = self.withdraw(uid), self.forget(uid)
        return claimed or promised

    def withdraw(self, uid: str) -> bool:
        """Nobody goes for the workload any more: it waits for what it was promised before. Whether anybody did."""
        promise = self.claims.pop(uid, None)
        if promise is None:
            return False
        for other in self.all():
            for each in [each for each, stays in promise.leaving.items() if stays and other.leaving.get(each)]:
                # If it goes all the same, that is counted when it does.
                del other.leaving[each]
                give_back(other.spare, other.leaf, self._stays[each].leaf, self._stays[each].amount, -1)
        self._leave_beside(promise)
        return True

    def forget(self, uid: str) -> bool:
        """The workload is promised nothing any more, whoever goes for it. Whether it was."""
        promise = self.made.pop(uid, None)
        if promise is not None:
            self._leave_beside(promise)
        return promise is not None

    def _leave_beside(self, promise: Promise) -> None:
        """A promise is no more: others need not leave it a share of limits, unless its workload runs all the same."""
        uid = promise.uid
        self._outdate(promise.member.name)
        still = self.own(uid)
        for other in self.all():
            if uid in other.beside and (still is None or not still.runs_at(other.at)):
                del other.beside[uid]
                give_back(other.spare, other.leaf, promise.leaf, promise.shape.request)

    def asks_otherwise(self, uid: str) -> bool:
        """The workload is another one: what is known of it is so no more. Whether it was promised room."""
        for promise in self.all():
            promise.refused.pop(uid, None)
        return self.forget(uid)

    def refuses(self, uid: str, leaf: Queue, amount: Vector, choice: Choice, end: float) -> list[Promise]:
        """The promises that a choice for a workload would break, if it ran until `end`."""
        broken, doubtful = [], []
        for promise, short in self._bind(uid, leaf, amount, end):
            if short:
                broken.append(promise)
            elif promise.limited:
                continue
            elif promise.member in choice.members or any(each in promise.also for each in choice.members):
                doubtful.append(promise)
        for promise in self._delayed(uid, choice, doubtful, end):
            if promise not in broken:
                broken.append(promise)
            if choice.members == (promise.member,):
                promise.refused[uid] = (promise.member.changes, end)
        self._widen(broken, end)
        return broken

    def forbids(self, uid: str, leaf: Queue, amount: Vector, end: float) -> list[Promise]:
        """Of the promises that a workload would break, if it ran until `end`, those that any choice for it does: it
        takes what they need of limits.
        """
        return [promise for promise, short in self._bind(uid, leaf, amount, end) if short]

    def _bind(self, uid: str, leaf: Queue, amount: Vector, end: float) -> Iterator[tuple[Promise, bool]]:
        """Whom a workload that runs until `end` must not delay, and whether it takes what they need of limits."""
        own = self.own(uid)
        for promise in self.all():
            if promise.uid == uid or end + SETTLE <= promise.at < math.inf or promise.yields_to(own):
                continue
            charged = promise.victims and self._settled
            yield promise, uid not in promise.beside and not charged and promise.exceeds(leaf, amount)

    def refuses_still(self, uid: str, member: Member, end: float) -> list[Promise]:
        """Those that the workload would break there, known from when that was tried and nothing had changed since."""
        broken = []
        for promise in self.all():
            known = promise.refused.get(uid) if promise.member is member else None
            if known is not None and known[0] == member.changes and known[1] <= end:
                broken.append(promise)
        self._widen(broken, end)
        return broken

    def _widen(self, broken: Sequence[Promise], end: float) -> None:
        """Note until when a workload that would run until `end` could have run without breaking these."""
        if not broken or math.inf in {promise.at for promise in broken}:
            return
        first = min(promise.at for promise in broken)
        if end + SETTLE <= first:
            # It is others who would take their places, whoever of those that start before.
            members = {promise.member for promise in broken}
            first = min(promise.at for promise in self.made.values() if promise.member in members)
        self.latest_end = max(self.latest_end, first)

    def _delayed(self, uid: str, choice: Choice, others: Sequence[Promise], end: float) -> list[Promise]:
        """Those of the others that would not be kept in their members beside a choice."""
        delayed = []
        for member, gang, placement in zip(choice.members, choice.gangs, choice.placements, strict=True):
            here = [each for each in others if (each.member is member or member in each.also) and each not in delayed]
            delayed += [each for each in here if each.uncertain()]
            here = [each for each in here if not each.uncertain()]
            own = self.own(uid)
            if own is not None and own in self._promised(member) and self._kept(own).is_at(placement):
                # Its own place, which was kept beside all who can be held. One that was promised something earlier and
                # can't, as happens for a moment while figures contradict each other, may have its place there.
                here = [each for each in here if self._kept(each).placement is not None or each.age < own.age]
            needs = gang.requests()
            if all(self._kept(each).leaves(needs, placement) for each in here):
                continue
            # They may do with other nodes, if that delays no one who was promised later.
            beside = self._plan(member, but=uid, taken=(needs, placement, end))
            lost = [each for each, kept in beside.items() if kept.placement is None]
            # One that starts after its end loses its place to one that must do with other nodes.
            delayed += [each for each in lost if each in here or self._kept(each).placement is not None]
        return delayed

    def aside(self, uid: str, member: Member, gang: Gang, end: float) -> Placement | None:
        """Where a gang is in nobody's way who was promised a place in its member, if it runs until `end`; None where
        there is no such place.
        """
        own = self.own(uid)
        if own is not None and own in self._promised(member) and own.gang.full() == gang.full():
            expected = self._kept(own).placement
            if expected is not None and holds(member.nodes, gang.requests(), expected):
                return expected
        nodes = member.nodes.copy()
        for promise in self.all():
            if promise.uid == uid or promise.limited or end + SETTLE <= promise.at < math.inf or promise.yields_to(own):
                continue
            if promise.member is member or member in promise.also:
                if promise.uncertain() or self._kept(promise).placement is None:
                    return None
                np.minimum(nodes.free, self._kept(promise).rest.free, out=nodes.free)
        placement = place(nodes, gang)
        return placement if isinstance(placement, Placement) else None

    @contextmanager
    def untouched(self) -> Iterator[None]:
        """Whatever is asked inside leaves nothing behind, not even what is kept to be quick."""
        before = [
            (each, each.future, each.kept, each.expected, dict(each.refused), each.suspect) for each in self.all()
        ]
        latest = self.latest_end
        try:
            yield
        finally:
            self.latest_end = latest
            for promise, future, kept, expected, refused, suspect in before:
                promise.future, promise.kept, promise.expected = future, kept, expected
                promise.refused, promise.suspect = refused, suspect

    @contextmanager
    def settled(self, *, but: str = "") -> Iterator[None]:
        """Inside, queues are charged as if those had started for whom others make room, and the others had gone; all
        but the workload of that UID. What is still to come is nothing that a queue could give up.
        """
        before: dict[Queue, tuple[Vector, Vector]] = {}
        for promise in self.claims.values():
            if promise.uid != but:
                gone = [self._stays[uid] for uid, stays in promise.leaving.items() if stays]
                for queue in path(promise.leaf):
                    left = vector.total(stay.amount for stay in gone if queue in path(stay.leaf))
                    for name, value in promise.shape.request.items():
                        if value > left.get(name, 0):
                            queue.coming[name] = queue.coming.get(name, 0) + value - left.get(name, 0)
                for leaf, amount, times in (
                    (promise.leaf, promise.shape.request, 1),
                    *((stay.leaf, stay.amount, -1) for stay in gone),
                ):
                    for queue in path(leaf):
                        if queue not in before:
                            # What its parent divides follows from what is really used.
                            bring_up_to_date(queue)
                            before[queue] = (queue.used, queue.kept)
                            queue.used, queue.kept = dict(queue.used), dict(queue.kept)
                    use(leaf, amount, times)
        self._settled = True
        try:
            yield
        finally:
            self._settled = False
            for queue, (used, kept) in before.items():
                queue.used, queue.kept = used, kept
                queue.coming = {}

    # -- the future --------------------------------------------------------------------------------------------------

    def _admitted_from(self, uid: str, leaf: Queue, request: Vector, now: float, lasts: float) -> float:
        """From when on the limits on the path admit the workload's request for so long beside the others who were
        promised room; infinite where that is not known.
        """
        left = self._short(uid, leaf, request)
        if not left:
            return now
        queues = {queue for queue, _ in left}
        others = [each for each in self.each() if each.uid != uid]
        starts = [(now if p.victims else max(p.at, now), p.leaf, p.shape.request, -1) for p in others]
        last = max((when for when, *_ in starts if when < math.inf), default=now)
        starts += [(p.ends, p.leaf, p.shape.request, 1) for p in others if p.ends < math.inf]
        soon, later = self._given_back(uid, queues, now)
        few = sorted([(now, leaf, {}, 1), *starts, *soon], key=_when)
        changes = heapq.merge(few, later, key=_when)
        #: queue -> those limits that what it uses counts for
        limits: dict[Queue, list[tuple[Queue, str]]] = {}
        guaranteed: dict[Queue, bool] = {}
        holdings: Holdings = {}
        since: float | None = None
        for when, here in itertools.groupby(changes, key=_when):
            if when == math.inf:
                break
            for _, other, amount, times in here:
                if other not in guaranteed:
                    guaranteed[other] = any(queue.guarantee for queue in path(other))
                if guaranteed[other]:
                    give_back(left, leaf, other, amount, times, holdings)
                    continue
                if other not in limits:
                    above = set(path(other))
                    limits[other] = [limit for limit in left if limit[0] in above]
                for limit in limits[other]:
                    left[limit] += times * amount.get(limit[1], 0)
            if min(left.values()) >= 0:
                since = when if since is None else since
                if when >= last:
                    # Nobody takes any more.
                    break
            elif since is not None and when >= since + lasts + SETTLE:
                break
            else:
                since = None
        return math.inf if since is None else since

    def _short(self, uid: str, leaf: Queue, request: Vector) -> dict[tuple[Queue, str], int]:
        """(queue on the path, resource) -> what is left there beside the request, where that is not enough for all who
        were promised room as well, the workload itself apart. Elsewhere there is enough, and what ends gives more.
        """
        left = left_beside(leaf, request)
        beside = dict(left)
        holdings: Holdings = {}
        for promise in self.each():
            if promise.uid != uid:
                give_back(beside, leaf, promise.leaf, promise.shape.request, -1, holdings)
        return {key: amount for key, amount in left.items() if beside[key] < 0}

    def _given_back(self, uid: str, queues: Set[Queue], now: float) -> tuple[list[Change], Iterator[Change]]:
        """What runs in these queues, and below, as its room is expected to be there again where nobody goes for the
        workload of that UID: what is not as its estimate says, in no order, and the others in theirs.
        """
        claims = [claim for claim in self.claims.values() if claim.uid != uid]
        leaving = {each for claim in claims for each, stays in claim.leaving.items() if stays}
        counts: dict[Queue, bool] = {}
        known = self._stays

        def stays(ends: Iterable[tuple[float, str]]) -> Iterator[Change]:
            for end, uid in ends:
                stay = known[uid]
                leaf = stay.leaf
                if leaf not in counts:
                    counts[leaf] = not queues.isdisjoint(path(leaf))
                if counts[leaf] and uid not in leaving:
                    yield (end if end > now else stay.expected_end(now)) + SETTLE, leaf, stay.amount, 1

        late = bisect.bisect_right(self._by_end, now, key=end_of)
        gone = [self._stays[uid] for uid in leaving]
        soon = [(now, each.leaf, each.amount, 1) for each in gone]
        soon += stays(itertools.islice(self._by_end, late))
        return soon, stays(itertools.islice(self._by_end, late, None))

    def _spare(self, promise: Promise, now: float) -> None:
        """Count what is over by the promised time, and those who were promised room and have started by then."""
        spare = promise.spare
        if not spare:
            return
        over: dict[Queue, Vector] = {}
        for _, uid in self._by_end[: bisect.bisect_right(self._by_end, promise.at - SETTLE, key=end_of)]:
            stay = self._stays[uid]
            if stay.over_at(promise.at, now):
                vector.add(over.setdefault(stay.leaf, {}), stay.amount)
        holdings: Holdings = {}
        for leaf, amount in over.items():
            give_back(spare, promise.leaf, leaf, amount, 1, holdings)
        for other in self.each():
            if other.uid != promise.uid and other.runs_at(promise.at):
                promise.beside[other.uid] = None
                give_back(spare, promise.leaf, other.leaf, other.shape.request, -1, holdings)
        for other in self.claims.values():
            if other.uid == promise.uid:
                continue
            for uid in (uid for uid, counts in other.leaving.items() if counts and uid not in promise.leaving):
                if not (stay := self._stays[uid]).over_at(promise.at, now):
                    promise.leaving[uid] = True
                    give_back(spare, promise.leaf, stay.leaf, stay.amount)


def _when(each: Change) -> float:
    return each[0]
