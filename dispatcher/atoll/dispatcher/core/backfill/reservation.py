"""What runs until when, and one promise: the figures from which `Promises` judges, and what they mean for limits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from atoll.dispatcher.core.capacity.member import Member
from atoll.dispatcher.core.capacity.shape import Shape
from atoll.dispatcher.core.quota.queue import Queue, path
from atoll.fit import Nodes, Placement
from atoll.model.decision import Spots
from atoll.model.gang import Gang
from atoll.model.vector import Vector

SETTLE = 2.0
"""Seconds after an end within which its member has told of the room, and a decision is written."""
_OVERRUN = 0.1
"""What runs longer than expected is expected to run on for this part of its estimate, and for a second at least."""

Pods = Sequence[tuple[int, int, int]]
"""(task index, node index, pods)."""


@dataclass(slots=True)
class Stay:
    """Something that runs, or is about to."""

    leaf: Queue
    amount: Vector
    """What its queue is charged."""
    start: float
    end: float
    """Seconds since the epoch; infinite where nobody knows."""
    parts: dict[str, tuple[Gang, Pods]]
    """Member -> (gang of the part, where its pods are or are expected)."""

    def expected_end(self, now: float) -> float:
        """When it is expected to end, seen from now."""
        if self.end > now or self.end == math.inf:
            return self.end
        return now + max(1.0, _OVERRUN * (self.end - self.start))

    def over_at(self, when: float, now: float) -> bool:
        """Whether it is expected, seen from now, to be over by then."""
        return self.end < math.inf and self.expected_end(now) + SETTLE <= when


@dataclass(frozen=True, slots=True)
class Kept:
    """What a promise is to find in its member, beside those that were made before it."""

    placement: Placement | None
    """Where it is expected then; None where it does not fit any more."""
    rest: Nodes
    """What it leaves to others."""

    def is_at(self, placement: Placement) -> bool:
        """Whether that is where it is expected."""
        return self.placement is not None and self.placement.pods == placement.pods

    def leaves(self, needs: Sequence[Vector], placement: Placement) -> bool:
        """Whether a placement of pods with these requests is beside it on every node."""
        return self.placement is not None and holds(self.rest, needs, placement)


@dataclass(slots=True, eq=False)
class Promise:
    """Room that is kept for one waiting workload."""

    uid: str
    leaf: Queue
    shape: Shape
    gang: Gang
    member: Member
    at: float
    """When it can start as far as is known; infinite where some of what must end has no estimate."""
    first: float
    """What `at` was when the promise was made."""
    made: float
    overtaken: bool = False
    """Somebody with a better right took from it: the first time no longer binds."""
    spare: dict[tuple[Queue, str], int] = field(default_factory=dict)
    """(queue on its path, resource) -> what may be charged there beyond `at` without delaying it."""
    beside: dict[str, None] = field(default_factory=dict)
    """UIDs of those who were promised earlier and will have started by then: their share is not in `spare`."""
    lasts: float = math.inf
    """Seconds that it is expected to run."""
    future: Nodes | None = None
    """The member's nodes at that time, nobody who was promised any counted; None = compute again."""
    kept: Kept | None = None
    """Its nodes at that time; None = compute again."""
    suspect: bool = False
    """Its member would not hold it at that time when somebody looked."""
    doubted: float = math.inf
    """Since when that has been so."""
    looked: float = 0.0
    """When `at` was computed."""
    also: tuple[Member, ...] = ()
    """Further members that are kept for it."""
    victims: bool = False
    """Others make room for it: no time is to be computed until they have gone."""
    expected: Placement | None = None
    """Where it was expected last, or goes once they have gone, as far as that is known: its own while it fits there."""
    until: float = math.inf
    """When others go for it no more: the room was to be there a moment before, or nobody has answered."""
    leaving: dict[str, bool] = field(default_factory=dict)
    """UID of one that is taken back for it, or for one who was promised earlier -> whether it has not gone yet."""
    limited: bool = False
    """Nobody knows when limits will admit it: what these have is kept for it, and no nodes."""
    refused: dict[str, tuple[int, float]] = field(default_factory=dict)
    """UID of a workload that would delay it in its member -> (the member's changes at that time, its end)."""

    def starts_by(self, when: float) -> bool:
        """Whether it runs by then; those for whom others go start as soon as these have gone."""
        return self.victims or self.at <= when

    def runs_at(self, when: float) -> bool:
        """Whether it has started by then, and its room is not there again."""
        return self.starts_by(when) and not self.is_over_by(when)

    @property
    def ends(self) -> float:
        """When its room is there again if it starts as promised; infinite where that is not known."""
        return math.inf if self.victims else self.at + self.lasts + SETTLE

    def is_over_by(self, when: float) -> bool:
        """Whether its room is there again by then, if that is a time that is known."""
        return self.ends <= when < math.inf

    def uncertain(self) -> bool:
        """Whether nothing may be taken from its members: there is no telling what it needs."""
        return bool(self.also) or (self.at == math.inf and not self.victims and not self.limited)

    def yields_to(self, other: Promise | None) -> bool:
        """Whether it does not bind another one to whom room is promised: nobody knows its own time, and it is younger.
        Else each would wait for the other.
        """
        if other is None or self.victims or self.at < math.inf:
            return False
        return other.age < self.age

    @property
    def age(self) -> tuple[float, str]:
        """The order in which promises were made first."""
        return self.made, self.uid

    def exceeds(self, leaf: Queue, amount: Vector) -> bool:
        """Whether a workload that stays for ever takes from the limits what the promise needs."""
        for queue in path(leaf):
            for name, value in amount.items():
                spare = self.spare.get((queue, name))
                if spare is not None and value > max(spare, 0):
                    return True
        return False


