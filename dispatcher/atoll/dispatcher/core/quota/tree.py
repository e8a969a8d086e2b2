"""The quota tree: which queue may use how much, and which is ahead of which.

Rules as in Volcano's capacity plugin, and as in its proportion plugin where no sibling declares deserved; unlike there,
a problem in one queue stops only that queue and its descendants, and reclaim looks at every level.
Charges and demand cost O(depth); edits of queues cost in proportion to their changes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from atoll.dispatcher.core.events import QueueView
from atoll.dispatcher.core.quota.limits import Totals, compute, guarantee_of
from atoll.dispatcher.core.quota.queue import Queue, Standing, bring_up_to_date, path, subtree, use
from atoll.model import vector
from atoll.model.keys import ROOT_QUEUE
from atoll.model.vector import Vector
from atoll.model.verdict import Bound, Reason, Verdict, blocker


class Shortage(NamedTuple):
    """The queue with too little left, in integer units; `available` is negative where a limit shrank below the use."""

    queue: Queue
    resource: str
    requested: int
    available: int
    member: str = ""
    """The limit is a ceiling in this member."""
    below: Queue | None = None
    """The limit would do, were the rest of it not guaranteed to the siblings of this one."""

    @property
    def limit(self) -> tuple[Queue, str, str]:
        """Which limit it is."""
        return self.queue, self.resource, self.member

    def verdict(self) -> Verdict:
        """Verdict for the workload of the request."""
        named = self.below or self.queue
        if self.member and named.parent is None:
            whole = blocker("Cluster", self.member, self.resource, self.requested, self.available, self.member)
            return Verdict(Reason.QUOTA_EXCEEDED, whole)
        available, bound = self.available, Bound.GUARANTEES
        if self.member:
            bound = Bound.CAPABILITY
        elif self.below is None:
            named, available, bound = self._origin()
        about = blocker("Queue", named.name, self.resource, self.requested, available, self.member, bound)
        return Verdict(Reason.QUOTA_EXCEEDED, about)

    def _origin(self) -> tuple[Queue, int, Bound]:
        """The queue from which the limit follows, this one or one above it, the amount left there, and the bound."""
        name, each = self.resource, self.queue
        while True:
            used, capability = each.used.get(name, 0), each.said.capability.get(name)
            if capability is not None and self.requested > capability - used:
                return each, capability - used, Bound.ABOVE if each.children else Bound.CAPABILITY
            limit, up = each.limit.get(name), each.parent
            if limit is None:
                return self.queue, self.available, Bound.CAPABILITY
            if up is None or up.limit.get(name) != limit:
                return each, limit - used, Bound.MEMBERS if each.total.get(name) == limit else Bound.GUARANTEES
            each = up


class Tree:
    """All queues and their use; see the module.

    Queues once made stay until `drop_unnamed`: of a queue that is there, or that is named, holding one is safe.
    A queue that only workloads name is no child of the root, so the root's figures cost the same however many there
    are.
    """

    def __init__(self) -> None:
        self.root = Queue(ROOT_QUEUE)
        #: name -> queue, the root included
        self.queues: dict[str, Queue] = {ROOT_QUEUE: self.root}
        #: member -> (allocatable total, labels), sorted by name
        self.members: Totals = {}
        #: member -> the most of it that may be used, as its administrator says
        self._ceilings: Mapping[str, Vector] = {}
        #: queues of which use, demand or figures changed since `take_changed`; those above them are not named
        self._changed: dict[Queue, None] = {}
        #: queues of which the use, or a limit as a child, changed since `set_queue` and its like gave their changes
        self._moved: dict[Queue, None] = {}

    # -- events ------------------------------------------------------------------------------------------------------

    def set_queue(self, view: QueueView) -> list[Queue]:
        """Take a queue in, new or changed.

        Returns the queues, by name, whose limit, declared entitlement, problem, members or state changed. Under another
        parent its charges and demand move along; then queues with changed use are among them.
        """
        return self.set_queues((view,))

    def set_queues(self, views: Iterable[QueueView]) -> list[Queue]:
        """As `set_queue` for many at once, in time proportional to their number."""
        dirty: dict[Queue, None] = {}
        told: list[Queue] = []
        for view in views:
            queue = self.queue(view.name)
            if queue.view != view:
                self._replace(queue, view, dirty)
                told.append(queue)
        return self._refresh(dirty, told)

    def drop_queue(self, name: str) -> list[Queue]:
        """Forget a queue's object; its use stays charged. Returns as `set_queue`."""
        queue = self.queues.get(name)
        if queue is None or queue.view is None:
            return []
        dirty: dict[Queue, None] = {}
        self._replace(queue, None, dirty)
        return self._refresh(dirty, [queue])

    def unnamed(self, queue: Queue) -> bool:
        """Whether the queue has no object, and no binding and no queue names it."""
        return queue.view is None and not queue.named and not queue.children and queue is not self.root

    def drop_unnamed(self, queue: Queue) -> None:
        """Forget such a queue; another queue takes its place once it is named again."""
        assert self.unnamed(queue), f"queue {queue.name} is named"
        assert not queue.wanted, f"queue {queue.name} is in use"
        assert not queue.waiting, f"workloads wait in queue {queue.name}"
        queue.leave_order()
        if self.root.children.pop(queue.name, None) is not None:
            self.root.stale = True
        del self.queues[queue.name]
        self._moved.pop(queue, None)
        self._changed[queue] = None

    def set_members(self, members: Mapping[str, tuple[Vector, Mapping[str, str]]]) -> list[Queue]:
        """The members that can run work: name -> (allocatable total, labels). Returns as `set_queue`.

        An empty total is an unknown one; a queue that such a member serves is not limited by totals.
        """
        members = {name: members[name] for name in sorted(members)}
        if members == self.members:
            return []
        self.members = members
        return self._refresh(dict.fromkeys(self.queues.values()), [])

    def set_ceilings(self, ceilings: Mapping[str, Vector]) -> None:
        """The most that may be used of each member, all queues together; of one that is not named, all."""
        if ceilings != self._ceilings:
            self._ceilings = ceilings
            self._track(self.root)

    def charge(self, queue: Queue, amount: Vector, where: Mapping[str, Vector], times: int = 1) -> None:
        """Count an amount as used; -1 times releases it. `where` says how much of it is in which member."""
        self._count(queue, amount, where, used=times, wanted=times, waiting=0)

    def wait(self, queue: Queue, amount: Vector, times: int = 1) -> None:
        """Count an amount as wanted by pending work; -1 times takes it back."""
        self._count(queue, amount, {}, used=0, wanted=times, waiting=times)

    def start(self, queue: Queue, amount: Vector, where: Mapping[str, Vector], times: int = 1) -> None:
        """What waited is used from now on; -1 times is the way back.

        The same as `wait` and `charge` together, and cheaper: no entitlement moves where demand stays.
        """
        self._count(queue, amount, where, used=times, wanted=0, waiting=-times)

    def _count(
        self, queue: Queue, amount: Vector, where: Mapping[str, Vector], *, used: int, wanted: int, waiting: int
    ) -> None:
        self._changed[queue] = None
        if used:
            vector.add_each(queue.own_in, where, used)
            use(queue, amount, used)
            self._settle(queue)
        up: Queue | None = queue
        while up is not None:
            up.waiting += waiting
            if used or up.guarantee or up.waiting <= 1:
                # Else neither its rank nor its place depends on its demand.
                up.unrank()
            if used and up.tracks:
                vector.add_each(up.used_in, where, used)
            if wanted:
                vector.add(up.wanted, amount, wanted)
                up.stale = True
            elif up.parent is not None and up.stuck:
                up.parent.stale = True
            up = up.parent

    @contextmanager
    def supposing(self, count: Callable[..., None], *what: Any) -> Iterator[None]:
        """Inside, `wait` or `start` has counted something; afterwards all is as it was."""
        changed = dict(self._changed)
        count(*what)
        try:
            yield
        finally:
            count(*what, -1)
            self._changed = changed

    # -- queries -----------------------------------------------------------------------------------------------------

    def queue(self, name: str) -> Queue:
        """The queue of that name, made as a missing one below the root when it has no object."""
        queue = self.queues.get(name)
        if queue is None:
            queue = self.queues[name] = Queue(name, parent=self.root)
            compute(queue, self.members)
        return queue

    def _settle(self, queue: Queue) -> None:
        """Make the queue a child of its parent or not, by its state and use."""
        parent = queue.parent
        if parent is None or (counts := _counts(queue)) == (queue.name in parent.children):
            return
        if counts:
            parent.children[queue.name] = queue
            # Changes above reach children alone.
            if any(compute(queue, self.members)):
                self._moved[queue] = None
            queue.unrank()
        else:
            queue.leave_order()
            del parent.children[queue.name]
            queue.entitled = dict(queue.declared)
            queue.ranked = None
        # Its part is another one though all others may wish the same.
        parent.stale, parent.divided_from = True, None

    def standing(self, queue: Queue) -> Standing:
        """Whether the queue may admit work at all."""
        if queue is self.root:
            return Standing.PARENT
        if queue.view is None:
            return Standing.MISSING
        if queue.problem:
            return Standing.INVALID
        if queue.children:
            return Standing.PARENT
        return Standing.CLOSED if queue.closed else Standing.OPEN

    def first(self, ways: Sequence[Collection[Queue]]) -> Queue:
        """The one of some siblings that goes first; workloads wait below each.

        They are sought in the order of all siblings, of which few changed; few among many are compared with each other.
        No set is empty.
        """
        one = next(iter(ways[0]))
        most = max(map(len, ways))
        if most == 1 == len(ways):
            return one
        bring_up_to_date(one)
        up, queues = one.parent, self.queues
        if up is not None and most**2 > len(up.order):
            for rank in up.put_in_order():
                queue = queues[rank[-1]]
                for way in ways:
                    if queue in way:
                        return queue
        return queues[min([queue.current_rank() for way in ways for queue in way])[-1]]

    def shortage(self, queue: Queue, request: Vector) -> Shortage | None:
        """The first queue on the way up whose limit the request would exceed, or the rest of whose limit is guaranteed
        to others; None when it fits.

        Only requested resources count; of several resources the first by name.
        """
        each: Queue | None = queue
        below: Queue | None = None
        while each is not None:
            used, limit = each.used, each.limit
            for name, amount in request.items():
                # Most often nothing is short, so the order by name can wait until something is.
                if amount > 0 and name in limit and amount > limit[name] - used.get(name, 0):
                    short = vector.shortage(used, request, limit)
                    assert short is not None, "something is short"
                    return Shortage(each, *short)
            if each.kept and below is not None:
                for name in sorted(each.kept.keys() & request.keys()):
                    left = each.left(name, queue)
                    if left is not None and request[name] > max(left, 0):
                        return Shortage(each, name, request[name], left, below=below)
            each, below = each.parent, each
        return None

    def declared_shortage(self, queue: Queue, request: Vector) -> Shortage | None:
        """As `shortage`, against what the queues declare: not what the members have, less what others are guaranteed,
        and not what follows from a limit above.
        """
        for each in path(queue):
            short = vector.shortage(each.used, request, each.said.capability)
            if short is not None:
                return Shortage(each, *short)
        return None

    def shortage_in(self, queue: Queue, member: str, request: Vector) -> Shortage | None:
        """As `shortage`, against the queues' ceilings in one member."""
        for each in path(queue):
            if member in each.ceilings:
                short = vector.shortage(each.used_in.get(member, {}), request, each.ceilings[member])
                if short is not None:
                    return Shortage(each, *short, member=member)
        return None

    def times_in(self, queue: Queue, member: str, request: Vector, most: int) -> int:
        """How many requests the queues' ceilings in one member allow, `most` at most."""
        for each in path(queue):
            if member in each.ceilings:
                used = each.used_in.get(member, {})
                for name, ceiling in each.ceilings[member].items():
                    if amount := request.get(name, 0):
                        most = min(most, max(ceiling - used.get(name, 0), 0) // amount)
        return most

    def take_changed(self) -> list[Queue]:
        """The queues of which use, demand or figures changed since the last call; the same holds for those above."""
        changed, self._changed = self._changed, {}
        return list(changed)

    def check(self) -> None:
        """Check the invariants.

        Raises:
            AssertionError: naming the invariant and the queue.
        """
        for name, queue in self.queues.items():
            assert queue.name == name, f"{name} is filed under another name"
            up = queue.parent
            assert (up is None) == (queue is self.root), f"queue {name}: only the root has no parent"
            child = queue if _counts(queue) else None
            assert up is None or up.children.get(name) is child, f"queue {name}: its parent does not know it"
            below = queue.children.values()
            inside, used, wanted = vector.total(c.used for c in below), queue.used, queue.wanted
            assert all(amount <= used.get(each, 0) for each, amount in inside.items()), f"queue {name}: used"
            assert all(amount <= wanted.get(each, 0) for each, amount in used.items()), f"queue {name}: used"
            assert queue.used_in == (_spread(queue) if queue.tracks else {}), f"queue {name}: used_in"
            assert not set(queue.claimed) & set(queue.divided), f"queue {name}: a resource both declared and divided"
            assert queue.waiting >= sum(c.waiting for c in below), f"queue {name}: waiting"
            known = [child.ordered for child in below if child.ordered is not None]
            assert queue.order == sorted(known), f"queue {name}: order of its children"
            for child in below:
                current = child.ordered == (child.ranked if child.waiting else None)
                assert current or child in queue.unordered, f"queue {child.name}: its place among its siblings"
            assert queue.pledged == vector.total(c.guarantee for c in below), f"queue {name}: pledged"
            kept = {each: sum(c.idle(each) for c in below) for each in queue.pledged}
            assert queue.kept == {each: idle for each, idle in kept.items() if idle}, f"queue {name}: kept"
        found = {each for queue in self.queues.values() for each in subtree(queue)}
        assert found == {*self.queues.values()}, "a queue is not below the root"

    # -- structure ---------------------------------------------------------------------------------------------------

    def _replace(self, queue: Queue, view: QueueView | None, dirty: dict[Queue, None]) -> None:
        """Set a queue's view and its place in the tree; queues to compute again go to `dirty`."""
        before = self._circle(queue)
        queue.view = view
        involved = {each.name: each for each in (*before, *self._circle(queue), queue)}
        touched = [involved[name] for name in sorted(involved)]
        for each in touched:
            each.circle = tuple(other.name for other in self._circle(each))
            each.guarantee = guarantee_of(each) if each is not self.root else each.pledged
            target = self.root if each.circle or each is self.root else self._above(each)
            if each is not self.root and target is not each.parent:
                dirty[each.parent or self.root] = None
                self._move(each, self.root)
        for each in touched:
            if each is not self.root and not each.circle:
                self._move(each, self._above(each))
        for each in touched:
            dirty[each] = None
            if each.parent is not None:
                dirty[each.parent] = None
        # Both parents as well: one without an object may have its first child, or none any more.
        for each in (*touched, *dirty):
            self._settle(each)
        self._track(queue)

    def _above(self, queue: Queue) -> Queue:
        """The parent that its view asks for."""
        return self.queue(queue.said.parent) if queue.said.parent else self.root

    def _circle(self, queue: Queue) -> list[Queue]:
        """The queues of the circle of declared parents through this queue, from it up; empty when there is none."""
        found: list[Queue] = []
        seen: set[Queue] = set()
        each = queue
        while each is not self.root and each not in seen:
            found.append(each)
            seen.add(each)
            each = self._above(each)
        return found if each is queue and found else []

    def _move(self, queue: Queue, parent: Queue) -> None:
        """Hang a queue, with all that is charged and waits below it, under another parent."""
        old = queue.parent
        if old is parent or old is None:
            return
        where = _spread(queue)
        self._changed |= {old: None, parent: None}
        queue.leave_order()
        for times, top in ((-1, old), (1, parent)):
            for each in path(top):
                if queue.used:
                    self._moved[each] = None
                # Amounts kept there are counted again once all are where they belong.
                vector.add(each.used, queue.used, times)
                vector.add(each.wanted, queue.wanted, times)
                if each.tracks:
                    vector.add_each(each.used_in, where, times)
                each.waiting += times * queue.waiting
                each.unrank()
                each.stale = True
        old.children.pop(queue.name, None)
        parent.children[queue.name] = queue
        queue.parent = parent
        queue.unrank()

    def _track(self, queue: Queue) -> None:
        queue.ceilings = {
            name: ceiling.capability for name, ceiling in queue.said.members.items() if ceiling.capability
        }
        if queue is self.root:
            for name, most in self._ceilings.items():
                queue.ceilings[name] = vector.lower(queue.ceilings.get(name, {}), most)
        tracks = bool(queue.ceilings)
        if tracks != queue.tracks:
            queue.tracks = tracks
            queue.used_in = _spread(queue) if tracks else {}

    # -- figures -----------------------------------------------------------------------------------------------------

    def _refresh(self, dirty: dict[Queue, None], told: list[Queue]) -> list[Queue]:
        """Compute the dirty queues again, and below them as far as something changes."""
        changed = {queue.name: queue for queue in (*told, *self._moved)}
        self._moved.clear()
        forced = set(told)
        for queue in sorted(dirty, key=lambda each: (each.depth, each.name)):
            rest = [queue]
            while rest:
                each = rest.pop()
                inner, outer = compute(each, self.members)
                if outer:
                    changed[each.name] = each
                if inner or outer or each in forced:
                    rest.extend(each.children.values())
        above = {each: None for queue in dirty for each in path(queue)}
        for queue in sorted(above, key=lambda each: -each.depth):
            queue.count_kept()
        result = [changed[name] for name in sorted(changed)]
        self._changed |= dict.fromkeys(result)
        return result


def _counts(queue: Queue) -> bool:
    """Whether a queue takes part in its parent's figures: it has an object, a child, or uses something."""
    return queue.view is not None or bool(queue.used or queue.children)


def _spread(queue: Queue) -> dict[str, Vector]:
    """Member -> what the subtree uses there."""
    result: dict[str, Vector] = {}
    for each in subtree(queue):
        vector.add_each(result, each.own_in)
    return result
