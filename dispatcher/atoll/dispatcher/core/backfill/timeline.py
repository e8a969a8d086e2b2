"""What runs where and until when, and the nodes of a member as they will be when some of it has ended."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple, Protocol

from atoll.dispatcher.core.backfill.allocation import Allocation
from atoll.dispatcher.core.capacity.member import Member
from atoll.dispatcher.core.capacity.members import Members
from atoll.dispatcher.core.settings import BackfillSettings
from atoll.fit import Nodes
from atoll.fit.freed import Held, free, held_by, together


class _Left(NamedTuple):
    """What runs no more."""

    allocation: Allocation
    until: float
    """Latest time at which its member's figures are without it."""
    generation: int = -1
    """The first of its member's that is without it; any new one where that is not known."""


class Ends(NamedTuple):
    """What runs in a member, the first to end first."""

    times: list[float]
    """Expected ends of its use; infinite ones last."""
    uids: list[str]
    changes: int
    """Of the member, when that was so."""
    late_from: float
    """When the next of these runs longer than expected."""


class Watcher(Protocol):
    """Hears of what comes and goes."""

    def counted(self, uid: str, allocation: Allocation, sign: int, *, changes: bool) -> None:
        """It starts (-1) or has left (1), or only its known facts change."""

    def outdated(self, name: str) -> None:
        """Forget the known future of a member."""


