"""Nodes beside reservations: where each workload with one will be in its member, and what that leaves."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from atoll.dispatcher.core.backfill.arrange import arrange
from atoll.dispatcher.core.backfill.book import Book
from atoll.dispatcher.core.backfill.reservation import Reservation, Spot
from atoll.dispatcher.core.backfill.timeline import Timeline
from atoll.dispatcher.core.capacity.member import Member
from atoll.fit import Nodes


class Spots:
    def __init__(self, book: Book, timeline: Timeline) -> None:
        self._book, self._timeline = book, timeline

    def spot(self, reservation: Reservation) -> Spot:
        """Where it will be, beside all others of its member."""
        if reservation.spot is None or not reservation.spot.rest.like(reservation.member.nodes):
            for each, spot in arrange(self._book.placed(reservation.member), self.future).items():
                each.spot, each.placement = spot, spot.placement or each.placement
                each.lost = min(each.lost, self._timeline.now) if spot.placement is None else math.inf
        assert reservation.spot is not None, f"{reservation.uid} has nodes in {reservation.member.name}"
        return reservation.spot

    def future(self, reservation: Reservation) -> Nodes:
        """The member's nodes when it starts, without reservations; don't change them."""
        member = reservation.member
        if reservation.future is not None and not reservation.future.like(member.nodes):
            reservation.future = None
        if reservation.future is None and reservation.claim:
            reservation.future = self._timeline.at_once(member)
            self._timeline.free_all(reservation.future, member, self.leaving(reservation, member))
        if reservation.future is None:
            # Without a claim it starts by this one.
            over = self._timeline.over_by(member, reservation.at)
            reservation.future = self.after(member, over, reservation.uid)
        return reservation.future

    def after(self, member: Member, over: Sequence[str], uid: str = "") -> Nodes:
        """The member's nodes once these have ended, and the victims of all claims but that workload's have gone."""
        nodes = self._timeline.at_once(member)
        self._timeline.free_all(nodes, member, over)
        for leaving in self.going(member, uid):
            self._timeline.free_all(nodes, member, set(leaving).difference(over))
        return nodes

    def going(self, member: Member, but: str = "") -> Iterator[list[str]]:
        """The victims of each claim in the member, all but that workload's."""
        for claim in self._book.claims.values():
            if claim.member is member and claim.uid != but and not claim.uncertain:
                yield self.leaving(claim, member)

    def leaving(self, claim: Reservation, member: Member) -> list[str]:
        """Victims evicted whole that have not left the member yet."""
        return [uid for uid in claim.leaving if member.name in self._timeline[uid].parts]
