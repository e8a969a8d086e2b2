"""All members: their published figures and the decisions not visible there yet."""

from __future__ import annotations

import copy
from collections.abc import Iterable

import numpy as np

from atoll.dispatcher.core.capacity.fit_table import FitTable
from atoll.dispatcher.core.capacity.member import Member
from atoll.dispatcher.core.capacity.shape import Shape
from atoll.dispatcher.core.events import CapacityView, ClusterView
from atoll.dispatcher.core.settings import CoreSettings
from atoll.fit import Miss, Placement, fill, place
from atoll.fit.placement import Ints
from atoll.fit.pods import cut
from atoll.model.gang import Gang


class Members:
    """Members by name, and `table`, which shows the fitting members of each shape by published figures and
    decisions.
    """

    def __init__(self, most_unconfirmed: int = CoreSettings().unconfirmed) -> None:
        self.table = FitTable()
        #: decisions that a member has not confirmed after which another one that is as good goes first
        self.most_unconfirmed = most_unconfirmed
        self.by_name: dict[str, Member] = {}
        #: int64[members]: decisions that a member has not confirmed
        self.unconfirmed: Ints = np.zeros(0, np.int64)
        #: UID -> members whose figures may not contain it yet: the inverse of `Member.expected`
        self.holders: dict[str, dict[Member, None]] = {}
        #: members whose published figures are not in the arrays yet
        self._stale: dict[str, None] = {}
        #: the whole table needs a new layout
        self._unfit = False

    # -- members -------------------------------------------------------------------------------------------------------

    def member(self, name: str) -> Member:
        """The member, made when it is not known."""
        member = self.by_name.get(name)
        if member is None:
            member = self.by_name[name] = Member(name)
            self._unfit = True
        return member

    def are_ready(self, names: Iterable[str]) -> bool:
        """Whether each of these is a member with current reports."""
        known = (self.by_name.get(name) for name in names)
        return all(member is not None and member.ready for member in known)

    def set_view(self, name: str, view: ClusterView | None) -> bool:
        """The Cluster object changed or went; True when that may matter."""
        member = self.member(name)
        if member.view == view:
            return False
        member.view = view
        self.table.view_changed(member)
        return True

    def set_root(self, name: str, root: str, capacity: CapacityView | None) -> None:
        """Take in what a member publishes about one top domain; None for nothing any more."""
        self.member(name).set_root(root, capacity)
        self._stale[name] = None

    def refresh(self) -> None:
        """Bring the arrays up to the published figures, before any query."""
        stale, self._stale = self._stale, {}
        if self._unfit:
            self._unfit = False
            self.table.lay_out([self.by_name[name] for name in sorted(self.by_name)])
            self.unconfirmed = np.array([len(member.expected) for member in self.table.order], np.int64)
        elif not all(self.table.republish(self.by_name[name]) for name in stale):
            self._unfit = True
            self.refresh()

    # -- shapes --------------------------------------------------------------------------------------------------------

    def enroll(self, shape: Shape) -> None:
        """Keep rows for the shape's tasks from now on; as often as it is enrolled it must be released."""
        if not shape.enrolled:
            self.refresh()
        self.table.enroll(shape)

    def release(self, shape: Shape) -> None:
        """The inverse of `enroll`."""
        self.table.release(shape)

    def aside(self) -> Members:
        """The same members and nodes, as they are in the table now, with rows of its own: rows enrolled there
        leave nothing here. For questions only, and only until the next event.
        """
        twin = copy.copy(self)
        twin._stale, twin._unfit, twin.table = {}, False, self.table.aside()
        return twin

    # -- decisions -----------------------------------------------------------------------------------------------------

    def assume(self, member: Member, uid: str, gang: Gang, placement: Placement) -> None:
        """Count a decision until the member's own figures contain it; `placement` is of the nodes as they are now."""
        member.inflight[uid] = (gang, placement)
        self.expect(member, uid)
        self.table.take(member, gang, placement)

    def assume_more(self, member: Member, uid: str, gang: Gang, placement: Placement) -> None:
        """Count further pods of a gang that runs there, or is about to."""
        self.table.take(member, gang, placement)
        pods, counts = list(placement.pods), list(placement.counts)
        if uid in member.inflight:
            _, before = member.inflight[uid]
            pods = [*before.pods, *pods]
            counts = [a + b for a, b in zip(before.counts, counts, strict=True)]
        member.inflight[uid] = (gang.sized(counts), Placement(pods, counts))
        self.expect(member, uid)

    def assume_no_more(self, member: Member, uid: str, part: Gang) -> None:
        """Assume no more pods of a binding than its part has by now."""
        entry = member.inflight.get(uid)
        if entry is None or entry[0].replicas <= part.replicas:
            return
        self.refresh()
        entry = member.inflight[uid]
        gang, placement = entry
        counts = [min(count, task.replicas) for count, task in zip(placement.counts, part.tasks, strict=True)]
        self.forget(member, uid)
        self.assume(member, uid, gang.sized(counts), cut(placement, counts))

    def expect(self, member: Member, uid: str) -> None:
        """The member's figures may not contain this binding yet."""
        if uid not in member.expected:
            member.expected.add(uid)
            self.holders.setdefault(uid, {})[member] = None
            if self.table.knows(member.name):
                self.unconfirmed[self.table.column(member.name)] += 1

    def forget(self, member: Member, uid: str) -> None:
        """Stop counting a decision."""
        if uid in member.expected:
            member.expected.discard(uid)
            holders = self.holders[uid]
            del holders[member]
            if not holders:
                del self.holders[uid]
            if self.table.knows(member.name):
                self.unconfirmed[self.table.column(member.name)] -= 1
        entry = member.inflight.pop(uid, None)
        if entry is not None and member.short:
            # Others did not fit beside it: they are placed anew.
            self._stale[member.name] = None
        # Where figures are about to come they do not subtract it.
        if entry is not None and not self._unfit and member.name not in self._stale:
            self.table.take(member, *entry, -1)

    def assume_late(self, member: Member, uid: str, gang: Gang) -> None:
        """Count a part that an earlier leader decided and the member's figures lack, where it would go now."""
        self.refresh()
        placement = place(member.nodes, gang)
        if isinstance(placement, Miss):
            # Pods without a place now are counted somewhere, when the member's figures are next renewed.
            placement = fill(member.nodes, gang)
            self._stale[member.name] = None
        self.assume(member, uid, gang, placement)
