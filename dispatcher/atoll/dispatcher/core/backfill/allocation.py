"""What runs where and until when, and the nodes of a member as they will be when some of it has ended."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from atoll.dispatcher.core.backfill.reservation import SETTLE, Stay
from atoll.dispatcher.core.capacity.member import Member
from atoll.dispatcher.core.capacity.members import Members
from atoll.fit import Nodes
from atoll.fit.nodes import UNBOUNDED
from atoll.fit.placement import Ints
from atoll.model.gang import Gang

Held = tuple[Ints, Ints]
"""(int64[K] nodes of a member, int64[K, R] what is held on each)."""
_FIRST_ENDS = 16
"""So many ends are looked at one by one, then four times as many together, and so on."""

GRACE = 30.0
"""Seconds in which pods that were told to go are gone: what Kubernetes gives them where nobody says otherwise. A member
that has not published for as long is believed all the same."""


class _Left(NamedTuple):
    """What runs no more."""

    stay: Stay
    until: float
    """When its member's figures are without it at the latest, whatever they say."""
    generation: int = -1
    """The first of its member's that is without it; any new one where that is not known."""


class Ends(NamedTuple):
    """What runs in a member, the first to end first."""

    times: list[float]
    """When its room is expected to be there again; infinite ones last."""
    uids: list[str]
    changes: int
    """Of the member, when that was so."""
    late_from: float
    """When the next of these runs longer than expected."""


