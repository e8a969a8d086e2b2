"""The earliest start of a workload in a member, beside running work, reservations and limits."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence

import numpy as np

from atoll.dispatcher.core.backfill.arrange import Plan, beside, in_order_of_starts
from atoll.dispatcher.core.backfill.book import Book
from atoll.dispatcher.core.backfill.limits import Limits
from atoll.dispatcher.core.backfill.reservation import Reservation
from atoll.dispatcher.core.backfill.spots import Spots
from atoll.dispatcher.core.backfill.timeline import Timeline
from atoll.dispatcher.core.capacity.member import Member
from atoll.dispatcher.core.capacity.members import Members
from atoll.dispatcher.core.settings import BackfillSettings
from atoll.fit import place
from atoll.fit.freed import ends_needed, is_loose


class Starts:
    def __init__(
        self, book: Book, members: Members, timeline: Timeline, limits: Limits, spots: Spots, settings: BackfillSettings
    ) -> None:
        self._book, self._members, self._settings = book, members, settings
        self._timeline, self._limits, self._spots = timeline, limits, spots

    def first_fit(self, wanted: Reservation, admitted: float) -> Plan | None:
        """Set the first time at which its member and its limits can take it, before its present one, and give
        the plan for its member if that has reservations; None where there is no such time.
        """
        limit, begin = wanted.at, wanted.computed if admitted == math.inf else admitted
        while True:
            found = self._fits_from(wanted, begin, limit)
            if found is None or wanted.at == math.inf:
                wanted.limited = found is not None and admitted == math.inf
                return found
            if admitted < math.inf:
                begin = self._limits.admitted_from(
                    wanted.uid, wanted.leaf, wanted.shape.request, wanted.lasts, wanted.at
                )
            else:
                begin = math.inf
            if begin <= wanted.at:
                return found
            if begin == math.inf:
                wanted.at, wanted.limited = math.inf, True
                return {}

    def are_open_ended(self, member: Member) -> bool:
        """Whether something may run for ever: what runs now, or a workload with a reservation of which is not known at
        the moment when and where it starts.
        """
        return (
            self._timeline.endless
            or any(each.uncertain for each in self._book.all() if each.member is member)
            or any(self._spots.spot(each).placement is None for each in self._book.placed(member))
        )

    def _fits_from(self, wanted: Reservation, begin: float, limit: float) -> Plan | None:
        """Set the first time from `begin` on at which its member holds it beside the reservations there, infinite
        where that is not known, and give the plan; None where it never has, or not before a finite limit.
        """
        member, gang, now, timeline = wanted.member, wanted.gang, wanted.computed, self._timeline
        here = [each for each in self._book.all() if each.member is member and each.uid != wanted.uid]
        others = [each for each in here if each.places]
        closed = any(each.uncertain and each.binds(wanted, math.inf) for each in here)
        if closed or any(self._spots.spot(each).placement is None for each in others):
            # Their reservations would refuse any variant that fits.
            wanted.at = math.inf
            return {} if limit == math.inf else None
        ends = timeline.ends(member, now)
        if timeline.awaits_figures(member):
            begin = max(begin, now + self._settings.settle)
        if any(self._spots.leaving(each, member) for each in others):
            begin = max(begin, now + self._settings.grace)
        later = [*ends.times, *(each.ends for each in others if each.ends < math.inf)]
        times = [begin, *sorted(each for each in later if each > begin)]
        most = len(times) - 1
        if limit < math.inf:
            most = bisect.bisect_left(times, limit) - 1
        if most < 0:
            return None

        def ended(number: int) -> list[str]:
            return ends.uids[: bisect.bisect_right(ends.times, times[number])]

        def alone(number: int) -> bool:
            return place(self._spots.after(member, ended(number), wanted.uid), gang, explain=False) is not None

        if is_loose(gang):
            needed = self._ends_needed(member, ended(most), wanted)
            if needed is None:
                return None
            first = bisect.bisect_left(range(most), True, key=lambda number: len(ended(number)) >= needed)
        else:
            if not alone(most):
                return None
            first = bisect.bisect_left(range(most), True, key=alone)
        if not others:
            wanted.at = times[first]
            return {}
        known = {each: self._spots.spot(each) for each in others}
        plans: dict[int, Plan | None] = {}

        def whole(number: int) -> bool:
            wanted.at = times[number]
            wanted.future = self._spots.after(member, ended(number), wanted.uid)
            spot = beside(wanted, known, self._spots.future)
            if spot.placement is not None:
                plans[number] = {wanted: spot}
            else:
                plans[number] = in_order_of_starts([*others, wanted], self._spots.future)
            return plans[number] is not None

        if not whole(first):
            if not whole(most):
                return None
            first = bisect.bisect_left(range(most), True, first + 1, key=whole)
        wanted.at = times[first]
        return plans[first]

    def _ends_needed(self, member: Member, uids: Sequence[str], wanted: Reservation) -> int | None:
        """How many of these must have ended before its nodes hold a loose gang; None where they never do."""
        gang, held = wanted.gang, self._timeline.each_held(member, uids)
        leaving = {uid for each in self._spots.going(member, wanted.uid) for uid in each}
        if not leaving and not self._timeline.awaits_figures(member) and wanted.shape.rows:
            there = int(self._members.table.counts[wanted.shape.rows[0], self._members.table.column(member.name)])
            return ends_needed(member.nodes, gang, held, there)
        nodes, [task] = self._spots.after(member, (), wanted.uid), gang.tasks
        # Those are gone from the beginning.
        nothing = np.zeros(0, np.int64), np.zeros((0, len(nodes.resources)), np.int64)
        held = (nothing if uid in leaving else each for uid, each in zip(uids, held, strict=True))
        there = int(np.where(nodes.accepting(task), nodes.room(task.requests), 0).sum())
        return ends_needed(nodes, gang, held, there)
