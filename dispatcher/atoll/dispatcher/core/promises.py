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
import math
from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from atoll.dispatcher.core.choice import Choice
from atoll.dispatcher.core.members import Member
from atoll.dispatcher.core.node import Node, path
from atoll.dispatcher.core.shapes import Shape
from atoll.dispatcher.core.world import World
from atoll.fit import Nodes, Placement, place
from atoll.fit.nodes import Ints
from atoll.model.gang import Gang
from atoll.model.vector import Vector

SETTLE = 2.0
"""Seconds after an end within which its member has told of the room, and a decision is written."""
_OVERRUN = 0.1
"""What runs longer than expected is expected to run on for this part of its estimate, and for a second at least."""
_SOON = 1.0
"""Seconds in which a member learns of a decision: what ends by then may change where it puts the pods."""
_ENDS = 16
"""Ends that are considered for that."""
_LOOKS = 16
"""Members that are considered for a promise: those with the most room now."""

Pods = Sequence[tuple[int, int, int]]
"""(task index, node index, pods)."""


@dataclass(slots=True)
class Stay:
    """Something that runs, or is about to."""

    leaf: Node
    amount: Vector
    """What its queue is charged."""
    start: float
    end: float
    """Seconds since the epoch; infinite where nobody knows."""
    parts: dict[str, tuple[Gang, Pods]]
    """Member -> (gang of the part, where its pods are or are expected)."""


@dataclass(slots=True, eq=False)
class Promise:
    """Room that is kept for one waiting workload."""

    uid: str
    leaf: Node
    shape: Shape
    gang: Gang
    member: Member
    at: float
    """When it can start as far as is known; infinite where some of what must end has no estimate."""
    first: float
    """What `at` was when the promise was made."""
    made: float
    overtaken: bool = False
    """Somebody with a better right took from it: the first time no longer binds."""
    spare: dict[tuple[Node, str], int] = field(default_factory=dict)
    """(queue on its path, resource) -> what may be charged there beyond `at` without delaying it."""
    future: Nodes | None = None
    """The member's nodes at that time without the workload; None = compute again."""
    looked: float = 0.0
    """When `at` was computed."""
    also: tuple[Member, ...] = ()
    """Further members that are kept for it."""
    victims: bool = False
    """Others make room for it: nothing is to be computed until they have gone."""