class Stays:
    """See the module; whoever adds to it hears of what comes and goes by `_account` and `_outdate`."""

    def __init__(self, world: Members) -> None:
        self._world = world
        #: UID -> what runs
        self._stays: dict[str, Stay] = {}
        #: (end, UID) of what runs, in order
        self._by_end: list[tuple[float, str]] = []
        #: member -> the same of what runs there
        self._here: dict[str, list[tuple[float, str]]] = {}
        #: member -> the resources and the number of nodes for which it holds, and UID -> what `_held` answers
        self._cells: dict[str, tuple[tuple[str, ...], int, dict[str, Held]]] = {}
        #: member -> what `_ends` answered last, if nothing runs longer than expected
        self._ends_known: dict[str, Ends] = {}
        #: member -> UID -> what has left it, though its figures still contain that
        self._left: dict[str, dict[str, _Left]] = {}
        #: seconds since the epoch, of the last pass
        self._now = 0.0

    def enter(self, uid: str, stay: Stay) -> None:
        """Something starts to run, or is seen to; what was known of it before is forgotten."""
        old = self._stays.get(uid)
        if old is not None:
            if old == stay:
                return
            self._forget(uid, old, changes=True)
        self._stays[uid] = stay
        bisect.insort(self._by_end, (stay.end, uid))
        for name in stay.parts:
            bisect.insort(self._here.setdefault(name, []), (stay.end, uid))
            if name in self._left:
                self._left[name].pop(uid, None)
        self._account(uid, stay, -1, changes=old is not None)
        for name in stay.parts:
            self._outdate(name)

    def leave(self, uid: str, placed: Mapping[str, tuple[int, int]] | None = None) -> None:
        """It runs no more. `placed`: member -> (capacity generation, pods that it contains), as was last seen."""
        stay = self._stays.get(uid)
        if stay is None:
            return
        for name in stay.parts:
            member = self._world.members.get(name)
            if member is not None and uid not in member.inflight:
                generation, pods = (placed or {}).get(name, (0, -1))
                if pods != 0:
                    self._left.setdefault(name, {})[uid] = _Left(stay, self._now + SETTLE)
                elif generation > member.generation:
                    self._left.setdefault(name, {})[uid] = _Left(stay, self._now + GRACE, generation)
        self._forget(uid, stay, changes=False)

    def _forget(self, uid: str, stay: Stay, *, changes: bool) -> None:
        for name in stay.parts:
            here = self._here[name]
            del here[bisect.bisect_left(here, (stay.end, uid))]
            if name in self._cells:
                self._cells[name][2].pop(uid, None)
        del self._stays[uid]
        del self._by_end[bisect.bisect_left(self._by_end, (stay.end, uid))]
        self._account(uid, stay, 1, changes=changes)
        for name in stay.parts:
            self._outdate(name)

    def stay(self, uid: str) -> Stay | None:
        """What is known of something that runs."""
        return self._stays.get(uid)

    def stays(self) -> ItemsView[str, Stay]:
        """UID -> where it runs, of all that does."""
        return self._stays.items()

    def running_in(self, member: Member) -> list[str]:
        """UIDs of what runs there."""
        return [uid for _, uid in self._here.get(member.name, ())]

    def __len__(self) -> int:
        return len(self._stays)

    def republished(self, member: str) -> None:
        """The member's figures are other ones."""
        generation = self._world.member(member).generation
        left = self._left.pop(member, {})
        if still := {uid: each for uid, each in left.items() if each.generation > generation}:
            self._left[member] = still
        self._outdate(member)

    def pass_begins(self, now: float) -> None:
        """By then figures are without what has left a while ago, though none were published since."""
        self._now = now
        for name in [name for name, left in self._left.items() if any(each.until <= now for each in left.values())]:
            self._left[name] = {uid: each for uid, each in self._left[name].items() if each.until > now}
            self._outdate(name)

    def _account(self, uid: str, stay: Stay, sign: int, *, changes: bool) -> None:
        """It starts (-1) or has left (1), or only what is known of it is something else."""

    def _outdate(self, name: str) -> None:
        """What is known of a member's future is so no more."""
        member = self._world.members.get(name)
        if member is not None:
            member.changes += 1

    # -- what will be free -------------------------------------------------------------------------------------------

    def _ends(self, member: Member, now: float) -> Ends:
        """What runs there by its expected end, seen from now; don't change it."""
        known = self._ends_known.get(member.name)
        if known is None or known.changes != member.changes or known.late_from <= now:
            here = self._here.get(member.name, [])
            late = bisect.bisect_right(here, now, key=end_of)
            late_from = here[late][0] if late < len(here) else math.inf
            if late:
                here = sorted([*((self._stays[uid].expected_end(now), uid) for _, uid in here[:late]), *here[late:]])
            known = Ends([end + SETTLE for end, _ in here], [uid for _, uid in here], member.changes, late_from)
            if not late:
                self._ends_known[member.name] = known
        return known

    def _held(self, uid: str, member: Member) -> Held:
        """What it holds in a member; kept, for it is asked often."""
        known = self._held_by(member)
        held = known.get(uid)
        if held is None:
            held = known[uid] = _held_of(self._stays[uid], member)
        return held

    def _held_by(self, member: Member) -> dict[str, Held]:
        """UID -> what `_held` has answered of the member as it is."""
        resources, count = member.nodes.resources, len(member.nodes)
        known = self._cells.get(member.name)
        if known is None or known[0] != resources or known[1] != count:
            known = self._cells[member.name] = (resources, count, {})
        return known[2]

    def _at_once(self, member: Member) -> Nodes:
        """The member's nodes as it will soon say that they are: without what has left them already."""
        nodes = member.nodes.copy()
        for left in self._left.get(member.name, {}).values():
            where, amounts = _held_of(left.stay, member)
            free(nodes, where, amounts.T)
        return nodes

    def emptied(self, member: Member) -> Nodes:
        """The member's nodes as they would be if all that runs there had ended."""
        nodes = self._at_once(member)
        self._free_all(nodes, member, self.running_in(member))
        return nodes

    def _free_all(self, nodes: Nodes, member: Member, uids: Iterable[str]) -> None:
        cells = list(self._each_held(member, uids))
        if cells:
            where, amounts = _together(cells)
            free(nodes, where, amounts.T)

    def _each_held(self, member: Member, uids: Iterable[str]) -> Iterator[Held]:
        known = self._held_by(member)
        return (known.get(uid) or self._held(uid, member) for uid in uids)


def is_loose(gang: Gang) -> bool:
    """Whether its pods are equal and may be anywhere: a sum over nodes says whether it fits."""
    wish = gang.network_topology
    return len(gang.tasks) == 1 and (wish is None or not wish.limited)