class Timeline:
    def __init__(self, members: Members, watcher: Watcher, settings: BackfillSettings = BackfillSettings()) -> None:
        self._members, self._settings = members, settings
        self._watcher = watcher
        #: UID -> what runs
        self._allocations: dict[str, Allocation] = {}
        #: (end, UID) of what runs, in order
        self._by_end: list[tuple[float, str]] = []
        #: member -> the same of what runs there
        self._here: dict[str, list[tuple[float, str]]] = {}
        #: member -> the resources and the number of nodes for which it holds, and UID -> its use there
        self._cells: dict[str, tuple[tuple[str, ...], int, dict[str, Held]]] = {}
        #: member -> what `ends` answered last, if nothing runs longer than expected
        self._ends_known: dict[str, Ends] = {}
        #: member -> UID -> pods that have left, still in the member's figures
        self._left: dict[str, dict[str, _Left]] = {}
        #: seconds since the epoch, of the last pass
        self.now = 0.0

    def enter(self, uid: str, allocation: Allocation) -> None:
        """Something starts to run, or is seen to; earlier facts are forgotten."""
        old = self._allocations.get(uid)
        if old is not None:
            if old == allocation:
                return
            self._forget(uid, old, changes=True)
        self._allocations[uid] = allocation
        bisect.insort(self._by_end, (allocation.end, uid))
        for name in allocation.parts:
            bisect.insort(self._here.setdefault(name, []), (allocation.end, uid))
            if name in self._left:
                self._left[name].pop(uid, None)
        self._watcher.counted(uid, allocation, -1, changes=old is not None)
        for name in allocation.parts:
            self.outdate(name)

    def leave(self, uid: str, placed: Mapping[str, tuple[int, int]] | None = None) -> None:
        """It runs no more. `placed`: member -> (capacity generation, pods that it contains), as was last seen."""
        allocation = self._allocations.get(uid)
        if allocation is None:
            return
        for name in allocation.parts:
            member = self._members.by_name.get(name)
            if member is not None and uid not in member.inflight:
                generation, pods = (placed or {}).get(name, (0, -1))
                if pods != 0:
                    self._left.setdefault(name, {})[uid] = _Left(allocation, self.now + self._settings.settle)
                elif generation > member.generation:
                    self._left.setdefault(name, {})[uid] = _Left(
                        allocation, self.now + self._settings.grace, generation
                    )
        self._forget(uid, allocation, changes=False)

    def _forget(self, uid: str, allocation: Allocation, *, changes: bool) -> None:
        for name in allocation.parts:
            here = self._here[name]
            del here[bisect.bisect_left(here, (allocation.end, uid))]
            if name in self._cells:
                self._cells[name][2].pop(uid, None)
        del self._allocations[uid]
        del self._by_end[bisect.bisect_left(self._by_end, (allocation.end, uid))]
        self._watcher.counted(uid, allocation, 1, changes=changes)
        for name in allocation.parts:
            self.outdate(name)

    def get(self, uid: str) -> Allocation | None:
        """Known allocation of a running workload."""
        return self._allocations.get(uid)

    def __getitem__(self, uid: str) -> Allocation:
        return self._allocations[uid]

    def __contains__(self, uid: str) -> bool:
        return uid in self._allocations

    def running_in(self, member: Member) -> list[str]:
        """UIDs of what runs there."""
        return [uid for _, uid in self._here.get(member.name, ())]

    def republished(self, member: str) -> None:
        """The member's figures are other ones."""
        generation = self._members.member(member).generation
        left = self._left.pop(member, {})
        if still := {uid: each for uid, each in left.items() if each.generation > generation}:
            self._left[member] = still
        self.outdate(member)

    def pass_begins(self, now: float) -> None:
        """From now on figures are without pods that left a while ago, even if none were published since."""
        self.now = now
        for name in [name for name, left in self._left.items() if any(each.until <= now for each in left.values())]:
            self._left[name] = {uid: each for uid, each in self._left[name].items() if each.until > now}
            self.outdate(name)

    def outdate(self, name: str) -> None:
        """Forget the known future of a member."""
        member = self._members.by_name.get(name)
        if member is not None:
            member.changes += 1
        self._watcher.outdated(name)

    # -- what will be free -------------------------------------------------------------------------------------------

    def ends(self, member: Member, now: float) -> Ends:
        """What runs there by its expected end, seen from now; don't change it."""
        known = self._ends_known.get(member.name)
        if known is None or known.changes != member.changes or known.late_from <= now:
            here, settle = self._here.get(member.name, []), self._settings.settle
            late = bisect.bisect_right(here, now - settle, key=end_of)
            late_from = here[late][0] + settle if late < len(here) else math.inf
            if late:
                here = sorted(
                    [*((self._allocations[uid].expected_end(now), uid) for _, uid in here[:late]), *here[late:]]
                )
            known = Ends([end + settle for end, _ in here], [uid for _, uid in here], member.changes, late_from)
            if not late:
                self._ends_known[member.name] = known
        return known

    def at_once(self, member: Member) -> Nodes:
        """The member's nodes as its next figures will have them: without pods that have left already."""
        nodes = member.nodes.copy()
        for left in self._left.get(member.name, {}).values():
            where, amounts = held_by(nodes, *left.allocation.parts[member.name])
            free(nodes, where, amounts.T)
        return nodes

    def awaits_figures(self, member: Member) -> bool:
        """Whether something has left it that its figures still contain."""
        return bool(self._left.get(member.name))

    def over_by(self, member: Member, when: float) -> list[str]:
        """UIDs of what runs there and is over by then, as estimates say."""
        here = self._here.get(member.name, [])
        return [
            uid for _, uid in here[: bisect.bisect_right(here, when, key=lambda each: each[0] + self._settings.settle)]
        ]

    def by_end(self, after: float = -math.inf, until: float = math.inf) -> Iterator[tuple[float, str]]:
        """(end, UID) of what runs, in order of ends in this interval, its end included."""
        first, last = (bisect.bisect_right(self._by_end, end, key=end_of) for end in (after, until))
        return itertools.islice(self._by_end, first, last)

    @property
    def endless(self) -> bool:
        """Whether the end of some of what runs is not known."""
        return bool(self._by_end) and self._by_end[-1][0] == math.inf

    def renumber(self, member: Member, moved: Mapping[int, int | None]) -> None:
        """Nodes of a member have other indices (`Member.moved`): what runs is where it was."""
        self._left.pop(member.name, None)
        for _, uid in list(self._here.get(member.name, ())):
            allocation = self._allocations[uid]
            gang, pods = allocation.parts[member.name]
            there = [(task, now, count) for task, node, count in pods if (now := moved.get(node, node)) is not None]
            self.enter(uid, replace(allocation, parts={**allocation.parts, member.name: (gang, there)}))

    def emptied(self, member: Member) -> Nodes:
        """The member's nodes as they would be if all that runs there had ended."""
        nodes = self.at_once(member)
        self.free_all(nodes, member, self.running_in(member))
        return nodes

    def free_all(self, nodes: Nodes, member: Member, uids: Iterable[str]) -> None:
        cells = list(self.each_held(member, uids))
        if cells:
            where, amounts = together(cells)
            free(nodes, where, amounts.T)

    def each_held(self, member: Member, uids: Iterable[str]) -> Iterator[Held]:
        """What each of these holds in a member; kept, for it is asked often."""
        resources, count = member.nodes.resources, len(member.nodes)
        known = self._cells.get(member.name)
        if known is None or known[:2] != (resources, count):
            known = self._cells[member.name] = (resources, count, {})
        cells = known[2]
        for uid in uids:
            if uid not in cells:
                cells[uid] = held_by(member.nodes, *self._allocations[uid].parts[member.name])
            yield cells[uid]


def end_of(each: tuple[float, str]) -> float:
    return each[0]
