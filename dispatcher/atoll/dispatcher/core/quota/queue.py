"""One queue of the quota tree: its figures, its share, its place among its siblings.

Apart from the tree because these figures are read far more often than the tree changes: what follows from charges and
waiting work (the division among siblings, the rank) is computed when it is read, and only where something changed.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from atoll.dispatcher.core.events import QueueView
from atoll.model import vector
from atoll.model.vector import Vector
from atoll.model.weighted_shares import Claim, share_and_burden, water_fill

Rank = tuple[int, int, float, float, str, str]
"""(-priority, 0 below its guarantee else 1, dominant share, burden, created, name); smaller goes first."""
Wish = list[int] | None
"""What a queue asks of its parent's division, per resource; None when it has no work at all."""
Basis = tuple[list[int], "list[Queue]", list[Wish]]
"""What there is of each resource that is divided, among which queues, and what each of them asks for."""


_NOTHING_SAID = QueueView("", {})


class Standing(StrEnum):
    """Whether a queue may admit work at all."""

    OPEN = "open"
    CLOSED = "closed"
    """It or a queue above it is not open."""
    MISSING = "missing"
    """Only workloads or other queues name it."""
    INVALID = "invalid"
    """`Queue.problem` says why."""
    PARENT = "parent"
    """Workloads belong in the queues below it."""