def ends_needed(nodes: Nodes, gang: Gang, held: Iterator[Held], there: int) -> int | None:
    """How many of these must be free, the first ones first, before the nodes hold a loose gang, `there` pods of which
    they hold by now; None where all of them are not enough.
    """
    [task], [floor] = gang.tasks, gang.floor()
    missing, done = floor - there, 0
    if missing <= 0:
        return 0
    asked = {name: amount for name, amount in task.requests.items() if amount > 0}
    if not asked.keys() <= set(nodes.resources) or max(asked.values(), default=0) > UNBOUNDED:
        return None
    rows = [(nodes.resources.index(name), amount) for name, amount in asked.items()]
    accepts = nodes.accepting(task)
    # Most gangs are small, and wait for few.
    known: dict[int, list[int]] = {}
    for where, amounts in itertools.islice(held, _FIRST_ENDS):
        done += 1
        for node, freed in zip(where.tolist(), amounts.tolist(), strict=True):
            if accepts[node]:
                before = known.get(node) or nodes.free[:, node].tolist()
                after = known[node] = [has + more for has, more in zip(before, freed, strict=True)]
                missing -= _times(after, rows) - _times(before, rows)
        if missing <= 0:
            return done
    nodes = nodes.copy()
    for node, after in known.items():
        nodes.free[:, node] = after
    size = 4 * _FIRST_ENDS
    while cells := list(itertools.islice(held, size)):
        where, amounts = _together(cells)
        gained = _gained(nodes, rows, where, amounts)
        gained *= accepts.take(where)
        if gained.sum() >= missing:
            last = int(gained.cumsum().searchsorted(missing))
            return done + 1 + bisect.bisect_right([*itertools.accumulate(len(each) for each, _ in cells)], last)
        missing -= int(gained.sum())
        free(nodes, where, amounts.T)
        done, size = done + len(cells), 4 * size
    return None


def _times(free: Sequence[int], rows: Sequence[tuple[int, int]]) -> int:
    """How many pods that ask for so much of each row such amounts hold."""
    return max(0, min([free[row] // amount for row, amount in rows], default=0))


def _gained(nodes: Nodes, rows: Sequence[tuple[int, int]], where: Ints, amounts: Ints) -> Ints:
    """int64[K]: for how many more pods, which ask for so much of each row, there is room with each of int64[K, R]
    amounts that are freed on int64[K] nodes, one after the other.
    """
    # Node by node, and on each in their order.
    order = where.argsort(kind="stable")
    node = where.take(order)
    first = np.flatnonzero(np.diff(node, prepend=-1))
    freed = amounts.take(order, axis=0)
    total = freed.cumsum(axis=0)
    total -= np.repeat(total[first] - freed[first], np.diff(first, append=len(node)), axis=0)
    before, after = np.full(len(node), UNBOUNDED), np.full(len(node), UNBOUNDED)
    for row, amount in rows:
        has = nodes.free[row].take(node)
        np.minimum(before, has // amount, out=before)
        np.minimum(after, (has + total[:, row]) // amount, out=after)
    np.maximum(after, 0, out=after)
    change = np.diff(after, prepend=0)
    change[first] = after[first] - np.maximum(before[first], 0)
    gained = np.empty_like(change)
    gained[order] = change
    return gained


def _together(cells: Sequence[Held]) -> Held:
    return np.concatenate([where for where, _ in cells]), np.concatenate([amounts for _, amounts in cells])


def _held_of(stay: Stay, member: Member) -> Held:
    gang, pods = stay.parts[member.name]
    columns = [member.nodes.column(task.requests) for task in gang.tasks]
    pods = [each for each in pods if each[1] < len(member.nodes)]
    where = np.array([node for _, node, _ in pods], np.int64)
    amounts = np.array([columns[task] * count for task, _, count in pods], np.int64)
    return where, amounts.reshape(len(pods), len(member.nodes.resources))


def free(nodes: Nodes, where: Ints, amounts: Ints) -> None:
    """Free int64[R, K] amounts on int64[K] nodes, which may repeat."""
    for free, row in zip(nodes.free, amounts, strict=True):
        np.add.at(free, where, row)


def end_of(each: tuple[float, str]) -> float:
    return each[0]
