"""Room kept for those who wait: when a blocked workload can start, and what may go before it without delaying it.

EASY backfill (Lifka 1995; Mu'alem and Feitelson 2001) on nodes instead of processors. From the expected ends of what
runs follows the earliest time at which the workload fits some member, placed as it would be placed then. Whatever ends
before that time may pass; what does not may pass if the workload still fits at that time beside it. The same holds for
the limits of the queues on its path.

A wrong estimate moves the time and costs use, never the place: where ends are unknown, nothing that would take from the
member passes any more.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from atoll.dispatcher.core.choice import Choice
from atoll.dispatcher.core.members import Member
from atoll.dispatcher.core.node import Node, path
from atoll.dispatcher.core.promise import SETTLE, Promise, Stay, give_back, left_beside
from atoll.dispatcher.core.shapes import Shape
from atoll.dispatcher.core.world import World
from atoll.fit import Nodes, Placement, fits, place
from atoll.fit.nodes import Ints
from atoll.model import vector
from atoll.model.gang import Gang
from atoll.model.vector import Vector

_SOON = 1.0
"""Seconds in which a member learns of a decision: what ends by then may change where it puts the pods."""
_ENDS = 16
"""Ends that are considered for that."""
_LOOKS = 16
"""Members that are considered for a promise: those with the most room now."""

Held = tuple[Ints, Ints]
"""(int64[K] nodes of a member, int64[K, R] what is held on each)."""
Ladder = tuple[Ints, Ints, list[int]]
"""(int64[K] nodes, int64[R, K] what is freed on each, for how many of these after so many ends)."""


class Promises:
    """What runs where until when, and the promises that follow; see the module."""

    def __init__(self, world: World) -> None:
        self._world = world
        #: UID -> what runs
        self._stays: dict[str, Stay] = {}
        #: member -> (end, UID) of what runs there, in order
        self._here: dict[str, list[tuple[float, str]]] = {}
        #: member -> the resources and the number of nodes for which it holds, and UID -> what `_held` answers
        self._cells: dict[str, tuple[tuple[str, ...], int, dict[str, Held]]] = {}
        #: member -> what `_freed` answers, and the member's changes and the UIDs for which it does
        self._ladders: dict[str, tuple[int, list[str], Ladder]] = {}
        #: member -> UID -> what `_held` said of what ended there since its figures were last published
        self._left: dict[str, dict[str, Held]] = {}
        #: UID of the waiting workload -> its promise, in the order in which they were made
        self.made: dict[str, Promise] = {}
        #: the latest end at which the choice that was refused last would have been permitted
        self.latest_end = -math.inf
        #: inside `settled`
        self._settled = False

    # -- what runs ---------------------------------------------------------------------------------------------------

    def enter(self, uid: str, stay: Stay) -> None:
        """Something starts to run, or is seen to; what was known of it before is forgotten."""
        old = self._stays.get(uid)
        if old is not None:
            if old == stay:
                return
            self.leave(uid)
        self._stays[uid] = stay
        for name in stay.parts:
            bisect.insort(self._here.setdefault(name, []), (stay.end, uid))
            if name in self._left:
                self._left[name].pop(uid, None)
        if self.made:
            self._account(uid, stay, -1)
        for name in stay.parts:
            self._outdate(name)

    def leave(self, uid: str) -> None:
        """It runs no more."""
        stay = self._stays.get(uid)
        if stay is None:
            return
        for name in stay.parts:
            if self.made and name in self._world.members:
                self._left.setdefault(name, {})[uid] = self._held(uid, self._world.members[name])
            here = self._here[name]
            del here[bisect.bisect_left(here, (stay.end, uid))]
            if name in self._cells:
                self._cells[name][2].pop(uid, None)
        del self._stays[uid]
        if self.made:
            self._account(uid, stay, 1)
        for name in stay.parts:
            self._outdate(name)

    def stay(self, uid: str) -> Stay | None:
        """What is known of something that runs."""
        return self._stays.get(uid)

    def stays(self) -> ItemsView[str, Stay]:
        """UID -> where it runs, of all that does."""
        return self._stays.items()

    def __len__(self) -> int:
        return len(self._stays)

    def republished(self, member: str) -> None:
        """The member's figures are other ones."""
        self._left.pop(member, None)
        self._outdate(member)

    def renumber(self, member: Member, moved: Mapping[int, int | None]) -> None:
        """Nodes of a member have other indices (`Member.moved`): what runs is where it was."""
        for _, uid in list(self._here.get(member.name, ())):
            stay = self._stays[uid]
            gang, pods = stay.parts[member.name]
            there = [(task, now, count) for task, node, count in pods if (now := moved.get(node, node)) is not None]
            self.enter(uid, replace(stay, parts={**stay.parts, member.name: (gang, there)}))

    def _outdate(self, name: str) -> None:
        """What is known of a member's future is so no more."""
        member = self._world.members.get(name)
        if member is not None:
            member.changes += 1
        for promise in self.made.values():
            if promise.member.name == name:
                promise.future = None

    def _account(self, uid: str, stay: Stay, sign: int) -> None:
        """What ends after a promised time takes from what may be charged beyond it; what ends before does not."""
        for promise in self.made.values():
            if promise.leaving.get(uid):
                # Counted as gone from the beginning; if it starts again, that is something else.
                promise.leaving[uid] = False
            elif promise.victims or not stay.over_at(promise.at, promise.looked):
                for node in path(stay.leaf):
                    for name, amount in stay.amount.items():
                        if (node, name) in promise.spare:
                            promise.spare[node, name] += sign * amount

    # -- promises ----------------------------------------------------------------------------------------------------

    def promise(
        self, uid: str, leaf: Node, shape: Shape, gang: Gang, members: Iterable[Member], now: float, lasts: float
    ) -> Promise | None:
        """Keep room for a waiting workload in the member where it can start first; None where it never fits.

        A promise that was made before keeps its first time. `lasts`: seconds that the workload is expected to run.
        """
        old = self.made.get(uid)
        quota = self._admitted_from(leaf, shape.request, now, old, lasts)
        at, found = math.inf, None
        rows = self._world.counts
        able = sorted(
            members, key=lambda m: (-int(rows[shape.rows[0], self._world.column(m.name)]) if shape.rows else 0, m.name)
        )
        for member in able[:_LOOKS]:
            if found is not None and at <= max(quota, now):
                break
            earliest = self._fits_from(member, gang, now, old, at, lasts)
            if earliest is not None and (found is None or max(earliest, quota) < at):
                at, found = max(earliest, quota), member
        if found is None:
            self.drop(uid)
            return None
        first = old.first if old is not None and old.first < math.inf else at
        made = old.made if old is not None else now
        promise = Promise(uid, leaf, shape, gang, found, at, first, made, old.overtaken if old is not None else False)
        promise.looked = now
        promise.spare = left_beside(leaf, shape.request)
        if quota < math.inf:
            self._spare(promise, now, old)
        else:
            promise.spare = dict.fromkeys(promise.spare, 0)
        # Computed again, it keeps its place before those that were made after it.
        self.made[uid] = promise
        self._outdate(found.name)
        if old is not None and old.member is not found:
            self._outdate(old.member.name)
        return promise

    def keep(
        self,
        uid: str,
        leaf: Node,
        shape: Shape,
        gang: Gang,
        members: Iterable[Member],
        now: float,
        leaving: Iterable[str] = (),
    ) -> None:
        """Let nobody take what the workload needs in these members, or of the limits on its queue's path, until it
        goes: others are about to make room for it there.

        In several members, and where it would not fit yet although those have gone that go whole, nobody takes
        anything.

        Args:
            uid: of the workload.
            leaf: its queue.
            shape: of the workload.
            gang: what is to fit.
            members: where it goes.
            now: seconds since the epoch.
            leaving: UIDs of those that go whole.
        """
        first, *rest = members
        promise = Promise(uid, leaf, shape, gang, first, math.inf, math.inf, now, looked=now, also=tuple(rest))
        promise.victims = True
        promise.leaving = {each: True for each in leaving if each in self._stays}
        promise.spare = left_beside(leaf, shape.request)
        for each in promise.leaving:
            give_back(promise.spare, self._stays[each].leaf, self._stays[each].amount)
        self.made[uid] = promise
        self._outdate(first.name)

    def drop(self, uid: str) -> Promise | None:
        """The workload goes, or waits for something else now."""
        promise = self.made.pop(uid, None)
        if promise is not None:
            self._outdate(promise.member.name)
            for other in self.made.values():
                if uid in other.beside:
                    del other.beside[uid]
                    give_back(other.spare, promise.leaf, promise.shape.request)
        return promise

    def refuses(self, uid: str, leaf: Node, amount: Vector, choice: Choice, now: float, end: float) -> list[Promise]:
        """The promises that a choice for a workload would break, if it ran until `end`."""
        broken = []
        for promise, earlier in self._others(uid):
            if end + SETTLE <= promise.at < math.inf:
                continue
            charged = promise.victims and self._settled
            if earlier and not charged and promise.exceeds(leaf, amount):
                broken.append(promise)
            elif self._breaks(promise, choice, now):
                broken.append(promise)
                if choice.members == (promise.member,):
                    promise.refused[uid] = (promise.member.changes, end)
        self._widen(broken)
        return broken

    def refuses_still(self, uid: str, member: Member, end: float) -> list[Promise]:
        """Those that the workload would break there, known from when that was tried and nothing had changed since."""
        broken = []
        for promise, _ in self._others(uid):
            known = promise.refused.get(uid) if promise.member is member else None
            if known is not None and known[0] == member.changes and known[1] <= end:
                broken.append(promise)
        self._widen(broken)
        return broken

    def _others(self, uid: str) -> Iterator[tuple[Promise, bool]]:
        """The promises that bind a workload, and whether they were made before its own.

        What was made later left out its share of the limits already, and its room in the member that is kept for it.
        """
        own: Promise | None = None
        for promise in self.made.values():
            if promise.uid == uid:
                own = promise
            elif own is None or promise.member is not own.member:
                yield promise, own is None

    def _widen(self, broken: Sequence[Promise]) -> None:
        """Note until when a workload could have run without breaking these."""
        if broken:
            first = min(promise.at for promise in broken)
            self.latest_end = max(self.latest_end, first if math.inf not in {p.at for p in broken} else -math.inf)

    def _breaks(self, promise: Promise, choice: Choice, now: float) -> bool:
        """Whether the promise would not be kept in its member beside a choice that stays for ever."""
        for member, gang, placement in zip(choice.members, choice.gangs, choice.placements, strict=True):
            if member is not promise.member and member not in promise.also:
                continue
            if promise.also or (promise.at == math.inf and not promise.victims):
                return True
            if not all(
                self._holds_beside(promise, gang, landing) for landing in self._landings(member, gang, placement, now)
            ):
                return True
        return False

    def _holds_beside(self, promise: Promise, gang: Gang, placement: Placement) -> bool:
        """Whether its member will have room at the promised time although a gang is placed there."""
        trial = self._future(promise).copy()
        trial.take([task.requests for task in gang.tasks], placement)
        return fits(trial, promise.gang)

    def _before(self, promise: Promise | None) -> Iterator[Promise]:
        """The promises made before that one, or all."""
        return itertools.takewhile(lambda other: other is not promise, self.made.values())

    def _landings(self, member: Member, gang: Gang, expected: Placement, now: float) -> Iterator[Placement]:
        """Where the member may put a part: it sees its nodes later than its figures say, some more work being over."""
        yield expected
        soon = self._over_by(member, now + _SOON)
        over = [*self._left.get(member.name, {}).values(), *(self._held(uid, member) for uid in soon)]
        nodes, seen = member.nodes.copy(), [expected.pods]
        for where, amounts in over[:_ENDS]:
            inside = where < len(nodes)
            for row, free in enumerate(nodes.free):
                np.add.at(free, where[inside], amounts[inside, row])
            placement = place(nodes, gang)
            if isinstance(placement, Placement) and placement.pods not in seen:
                seen.append(placement.pods)
                yield placement

    @contextmanager
    def untouched(self) -> Iterator[None]:
        """Whatever is asked inside leaves nothing behind, not even what is kept to be quick."""
        kept = [(promise, promise.future, dict(promise.refused)) for promise in self.made.values()]
        latest = self.latest_end
        try:
            yield
        finally:
            self.latest_end = latest
            for promise, future, refused in kept:
                promise.future, promise.refused = future, refused

    @contextmanager
    def settled(self, *, but: str = "") -> Iterator[None]:
        """Inside, queues are charged as if those had started for whom others make room, and the others had gone; all
        but the workload of that UID.
        """
        before: dict[Node, Vector] = {}
        for promise in self.made.values():
            if promise.victims and promise.uid != but:
                gone = [self._stays[uid] for uid, stays in promise.leaving.items() if stays]
                for leaf, amount, times in (
                    (promise.leaf, promise.shape.request, 1),
                    *((stay.leaf, stay.amount, -1) for stay in gone),
                ):
                    for node in path(leaf):
                        if node not in before:
                            before[node] = node.used
                            node.used = dict(node.used)
                        vector.add(node.used, amount, times)
        self._settled = True
        try:
            yield
        finally:
            self._settled = False
            for node, used in before.items():
                node.used = used

    # -- the future --------------------------------------------------------------------------------------------------

    def _admitted_from(self, leaf: Node, request: Vector, now: float, before: Promise | None, lasts: float) -> float:
        """From when on the limits on the path admit the request for so long beside those who were promised earlier;
        infinite where that is not known.
        """
        left = left_beside(leaf, request)
        beside = dict(left)
        for promise in self._before(before):
            give_back(beside, promise.leaf, promise.shape.request, -1)
        if min(beside.values(), default=0) >= 0:
            return now
        leaving = {uid for p in self.made.values() for uid, stays in p.leaving.items() if stays}
        changes: list[tuple[float, Node, Vector, int]] = [(now, leaf, {}, 1)]
        changes += [
            (now if uid in leaving else stay.expected_end(now) + SETTLE, stay.leaf, stay.amount, 1)
            for uid, stay in self._stays.items()
        ]
        changes += [(now if p.victims else max(p.at, now), p.leaf, p.shape.request, -1) for p in self._before(before)]
        changes.sort(key=_when)
        since: float | None = None
        for when, here in itertools.groupby(changes, key=_when):
            if when == math.inf:
                break
            for _, other, amount, times in here:
                give_back(left, other, amount, times)
            if min(left.values()) >= 0:
                since = when if since is None else since
            elif since is not None and when >= since + lasts + SETTLE:
                break
            else:
                since = None
        return math.inf if since is None else since

    def _spare(self, promise: Promise, now: float, before: Promise | None) -> None:
        """Count what is over by the promised time, and those who were promised earlier and have started by then."""
        spare = promise.spare
        if not spare:
            return
        over: dict[Node, Vector] = {}
        for stay in self._stays.values():
            if stay.over_at(promise.at, now):
                vector.add(over.setdefault(stay.leaf, {}), stay.amount)
        for leaf, amount in over.items():
            give_back(spare, leaf, amount)
        for other in self._before(before):
            if other.victims or other.at <= promise.at:
                promise.beside[other.uid] = None
                give_back(spare, other.leaf, other.shape.request, -1)
            for uid in (uid for uid, counts in other.leaving.items() if counts and uid not in promise.leaving):
                if not (stay := self._stays[uid]).over_at(promise.at, now):
                    promise.leaving[uid] = True
                    give_back(spare, stay.leaf, stay.amount)

    def _ends(self, member: Member, now: float) -> list[tuple[float, str]]:
        """(expected end, UID) of what runs there, in order; don't change it."""
        here = self._here.get(member.name, [])
        late = bisect.bisect_right(here, now, key=_first)
        if not late:
            return here
        return sorted([*((self._stays[uid].expected_end(now), uid) for _, uid in here[:late]), *here[late:]])

    def _over_by(self, member: Member, when: float, margin: float = 0.0) -> list[str]:
        """What is expected there to end so many seconds before then."""
        here = self._here.get(member.name, [])
        return [uid for _, uid in here[: bisect.bisect_right(here, when, key=lambda each: each[0] + margin)]]

    def _fits_from(
        self, member: Member, gang: Gang, now: float, before: Promise | None, limit: float, lasts: float
    ) -> float | None:
        """When the member has room for the gang without delaying those who were promised earlier; infinite where that
        is not known, None where it never has, or not before a limit that is finite.
        """
        ends = self._ends(member, now)
        uids = [uid for _, uid in ends]
        earlier = [promise for promise in self._before(before) if promise.member is member]
        if any(promise.at == math.inf and not promise.victims for promise in earlier):
            return math.inf if limit == math.inf else None

        def enough(count: int) -> bool:
            at = ends[count - 1][0] + SETTLE if count else now
            nodes = self._after(member, uids, count, at, before)
            delayed = [each for each in earlier if each.victims or at < each.at < at + lasts + SETTLE]
            if not delayed:
                return fits(nodes, gang)
            # Where it would be put, not where it would be in nobody's way: its member does not know the promises.
            placement = place(nodes, gang)
            return isinstance(placement, Placement) and all(
                self._holds_beside(promise, gang, placement) for promise in delayed
            )

        most = len(ends)
        if limit < math.inf:
            most = bisect.bisect_left(ends, limit, key=lambda each: each[0] + SETTLE)
        if not enough(most):
            return None
        # Room only grows with each end, so the first sufficient number of ends is found by bisection.
        count = bisect.bisect_left(range(most), True, key=enough)
        return ends[count - 1][0] + SETTLE if count else now

    def _after(self, member: Member, uids: list[str], ended: int, at: float, before: Promise | None = None) -> Nodes:
        """The member's nodes once so many of these, from the first, have ended, and of the promises made before that
        one (or of all) those have been kept that are due by then.
        """
        nodes = member.nodes.copy()
        if ended:
            where, amounts, bounds = self._freed(member, uids)
            last = bounds[ended]
            for row, free in enumerate(nodes.free):
                np.add.at(free, where[:last], amounts[row, :last])
        for other in self._before(before):
            if other.member is member and other.at <= at:
                placement = place(nodes, other.gang)
                if isinstance(placement, Placement):
                    nodes.take([task.requests for task in other.gang.tasks], placement)
        return nodes

    def _freed(self, member: Member, uids: list[str]) -> Ladder:
        """What `_held` says of these, one after the other; kept, for parts of it are asked often."""
        known = self._ladders.get(member.name)
        if known is None or known[0] != member.changes or known[1] != uids:
            held = self._held_by(member)
            cells = [held.get(uid) or self._held(uid, member) for uid in uids]
            bounds = [0, *itertools.accumulate(len(where) for where, _ in cells)]
            where = np.concatenate([where for where, _ in cells])
            amounts = np.ascontiguousarray(np.concatenate([amounts for _, amounts in cells]).T)
            known = self._ladders[member.name] = (member.changes, uids, (where, amounts, bounds))
        return known[2]

    def _held(self, uid: str, member: Member) -> Held:
        """What it holds in a member; kept, for it is asked often."""
        known = self._held_by(member)
        held = known.get(uid)
        if held is None:
            gang, pods = self._stays[uid].parts[member.name]
            columns = [member.nodes.column(task.requests) for task in gang.tasks]
            pods = [each for each in pods if each[1] < len(member.nodes)]
            where = np.array([node for _, node, _ in pods], np.int64)
            amounts = np.array([columns[task] * count for task, _, count in pods], np.int64)
            held = known[uid] = where, amounts.reshape(len(pods), len(member.nodes.resources))
        return held

    def _held_by(self, member: Member) -> dict[str, Held]:
        """UID -> what `_held` has answered of the member as it is."""
        resources, count = member.nodes.resources, len(member.nodes)
        known = self._cells.get(member.name)
        if known is None or known[0] != resources or known[1] != count:
            known = self._cells[member.name] = (resources, count, {})
        return known[2]

    def _without(self, member: Member, uids: Mapping[str, bool]) -> Nodes:
        """The member's nodes once those of these have gone that have not."""
        nodes = member.nodes.copy()
        for uid in (uid for uid, stays in uids.items() if stays and member.name in self._stays[uid].parts):
            where, amounts = self._held(uid, member)
            for row, free in enumerate(nodes.free):
                np.add.at(free, where, amounts[:, row])
        return nodes

    def _future(self, promise: Promise) -> Nodes:
        if promise.future is None and promise.victims:
            promise.future = self._without(promise.member, promise.leaving)
        if promise.future is None:
            uids = [uid for _, uid in self._here.get(promise.member.name, [])]
            ended = len(self._over_by(promise.member, promise.at, SETTLE))
            promise.future = self._after(promise.member, uids, ended, promise.at, promise)
        return promise.future


def _when(each: tuple[float, Node, Vector, int]) -> float:
    return each[0]


def _first(each: tuple[float, str]) -> float:
    return each[0]
