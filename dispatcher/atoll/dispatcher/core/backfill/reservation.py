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
"""(queue, resource) -> amount left of its limit."""


@dataclass(frozen=True, slots=True)
class Spot:
    """Places of a reservation in its member, beside the reservations arranged before it."""

    placement: Placement | None
    """Where its pods will be; None where they do not fit at that time."""
    rest: Nodes
    """Nodes left to others."""

    def is_at(self, placement: Placement) -> bool:
        """Whether that is where its pods will be."""
        return self.placement is not None and self.placement.pods == placement.pods

    def leaves(self, needs: Sequence[Vector], placement: Placement) -> bool:
        """Whether a placement of pods with these requests is beside it on every node."""
        return self.placement is not None and self.rest.holds(needs, placement)


@dataclass(slots=True, eq=False)
class Reservation:
    uid: str
    leaf: Queue
    shape: Shape
    member: Member
    at: float
    """Earliest known start; infinite where work that must end first has no estimate."""
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
    """End of a claim; its victims should have left a moment before, or no member has answered."""
    moved: bool = False
    """Of a claim: its workload is moved, and the place is kept for it while it leaves."""
    leaving: dict[str, None] = field(default_factory=dict)
    """Of a claim: UIDs of victims evicted whole that have not left yet."""

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
        """Pods to place."""
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
        """Whether its members are closed to others: its needs are unknown."""
        return bool(self.also) or self._is_moving or (self.at == math.inf and not self.claim and not self.limited)

    @property
    def _is_moving(self) -> bool:
        """Whether moved workloads still leave: figures may be without them already, which would count them twice."""
        return self.moved and bool(self.leaving)

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
    """(queue on the path, requested resource that it limits) -> amount left there beside the request."""
    return {
        (queue, name): left - amount
        for queue in path(leaf)
        for name, amount in request.items()
        if amount > 0 and (left := queue.left(name, leaf)) is not None
    }


Holdings = dict[tuple[Queue, str], int]
"""(queue, resource) -> its part of the limits above it, guaranteed or used."""


def give_back(
    left: Left, mine: Queue, leaf: Queue, amount: Vector, times: int = 1, holdings: Holdings | None = None
) -> None:
    """Add a queue's freed use to the amounts left for another one; -1 times takes it. Its own guarantee, or one on
    the way up to the ancestor that both share, is no other queue's whether used or not.

    Args:
        left: of limits on the path of `mine`; changed.
        mine: for which that is left.
        leaf: the queue that uses less.
        amount: by so much.
        times: how often.
        holdings: earlier ends and starts; added to. Without it, none since now.
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
    """Amounts left for a queue once these have started as well."""
    left = dict(left)
    holdings: Holdings = {}
    for each in others:
        give_back(left, mine, each.leaf, each.shape.request, -1, holdings)
    return left
