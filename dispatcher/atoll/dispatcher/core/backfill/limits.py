"""Limits of queues beside reservations: amounts left, and the time from which on they admit a workload."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterable, Iterator, Set

from atoll.dispatcher.core.backfill.allocation import Allocation
from atoll.dispatcher.core.backfill.book import Book
from atoll.dispatcher.core.backfill.reservation import Holdings, Left, Reservation, give_back, left_beside, less
from atoll.dispatcher.core.backfill.timeline import Timeline
from atoll.dispatcher.core.quota.queue import Queue, path
from atoll.dispatcher.core.settings import BackfillSettings
from atoll.model import vector
from atoll.model.vector import Vector

Change = tuple[float, Queue, Vector, int]
"""(when, queue, amount, 1 = given back or -1 = taken)."""


class Limits:
    def __init__(self, book: Book, timeline: Timeline, settings: BackfillSettings) -> None:
        self._book, self._timeline, self._settings = book, timeline, settings

    def counted(self, uid: str, allocation: Allocation, sign: int) -> None:
        """Work starts (-1) or ends (1): amounts left beside reservations change, unless they are without it already."""
        for each in self._book.all():
            if each.left is not None and not self._gone_for(each, uid, allocation):
                for left in (each.left, each.spare):
                    if left is not None:
                        give_back(left, each.leaf, allocation.leaf, allocation.amount, sign)

    def _gone_for(self, reservation: Reservation, uid: str, allocation: Allocation) -> bool:
        if reservation.claim:
            return uid in reservation.leaving
        if allocation.over_at(reservation.at, reservation.computed):
            return True
        return any(uid in claim.leaving for claim in self._book.claims.values() if claim.uid != reservation.uid)

    def spare(self, reservation: Reservation) -> Left:
        """What limits have left when it starts, beside all reservations that have started by then; don't change it."""
        if reservation.spare is not None:
            return reservation.spare
        alone = reservation.claim or reservation.limited
        others = [] if alone else [each for each in self._book.each() if each.runs_at(reservation.at)]
        others = [each for each in others if each.uid != reservation.uid]
        reservation.spare = less(self._left(reservation), reservation.leaf, others)
        return reservation.spare

    def _left(self, reservation: Reservation) -> Left:
        """What limits on its queue's path have left beside it when it starts, as far as they follow from what runs."""
        if reservation.left is not None:
            return reservation.left
        leaf, request = reservation.leaf, reservation.shape.request
        left = reservation.left = left_beside(leaf, request)
        if reservation.limited:
            # Ending work gives first to its shortage.
            short = self.short(reservation.uid, leaf, request)
            reservation.left = {key: min(amount, 0) for key, amount in short.items()}
        elif left:
            gone: dict[str, None] = {}
            if not reservation.claim:
                gone = {
                    uid: None
                    for _, uid in self._timeline.by_end(until=reservation.at - self._settings.settle)
                    if self._timeline[uid].over_at(reservation.at, reservation.computed)
                }
            for claim in [reservation] if reservation.claim else self._book.claims.values():
                if claim.uid != reservation.uid or reservation.claim:
                    gone |= claim.leaving
            amounts: dict[Queue, Vector] = {}
            for uid in gone:
                vector.add(amounts.setdefault(self._timeline[uid].leaf, {}), self._timeline[uid].amount)
            holdings: Holdings = {}
            for other, amount in amounts.items():
                give_back(left, leaf, other, amount, 1, holdings)
        return reservation.left

    def exceeds(self, reservation: Reservation, leaf: Queue, amount: Vector) -> bool:
        """Whether a workload that stays for ever takes from the limits what the reservation needs."""
        spare = self.spare(reservation)
        for node in path(leaf):
            for name, value in amount.items():
                left = spare.get((node, name))
                if left is not None and value > max(left, 0):
                    return True
        return False

    def admitted_from(self, uid: str, leaf: Queue, request: Vector, lasts: float, begin: float = -math.inf) -> float:
        """The first time from `begin` on at which the limits on the path admit the workload's request for so long
        beside the other reservations; infinite where that is not known.
        """
        now = self._timeline.now
        begin = max(begin, now)
        left = self.short(uid, leaf, request)
        if not left:
            return begin
        queues = {node for node, _ in left}
        others = [each for each in self._book.each() if each.uid != uid]
        starts = [(max(r.starts, now), r.leaf, r.shape.request, -1) for r in others]
        last = max((when for when, *_ in starts if when < math.inf), default=now)
        starts += [(r.ends, r.leaf, r.shape.request, 1) for r in others if r.ends < math.inf]
        soon, later = self._given_back(uid, queues)
        few = sorted([(now, leaf, {}, 1), *starts, *soon], key=_when)
        changes = heapq.merge(few, later, key=_when)
        #: queue -> the limits that its use counts for
        limits: dict[Queue, list[tuple[Queue, str]]] = {}
        guaranteed: dict[Queue, bool] = {}
        holdings: Holdings = {}
        since: float | None = None
        for when, here in itertools.groupby(changes, key=_when):
            if when == math.inf:
                break
            for _, other, amount, times in here:
                if other not in guaranteed:
                    guaranteed[other] = any(node.guarantee for node in path(other))
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
                    # No reservation takes any more.
                    break
            elif since is not None and when >= max(since, begin) + lasts + self._settings.settle:
                break
            else:
                since = None
        return math.inf if since is None else max(since, begin)

    def short(self, uid: str, leaf: Queue, request: Vector) -> Left:
        """Amounts left beside the request, of limits that are not enough for all other reservations as well.
        Elsewhere there is enough, and what ends gives more.
        """
        left = left_beside(leaf, request)
        beside = less(left, leaf, (each for each in self._book.each() if each.uid != uid))
        return {key: amount for key, amount in left.items() if beside[key] < 0}

    def _given_back(self, uid: str, queues: Set[Queue]) -> tuple[list[Change], Iterator[Change]]:
        """What runs in these queues, and below, as its capacity is expected to be free again, but for that workload's
        claim: work without a normal estimate in no order, and the others by theirs.
        """
        claims = [claim for claim in self._book.claims.values() if claim.uid != uid]
        leaving = {each for claim in claims for each in claim.leaving}
        counts: dict[Queue, bool] = {}
        timeline, now = self._timeline, self._timeline.now

        def given(ends: Iterable[tuple[float, str]]) -> Iterator[Change]:
            for _, uid in ends:
                allocation = timeline[uid]
                leaf = allocation.leaf
                if leaf not in counts:
                    counts[leaf] = not queues.isdisjoint(path(leaf))
                if counts[leaf] and uid not in leaving:
                    yield allocation.expected_end(now) + self._settings.settle, leaf, allocation.amount, 1

        soon = [(now, timeline[uid].leaf, timeline[uid].amount, 1) for uid in leaving]
        soon += given(timeline.by_end(until=now - self._settings.settle))
        return soon, given(timeline.by_end(after=now - self._settings.settle))


def _when(each: Change) -> float:
    return each[0]
