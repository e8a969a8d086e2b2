"""All members side by side: what they publish is taken in here, and what is decided and they don't say yet."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence

import numpy as np

from atoll.dispatcher.core.capacity.fit_table import FitTable
from atoll.dispatcher.core.capacity.layout import domains_of, higher, numbered
from atoll.dispatcher.core.capacity.member import Member
from atoll.dispatcher.core.capacity.pods import cut
from atoll.dispatcher.core.capacity.requests import Requests
from atoll.dispatcher.core.capacity.shape import Shape
from atoll.dispatcher.core.events import CapacityView, ClusterView
from atoll.dispatcher.core.settings import CoreSettings
from atoll.fit import Miss, Nodes, Placement, fill, place
from atoll.fit.placement import Ints
from atoll.model.gang import Gang

_ASIDE_ROWS = 4


class Members(FitTable):
    """Members by name and the sums of their rooms."""

    def __init__(self, most_unconfirmed: int = CoreSettings().unconfirmed) -> None:
        super().__init__()
        #: decisions that a member has not confirmed after which another one that is as good goes first
        self.most_unconfirmed = most_unconfirmed
        self.members: dict[str, Member] = {}
        #: int64[members]: decisions that a member has not confirmed
        self.unconfirmed: Ints = np.zeros(0, np.int64)
        #: UID -> members whose figures may not contain it yet: the inverse of `Member.expected`
        self.holders: dict[str, dict[Member, None]] = {}
        #: members of which nodes have other indices by now
        self._moved: dict[Member, None] = {}
        #: members whose published figures are not in the arrays yet
        self._stale: dict[str, None] = {}
        self._unfit = False

    # -- members -------------------------------------------------------------------------------------------------------

    def member(self, name: str) -> Member:
        """The member, made when it is not known."""
        member = self.members.get(name)
        if member is None:
            member = self.members[name] = Member(name)
            self._unfit = True
        return member

    def set_view(self, name: str, view: ClusterView | None) -> bool:
        """The Cluster object changed or went; True when that may matter."""
        member = self.member(name)
        if member.view == view:
            return False
        member.view = view
        self.version += 1
        self._note(name, self._in_use())
        if name in self._column:
            self.ready[self._column[name]] = member.ready
        return True

    def set_root(self, capacity: CapacityView) -> None:
        """Take in what a member published about one top domain."""
        member = self.member(capacity.cluster)
        member.set_root(capacity.root, capacity)
        self._stale[capacity.cluster] = None

    def drop_root(self, name: str, root: str) -> None:
        """Nothing is published about this root any more."""
        member = self.member(name)
        member.set_root(root, None)
        self._stale[name] = None

    def refresh(self) -> None:
        """Bring the arrays up to what was published; before anything is asked of them."""
        stale, self._stale = self._stale, {}
        if self._unfit:
            self._unfit = False
            self._lay_out()
            return
        for name in stale:
            if not self._unfit:
                self._republished(self.members[name])
        if self._unfit:
            self.refresh()

    def take_moved(self) -> list[tuple[Member, dict[int, int | None]]]:
        """Members whose nodes have other indices than at the last call, or were unknown, and which (`Member.moved`)."""
        moved, self._moved = self._moved, {}
        found = [(member, member.moved) for member in moved]
        for member in moved:
            member.moved = {}
        return found

    def _republished(self, member: Member) -> None:
        if not member.resources() <= set(self._resources):
            self._unfit = True
            return
        known, fresh = member.nodes, member.published(self._resources)
        start, end = self._span(member)
        if fresh.is_of(known):
            self._replace(member, fresh, self._profile[start:end])
            return
        profile = self._numbered(fresh)
        if len(self._profiles) > 2 * sum(len(each.nodes.profiles) for each in self.order) + 16:
            # Labels changed again and again: forget those that no node has any more.
            self._unfit = True
            return
        if len(fresh) != len(known) or fresh.tree != known.tree or not np.array_equal(fresh.lowest, known.lowest):
            self._rearranged(member, fresh, profile)
            return
        self._replace(member, fresh, profile)

    def _replace(self, member: Member, nodes: Nodes, profile: Ints) -> None:
        """The nodes of one member are others, or have others free, in the same places.

        Args:
            member: whose they are.
            nodes: as they are now.
            profile: int64[N], the number of each one's profile.
        """
        start, end = self._span(member)
        before = self._states[:, start:end].copy()
        self._free[:, start:end] = nodes.free
        nodes.free = self._free[:, start:end]
        self._profile[start:end] = profile
        self._renew(member, nodes)
        # Most often few nodes are other ones than before.
        others = np.flatnonzero((before != self._states[:, start:end]).any(axis=0))
        if others.size == 1:
            [node] = others.tolist()
            states = np.stack((before[:, node], self._states[:, start + node]), axis=1)
            self._changed_one(member, start + node, states, less=False)
        else:
            self._changed(member, start + others, before[:, others])

    def _rearranged(self, member: Member, nodes: Nodes, profile: Ints) -> None:
        """Nodes or domains of one member came, went or moved; those of the others stay what they are.

        Args:
            member: whose they are.
            nodes: as they are now.
            profile: int64[N], the number of each one's profile.
        """
        column = self._column[member.name]
        start, end = self._span(member)
        first, last = self._first_domain[column : column + 2]
        inside = np.vstack([nodes.free, profile])
        self._states = np.concatenate([self._states[:, :start], inside, self._states[:, end:]], axis=1)
        self._free, self._profile = self._states[:-1], self._states[-1]
        self._bounds[column + 1 :] = [bound + len(nodes) - (end - start) for bound in self._bounds[column + 1 :]]
        for each in self.order:
            known = nodes if each is member else each.nodes
            known.free = self._free[:, slice(*self._span(each))]
        alike = nodes.tree == member.nodes.tree
        self._renew(member, nodes)
        if alike:
            inside = numbered(nodes, len(self._domains), first, len(self._owner))
            self._domains = np.concatenate([self._domains[:, :start], inside, self._domains[:, end:]], axis=1)
            self._held[first:last] = 0
        else:
            self._arrange_domains([each.nodes for each in self.order])
            # Those of the others keep their sums, though their numbers may be others.
            own = np.zeros((len(nodes.tree.domains), self._held.shape[1]), np.int64)
            self._held = np.concatenate([self._held[:first], own, self._held[last:]])
        columns = slice(*self._span(member))
        rooms = self._rooms(self._states[:, columns])
        self.counts[:, column] = rooms.sum(axis=1)
        for domains in self._domains[:, columns]:
            np.add.at(self._held, domains, rooms.T)
        # With as much room in all, there may be more of it in one domain.
        self._note(member.name, self.counts[:, column] > 0)

    def _arrange_domains(self, published: Sequence[Nodes]) -> None:
        self._domains, self._owner, self._rank = domains_of(published)
        self._first_domain = [0, *itertools.accumulate(len(nodes.tree.domains) for nodes in published)]

    def _renew(self, member: Member, nodes: Nodes) -> None:
        had_none = not member.index
        member.renew(nodes)
        if member.moved or (had_none and member.index):
            self._moved[member] = None

    def _lay_out(self) -> None:
        """Everything anew: members or resources came or went."""
        self.order = [self.members[name] for name in sorted(self.members)]
        self._column = {member.name: column for column, member in enumerate(self.order)}
        self.version += 1
        self.ready = np.array([member.ready for member in self.order], np.bool_)
        self.unconfirmed = np.array([len(member.expected) for member in self.order], np.int64)
        self._resources = tuple(sorted(set().union(*(member.resources() for member in self.order))))
        published = [member.published(self._resources) for member in self.order]
        self._bounds = [0, *itertools.accumulate(len(nodes) for nodes in published)]
        self._profiles, self._profile_index = [], {}
        self._states = np.concatenate(
            [
                np.zeros((len(self._resources) + 1, 0), np.int64),
                *(np.vstack([nodes.free, self._numbered(nodes)]) for nodes in published),
            ],
            axis=1,
        )
        self._free, self._profile = self._states[:-1], self._states[-1]
        for member, nodes in zip(self.order, published, strict=True):
            start, end = self._span(member)
            nodes.free = self._free[:, start:end]
            self._renew(member, nodes)
        self._arrange_domains(published)
        height = len(self.counts)
        self.counts = np.zeros((height, len(self.order)), np.int64)
        self._held = np.zeros((len(self._owner) + 1, height), np.int64)
        self._requests = Requests(self._resources, height)
        self._accepts = np.zeros((height, len(self._profiles)), np.bool_)
        for row, task in enumerate(self._tasks):
            if task is not None:
                self._fill_row(row, task)
        for column, member in enumerate(self.order):
            # With as much room in all, there may be more of it in one domain.
            self._note(member.name, self.counts[:, column] > 0)

    # -- shapes --------------------------------------------------------------------------------------------------------

    def enroll(self, shape: Shape) -> None:
        """Keep rooms for the shape's tasks from now on; as often as it is enrolled it must be released."""
        shape.enrolled += 1
        if shape.enrolled == 1:
            self.refresh()
            shape.rows = tuple(self._enroll(task) for task in shape.gang.tasks)
            for row in shape.rows if len(shape.rows) > 1 else ():
                self._beside[row] = self._beside.get(row, 0) + 1
        for other in shape.others:
            self.enroll(other)

    def aside(self) -> Members:
        """The same members and nodes, as they are in the arrays now, with rows of its own: what is enrolled there
        leaves nothing here. For questions only, and only until the next event.
        """
        twin = copy.copy(self)
        twin._stale, twin._unfit, twin._grown = {}, False, {}
        twin._beside = {}
        twin._rows, twin._tasks, twin._wanted, twin._users, twin._vacant, twin._idle = {}, [], [], [], [], {}
        twin._requests = Requests(self._resources, _ASIDE_ROWS)
        twin.counts, twin._accepts = higher(self.counts[:0], _ASIDE_ROWS), higher(self._accepts[:0], _ASIDE_ROWS)
        twin._held = np.zeros((len(self._held), _ASIDE_ROWS), np.int64)
        return twin

    # -- decisions -----------------------------------------------------------------------------------------------------

    def assume(self, member: Member, uid: str, gang: Gang, placement: Placement) -> None:
        """Count a decision until the member's own figures contain it; `placement` is of the nodes as they are now."""
        member.inflight[uid] = (gang, placement)
        self.expect(member, uid)
        self.take(member, gang, placement)

    def assume_more(self, member: Member, uid: str, gang: Gang, placement: Placement) -> None:
        """Count further pods of a gang that runs there, or is about to."""
        self.take(member, gang, placement)
        pods, counts = list(placement.pods), list(placement.counts)
        if uid in member.inflight:
            _, before = member.inflight[uid]
            pods = [*before.pods, *pods]
            counts = [a + b for a, b in zip(before.counts, counts, strict=True)]
        member.inflight[uid] = (gang.sized(counts), Placement(pods, counts))
        self.expect(member, uid)

    def assume_no_more(self, member: Member, uid: str, part: Gang) -> None:
        """Of what is assumed of a binding, count no more pods than its part has by now."""
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
            if member.name in self._column:
                self.unconfirmed[self._column[member.name]] += 1

    def forget(self, member: Member, uid: str) -> None:
        """Stop counting a decision."""
        if uid in member.expected:
            member.expected.discard(uid)
            holders = self.holders[uid]
            del holders[member]
            if not holders:
                del self.holders[uid]
            if member.name in self._column:
                self.unconfirmed[self._column[member.name]] -= 1
        entry = member.inflight.pop(uid, None)
        if entry is not None and member.short:
            # Others found too little room beside it: they are placed anew.
            self._stale[member.name] = None
        # Where figures are about to come they do not subtract it.
        if entry is not None and not self._unfit and member.name not in self._stale:
            self.take(member, *entry, -1)

    def assume_late(self, member: Member, uid: str, gang: Gang) -> None:
        """Count a part that an earlier leader decided and the member's figures lack, where it would go now."""
        self.refresh()
        placement = place(member.nodes, gang)
        if isinstance(placement, Miss):
            # What has no place now is counted somewhere, when the member's figures are next renewed.
            placement = fill(member.nodes, gang)
            self._stale[member.name] = None
        self.assume(member, uid, gang, placement)

    def take(self, member: Member, gang: Gang, placement: Placement, times: int = 1) -> None:
        """Subtract a placement's pods from what is free; -1 times gives them back."""
        start, requests = self._span(member)[0], gang.requests()
        member.changes += 1
        if len(placement.pods) == 1:
            node = start + placement.pods[0][1]
            states = self._states.take((node, node), axis=1)
            member.nodes.take(requests, placement, times)
            states[:, 1] = self._states[:, node]
            self._changed_one(member, node, states, less=times > 0)
            return
        columns = start + np.array(list({node for _, node, _ in placement.pods}), np.int64)
        before = self._states[:, columns]
        member.nodes.take(requests, placement, times)
        self._changed(member, columns, before, less=times > 0)