class Promises:
    """What runs where until when, and the promises that follow; see the module."""

    def __init__(self, world: World) -> None:
        self._world = world
        #: UID -> what runs
        self._stays: dict[str, Stay] = {}
        #: member -> UIDs that run there
        self._here: dict[str, dict[str, None]] = {}
        #: (UID, member) -> what `_held` answers, and the resources for which it does
        self._cells: dict[tuple[str, str], tuple[tuple[str, ...], Ints, Ints]] = {}
        #: member -> UID -> what `_held` said of what ended there since its figures were last published
        self._left: dict[str, dict[str, tuple[Ints, Ints]]] = {}
        #: UID of the waiting workload -> its promise, in the order in which they were made
        self.made: dict[str, Promise] = {}
        #: the latest end at which the choice that was refused last would have been permitted
        self.latest_end = -math.inf

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
            self._here.setdefault(name, {})[uid] = None
            if name in self._left:
                self._left[name].pop(uid, None)
        if self.made:
            self._account(stay, -1)
            self._outdate(stay)

    def leave(self, uid: str) -> None:
        """It runs no more."""
        stay = self._stays.get(uid)
        if stay is None:
            return
        for name in stay.parts:
            if self.made and name in self._world.members:
                self._left.setdefault(name, {})[uid] = self._held(uid, self._world.members[name])
            self._here[name].pop(uid, None)
            self._cells.pop((uid, name), None)
        del self._stays[uid]
        if self.made:
            self._account(stay, 1)
            self._outdate(stay)

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
        for promise in self.made.values():
            if promise.member.name == member:
                promise.future = None

    def _outdate(self, stay: Stay) -> None:
        for promise in self.made.values():
            if promise.member.name in stay.parts:
                promise.future = None

    def _account(self, stay: Stay, sign: int) -> None:
        """What ends after a promised time takes from what may be charged beyond it; what ends before does not."""
        for promise in self.made.values():
            if stay.end + SETTLE > promise.at:
                for node in path(stay.leaf):
                    for name, amount in stay.amount.items():
                        if (node, name) in promise.spare:
                            promise.spare[node, name] += sign * amount

    # -- promises ----------------------------------------------------------------------------------------------------

    def promise(
        self, uid: str, leaf: Node, shape: Shape, gang: Gang, members: Iterable[Member], now: float
    ) -> Promise | None:
        """Keep room for a waiting workload in the member where it can start first; None where it never fits.

        A promise that was made before keeps its first time.
        """
        old = self.made.get(uid)
        quota, spare = self._quota(leaf, shape.request, now)
        best: tuple[float, int, str] | None = None
        found: Member | None = None
        rows = self._world.counts
        able = sorted(
            members, key=lambda m: (-int(rows[shape.rows[0], self._world.column(m.name)]) if shape.rows else 0, m.name)
        )
        for number, member in enumerate(able[:_LOOKS]):
            at = self._fits_from(member, gang, now, old)
            if at is None:
                continue
            key = (max(at, quota), number, member.name)
            if best is None or key < best:
                best, found = key, member
        if best is None or found is None:
            self.made.pop(uid, None)
            return None
        at = best[0]
        first = old.first if old is not None else at
        made = old.made if old is not None else now
        promise = Promise(uid, leaf, shape, gang, found, at, first, made, old.overtaken if old is not None else False)
        promise.looked = now
        promise.spare = spare if at == quota else self._quota(leaf, shape.request, now, at)[1]
        # Computed again, it keeps its place before those that were made after it.
        self.made[uid] = promise
        return promise

    def keep(self, uid: str, leaf: Node, shape: Shape, gang: Gang, members: Iterable[Member], now: float) -> None:
        """Let nobody take from these members, or from the limits on the queue's path, until the workload goes: others
        are about to make room for it there.
        """
        first, *rest = members
        promise = Promise(uid, leaf, shape, gang, first, math.inf, math.inf, now, looked=now, also=tuple(rest))
        promise.victims = True
        promise.spare = {(node, name): 0 for node in path(leaf) for name in shape.request if name in node.limit}
        self.made[uid] = promise

    def drop(self, uid: str) -> Promise | None:
        """The workload goes, or waits for something else now."""
        return self.made.pop(uid, None)

    def refuses(self, uid: str, leaf: Node, amount: Vector, choice: Choice, now: float, end: float) -> list[Promise]:
        """The promises that a choice for a workload would break, if it ran until `end`."""
        broken = []
        latest = math.inf
        own: Promise | None = None
        for promise in self.made.values():
            if promise.uid == uid:
                own = promise
                continue
            if own is not None and promise.member is own.member:
                # Made later, and with this workload's room left out already.
                continue
            if self._breaks(promise, leaf, amount, choice, now, end):
                broken.append(promise)
                latest = min(latest, promise.at if promise.at < math.inf else -math.inf)
        if broken:
            self.latest_end = max(self.latest_end, latest)
        return broken

    def _breaks(self, promise: Promise, leaf: Node, amount: Vector, choice: Choice, now: float, end: float) -> bool:
        if end + SETTLE <= promise.at < math.inf:
            return False
        for node in path(leaf):
            for name, value in amount.items():
                spare = promise.spare.get((node, name))
                if spare is not None and value > max(spare, 0):
                    return True
        for member, gang, placement in zip(choice.members, choice.gangs, choice.placements, strict=True):
            if member is not promise.member and member not in promise.also:
                continue
            if promise.at == math.inf:
                return True
            future = self._future(promise)
            for landing in self._landings(member, gang, placement, now):
                trial = future.copy()
                trial.take([task.requests for task in gang.tasks], landing)
                if not isinstance(place(trial, promise.gang), Placement):
                    return True
        return False

    def _landings(self, member: Member, gang: Gang, expected: Placement, now: float) -> Iterator[Placement]:
        """Where the member may put a part: it sees its nodes later than its figures say, some more work being over."""
        yield expected
        ends = [each for each in self._ends(member, -math.inf) if each[0] <= now + _SOON]
        over = [*self._left.get(member.name, {}).values(), *(self._held(uid, member) for _, uid in ends)]
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
        futures = [(promise, promise.future) for promise in self.made.values()]
        latest = self.latest_end
        try:
            yield
        finally:
            self.latest_end = latest
            for promise, future in futures:
                promise.future = future

    # -- the future --------------------------------------------------------------------------------------------------

    def _end(self, stay: Stay, now: float) -> float:
        """When it is expected to end, seen from now."""
        if stay.end > now or stay.end == math.inf:
            return stay.end
        return now + max(1.0, _OVERRUN * (stay.end - stay.start))

    def _quota(
        self, leaf: Node, request: Vector, now: float, at: float | None = None
    ) -> tuple[float, dict[tuple[Node, str], int]]:
        """(when the limits on the path admit the request, what is spare then); `at` asks for another time."""
        limited = [(node, name) for node in path(leaf) for name in request if request[name] > 0 and name in node.limit]
        if not limited:
            return now, {}
        left = {(node, name): node.limit[name] - node.used.get(name, 0) - request[name] for node, name in limited}
        when = now
        for end, stay in sorted(((self._end(each, now), each) for each in self._stays.values()), key=lambda e: e[0]):
            enough = min(left.values()) >= 0
            if enough if at is None else end + SETTLE > at:
                break
            if end == math.inf:
                break
            for node in path(stay.leaf):
                for name, amount in stay.amount.items():
                    if (node, name) in left:
                        left[node, name] += amount
                        when = end + SETTLE
        if at is None and min(left.values()) < 0:
            return math.inf, dict.fromkeys(left, 0)
        return when, left

    def _ends(self, member: Member, now: float) -> list[tuple[float, str]]:
        return sorted((self._end(self._stays[uid], now), uid) for uid in self._here.get(member.name, ()))

    def _fits_from(self, member: Member, gang: Gang, now: float, before: Promise | None) -> float | None:
        """When the member has room for the gang; infinite where that is not known, None where it never has."""
        if isinstance(place(self._after(member, (), before), gang), Placement):
            return now
        ends = self._ends(member, now)
        nodes = self._after(member, [uid for _, uid in ends], before)
        if not isinstance(place(nodes, gang), Placement):
            return None
        # Room only grows with each end, so the first sufficient number of ends is found by bisection.
        low = bisect.bisect_left(
            range(len(ends)),
            True,
            key=lambda n: isinstance(
                place(self._after(member, [uid for _, uid in ends[: n + 1]], before), gang), Placement
            ),
        )
        return ends[low][0] + SETTLE

    def _after(self, member: Member, ended: Sequence[str], before: Promise | None = None) -> Nodes:
        """The member's nodes once these have ended, and the promises made before that one (or all) have been kept."""
        nodes = member.nodes.copy()
        if ended:
            cells = [self._held(uid, member) for uid in ended]
            where, amounts = np.concatenate([each[0] for each in cells]), np.concatenate([each[1] for each in cells])
            for row, free in enumerate(nodes.free):
                np.add.at(free, where, amounts[:, row])
        for other in self.made.values():
            if other is before:
                break
            if other.member is member:
                placement = place(nodes, other.gang)
                if isinstance(placement, Placement):
                    nodes.take([task.requests for task in other.gang.tasks], placement)
        return nodes

    def _held(self, uid: str, member: Member) -> tuple[Ints, Ints]:
        """(int64[K] nodes of the member, int64[K, R] what it holds on each); kept, for it is asked often."""
        resources = member.nodes.resources
        known = self._cells.get((uid, member.name))
        if known is None or known[0] != resources:
            gang, pods = self._stays[uid].parts[member.name]
            columns = [member.nodes.column(task.requests) for task in gang.tasks]
            where = np.array([node for _, node, _ in pods], np.int64)
            amounts = np.array([columns[task] * count for task, _, count in pods], np.int64)
            known = (resources, where, amounts.reshape(len(pods), len(resources)))
            self._cells[uid, member.name] = known
        _, where, amounts = known
        if where.size and where.max() >= len(member.nodes):
            inside = where < len(member.nodes)
            return where[inside], amounts[inside]
        return where, amounts

    def _future(self, promise: Promise) -> Nodes:
        if promise.future is None:
            ended = [uid for end, uid in self._ends(promise.member, -math.inf) if end + SETTLE <= promise.at]
            promise.future = self._after(promise.member, ended, promise)
        return promise.future


def where_seen(gang: Gang, nodes: Mapping[str, int], index: Mapping[str, int]) -> list[tuple[int, int, int]]:
    """Pods by task and node from a report that only counts pods per node: tasks in order, nodes by name."""
    pods: list[tuple[int, int, int]] = []
    wanted = [task.replicas for task in gang.tasks]
    for name in sorted(nodes):
        left = nodes[name]
        for task in range(len(wanted)):
            count = min(left, wanted[task])
            if count and name in index:
                pods.append((task, index[name], count))
            wanted[task] -= count
            left -= count
    return pods