@dataclass(slots=True, eq=False)
class Queue:
    """One queue. Read it; only `Tree` changes it."""

    name: str
    #: None while no such Queue object exists, and for the root without one
    view: QueueView | None = None
    #: None for the root alone; of a queue in a circle, of a missing and of a top-level queue it is the root
    parent: Queue | None = None
    children: dict[str, Queue] = field(default_factory=dict)
    #: charges in the subtree
    used: Vector = field(default_factory=dict)
    #: `used` and what waits in the subtree
    wanted: Vector = field(default_factory=dict)
    #: real capability; a resource that is not named is unlimited
    limit: Vector = field(default_factory=dict)
    #: never lent; of the root the sum of its children's
    guarantee: Vector = field(default_factory=dict)
    #: member -> charges of the subtree there; kept only while `tracks`
    used_in: dict[str, Vector] = field(default_factory=dict)
    #: why it and all below it admit nothing; empty when they may
    problem: str = ""
    #: members that serve it; None for all
    serving: frozenset[str] | None = None
    #: allocatable of these members; not changed in place, since it is shared by all that they serve
    total: Vector = field(default_factory=dict)
    #: it or a queue above it is not open
    closed: bool = False

    #: bindings that name this very queue, in any phase
    named: int = 0
    #: member -> charges there that name this very queue, not one below it
    own_in: dict[str, Vector] = field(default_factory=dict)
    #: member -> the most that the subtree may use there, as its view says; of the root as administrators say besides
    ceilings: dict[str, Vector] = field(default_factory=dict)
    #: it has such ceilings
    tracks: bool = False
    #: the queues of the circle of parents that it is part of, from it up; empty when it is in none
    circle: tuple[str, ...] = ()
    #: sum of the children's guarantees
    pledged: Vector = field(default_factory=dict)
    #: part of `used` that is still to come; empty but inside `Reservations.settled`
    coming: Vector = field(default_factory=dict)
    #: unused guarantees of the children, or below them
    kept: Vector = field(default_factory=dict)
    #: resources for which some child declares deserved, sorted
    claimed: tuple[str, ...] = ()
    #: resources that are divided among the children by weight, sorted; disjoint from `claimed`
    divided: tuple[str, ...] = ()
    #: declared part of deserved
    declared: Vector = field(default_factory=dict)

    #: `declared` and this queue's part of the shares that its parent divides; current only when no queue above is stale
    entitled: Vector = field(default_factory=dict)
    #: the division among the children may be out of date
    stale: bool = False
    #: what the division among the children was computed from; None = compute again
    divided_from: Basis | None = None
    #: the last rank; None = compute again
    ranked: Rank | None = None
    #: workloads that wait in the subtree
    waiting: int = 0
    #: ranks of the children below which workloads wait, rising, and the rank under which each queue is in its parent's;
    #: children of which rank or place may be others by now
    order: list[Rank] = field(default_factory=list)
    ordered: Rank | None = None
    unordered: dict[Queue, None] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Queue({self.name})"

    @property
    def deserved(self) -> Vector:
        """The effective entitlement: declared, or else this queue's part by weight; never over the limit, never below
        the guarantee. A resource that is not named has none, because none is declared and the capacity is unknown.
        """
        bring_up_to_date(self)
        return self.entitled

    @property
    def said(self) -> QueueView:
        """Declaration of its object; without one, an empty declaration."""
        return self.view or _NOTHING_SAID

    @property
    def depth(self) -> int:
        """How many queues are above it."""
        return sum(1 for _ in path(self)) - 1

    @property
    def stuck(self) -> bool:
        """Whether it admits nothing, with any capacity."""
        return self.closed or self.view is None or bool(self.problem)

    def has(self, resource: str) -> int:
        """Its present use, which it could give up."""
        return self.used.get(resource, 0) - self.coming.get(resource, 0)

    def below_guarantee(self) -> bool:
        """Whether it wants more of a resource of which it uses less than is guaranteed."""
        used, wanted = self.used, self.wanted
        return any(used.get(name, 0) < min(amount, wanted.get(name, 0)) for name, amount in self.guarantee.items())

    def rank(self) -> Rank:
        """Its place among its siblings."""
        bring_up_to_date(self)
        return self.current_rank()

    def current_rank(self) -> Rank:
        """As `rank`, where `bring_up_to_date` was called for it or a sibling since the last change."""
        if self.ranked is None:
            up, said = self.parent, self.view or _NOTHING_SAID
            shared = up.claimed + up.divided if up else tuple(self.entitled)
            # Where capacity is unknown and nothing declared, its own limit is the only measure that there is.
            share, load = share_and_burden(self.used, self.entitled, shared, self.limit, said.weight)
            first = 0 if self.guarantee and self.below_guarantee() else 1
            self.ranked = (-said.priority, first, share, load, said.created, self.name)
        return self.ranked

    def idle(self, resource: str) -> int:
        """Unused guarantee of it, or of queues below it: no queue beside it may.

        Those below an invalid queue may be guaranteed more than it is; that is taken from no queue beside it.
        """
        guarantee = self.guarantee.get(resource, 0)
        return max(guarantee - self.used.get(resource, 0), min(self.kept.get(resource, 0), guarantee), 0)

    def slack(self, resource: str) -> int:
        """Its unused guarantee beyond the guarantees of queues below."""
        used, kept = self.used.get(resource, 0), self.kept.get(resource, 0)
        return max(self.guarantee.get(resource, 0) - used - kept, 0)

    def left(self, resource: str, leaf: Queue | None = None) -> int | None:
        """Amount left of its limit, for a queue below without guarantees of others; the guarantees of that one and its
        ancestors are its own. None without a limit.
        """
        limit = self.limit.get(resource)
        if limit is None:
            return None
        left = limit - self.used.get(resource, 0)
        if leaf is not None and (kept := self.kept.get(resource, 0)):
            own = sum(each.slack(resource) for each in itertools.takewhile(lambda each: each is not self, path(leaf)))
            return min(left, max(left - kept, 0) + own)
        return left

    def count_kept(self) -> None:
        """Sum up unused guarantees below again; queues below are up to date."""
        idle = {name: sum(child.idle(name) for child in self.children.values()) for name in self.pledged}
        self.kept = {name: amount for name, amount in idle.items() if amount}

    def share(self, used: Vector) -> float:
        """Dominant share: the largest quotient of use and deserved amount, over all resources of which any queue
        deserves something. Use of a resource without a due amount counts as all that is due, and as the part
        of its limit that it is.
        """
        worst = 0.0
        for name, entitled in self.deserved.items():
            amount = used.get(name, 0)
            if amount > 0:
                limit = self.limit.get(name, 0)
                part = amount / entitled if entitled > 0 else 1.0 + (amount / limit if limit > 0 else 1.0)
                worst = max(worst, part)
        return worst

    def unrank(self) -> None:
        """Its rank may be another one, or whether workloads wait below it."""
        self.ranked = None
        if self.parent is not None and self.name in self.parent.children:
            self.parent.unordered[self] = None

    def leave_order(self) -> None:
        """It is no child of its parent's any more."""
        assert self.parent is not None, "the root has no parent"
        self.parent.unordered.pop(self, None)
        if self.ordered is not None:
            del self.parent.order[bisect_left(self.parent.order, self.ordered)]
            self.ordered = None

    def put_in_order(self) -> list[Rank]:
        """Ranks of the children below which workloads wait, rising; these are up to date (`bring_up_to_date`).

        Costs what changed: O(log children) for each child.
        """
        changed, order = self.unordered, self.order
        if not changed:
            return order
        self.unordered = {}
        if len(changed) > len(order) // 4:
            for child in changed:
                child.ordered = child.current_rank() if child.waiting else None
            self.order = sorted([child.ordered for child in self.children.values() if child.ordered is not None])
            return self.order
        for child in changed:
            if child.ordered is not None:
                del order[bisect_left(order, child.ordered)]
            child.ordered = child.current_rank() if child.waiting else None
            if child.ordered is not None:
                insort(order, child.ordered)
        return order

    def pool(self, resource: str) -> int | None:
        """What the children have of a resource to divide: the entitlement, else the limit; None when unknown."""
        up = self.parent
        if up is not None and (resource in up.claimed or resource in up.divided):
            return self.entitled.get(resource, 0)
        return self.limit.get(resource)


