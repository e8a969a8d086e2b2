"""What runs where and until when, and the nodes of a member as they will be when some of it has ended."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import ItemsView, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from atoll.dispatcher.core.members import Member
from atoll.dispatcher.core.promise import SETTLE, Stay
from atoll.dispatcher.core.world import World
from atoll.fit import Nodes
from atoll.fit.nodes import Ints

Held = tuple[Ints, Ints]
"""(int64[K] nodes of a member, int64[K, R] what is held on each)."""
Ladder = tuple[Ints, Ints, list[int]]
"""(int64[K] nodes, int64[R, K] what is freed on each, for how many of these after so many ends)."""

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


@dataclass(slots=True)
class _Freed:
    """What some free in a member, one after the other."""

    held: dict[str, Held]
    """The answers of `_held` from which it follows."""
    uids: list[str] | None
    """Whose they are; None where one of these has left since, or is somewhere else."""
    cells: list[Held]
    """Of each, in the same order."""
    ladder: Ladder


class Stays:
    """See the module; whoever adds to it hears of what comes and goes by `_account` and `_outdate`."""

    def __init__(self, world: World) -> None:
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
        #: member -> what `_freed` answered last
        self._ladders: dict[str, _Freed] = {}
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
            if name in self._ladders:
                self._ladders[name].uids = None
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

    def _freed(self, member: Member, uids: list[str]) -> Ladder:
        """What `_held` says of these, one after the other; kept, for parts of it are asked often."""
        known, held = self._ladders.get(member.name), self._held_by(member)
        if known is None or known.held is not held:
            nothing = np.zeros(0, np.int64), np.zeros((len(member.nodes.resources), 0), np.int64), [0]
            known = self._ladders[member.name] = _Freed(held, [], [], nothing)
        if known.uids != uids:
            cells = [held.get(uid) or self._held(uid, member) for uid in uids]
            known.ladder = _spliced(known.ladder, known.cells, cells)
            known.uids, known.cells = uids, cells
        return known.ladder

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

    def _free_all(self, nodes: Nodes, member: Member, uids: Iterable[str]) -> None:
        for uid in uids:
            where, amounts = self._held(uid, member)
            free(nodes, where, amounts.T)


def _spliced(ladder: Ladder, before: Sequence[Held], cells: Sequence[Held]) -> Ladder:
    """The ladder of other cells: few have come or gone since it was made, and what is between them stays."""
    most = min(len(before), len(cells))
    head = next((at for at in range(most) if before[at] is not cells[at]), most)
    tail = next((at for at in range(most - head) if before[-1 - at] is not cells[-1 - at]), most - head)
    where, amounts, bounds = ladder
    fresh, rest = cells[head : len(cells) - tail], len(before) - tail
    first, last = bounds[head], bounds[rest]
    middle = list(itertools.accumulate((len(each) for each, _ in fresh), initial=first))
    return (
        np.concatenate([where[:first], *(each for each, _ in fresh), where[last:]]),
        np.concatenate([amounts[:, :first], *(each.T for _, each in fresh), amounts[:, last:]], axis=1),
        [*bounds[:head], *middle, *(bound + middle[-1] - last for bound in bounds[rest + 1 :])],
    )


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
