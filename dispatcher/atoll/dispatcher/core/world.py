"""All members side by side, and how many pods of every waiting shape each of their nodes still holds.

`rooms` is int64[shapes, nodes] over the nodes of all members, `counts` int64[shapes, members] its sums. Both are kept
by difference: a decision touches a few nodes and costs O(shapes x touched nodes), so that choosing among a hundred
members is one comparison of a row, however many nodes they have.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from atoll.dispatcher.core.elastic import cut
from atoll.dispatcher.core.events import CapacityView, ClusterView
from atoll.dispatcher.core.members import Member
from atoll.dispatcher.core.shapes import Shape
from atoll.fit import Nodes, Placement, Profile, place
from atoll.fit.nodes import UNBOUNDED, Ints
from atoll.model.gang import Gang, Task
from atoll.model.topology import NO_DOMAIN

_encoder = msgspec.json.Encoder(order="sorted")
_FIRST_ROWS = 64
_ASIDE_ROWS = 4
_IDLE_ROWS = 64
"""Rows that are kept up to date though nobody waits for them now: most shapes come back."""
_FEW = 32
"""Nodes that are computed in one operation."""
MANY = 1 << 40
"""Pods that a node holds which are not limited by anything: large, and its sums still fit an int64."""


class World:
    """Members by name and the matrix of rooms; see the module."""

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
        self._offsets: Ints = np.zeros(1, np.int64)
        self._free: Ints = np.zeros((0, 0), np.int64)
        self._profiles: list[Profile] = []
        self._profile_index: dict[bytes, int] = {}
        #: per node
        self._profile: Ints = np.zeros(0, np.int64)
        #: per tier rank: domain of each node, numbered over all members; the last number is none
        self._levels: list[tuple[Ints, Ints]] = []
        #: pod key -> row; a row is free while nobody uses it
        self._rows: dict[bytes, int] = {}
        self._tasks: list[Task | None] = []
        self._users: list[int] = []
        self._vacant: list[int] = []
        #: rows without users that are kept, the longest idle first
        self._idle: dict[int, None] = {}
        self.rooms: Ints = np.zeros((_FIRST_ROWS, 0), np.int64)
        self.counts: Ints = np.zeros((_FIRST_ROWS, 0), np.int64)
        #: int64[rows, resources]: what a pod asks, 1 where it asks nothing; and 0 or UNBOUNDED to add to the quotient
        self._divisor: Ints = np.ones((_FIRST_ROWS, 0), np.int64)
        self._surplus: Ints = np.zeros((_FIRST_ROWS, 0), np.int64)
        #: bool[rows, profiles]
        self._accepts: NDArray[np.bool_] = np.zeros((_FIRST_ROWS, 0), np.bool_)
        #: rows for which some member has more room than before, per member; emptied by `take_grown`
        self._grown: dict[str, set[int]] = {}
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
        self._grown.setdefault(name, set()).update(self._rows.values())
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

    def _republished(self, member: Member) -> None:
        named = {name for root in member.roots.values() for each in root.classes for name in each.free}
        if not named <= set(self._resources):
            self._unfit = True
            return
        fresh = member.published(self._resources)
        known = member.nodes
        if len(fresh) != len(known) or fresh.tree != known.tree or not np.array_equal(fresh.lowest, known.lowest):
            self._unfit = True
            return
        start, end = self._span(member)
        self._free[:, start:end] = fresh.free
        fresh.free = self._free[:, start:end]
        self._profile[start:end] = self._numbered(fresh)
        if len(self._profiles) > 2 * sum(len(each.nodes.profiles) for each in self.order) + 16:
            # Labels changed again and again: forget those that no node has any more.
            self._unfit = True
            return
        member.renew(fresh)
        self._recount(member)

    def _lay_out(self) -> None:
        """Everything anew: members, nodes or resources came or went."""
        before = {
            member.name: self.counts[:, column].copy()
            for column, member in enumerate(self.order)
        }  # fmt: skip
        self.order = [self.members[name] for name in sorted(self.members)]
        self._column = {member.name: column for column, member in enumerate(self.order)}
        self.version += 1
        self.ready = np.array([member.ready for member in self.order], np.bool_)
        self.unconfirmed = np.array([len(member.expected) for member in self.order], np.int64)
        self._resources = tuple(
            sorted({
                name
                for member in self.order
                for root in member.roots.values()
                for each in root.classes
                for name in each.free
            })
        )  # fmt: skip
        published = [member.published(self._resources) for member in self.order]
        self._offsets = np.cumsum([0, *(len(nodes) for nodes in published)])
        self._free = np.concatenate(
            [np.zeros((len(self._resources), 0), np.int64), *(nodes.free for nodes in published)], axis=1
        )
        self._profiles, self._profile_index = [], {}
        self._profile = np.concatenate([np.zeros(0, np.int64), *(self._numbered(nodes) for nodes in published)])
        for member, nodes in zip(self.order, published, strict=True):
            start, end = self._span(member)
            nodes.free = self._free[:, start:end]
            member.renew(nodes)
        self._levels = _levels(published)
        height = len(self.rooms)
        self.rooms = np.zeros((height, int(self._offsets[-1])), np.int64)
        self.counts = np.zeros((height, len(self.order)), np.int64)
        self._divisor = np.ones((height, len(self._resources)), np.int64)
        self._surplus = np.zeros((height, len(self._resources)), np.int64)
        self._accepts = np.zeros((height, len(self._profiles)), np.bool_)
        for row, task in enumerate(self._tasks):
            if task is not None:
                self._fill_row(row, task)
        for column, member in enumerate(self.order):
            old = before.get(member.name)
            grown = self.counts[:, column] > (old if old is not None else 0)
            self._note(member, np.flatnonzero(grown))

    def _span(self, member: Member) -> tuple[int, int]:
        column = self._column[member.name]
        return int(self._offsets[column]), int(self._offsets[column + 1])

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
                    wider = np.zeros((len(self.rooms), max(2 * number, 8)), np.bool_)
                    wider[:, : self._accepts.shape[1]] = self._accepts
                    self._accepts = wider
                self._accepts[:, number] = [
                    task is not None and profile.accepts(task, "") for task in _padded(self._tasks, len(self.rooms))
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
            self._accepts[row] = False
            self.rooms[row] = 0
            self.counts[row] = 0

    def _enroll(self, task: Task) -> int:
        key = _pod_key(task)
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = self._vacant.pop() if self._vacant else len(self._tasks)
            if row == len(self._tasks):
                self._tasks.append(None)
                self._users.append(0)
                if row == len(self.rooms):
                    self._make_higher()
            self._tasks[row] = task
            self._fill_row(row, task)
        self._users[row] += 1
        self._idle.pop(row, None)
        return row

    def _make_higher(self) -> None:
        for name in ("rooms", "counts", "_divisor", "_surplus", "_accepts"):
            old = getattr(self, name)
            new = np.zeros((2 * len(old), old.shape[1]), old.dtype)
            new[: len(old)] = old
            setattr(self, name, new)
        self._divisor[len(self._divisor) // 2 :] = 1

    def _fill_row(self, row: int, task: Task) -> None:
        wanted = {name: amount for name, amount in task.requests.items() if amount > 0}
        possible = wanted.keys() <= set(self._resources) and all(amount < UNBOUNDED for amount in wanted.values())
        self._divisor[row] = [wanted.get(name, 1) if possible else 1 for name in self._resources]
        self._surplus[row] = [0 if name in wanted and possible else MANY for name in self._resources]
        self._accepts[row] = False
        for number, profile in enumerate(self._profiles):
            self._accepts[row, number] = possible and profile.accepts(task, "")
        room = np.full(self._free.shape[1], MANY)
        if possible:
            for index, name in enumerate(self._resources):
                if name in wanted:
                    np.minimum(room, self._free[index] // wanted[name], out=room)
        np.maximum(room, 0, out=room)
        self.rooms[row] = np.where(self._accepts[row][self._profile], room, 0) if len(self._profiles) else 0
        self.counts[row] = _sums(self.rooms[row : row + 1], self._offsets)[0]

    def _recount(self, member: Member) -> None:
        """Rooms of all rows on all nodes of a member."""
        start, end = self._span(member)
        self._recompute(member, slice(start, end))

    def _recompute(self, member: Member, columns: slice | Ints) -> None:
        height = len(self._tasks)
        old = self.rooms[:height, columns]
        free = self._free[:, columns]
        if free.shape[1] <= _FEW:
            quotients = free[None] // self._divisor[:height, :, None]
            quotients += self._surplus[:height, :, None]
            new = quotients.min(axis=1, initial=MANY)
        else:
            # The same, without an array that is as many times larger as there are resources.
            new = np.full(old.shape, MANY)
            for index in range(len(self._resources)):
                quotient = free[index] // self._divisor[:height, index, None]
                quotient += self._surplus[:height, index, None]
                np.minimum(new, quotient, out=new)
        np.maximum(new, 0, out=new)
        if len(self._profiles):
            new *= self._accepts[:height][:, self._profile[columns]]
        change = new - old
        self._note(member, np.flatnonzero((change > 0).any(axis=1)))
        self.counts[:height, self._column[member.name]] += change.sum(axis=1)
        self.rooms[:height, columns] = new

    def _note(self, member: Member, rows: Ints) -> None:
        if rows.size:
            self._grown.setdefault(member.name, set()).update(rows.tolist())

    def take_grown(self) -> list[tuple[str, set[int]]]:
        """(member, rows) for which there is more room than at the last call."""
        grown, self._grown = self._grown, {}
        return sorted(grown.items())

    def aside(self) -> World:
        """The same members and nodes, as they are in the arrays now, with rows of its own: what is enrolled there
        leaves nothing here. For questions only, and only until the next event.
        """
        twin = copy.copy(self)
        twin._stale, twin._unfit, twin._grown = {}, False, {}
        twin._rows, twin._tasks, twin._users, twin._vacant, twin._idle = {}, [], [], [], {}
        for name in ("rooms", "counts", "_divisor", "_surplus", "_accepts"):
            old = getattr(self, name)
            setattr(twin, name, np.zeros((_ASIDE_ROWS, old.shape[1]), old.dtype))
        return twin

    # -- decisions ---------------------------------------------------------------------------------------------------

    def room(self, member: Member, shape: Shape) -> list[Ints]:
        """Per task int64[nodes of the member]; the shape is enrolled."""
        start, end = self._span(member)
        return [self.rooms[row, start:end] for row in shape.rows]

    def assume(self, member: Member, uid: str, gang: Gang, placement: Placement) -> None:
        """Count a decision until the member's own figures contain it; `placement` is of the nodes as they are now."""
        member.nodes.take([task.requests for task in gang.tasks], placement)
        member.changes += 1
        member.inflight[uid] = (gang, placement)
        self.expect(member, uid)
        self._touched(member, (node for _, node, _ in placement.pods))

    def assume_more(self, member: Member, uid: str, gang: Gang, placement: Placement) -> None:
        """Count further pods of a gang that runs there, or is about to."""
        member.nodes.take([task.requests for task in gang.tasks], placement)
        pods, counts = list(placement.pods), list(placement.counts)
        if uid in member.inflight:
            _, before = member.inflight[uid]
            pods = [*before.pods, *pods]
            counts = [a + b for a, b in zip(before.counts, counts, strict=True)]
        member.inflight[uid] = (gang.sized(counts), Placement(pods, counts))
        self.expect(member, uid)
        self._touched(member, (node for _, node, _ in placement.pods))

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

    def forget(self, member: Member, uid: str) -> bool:
        """Stop counting a decision; True when it was counted."""
        if uid in member.expected:
            member.expected.discard(uid)
            holders = self.holders[uid]
            del holders[member]
            if not holders:
                del self.holders[uid]
            if member.name in self._column:
                self.unconfirmed[self._column[member.name]] -= 1
        entry = member.inflight.pop(uid, None)
        if entry is None:
            return False
        if self._unfit or member.name in self._stale:
            # The figures that come next do not subtract it.
            return True
        gang, placement = entry
        member.nodes.give([task.requests for task in gang.tasks], placement)
        member.changes += 1
        self._touched(member, (node for _, node, _ in placement.pods))
        return True

    def assume_late(self, member: Member, uid: str, gang: Gang) -> None:
        """Count a part that an earlier leader decided and the member's figures lack, where it would go now."""
        self.refresh()
        placement = place(member.nodes, gang)
        if isinstance(placement, Placement):
            self.assume(member, uid, gang, placement)

    def _touched(self, member: Member, nodes: Iterable[int]) -> None:
        start, _ = self._span(member)
        touched = sorted({start + node for node in nodes})
        if len(touched) == 1:
            self._recompute(member, slice(touched[0], touched[0] + 1))
        elif touched:
            self._recompute(member, np.array(touched, np.int64))

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
        none = len(self._levels)
        best = np.full(len(self.order), none, np.int64)
        for rank in reversed(range(none)):
            code, owner = self._levels[rank]
            fits = np.ones(len(owner), np.bool_)
            for row, wanted in zip(shape.rows, shape.full, strict=True):
                fits &= np.bincount(code, weights=self.rooms[row], minlength=len(owner) + 1)[: len(owner)] >= wanted
            best[owner[fits]] = rank
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
                assert (self.rooms[row, start:end] == exact).all(), f"{member.name}: rooms differ from its nodes"
                assert self.counts[row, column] == exact.sum(), f"{member.name}: counts differ from its rooms"