def use(leaf: Queue, amount: Vector, times: int = 1) -> None:
    """Count an amount as used by a queue and those above it; -1 times takes it back."""
    queue: Queue | None = leaf
    #: change of the amount kept for the children
    more: Vector = {}
    while queue is not None:
        if queue.guarantee or queue.kept or more:
            names = amount.keys() | more.keys()
            before = {name: queue.idle(name) for name in names}
            vector.add(queue.used, amount, times)
            vector.add(queue.kept, more)
            more = {name: change for name in sorted(names) if (change := queue.idle(name) - before[name])}
        else:
            vector.add(queue.used, amount, times)
        queue = queue.parent


class Supposed:
    """What queues use otherwise than they do, until it is undone."""

    def __init__(self) -> None:
        self._before: dict[Queue, tuple[Vector, dict[str, Vector], Vector]] = {}

    def use(self, leaf: Queue, amount: Vector, times: int = 1) -> None:
        """As `use`."""
        for queue in path(leaf):
            if queue not in self._before:
                # The division by its parent follows from real use.
                bring_up_to_date(queue)
                self._before[queue] = queue.used, queue.used_in, queue.kept
                queue.used, queue.kept = dict(queue.used), dict(queue.kept)
                queue.used_in = {name: dict(part) for name, part in queue.used_in.items()}
        use(leaf, amount, times)

    def undo(self) -> None:
        """Make each as it was, to the object."""
        for queue, (used, used_in, kept) in self._before.items():
            queue.used, queue.used_in, queue.kept = used, used_in, kept


def path(queue: Queue) -> Iterator[Queue]:
    """The queue, its parent and so on up to the root."""
    up: Queue | None = queue
    while up is not None:
        yield up
        up = up.parent


def subtree(queue: Queue) -> Iterator[Queue]:
    """The queue and all below it, parents first."""
    rest = [queue]
    while rest:
        each = rest.pop()
        yield each
        rest.extend(each.children.values())


def bring_up_to_date(queue: Queue) -> None:
    """Divide again at each level above the queue where something changed, from the top."""
    first: Queue | None = None
    up = queue.parent
    while up is not None:
        if up.stale:
            first = up
        up = up.parent
    if first is None:
        return
    for each in reversed([*path(queue)][1:]):
        if each.stale:
            _divide(each)


def _divide(parent: Queue) -> None:
    """Give each child its part of the shares by weight."""
    parent.stale = False
    names = parent.divided
    if not names and parent.divided_from is not None:
        # Nothing is divided, so nothing follows from their use or demand.
        return
    pools = [parent.pool(name) or 0 for name in names]
    children = list(parent.children.values())
    # Demand beyond the limit changes nothing, and most demand arrives while a queue is full.
    wishes = [_wishes(child, names) for child in children]
    basis = (pools, children, wishes)
    if parent.divided_from is not None and _divides_alike(parent.divided_from, basis, names):
        return
    parent.divided_from = basis
    takers = [
        (wish, child.said.weight, child.limit, child.guarantee, child.said.created, child.name)
        for child, wish in zip(children, wishes, strict=True)
        if wish is not None
    ]
    columns: list[list[int]] = []
    for index, (name, pool) in enumerate(zip(names, pools, strict=True)):
        claims = [
            Claim(weight, wish[index], limit.get(name), guarantee.get(name, 0), created, child)
            for wish, weight, limit, guarantee, created, child in takers
        ]
        columns.append(water_fill(pool, claims))
    rows = iter(zip(*columns, strict=True))
    for child, wish in zip(children, wishes, strict=True):
        # Who wants nothing at all takes no part; its guarantee is kept.
        parts = [child.guarantee.get(name, 0) for name in names] if wish is None else next(rows, ())
        entitled = {**child.declared, **dict(zip(names, parts, strict=True))}
        if entitled != child.entitled:
            child.entitled = entitled
            child.unrank()
            child.stale = bool(child.children)


def _divides_alike(before: Basis, now: Basis, names: Sequence[str]) -> bool:
    """Whether each part stays the same.

    Who gets less than it asks for, now as before, comes to its wish in no round of `water_fill`: how much more that is
    moves no part. So the division stays for as long as queues are full of work, which most are most of the time.
    """
    if before[:2] != now[:2]:
        return False
    for child, then, wish in zip(now[1], before[2], now[2], strict=True):
        if then == wish:
            continue
        if then is None or wish is None or child.said.weight < 1:
            return False
        parts = [child.entitled[name] for name in names]
        if any(a != b and part >= min(a, b) for a, b, part in zip(then, wish, parts, strict=True)):
            return False
    return True


def _wishes(queue: Queue, names: Sequence[str]) -> Wish:
    """What a queue asks of its parent's division, up to its limit.

    What waits where nothing is admitted does not count.
    """
    demand, limit = queue.used if queue.stuck else queue.wanted, queue.limit
    if not demand:
        return None
    wishes = []
    for name in names:
        wish = demand.get(name, 0)
        if name in limit and wish > limit[name]:
            wish = max(limit[name], 0)
        wishes.append(wish)
    return wishes
