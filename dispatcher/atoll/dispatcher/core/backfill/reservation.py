"""Capacity that is reserved for one workload: in which member, from when on, where; and what that leaves of limits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from atoll.dispatcher.core.capacity.member import Member
from atoll.dispatcher.core.capacity.shape import Shape
from atoll.dispatcher.core.quota.queue import Queue, path
from atoll.dispatcher.core.settings import BackfillSettings
from atoll.fit import Nodes, Placement
from atoll.model.gang import Gang
from atoll.model.vector import Vector

Left = dict[tuple[Queue, str], int]
"""(queue, resource) -> what is left of its limit."""


@dataclass(frozen=True, slots=True)
class Spot:
    """What a reservation finds in its member, beside those that were arranged before it."""

    placement: Placement | None
    """Where its pods will be; None where they do not fit at that time."""
    rest: Nodes
    """What it leaves to others."""

    def is_at(self, placement: Placement) -> bool:
        """Whether that is where its pods will be."""
        return self.placement is not None and self.placement.pods == placement.pods

    def leaves(self, needs: Sequence[Vector], placement: Placement) -> bool:
        """Whether a placement of pods with these requests is beside it on every node."""
        return self.placement is not None and self.rest.holds(needs, placement)


@dataclass(slots=True, eq=False)
class Reservation:
    """See the module."""

    uid: str
    leaf: Queue
    shape: Shape
    member: Member
    at: float
    """When it can start as far as is known; infinite where some of what must end has no estimate."""
    first: float
    """The first such time that was known."""
    since: float
    """When its workload got its first reservation."""
    lasts: float = math.inf
    """Seconds that it is expected to run."""
    computed: float = 0.0
    """When `at` was computed."""
    placement: Placement | None = None
    """Where its pods will be, as arranged last; they stay there while they fit."""
    limited: bool = False
    """It is not known when limits will admit it: what the limits have is reserved, and no nodes."""
    overtaken: bool = False
    """A better rank took from it: the first time no longer binds."""
    lost: float = math.inf
    """Since when it does not fit its member at that time."""
    settings: BackfillSettings = BackfillSettings()

    claim: bool = False
    """Others are evicted for it: it starts as soon as they have gone."""
    also: tuple[Member, ...] = ()
    """Of a claim: further members that are reserved."""
    until: float = math.inf
    """Of a claim: when it ends; the victims were to be gone a moment before, or no member has answered."""
    leaving: dict[str, None] = field(default_factory=dict)
    """Of a claim: UIDs of those that go whole, and have not gone yet."""

    future: Nodes | None = None
    """The member's nodes at that time, without reservations; None = compute again."""
    spot: Spot | None = None
    """None = arrange again."""
    left: Left | None = None
    """What limits on its queue's path have left then beside it, without other reservations; None = compute again."""
    spare: Left | None = None
    """The same beside other reservations; None = compute again."""

    @property
    def gang(self) -> Gang:
        """What is to fit."""
        return self.shape.least

    @property
    def starts(self) -> float:
        """When it runs as far as is known: a claim as soon as its victims have gone."""
        return -math.inf if self.claim else self.at

    def runs_at(self, when: float) -> bool:
        """Whether it has started by then, and its capacity is not free again."""
        return self.starts <= when and not self.is_over_by(when)

    @property
    def ends(self) -> float:
        """When its capacity is free again if it starts in time; infinite where that is not known."""
        return math.inf if self.claim else self.at + self.lasts + self.settings.settle

    def is_over_by(self, when: float) -> bool:
        """Whether its capacity is free again by then, if that is a time that is known."""
        return self.ends <= when < math.inf

    @property
    def uncertain(self) -> bool:
        """Whether nothing may be taken from its members: there is no telling what it needs."""
        return bool(self.also) or (self.at == math.inf and not self.claim and not self.limited)

    @property
    def places(self) -> bool:
        """Whether it has nodes of its member."""
        return not self.uncertain and not self.limited

    @property
    def age(self) -> tuple[float, str]:
        """The order of reservations of the same rank."""
        return self.since, self.uid

    def binds(self, own: Reservation | None, end: float) -> bool:
        """Whether a workload that runs until `end` must leave it its capacity. `own`: that workload's reservation.

        One without a time does not bind workloads with an older reservation: else each would wait for the other.
        """
        if end + self.settings.settle <= self.at < math.inf:
            return False
        return own is None or self.claim or self.at < math.inf or self.age < own.age


def left_beside(leaf: Queue, request: Vector) -> Left:
    """(queue on the path, requested resource that it limits) -> what is left there beside the request."""
    return {
        (queue, name): left - amount
        for queue in path(leaf)
        for name, amount in request.items()
        if amount > 0 and (left := queue.left(name, leaf)) is not None
    }


Holdings = dict[tuple[Queue, str], int]
"""(queue, resource) -> what it holds of the limits above it, guaranteed or used."""


def give_back(
    left: Left, mine: Queue, leaf: Queue, amount: Vector, times: int = 1, holdings: Holdings | None = None
) -> None:
    """Add what a queue no longer uses to what is left for another one; -1 times takes it. What is guaranteed to it, or
    on the way up to what both share, is no other queue's whether it is used or not.

    Args:
        left: of limits on the path of `mine`; changed.
        mine: for which that is left.
        leaf: the queue that uses less.
        amount: by so much.
        times: how often.
        holdings: what has ended and started before; added to. Without it, nothing has since now.
    """
    if not left:
        return
    shared = set(path(mine))
    for name, value in amount.items():
        change = value * times
        for queue in path(leaf):
            if (queue, name) in left:
                left[queue, name] += change
            guarantee = queue.guarantee.get(name, 0)
            if not guarantee or queue in shared:
                continue
            known = None if holdings is None else holdings.get((queue, name))
            held = queue.used.get(name, 0) + queue.kept.get(name, 0) if known is None else known
            if holdings is not None:
                holdings[queue, name] = held - change
            change = max(held, guarantee) - max(held - change, guarantee)


def less(left: Left, mine: Queue, others: Iterable[Reservation]) -> Left:
    """What is left for a queue once these have started as well."""
    left = dict(left)
    holdings: Holdings = {}
    for each in others:
        give_back(left, mine, each.leaf, each.shape.request, -1, holdings)
    return left
