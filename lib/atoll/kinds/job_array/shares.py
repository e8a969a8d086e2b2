"""Indices of an array that runs in several members: each member owns some, and starts these alone.

The host hands out a few at a time, as the members of an array get on, and writes owners and states in one status. A
member keeps an index until it has ended, or until its Work is gone with all that ran by it: so ownership never moves
while two sides may differ about it, and an old share of the same Work is harmless. Owners are a byte for each index in
order: 0 for none, else the place of a Work in their list, from 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from atoll.model.array_states import PENDING, RUNNING, further, unstarted

AHEAD: Final = 30.0
"""Seconds of work that a member is given in advance: reports come every ten seconds, and are answered by two writes."""
NOBODY: Final = 0


class Holder(NamedTuple):
    """A Work by which a member may run indices of an array."""

    work: str
    """Its UID: a member that gets another one has given up all indices of the first."""
    slots: int
    """Indices that run there at once; 0 where it gets no more of them."""
    states: bytes | None = None
    """States in its last report; None before the first one."""
    seconds: float = 0.0
    """Since its first index was started."""


class Division(NamedTuple):
    """States of all indices, and their owners."""

    states: bytes
    owners: bytes
    works: Sequence[str]
    """UIDs."""

    def share(self, work: str) -> NDArray[np.bool_]:
        """bool[indices]: the ones that a Work owns."""
        owners = np.frombuffer(self.owners, np.uint8)
        return owners == self.works.index(work) + 1 if work in self.works else np.zeros(len(owners), np.bool_)

    @property
    def free(self) -> NDArray[np.intp]:
        """Positions of indices that a member could get."""
        return np.flatnonzero((np.frombuffer(self.owners, np.uint8) == NOBODY) & (_plain(self.states) == PENDING))

    def left(self, work: str) -> int:
        """Indices of a Work that have not ended."""
        return int((self.share(work) & (_plain(self.states) <= RUNNING)).sum())


def joined(before: Division, holders: Sequence[Holder]) -> Division:
    """The division after reports: the owner of an index knows its state, and indices of Works that are gone are free.

    Args:
        before: as it was written last.
        holders: all Works by which something of the array may run.
    """
    works = [each.work for each in holders]
    places = {place: works.index(work) + 1 for place, work in enumerate(before.works, 1) if work in works}
    owners = before.owners.translate(bytes(places.get(place, NOBODY) for place in range(256)))
    known = unstarted(before.states)
    found = np.frombuffer(known, np.uint8).copy()
    for place, holder in enumerate(holders, 1):
        mine = np.frombuffer(owners, np.uint8) == place
        # Before its first report to this leader it may run as the last one heard.
        there = further(holder.states, known) if holder.states is not None else before.states
        found[mine] = np.frombuffer(there, np.uint8)[mine]
    return Division(found.tobytes(), owners, works)


def handed_out(division: Division, holders: Sequence[Holder]) -> Division:
    """Give free indices, the lowest first, to members that have few left. Who gets some, loses the ones that ended.

    Args:
        division: joined with these holders.
        holders: at most `placement.MOST_SCATTERED` with slots.
    """
    plain, owners = _plain(division.states), np.frombuffer(division.owners, np.uint8).copy()
    free, waits = division.free, plain == PENDING
    have = {place: int(((owners == place) & waits).sum()) for place in range(1, len(holders) + 1)}
    for place, holder in sorted(enumerate(holders, 1), key=lambda each: have[each[0]] / max(each[1].slots, 1)):
        running = int(((owners == place) & (plain == RUNNING)).sum())
        want = _wanted(holder, running)
        if not len(free) or 2 * have[place] >= want:
            continue
        owners[(owners == place) & (plain > RUNNING)] = NOBODY
        given, free = free[: want - have[place]], free[want - have[place] :]
        owners[given] = place
    return division._replace(owners=owners.tobytes())


def _wanted(holder: Holder, running: int) -> int:
    """Waiting indices that a member should have: for its free slots, and for the time until it gets more."""
    if not holder.slots:
        return 0
    ended = int((_plain(holder.states or b"") > RUNNING).sum())
    rate = ended / holder.seconds if holder.seconds > 0 else 0.0
    return max(holder.slots - running, 0) + max(holder.slots, math.ceil(AHEAD * rate))


def _plain(states: bytes) -> NDArray[np.uint8]:
    return np.bitwise_and(np.frombuffer(states, np.uint8), np.uint8(3))
