"""All members side by side, and how many pods of every waiting shape each of them still holds.

`counts` is int64[shapes, members], and the same is kept of every domain. Both are kept by difference: nodes that were
alike and are alike again are computed once, so a decision costs O(shapes x distinct changes), and choosing among a
hundred members is one comparison of a row, however many nodes they have.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from atoll.dispatcher.core.elastic import cut
from atoll.dispatcher.core.events import CapacityView, ClusterView
from atoll.dispatcher.core.layout import distinct, domains_of, higher, numbered, sums
from atoll.dispatcher.core.members import Member
from atoll.dispatcher.core.requests import MANY as MANY
from atoll.dispatcher.core.requests import Requests
from atoll.dispatcher.core.shapes import Shape
from atoll.fit import Nodes, Placement, Profile, find, find_one, place
from atoll.fit.nodes import UNBOUNDED, Ints
from atoll.model.gang import Gang, Task

_encoder = msgspec.json.Encoder(order="sorted")
_NOTHING: tuple[Ints, Ints] = np.zeros(0, np.int64), np.zeros((0, 1), np.int64)
"""Asked for by nobody."""
_FIRST_ROWS = 64
_ASIDE_ROWS = 4
_IDLE_ROWS = 64
"""Rows that are kept up to date though nobody waits for them now: most shapes come back."""


class World:
    """Members by name and the sums of their rooms; see the module."""

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        #: members in order of their names: the columns of `counts`
        self.order: list[Member] = []
        self._column: dict[str, int] = {}
        #: raised when a Cluster object changed: answers about which members accept whom are outdated
        self.version = 0
        self.ready: NDArray[np.bool_] = np.zeros(0, np.bool_)
        #: int64[members]: decisions that a member has not confirmed
        self.unconfirmed: Ints = np.zeros(0, np.int64)
        #: UID -> members whose figures may not contain it yet: the inverse of `Member.expected`
        self.holders: dict[str, dict[Member, None]] = {}
        self._resources: tuple[str, ...] = ()
        #: first node of each member, and the end
        self._bounds: list[int] = [0]
        #: int64[resources + 1, nodes]: what is free, and the profile; `_free` and `_profile` are views of it
        self._states: Ints = np.zeros((1, 0), np.int64)
        self._free: Ints = self._states[:-1]
        self._profile: Ints = self._states[-1]
        self._profiles: list[Profile] = []
        self._profile_index: dict[bytes, int] = {}
        #: members of which nodes have other indices by now
        self._moved: dict[Member, None] = {}
        #: int64[ranks, nodes]: domain of each node per rank of its tier, numbered over all members; the last is none
        self._domains: Ints = np.zeros((0, 0), np.int64)
        #: first domain of each member
        self._first_domain: list[int] = []
        #: per domain: column of its member, rank of its tier
        self._owner: Ints = np.zeros(0, np.int64)
        self._rank: Ints = np.zeros(0, np.int64)
        #: pod key -> row; a row is free while nobody uses it
        self._rows: dict[bytes, int] = {}
        self._tasks: list[Task | None] = []
        self._users: list[int] = []
        self._vacant: list[int] = []
        #: rows without users that are kept, the longest idle first
        self._idle: dict[int, None] = {}
        #: per row: int64[K] the resources that its task asks for, int64[K, 1] the positive amounts
        self._wanted: list[tuple[Ints, Ints]] = []
        self.counts: Ints = np.zeros((_FIRST_ROWS, 0), np.int64)
        #: int64[domains + 1, rows]: pods that the domain's nodes hold; the last line means nothing
        self._held: Ints = np.zeros((1, _FIRST_ROWS), np.int64)
        self._requests = Requests((), _FIRST_ROWS)
        #: bool[rows, profiles]
        self._accepts: NDArray[np.bool_] = np.zeros((_FIRST_ROWS, 0), np.bool_)
        #: member -> bool[rows]: for which some node of it has more room than before; emptied by `take_grown`
        self._grown: dict[str, NDArray[np.bool_]] = {}
        #: members whose published figures are not in the arrays yet
        self._stale: dict[str, None] = {}
        self._unfit = False

    # -- members -----------------------------------------------------------------------------------------------------

    def member(self, name: str) -> Member:
        """The member, made when it is not known."""
        member = self.members.get(name)
        if member is None:
            member = self.members[name] = Member(name)
            self._unfit = True
        return member

    def column(self, name: str) -> int:
        """Of a member in `counts` and `order`."""
        return self._column[name]

    def set_view(self, name: str, view: ClusterView | None) -> bool:
        """The Cluster object changed or went; True when that may matter."""
        member = self.member(name)
        if member.view == view:
            return False
        member.view = view
        self.version += 1
        used = np.array([task is not None for task in _padded(self._tasks, len(self.counts))], np.bool_)
        self._note(name, used)
        if name in self._column:
            self.ready[self._column[name]] = member.ready
        return True

    def set_root(self, capacity: CapacityView) -> None:
        """Take in what a member published about one top domain."""
        member = self.member(capacity.cluster)
        member.roots[capacity.root] = capacity
        self._stale[capacity.cluster] = None

    def drop_root(self, name: str, root: str) -> None:
        """Nothing is published about this root any more."""
        member = self.member(name)
        member.roots.pop(root, None)
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
        """Members whose nodes have other indices than at the last call, and which (`Member.moved`)."""
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
        member.renew(nodes)
        if member.moved:
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

    def _span(self, member: Member) -> tuple[int, int]:
        column = self._column[member.name]
        return self._bounds[column], self._bounds[column + 1]

    def _numbered(self, nodes: Nodes) -> Ints:
        """The profile of each node in numbers that all members share."""
        numbers = []
        for profile in nodes.profiles:
            key = _encoder.encode((profile.labels, profile.taints))
            number = self._profile_index.get(key)
            if number is None:
                number = self._profile_index[key] = len(self._profiles)
                self._profiles.append(profile)
                if number >= self._accepts.shape[1]:
                    wider = np.zeros((len(self.counts), max(2 * number, 8)), np.bool_)
                    wider[:, : self._accepts.shape[1]] = self._accepts
                    self._accepts = wider
                self._accepts[:, number] = [
                    task is not None and self._possible(task) and profile.accepts(task, "")
                    for task in _padded(self._tasks, len(self.counts))
                ]
            numbers.append(number)
        return np.array(numbers, np.int64)[nodes.profile] if numbers else np.zeros(len(nodes), np.int64)

    # -- rows --------------------------------------------------------------------------------------------------------

    def enroll(self, shape: Shape) -> None:
        """Keep rooms for the shape's tasks from now on; as often as it is enrolled it must be released."""
        shape.enrolled += 1
        if shape.enrolled == 1:
            self.refresh()
            shape.rows = tuple(self._enroll(task) for task in shape.gang.tasks)

    def release(self, shape: Shape) -> None:
        """The inverse of `enroll`."""
        shape.enrolled -= 1
        if shape.enrolled:
            return
        for row in shape.rows:
            self._users[row] -= 1
            if not self._users[row]:
                self._idle[row] = None
        shape.rows = ()
        while len(self._idle) > _IDLE_ROWS:
            row = next(iter(self._idle))
            del self._idle[row]
            task = self._tasks[row]
            assert task is not None, "an idle row has a task"
            del self._rows[_pod_key(task)]
            self._tasks[row] = None
            self._vacant.append(row)
            self._wanted[row] = _NOTHING
            self._requests.set(row, {})
            self._accepts[row] = False
            self.counts[row] = 0
            self._held[:, row] = 0

    def _enroll(self, task: Task) -> int:
        key = _pod_key(task)
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = self._vacant.pop() if self._vacant else len(self._tasks)
            if row == len(self._tasks):
                self._tasks.append(None)
                self._wanted.append(_NOTHING)
                self._users.append(0)
                if row == len(self.counts):
                    self._make_higher()
            self._tasks[row] = task
            self._fill_row(row, task)
        self._users[row] += 1
        self._idle.pop(row, None)
        return row

    def _make_higher(self) -> None:
        height = 2 * len(self.counts)
        self.counts, self._accepts = higher(self.counts, height), higher(self._accepts, height)
        self._held = np.ascontiguousarray(higher(self._held.T, height).T)
        self._grown = {name: higher(rows, height) for name, rows in self._grown.items()}
        self._requests.make_higher(height)

    def _fill_row(self, row: int, task: Task) -> None:
        possible = self._possible(task)
        wanted = {name: amount for name, amount in task.requests.items() if amount > 0} if possible else {}
        asked = [index for index, name in enumerate(self._resources) if name in wanted]
        amounts = [[wanted[self._resources[index]]] for index in asked]
        self._wanted[row] = np.array(asked, np.int64), np.array(amounts, np.int64).reshape(-1, 1)
        self._requests.set(row, wanted)
        self._accepts[row] = False
        for number, profile in enumerate(self._profiles):
            self._accepts[row, number] = possible and profile.accepts(task, "")
        room = self._room(row, slice(None))
        self.counts[row] = sums(room, self._bounds)
        self._held[:, row] = 0
        for domains in self._domains:
            np.add.at(self._held[:, row], domains, room)

    def _possible(self, task: Task) -> bool:
        """Whether somebody has all that a task asks for; what its row asks for means nothing where nobody does."""
        wanted = {name: amount for name, amount in task.requests.items() if amount > 0}
        return wanted.keys() <= set(self._resources) and all(amount < UNBOUNDED for amount in wanted.values())

    def _room(self, row: int, columns: slice) -> Ints:
        """int64[K]: pods of the row's task that each of these nodes holds."""
        return self._room_in(row, self._free[:, columns], self._profile[columns])

    def _room_in(self, row: int, free: Ints, profile: Ints) -> Ints:
        resources, amounts = self._wanted[row]
        quotients = free.take(resources, axis=0)
        quotients //= amounts
        room: Ints = np.minimum.reduce(quotients, initial=MANY)
        room *= self._accepts[row].take(profile)
        return np.maximum(room, 0, out=room)

    def _changed(self, member: Member, columns: Ints, before: Ints, *, less: bool = False) -> None:
        """Bring the sums up to what these nodes of a member hold now.

        Args:
            member: whose nodes they are.
            columns: each node once.
            before: int64[resources + 1, K], what their states were.
            less: nothing but less is free now.
        """
        if not before.shape[1]:
            return
        states, kinds = distinct(np.concatenate((before, self._states[:, columns])))
        half, column = states.shape[1], self._column[member.name]
        change = self._gained(member, np.concatenate((states[: len(before)], states[len(before) :]), axis=1), less=less)
        self.counts[:, column] += change @ np.bincount(kinds)
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
        self.counts[:, self._column[member.name]] += change
        for domain in self._domains[:, node].tolist():
            self._held[domain] += change

    def _rooms(self, states: Ints) -> Ints:
        """int64[rows, K]: pods of every row that nodes of int64[resources + 1, K] states hold."""
        rooms = self._requests.rooms(states[:-1])
        rooms *= self._accepts.take(states[-1], axis=1)
        return rooms

    def _gained(self, member: Member, states: Ints, *, less: bool) -> Ints:
        """int64[rows, K]: by how many pods nodes of int64[resources + 1, 2 * K] states, before and now, changed."""
        rooms = self._rooms(states)
        half = states.shape[1] // 2
        change: Ints = rooms[:, half:] - rooms[:, :half]
        if not less:
            grown: NDArray[np.bool_] = np.logical_or.reduce(change > 0, axis=1)
            if np.count_nonzero(grown):
                self._note(member.name, grown)
        return change

    def _note(self, name: str, grown: NDArray[np.bool_]) -> None:
        """Some node of this member has more room for these rows."""
        known = self._grown.get(name)
        if known is None:
            self._grown[name] = grown.copy()
        else:
            known |= grown

    def take_grown(self) -> list[tuple[str, set[int]]]:
        """(member, rows) for which there is more room than at the last call."""
        grown, self._grown = self._grown, {}
        return [(name, set(rows.nonzero()[0].tolist())) for name, rows in sorted(grown.items())]

    def aside(self) -> World:
        """The same members and nodes, as they are in the arrays now, with rows of its own: what is enrolled there
        leaves nothing here. For questions only, and only until the next event.
        """
        twin = copy.copy(self)
        twin._stale, twin._unfit, twin._grown = {}, False, {}
        twin._rows, twin._tasks, twin._wanted, twin._users, twin._vacant, twin._idle = {}, [], [], [], [], {}
        twin._requests = Requests(self._resources, _ASIDE_ROWS)
        twin.counts, twin._accepts = higher(self.counts[:0], _ASIDE_ROWS), higher(self._accepts[:0], _ASIDE_ROWS)
        twin._held = np.zeros((len(self._held), _ASIDE_ROWS), np.int64)
        return twin

    # -- decisions ---------------------------------------------------------------------------------------------------

    def room(self, member: Member, shape: Shape) -> list[Ints]:
        """Per task int64[nodes of the member]; the shape is enrolled."""
        columns = slice(*self._span(member))
        return [self._room(row, columns) for row in shape.rows]

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
            return find(member.nodes, gang, shape.floor, self.room(member, shape), self.held(member, shape))
        # Most are a single pod, for which the room of few nodes matters.
        [row], start = shape.rows, self._span(member)[0]
        first = self._first_domain[self._column[member.name]]
        held = [*self._held[first : first + len(member.nodes.tree.domains), row].tolist(), 0]

        def room(inside: Ints) -> Ints:
            columns = inside + start
            return self._room_in(row, self._free.take(columns, axis=1), self._profile.take(columns))

        return find_one(member.nodes, gang, held, room)

    def assume(self, member: Member, uid: str, gang: Gang, placement: Placement) -> None:
        """Count a decision until the member's own figures contain it; `placement` is of the nodes as they are now."""
        member.inflight[uid] = (gang, placement)
        self.expect(member, uid)
        self._take(member, gang, placement)

    def assume_more(self, member: Member, uid: str, gang: Gang, placement: Placement) -> None:
        """Count further pods of a gang that runs there, or is about to."""
        self._take(member, gang, placement)
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
            self._take(member, *entry, -1)

    def assume_late(self, member: Member, uid: str, gang: Gang) -> None:
        """Count a part that an earlier leader decided and the member's figures lack, where it would go now."""
        self.refresh()
        placement = place(member.nodes, gang)
        if isinstance(placement, Placement):
            self.assume(member, uid, gang, placement)

    def _take(self, member: Member, gang: Gang, placement: Placement, times: int = 1) -> None:
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

    def allowed(self, shape: Shape) -> list[NDArray[np.bool_]]:
        """Per affinity of the shape, bool[members]: who accepts it, ready or not."""
        if shape.seen != self.version:
            shape.allowed = [
                np.array([member.accepts(affinity, shape.tolerations) for member in self.order], np.bool_)
                for affinity in shape.affinities
            ]
            shape.seen = self.version
        return shape.allowed

    def accepted(self, shape: Shape) -> bool:
        """Whether some node somewhere accepts each task of the shape, free or not."""
        return bool(self._accepts[list(shape.rows)].any(axis=1).all())

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

    def check(self) -> None:
        """Verify the matrix against the nodes themselves.

        Raises:
            AssertionError: naming the member.
        """
        for column, member in enumerate(self.order):
            start, end = self._span(member)
            for row, task in _used(self._tasks):
                exact = np.where(member.nodes.accepting(task), member.nodes.room(task.requests), 0)
                exact = np.minimum(exact, MANY)
                assert (self._room(row, slice(start, end)) == exact).all(), (
                    f"{member.name}: rooms differ from its nodes"
                )
                assert self.counts[row, column] == exact.sum(), f"{member.name}: counts differ from its rooms"
                for domains in self._domains[:, start:end]:
                    for domain in set(domains.tolist()) - {len(self._owner)}:
                        held = exact[domains == domain].sum()
                        assert self._held[domain, row] == held, f"{member.name}: a domain's sum differs from its rooms"


def _pod_key(task: Task) -> bytes:
    return _encoder.encode((task.requests, task.node_selector, task.node_terms, task.tolerations))


def _padded(tasks: Sequence[Task | None], length: int) -> list[Task | None]:
    return [*tasks, *[None] * (length - len(tasks))]


def _used(tasks: Sequence[Task | None]) -> Iterator[tuple[int, Task]]:
    return ((row, task) for row, task in enumerate(tasks) if task is not None)
