"""Where those who were promised room in a member will be: beside each other, on its nodes as these will be then."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from atoll.dispatcher.core.backfill.allocation import GRACE, Stays, ends_needed, is_loose
from atoll.dispatcher.core.backfill.reservation import SETTLE, Kept, Promise
from atoll.dispatcher.core.capacity.member import Member
from atoll.dispatcher.core.capacity.members import Members
from atoll.fit import Nodes, Placement, find_in, fits
from atoll.model.gang import Gang
from atoll.model.vector import Vector

Taken = tuple[Sequence[Vector], Placement, float]
"""(requests per task, where it runs, until when)."""


class Planning(Stays):
    """See the module; whoever adds to it makes the promises."""

    def __init__(self, world: Members) -> None:
        super().__init__(world)
        #: UID of the waiting workload -> its promise
        self.made: dict[str, Promise] = {}
        #: the same of those for whom others go: what they were promised before stays theirs until they start
        self.claims: dict[str, Promise] = {}

    def all(self) -> Iterator[Promise]:
        """Whatever binds others, of one workload perhaps twice."""
        return itertools.chain(self.claims.values(), self.made.values())

    @property
    def empty(self) -> bool:
        """Whether room is kept for nobody."""
        return not self.made and not self.claims

    def own(self, uid: str) -> Promise | None:
        """What a workload starts by: what it is promised, unless others go for it; None where that is nothing."""
        return self.claims.get(uid) or self.made.get(uid)

    def each(self) -> Iterator[Promise]:
        """One for each workload: as it starts if those go who are to go for it."""
        return iter((self.made | self.claims).values())

    def _outdate(self, name: str) -> None:
        """What is known of a member's future is so no more."""
        super()._outdate(name)
        for promise in self.all():
            if promise.member.name == name:
                promise.future = promise.kept = None

    def _fits_from(self, wanted: Promise) -> float | None:
        """When its member has room for a promise without delaying those that were made; infinite where that is not
        known, None where it never has, or not before the promise's time, if that is finite.
        """
        member, gang, now, limit = wanted.member, wanted.gang, wanted.looked, wanted.at
        here = [promise for promise in self.all() if promise.member is member and promise.uid != wanted.uid]
        if any(promise.uncertain() and not promise.yields_to(wanted) for promise in here):
            return math.inf if limit == math.inf else None
        others = [promise for promise in self._promised(member) if promise.uid != wanted.uid]
        if any(self._kept(promise).placement is None for promise in others):
            # Whatever is said to fit would be refused for their sake.
            return math.inf if limit == math.inf else None

        ends = self._ends(member, now)
        # Room grows with each end, of what runs and of what was promised room; what has left is seen to have soon.
        soon = now + SETTLE if self._left.get(member.name) else now
        if any(self._leaving(promise, member) for promise in others if promise.victims):
            soon = now + GRACE
        times = sorted([*ends.times, soon, *(each.ends for each in others if soon < each.ends < math.inf)])
        most = len(times) - 1
        if limit < math.inf:
            most = max(bisect.bisect_left(times, limit) - 1, 0)
        loose, needed = is_loose(gang), 0
        if loose:
            over = bisect.bisect_right(ends.times, times[most])
            found = self._ends_needed(member, ends.uids[:over], wanted)
            if found is None:
                return None
            needed = found
            if not others:
                return ends.times[needed - 1] if needed else times[0]
        known = {each: self._kept(each) for each in others}

        def enough(number: int) -> bool:
            ended = bisect.bisect_right(ends.times, times[number])
            if ended < needed:
                return False
            wanted.at = times[number]
            wanted.future = self._after(member, ends.uids[:ended], wanted.uid)
            if not loose and not fits(wanted.future, gang):
                return False
            if not others or self._next(wanted, known).placement is not None:
                return True
            return self._all_in_turn(sorted([*others, wanted], key=_start)) is not None

        if not enough(most):
            return None
        return times[bisect.bisect_left(range(most), True, key=enough)]

    def _ends_needed(self, member: Member, uids: Sequence[str], wanted: Promise) -> int | None:
        """How many of these must have ended before its nodes hold a loose gang; None where they never do."""
        gang, held = wanted.gang, self._each_held(member, uids)
        leaving = {uid for each in self._going(member, wanted.uid) for uid in each}
        if not leaving and not self._left.get(member.name) and wanted.shape.rows:
            there = int(self._world.counts[wanted.shape.rows[0], self._world.column(member.name)])
            return ends_needed(member.nodes, gang, held, there)
        nodes, [task] = self._after(member, (), wanted.uid), gang.tasks
        # Those are gone from the beginning.
        nothing = np.zeros(0, np.int64), np.zeros((0, len(nodes.resources)), np.int64)
        held = (nothing if uid in leaving else each for uid, each in zip(uids, held, strict=True))
        there = int(np.where(nodes.accepting(task), nodes.room(task.requests), 0).sum())
        return ends_needed(nodes, gang, held, there)

    def _after(self, member: Member, over: Sequence[str], uid: str = "") -> Nodes:
        """The member's nodes once these have ended, and those gone who go for others than the workload of that UID."""
        nodes = self._at_once(member)
        self._free_all(nodes, member, over)
        for leaving in self._going(member, uid):
            self._free_all(nodes, member, set(leaving).difference(over))
        return nodes

    def _going(self, member: Member, but: str = "") -> Iterator[list[str]]:
        """Those who are to go from the member, for each of whom room is kept there so; all but the one of that UID."""
        for promise in self.claims.values():
            if promise.member is member and promise.uid != but and not promise.uncertain():
                yield self._leaving(promise, member)

    def _leaving(self, promise: Promise, member: Member) -> list[str]:
        """Those who are to go for it whole, and have not gone from the member yet."""
        return [uid for uid, stays in promise.leaving.items() if stays and member.name in self._stays[uid].parts]

    def _promised(self, member: Member) -> list[Promise]:
        """Whom room is kept for in the member: first those for whom others go, who start as soon as these have gone,
        then in the order of making.
        """
        return [
            promise
            for promise in self.all()
            if promise.member is member and not promise.uncertain() and not promise.limited
        ]

    def _future(self, promise: Promise) -> Nodes:
        if promise.future is not None and not promise.future.like(promise.member.nodes):
            promise.future = None
        if promise.future is None and promise.victims:
            promise.future = self._at_once(promise.member)
            self._free_all(promise.future, promise.member, self._leaving(promise, promise.member))
        if promise.future is None:
            here = self._here.get(promise.member.name, [])
            ended = bisect.bisect_right(here, promise.at, key=lambda each: each[0] + SETTLE)
            # It is what it starts by where nobody goes for it.
            promise.future = self._after(promise.member, [uid for _, uid in here[:ended]], promise.uid)
        return promise.future

    def _kept(self, promise: Promise) -> Kept:
        if promise.kept is None or not promise.kept.rest.like(promise.member.nodes):
            for each, kept in self._plan(promise.member).items():
                each.kept = kept
                each.expected = kept.placement or each.expected
                each.suspect = each.suspect or kept.placement is None
        assert promise.kept is not None, f"{promise.uid} is promised something in {promise.member.name}"
        return promise.kept

    def _plan(self, member: Member, *, but: str = "", taken: Taken | None = None) -> dict[Promise, Kept]:
        """Where those are expected whom room is kept for in the member, one beside the other; all but the workload of
        that UID, and beside a gang that runs there from now on until its end.
        """
        return self._arranged([promise for promise in self._promised(member) if promise.uid != but], taken)

    def _arranged(self, promises: Sequence[Promise], taken: Taken | None = None) -> dict[Promise, Kept]:
        """As they were promised; where not all find room so, in the order in which they start."""
        plan = self._in_turn(promises, taken)
        if any(kept.placement is None for kept in plan.values()):
            order = sorted(promises, key=_start)
            if order != list(promises):
                return self._all_in_turn(order, taken) or plan
        return plan

    def _all_in_turn(self, promises: Sequence[Promise], taken: Taken | None = None) -> dict[Promise, Kept] | None:
        """As `_in_turn`; None where one of them finds no room."""
        plan: dict[Promise, Kept] = {}
        for promise in promises:
            plan[promise] = kept = self._next(promise, plan, taken)
            if kept.placement is None:
                return None
        return plan

    def _in_turn(self, promises: Sequence[Promise], taken: Taken | None = None) -> dict[Promise, Kept]:
        plan: dict[Promise, Kept] = {}
        for promise in promises:
            plan[promise] = self._next(promise, plan, taken)
        return plan

    def _next(self, promise: Promise, plan: Mapping[Promise, Kept], taken: Taken | None = None) -> Kept:
        """What a promise finds beside those of a plan to other workloads."""
        nodes = self._future(promise).copy()
        if taken is not None and not taken[2] + SETTLE <= promise.at < math.inf:
            nodes.take(taken[0], taken[1])
        for other, kept in plan.items():
            if kept.placement is None or other.is_over_by(promise.at) or other.uid == promise.uid:
                continue
            if other.starts_by(promise.at):
                nodes.take(other.gang.requests(), self._once(other, plan, kept.placement))
            elif other.at < promise.at + promise.lasts + SETTLE:
                np.minimum(nodes.free, kept.rest.free, out=nodes.free)
        placement = None
        if promise.expected is not None:
            placement = _found(nodes, promise.gang, promise.expected)
        if placement is None:
            placement = _found(self._unpromised(nodes, promise), promise.gang)
        if placement is None:
            return Kept(None, nodes)
        nodes.take(promise.gang.requests(), placement)
        return Kept(placement, nodes)

    def _unpromised(self, nodes: Nodes, promise: Promise) -> Nodes:
        """Where a promise may be but where it was expected: one for whom others go takes no place that others were
        promised before it. These are planned later, for they start later.
        """
        if not promise.victims:
            return nodes
        nodes = nodes.copy()
        for other in self.made.values():
            if other.member is promise.member and other.expected is not None and other.age < promise.age:
                pods = [each for each in other.expected.pods if each[1] < len(nodes)]
                nodes.take(other.gang.requests(), replace(other.expected, pods=pods))
        return nodes

    def _once(self, promise: Promise, plan: Mapping[Promise, Kept], placement: Placement) -> Placement:
        """What a promise takes that its workload does not take already, for whom others go."""
        claim = self.claims.get(promise.uid)
        claimed = plan[claim].placement if claim is not None and claim is not promise and claim in plan else None
        if claimed is None:
            return placement
        there = {(task, node): count for task, node, count in claimed.pods}
        pods = [(task, node, count - there.get((task, node), 0)) for task, node, count in placement.pods]
        return replace(placement, pods=[each for each in pods if each[2] > 0])


def _found(nodes: Nodes, gang: Gang, expected: Placement | None = None) -> Placement | None:
    """As `place`, on the nodes of another placement only if there is one; to say what is missing would cost as much as
    to find room.
    """
    room = [np.where(nodes.accepting(task), nodes.room(task.requests), 0) for task in gang.tasks]
    if expected is not None:
        elsewhere = np.ones(len(nodes), np.bool_)
        elsewhere[[node for _, node, _ in expected.pods if node < len(nodes)]] = False
        for each in room:
            each[elsewhere] = 0
    for each, floor in zip(room, gang.floor(), strict=True):
        if np.minimum(each, floor).sum() < floor:
            return None
    return find_in(nodes, gang, room)


def _start(promise: Promise) -> float:
    """Those for whom others go start as soon as these have gone."""
    return -math.inf if promise.victims else promise.at
