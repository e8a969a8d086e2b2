"""How many pods of every waiting shape each member and each domain still holds: the table and its queries.

`counts` is int64[shapes, members], and the same is kept of every domain. Both are kept by difference: nodes that were
alike and are alike again are computed once, so a decision costs O(shapes x distinct changes), and choosing among a
hundred members is one comparison of a row, however many nodes they have.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from atoll.dispatcher.core.capacity.member import Member
from atoll.dispatcher.core.capacity.rows import Rows
from atoll.dispatcher.core.capacity.shape import Shape
from atoll.fit import Nodes, OneRoom, Placement, place
from atoll.fit.layout import distinct, domains_of, higher, numbered, sums
from atoll.fit.placement import MANY, Ints
from atoll.model.claim_shapes import is_shape, limited
from atoll.model.gang import Gang


class FitTable:
    """The nodes of all members side by side, and how many pods of each of `rows` they hold."""

    def __init__(self) -> None:
        self.rows = Rows()
        #: members in order of their names: the columns of `counts`
        self.order: list[Member] = []
        self._column: dict[str, int] = {}
        #: raised when a Cluster object changed: answers about which members accept which pods are outdated
        self.version = 0
        self.ready: NDArray[np.bool_] = np.zeros(0, np.bool_)
        #: first node of each member, and the end
        self._bounds: list[int] = [0]
        #: int64[resources + 1, nodes]: free amounts, and the number of the profile in `rows`
        self._states: Ints = np.zeros((1, 0), np.int64)
        #: int64[ranks, nodes]: domain of each node per rank of its tier, numbered over all members; the last is none
        self._domains: Ints = np.zeros((0, 0), np.int64)
        #: first domain of each member
        self._first_domain: list[int] = []
        #: per domain: column of its member, rank of its tier
        self._owner: Ints = np.zeros(0, np.int64)
        self._rank: Ints = np.zeros(0, np.int64)
        self.counts: Ints = np.zeros((len(self.rows.tasks), 0), np.int64)
        #: int64[domains + 1, rows]: pods that the domain's nodes hold; the last line means nothing
        self._held: Ints = np.zeros((1, len(self.rows.tasks)), np.int64)
        #: member -> bool[rows]: for which some node of it has more capacity than before, or more of something that a
        #: row asks for whose task needs a place beside others; emptied by `take_grown`
        self._grown: dict[str, NDArray[np.bool_]] = {}
        #: members of which nodes have other indices by now
        self._moved: dict[Member, None] = {}

    def column(self, name: str) -> int:
        """Of a member in `counts` and `order`."""
        return self._column[name]

    def knows(self, name: str) -> bool:
        """Whether a member has a column yet."""
        return name in self._column

    def room(self, member: Member, shape: Shape) -> list[Ints]:
        """Per task int64[nodes of the member]; the shape is enrolled."""
        columns = slice(*self._span(member))
        return [self.rows.room(row, self._states[:, columns]) for row in shape.rows]

    def held(self, member: Member, shape: Shape) -> list[Ints]:
        """Per task int64[domains of the member + 1], the sums of `room` over each; the last entry is zero."""
        first = self._first_domain[self._column[member.name]]
        last = first + len(member.nodes.tree.domains)
        sums = [self._held[first : last + 1, row].copy() for row in shape.rows]
        for each in sums:
            each[-1] = 0
        return sums

    def find(self, member: Member, shape: Shape, gang: Gang) -> Placement | None:
        """Where a gang of the shape, which is enrolled, goes in the member; None where it does not fit."""
        if shape.full != [1]:
            room = self.room(member, shape)
            return place(member.nodes, gang, room=room, held=self.held(member, shape), explain=False)
        # Most are a single pod, for which the capacity of few nodes matters.
        [row], start = shape.rows, self._span(member)[0]
        [held] = self.held(member, shape)

        def at(inside: Ints) -> Ints:
            return self.rows.room(row, self._states.take(inside + start, axis=1))

        return place(member.nodes, gang, room=OneRoom(held.tolist(), at), explain=False)

    def allowed(self, shape: Shape) -> list[NDArray[np.bool_]]:
        """Per affinity of the shape, bool[members]: which accept it, ready or not."""
        if shape.seen != self.version:
            shape.allowed = [
                np.array(
                    [
                        member.unfit(shape.gang) is None and member.accepts(affinity, shape.tolerations)
                        for member in self.order
                    ],
                    np.bool_,
                )
                for affinity in shape.affinities
            ]
            shape.seen = self.version
        return shape.allowed

    def may_fit(self, shapes: Sequence[Shape]) -> tuple[list[bool], list[int]]:
        """Per shape: whether some ready member, or all together for a divided one, hold the first task's minimum; and
        the column of such a member, -1 where there is none.
        """
        counts = self.counts[[shape.rows[0] for shape in shapes]] * self.ready
        floors = np.array([shape.floor[0] for shape in shapes])
        enough = counts >= floors[:, None]
        whole = enough.any(axis=1)
        divided = np.array([shape.divided for shape in shapes])
        fits = whole | (divided & (counts.sum(axis=1) >= floors))
        return fits.tolist(), np.where(whole, enough.argmax(axis=1), -1).tolist()

    def nearest_tier(self, shape: Shape) -> Ints:
        """int64[members]: rank of the nearest tier with a domain that holds all pods of the shape's every task.

        The number of tiers where no domain does. A bound from below: each task by itself.
        """
        none = len(self._domains)
        fits = np.ones(len(self._owner), np.bool_)
        for row, wanted in zip(shape.rows, shape.full, strict=True):
            fits &= self._held[:-1, row] >= wanted
        best = np.full(len(self.order), none, np.int64)
        np.minimum.at(best, self._owner[fits], self._rank[fits])
        return best

    def take_grown(self) -> list[tuple[str, NDArray[np.bool_]]]:
        """(member, bool[rows]) that may hold more of these rows than at the last call."""
        grown, self._grown = self._grown, {}
        return sorted(grown.items())

    def check(self) -> None:
        """Verify the matrix against the nodes themselves.

        Raises:
            AssertionError: naming the member.
        """
        for column, member in enumerate(self.order):
            start, end = self._span(member)
            for row, task in [(row, task) for row, task in enumerate(self.rows.tasks) if task is not None]:
                known = self.rows.resources
                asked = {name: n for name, n in limited(task).items() if name in known or not is_shape(name)}
                accepting = member.nodes.accepting(task) & self.rows.possible(task)
                exact = np.minimum(np.where(accepting, member.nodes.room(asked), 0), MANY)
                room = self.rows.room(row, self._states[:, start:end])
                assert (room == exact).all(), f"{member.name}: rooms differ from its nodes"
                assert self.counts[row, column] == exact.sum(), f"{member.name}: counts differ from its rooms"
                for domains in self._domains[:, start:end]:
                    for domain in set(domains.tolist()) - {len(self._owner)}:
                        held = exact[domains == domain].sum()
                        assert self._held[domain, row] == held, f"{member.name}: a domain's sum differs from its rooms"

    # -- rows ----------------------------------------------------------------------------------------------------------

    def enroll(self, shape: Shape) -> None:
        """Keep rows for the shape's tasks from now on; as often as it is enrolled it must be released."""
        for row in self.rows.enroll(shape):
            if (height := len(self.rows.tasks)) > len(self.counts):
                self.counts = higher(self.counts, height)
                self._held = np.ascontiguousarray(higher(self._held.T, height).T)
                self._grown = {name: higher(rows, height) for name, rows in self._grown.items()}
            self._count(row)

    def release(self, shape: Shape) -> None:
        """The inverse of `enroll`."""
        for row in self.rows.release(shape):
            self.counts[row] = 0
            self._held[:, row] = 0

    def _count(self, row: int) -> None:
        room = self.rows.room(row, self._states)
        self.counts[row] = sums(room, self._bounds)
        self._held[:, row] = 0
        for domains in self._domains:
            np.add.at(self._held[:, row], domains, room)

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def lay_out(self, order: list[Member]) -> None:
        """Everything anew: members, which are given in order of their names, or resources came or went."""
        self.order = order
        self._column = {member.name: column for column, member in enumerate(self.order)}
        self.version += 1
        self.ready = np.array([member.ready for member in self.order], np.bool_)
        resources = tuple(sorted(set().union(*(member.resources() for member in self.order))))
        published = [member.published(resources) for member in self.order]
        self._bounds = [0, *itertools.accumulate(len(nodes) for nodes in published)]
        self.rows.lay_out(resources)
        laid = [np.vstack([each.free, self.rows.numbered(of, each)]) for of, each in zip(order, published, strict=True)]
        self._states = np.concatenate([np.zeros((len(resources) + 1, 0), np.int64), *laid], axis=1)
        for member, nodes in zip(self.order, published, strict=True):
            start, end = self._span(member)
            nodes.free = self._states[:-1, start:end]
            self._renew(member, nodes)
        self._arrange_domains(published)
        height = len(self.rows.tasks)
        self.counts = np.zeros((height, len(self.order)), np.int64)
        self._held = np.zeros((len(self._owner) + 1, height), np.int64)
        for row, task in enumerate(self.rows.tasks):
            if task is not None:
                self._count(row)
        for column, member in enumerate(self.order):
            # The same sum may leave more in one domain.
            self._note(member.name, self.counts[:, column] > 0)

    def republish(self, member: Member) -> bool:
        """Take in what a member publishes by now; False where everything must be laid out anew for that."""
        if not member.resources() <= set(self.rows.resources):
            return False
        known, fresh = member.nodes, member.published(self.rows.resources)
        start, end = self._span(member)
        if fresh.trees is known.trees:
            self._replace(member, fresh, self._states[-1, start:end])
            return True
        profile = self.rows.numbered(member, fresh)
        if len(self.rows.profiles) > 2 * sum(len(each.nodes.profiles) for each in self.order) + 16:
            # Labels changed again and again: forget profiles that no node has any more.
            return False
        if not fresh.trees.match(known.trees):
            self._rearranged(member, fresh, profile)
        else:
            self._replace(member, fresh, profile)
        return True

    def _replace(self, member: Member, nodes: Nodes, profile: Ints) -> None:
        """Other nodes, or other free amounts, in the same places; `profile` is int64[N], the profile of each."""
        start, end = self._span(member)
        before = self._states[:, start:end].copy()
        self._states[:-1, start:end] = nodes.free
        nodes.free = self._states[:-1, start:end]
        self._states[-1, start:end] = profile
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
        """As `_replace`, where nodes or domains of the member came, went or moved."""
        column = self._column[member.name]
        start, end = self._span(member)
        first, last = self._first_domain[column : column + 2]
        inside = np.vstack([nodes.free, profile])
        self._states = np.concatenate([self._states[:, :start], inside, self._states[:, end:]], axis=1)
        self._bounds[column + 1 :] = [bound + len(nodes) - (end - start) for bound in self._bounds[column + 1 :]]
        for each in self.order:
            known = nodes if each is member else each.nodes
            known.free = self._states[:-1, slice(*self._span(each))]
        alike = nodes.tree == member.nodes.tree
        self._renew(member, nodes)
        if alike:
            inside = numbered(nodes, len(self._domains), first, len(self._owner))
            self._domains = np.concatenate([self._domains[:, :start], inside, self._domains[:, end:]], axis=1)
            self._held[first:last] = 0
        else:
            self._arrange_domains([each.nodes for each in self.order])
            # Domains of other members keep their sums, though their numbers may change.
            own = np.zeros((len(nodes.tree.domains), self._held.shape[1]), np.int64)
            self._held = np.concatenate([self._held[:first], own, self._held[last:]])
        columns = slice(*self._span(member))
        rooms = self.rows.rooms(self._states[:, columns])
        self.counts[:, column] = rooms.sum(axis=1)
        for domains in self._domains[:, columns]:
            np.add.at(self._held, domains, rooms.T)
        # The same sum may leave more in one domain.
        self._note(member.name, self.counts[:, column] > 0)

    def _arrange_domains(self, published: Sequence[Nodes]) -> None:
        self._domains, self._owner, self._rank = domains_of(published)
        self._first_domain = [0, *itertools.accumulate(len(nodes.tree.domains) for nodes in published)]

    def _renew(self, member: Member, nodes: Nodes) -> None:
        had_none = not member.index
        member.renew(nodes)
        if member.moved or (had_none and member.index):
            self._moved[member] = None

    def take_moved(self) -> list[tuple[Member, dict[int, int | None]]]:
        """Members whose nodes have other indices than at the last call, or were unknown, and which (`Member.moved`)."""
        moved, self._moved = self._moved, {}
        found = [(member, member.moved) for member in moved]
        for member in moved:
            member.moved = {}
        return found

    def view_changed(self, member: Member) -> None:
        """The Cluster object of a member is another one."""
        self.version += 1
        self._note(member.name, np.ones(len(self.rows.tasks), np.bool_))
        if member.name in self._column:
            self.ready[self._column[member.name]] = member.ready

    def take(self, member: Member, gang: Gang, placement: Placement, times: int = 1) -> None:
        """Subtract a placement's pods from free amounts; -1 times gives them back."""
        start, requests = self._span(member)[0], [limited(task) for task in gang.tasks]
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

    @contextmanager
    def supposing(self, member: Member, gang: Gang, placement: Placement) -> Iterator[None]:
        """Inside, a placement's pods are there; afterwards all is as it was."""
        grown = {name: rows.copy() for name, rows in self._grown.items()}
        self.take(member, gang, placement)
        try:
            yield
        finally:
            self.take(member, gang, placement, -1)
            self._grown = grown

    def aside(self) -> FitTable:
        """The same nodes, as they are now, with rows of its own."""
        twin = copy.copy(self)
        twin.rows, twin._grown = self.rows.aside(), {}
        height = len(twin.rows.tasks)
        twin.counts, twin._held = higher(self.counts[:0], height), np.zeros((len(self._held), height), np.int64)
        return twin

    def _span(self, member: Member) -> tuple[int, int]:
        column = self._column[member.name]
        return self._bounds[column], self._bounds[column + 1]

    def _changed(self, member: Member, columns: Ints, before: Ints, *, less: bool = False) -> None:
        """Bring the sums up to what these nodes of a member hold now.

        Args:
            member: whose nodes they are.
            columns: each node once.
            before: int64[resources + 1, K], their earlier states.
            less: nothing but less is free now.
        """
        if not before.shape[1]:
            return
        states, kinds = distinct(np.concatenate((before, self._states[:, columns])))
        half, column = states.shape[1], self._column[member.name]
        change = self._gained(member, np.concatenate((states[: len(before)], states[len(before) :]), axis=1), less=less)
        counts = self.counts[:, column]
        counts += change @ np.bincount(kinds)
        domains = self._domains[:, columns]
        if domains.size:
            # How many nodes of each domain changed in each of the ways.
            first, last = int(domains.min()), int(domains.max())
            nodes = np.bincount(((domains - first) * half + kinds).ravel(), minlength=(last - first + 1) * half)
            nodes = nodes.reshape(-1, half)
            found = np.flatnonzero(nodes.any(axis=1))
            self._held[first + found] += nodes[found] @ change.T

    def _changed_one(self, member: Member, node: int, states: Ints, *, less: bool) -> None:
        """As `_changed` for one node: most decisions are about one pod; int64[resources + 1, 2] before and now."""
        change = self._gained(member, states, less=less)[:, 0]
        # In place: with an index on the left numpy would copy the result onto itself.
        counts = self.counts[:, self._column[member.name]]
        counts += change
        for domain in self._domains[:, node].tolist():
            held = self._held[domain]
            held += change

    def _gained(self, member: Member, states: Ints, *, less: bool) -> Ints:
        """int64[rows, K]: by how many pods nodes of int64[resources + 1, 2 * K] states, before and now, changed."""
        rooms = self.rows.rooms(states)
        half = states.shape[1] // 2
        change: Ints = rooms[:, half:] - rooms[:, :half]
        if not less and np.count_nonzero(grown := self.rows.grown(change, states)):
            self._note(member.name, grown)
        return change

    def _note(self, name: str, grown: NDArray[np.bool_]) -> None:
        """Some node of this member may hold more of these rows."""
        known = self._grown.get(name)
        if known is None:
            self._grown[name] = grown.copy()
        else:
            known |= grown
