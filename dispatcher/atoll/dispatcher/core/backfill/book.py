"""Whose capacity is reserved: reservations by workload."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from atoll.dispatcher.core.backfill.reservation import Reservation
from atoll.dispatcher.core.capacity.member import Member


class Book:
    def __init__(self) -> None:
        #: UID of the waiting workload -> its reservation
        self.made: dict[str, Reservation] = {}
        #: the same of claimants: their earlier reservations stay theirs until they start
        self.claims: dict[str, Reservation] = {}

    def all(self) -> Iterator[Reservation]:
        """Whatever binds others, of one workload perhaps two."""
        return itertools.chain(self.claims.values(), self.made.values())

    def own(self, uid: str) -> Reservation | None:
        """By what a workload starts: its claim, else its reservation; None without one."""
        return self.claims.get(uid) or self.made.get(uid)

    def each(self) -> Iterator[Reservation]:
        """One for each workload: as it starts if its victims go."""
        return iter((self.made | self.claims).values())

    def placed(self, member: Member, but: str = "") -> list[Reservation]:
        """Reservations with nodes of the member, in the order in which they are arranged, all but that workload's:
        claims first, which start first.
        """
        return [each for each in self.all() if each.member is member and each.places and each.uid != but]