def holds(nodes: Nodes, needs: Sequence[Vector], placement: Placement) -> bool:
    """Whether each node has what the placement takes of it."""
    columns = [node for _, node, _ in placement.pods]
    if max(columns, default=-1) >= len(nodes):
        # The member has lost some.
        return False
    after = nodes.copy()
    after.take(needs, placement)
    before, left = nodes.free[:, columns], after.free[:, columns]
    return bool(((left >= 0) | (left == before)).all())


def left_beside(leaf: Queue, request: Vector) -> dict[tuple[Queue, str], int]:
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
    left: dict[tuple[Queue, str], int],
    mine: Queue,
    leaf: Queue,
    amount: Vector,
    times: int = 1,
    holdings: Holdings | None = None,
) -> None:
    """Add what a queue no longer uses to what is left for another one; -1 times takes it. What is guaranteed to it, or
    on the way up to what both share, is nobody else's whether it is used or not.

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


def where_seen(
    gang: Gang, nodes: Mapping[str, int], index: Mapping[str, int], likely: Sequence[Pods] = ()
) -> list[tuple[int, int, int]]:
    """Pods by task and node from a report that only counts pods per node: the first likely placement that has as many
    on each; else tasks in order, nodes by name.
    """
    if len(gang.tasks) > 1:
        seen = {index[name]: count for name, count in nodes.items() if name in index and count}
        for each in likely:
            counts: dict[int, int] = {}
            for _, node, count in each:
                counts[node] = counts.get(node, 0) + count
            if counts == seen:
                return list(each)
    pods: list[tuple[int, int, int]] = []
    wanted = gang.full()
    for name in sorted(nodes):
        left = nodes[name]
        for task in range(len(wanted)):
            count = min(left, wanted[task])
            if count and name in index:
                pods.append((task, index[name], count))
            wanted[task] -= count
            left -= count
    return pods


def placed_as_told(gang: Gang, spots: Spots, index: Mapping[str, int]) -> Pods:
    """Where a decision expects the pods of a part, by the indices of tasks and nodes; of nodes that are there."""
    tasks = {task.name: number for number, task in enumerate(gang.tasks)}
    return [(tasks[task], index[node], count) for task, node, count in spots if task in tasks and node in index]