def _levels(published: Sequence[Nodes]) -> list[tuple[Ints, Ints]]:
    """Per tier rank (0 = the nearest of each member): (domain number of every node, member of every domain)."""
    depth = max((len(nodes.tree.tiers) for nodes in published), default=0)
    levels = []
    for rank in range(depth):
        codes: list[Ints] = [np.zeros(0, np.int64)]
        owners: list[int] = []
        for column, nodes in enumerate(published):
            inside = nodes.domain[rank] if rank < len(nodes.tree.tiers) else np.full(len(nodes), NO_DOMAIN)
            codes.append(np.where(inside == NO_DOMAIN, -1, inside + len(owners)))
            owners.extend([column] * len(nodes.tree.domains))
        code = np.concatenate(codes)
        levels.append((np.where(code < 0, len(owners), code), np.array(owners, np.int64)))
    return levels


def _sums(rooms: Ints, offsets: Ints) -> Ints:
    """int64[rows, members] of int64[rows, nodes]."""
    totals = np.concatenate([np.zeros((len(rooms), 1), np.int64), np.cumsum(rooms, axis=1)], axis=1)
    sums: Ints = totals[:, offsets[1:]] - totals[:, offsets[:-1]]
    return sums


def _pod_key(task: Task) -> bytes:
    return _encoder.encode((task.requests, task.node_selector, task.node_terms, task.tolerations))


def _padded(tasks: Sequence[Task | None], length: int) -> list[Task | None]:
    return [*tasks, *[None] * (length - len(tasks))]


def _used(tasks: Sequence[Task | None]) -> Iterator[tuple[int, Task]]:
    return ((row, task) for row, task in enumerate(tasks) if task is not None)
