"""Who may use reserved capacity: the rules for one workload, from its queue, its members, and all reservations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec
import numpy as np
from numpy.typing import NDArray

from atoll.dispatcher.core.backfill.reservation import Reservation
from atoll.dispatcher.core.backlog.binding import Binding, estimate
from atoll.dispatcher.core.backlog.wake_index import capping
from atoll.dispatcher.core.capacity.member import Member
from atoll.dispatcher.core.capacity.shape import Shape
from atoll.dispatcher.core.lifecycle.state import State
from atoll.dispatcher.core.placement.choice import Choice
from atoll.dispatcher.core.placement.rules import Rules
from atoll.dispatcher.core.preemption.claims import Claims
from atoll.dispatcher.core.quota.lending import is_due_before
from atoll.dispatcher.core.quota.queue import Queue, path
from atoll.dispatcher.split import sets_of
from atoll.fit.placement import Ints
from atoll.model import strategies
from atoll.model.gang import Gang
from atoll.model.strategies import Pods, Workload
from atoll.model.vector import Vector
from atoll.model.verdict import Verdict


class QueueRules(Rules):
    """Made for one search for a place, and forgotten after it."""

    def __init__(self, state: State, claims: Claims, binding: Binding, shape: Shape) -> None:
        """`shape`: that it waits with."""
        self._serving, self.avoided = state.exclusions.usable(binding), state.exclusions.avoided(binding, shape)
        self._state, self._claims, self._binding = state, claims, binding
        self._reservations, self._tree, self._leaf = state.reservations, state.tree, binding.leaf
        self.permit_all = self._reservations.empty and capping(binding.leaf) is None
        self.scoring = bool(binding.leaf.said.score)
        #: member -> what would go there, of choices that exceed a ceiling
        self.exceeded: dict[str, Vector] = {}
        #: reservations that the choice permitted last delays, by a better rank
        self._overtaken: list[Reservation] = []
        #: reservations that the choice refused last would delay
        self.delayed: list[Reservation] = []

    def serves(self, allowed: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return allowed if self._serving is None else allowed & self._serving

    def permits(self, choice: Choice) -> bool:
        """Whether the queue's ceilings in members, and reservations, allow a choice."""
        if self.permit_all:
            return True
        self._overtaken = []
        if self.capped(choice) is not None:
            return False
        if self._reservations.empty:
            return True
        binding, leaf = self._binding, self._leaf
        amount = choice.total() if choice.divided else binding.amount
        broken = self._reservations.delayed(binding.view.uid, leaf, amount, choice, self._end)
        self._overtaken = [reservation for reservation in broken if self._goes_before(reservation)]
        self.delayed = [reservation for reservation in broken if reservation not in self._overtaken]
        return not self.delayed

    def settle(self, choice: Choice) -> Choice | None:
        if self.permits(choice):
            return choice
        other = self._aside(choice)
        return other if other is not None and self.permits(other) else None

    def _aside(self, choice: Choice) -> Choice | None:
        """The choice on other nodes, on which it may delay no reservation."""
        if choice.divided or self._reservations.empty:
            return None
        [member], [gang] = choice.members, choice.gangs
        placement = self._reservations.aside(self._binding.view.uid, member, gang, self._end)
        if placement is None or sum(placement.counts) < gang.replicas or placement.pods == choice.placements[0].pods:
            return None
        return msgspec.structs.replace(choice, placements=(placement,))

    def bars(self, member: Member) -> bool:
        """Whether the member was tried, and reservations are known not to allow the choice there."""
        if self._reservations.empty:
            return False
        broken = self._reservations.refused_before(self._binding.view.uid, member, self._end)
        return not all(self._goes_before(reservation) for reservation in broken)

    def capped(self, choice: Choice) -> Verdict | None:
        for member, gang in zip(choice.members, choice.gangs, strict=True):
            short = self._tree.shortage_in(self._leaf, member.name, gang.total())
            if short is not None:
                self.exceeded |= {
                    each.name: part.total() for each, part in zip(choice.members, choice.gangs, strict=True)
                }
                return short.verdict()
        return None

    def times(self, member: Member, request: Vector, most: int) -> int:
        return self._tree.times_in(self._leaf, member.name, request, most)

    def scores(self, gang: Gang, members: Sequence[Member], counts: Ints) -> Mapping[str, float] | None:
        if not self.scoring:
            return None
        facts = [_facts(member, column) for member, column in zip(members, counts.T.tolist(), strict=True)]
        return self._state.strategies.scores(self._leaf.said.score, self._workload(gang), facts)

    def shares(
        self, gang: Gang, members: Sequence[Member], counts: Ints, ceilings: Mapping[str, int]
    ) -> Mapping[str, int] | None:
        if not self._leaf.said.split:
            return None
        sets = sets_of(gang)
        unit = [task.replicas // sets for task in gang.tasks]
        facts = []
        for member, column in zip(members, counts.T.tolist(), strict=True):
            most = min([pods // each for pods, each in zip(column, unit, strict=True) if each], default=0)
            facts.append(_facts(member, column, min(most, ceilings.get(member.name, sets), sets)))
        return self._state.strategies.shares(self._leaf.said.split, self._workload(gang), facts)

    def _workload(self, gang: Gang) -> Workload:
        """A strategy's view of it: nothing in which workloads of one shape differ."""
        view = self._binding.view
        tasks = [
            Pods(each.name, each.replicas, each.min_available, MappingProxyType(each.requests)) for each in gang.tasks
        ]
        most = view.most_clusters if view.divided else 1
        sets = sets_of(gang) if view.divided else 1
        return Workload(self._leaf.name, tuple(tasks), sets, view.least_clusters, most)

    def forbid_all(self) -> bool:
        """Whether limits that are reserved allow no choice at all, whoever has gone."""
        if any(queue.guarantee for queue in path(self._leaf)):
            # That may be a better right once others have gone.
            return False
        return bool(self.short_of())

    def short_of(self) -> list[Reservation]:
        """Reservations whose part of limits any choice takes."""
        binding = self._binding
        broken = self._reservations.short_of(binding.view.uid, self._leaf, binding.amount, self._end)
        return [reservation for reservation in broken if not self._goes_before(reservation)]

    def overtake(self) -> None:
        """The choice permitted last is carried out: the first times of reservations that it delays bind no longer."""
        for reservation in self._overtaken:
            reservation.overtaken = True

    @property
    def _end(self) -> float:
        return self._state.now + estimate(self._binding)

    def _goes_before(self, reservation: Reservation) -> bool:
        """Whether the workload ranks before a reservation: its queue stays within its declared share where the
        other one borrows; it is of a higher priority class; its queue is below its guarantee. A claim gives way to no
        queue for what that deserves, nor to a queue that gives something up for it; the place of a moved workload gives
        way to none.
        """
        if reservation.moved:
            return False
        binding, other = self._binding, self._state.bindings[reservation.uid]
        if not reservation.claim and is_due_before(
            self._leaf, binding.amount, reservation.leaf, reservation.shape.request
        ):
            return True
        if binding.key[0] != other.key[0]:
            return binding.key[0] < other.key[0] and not self._lends(reservation)
        return _below_guarantee(self._leaf) and not _below_guarantee(other.leaf)

    def _lends(self, reservation: Reservation) -> bool:
        """Whether a workload of this queue is evicted for one of another queue: it would take the capacity again."""
        if not reservation.claim or self._leaf is reservation.leaf:
            return False
        victims = map(self._state.bindings.get, self._claims.losses(reservation.uid))
        return any(victim is not None and victim.leaf is self._leaf for victim in victims)


def _facts(member: Member, pods: Sequence[int], sets: int = 0) -> strategies.Member:
    """A strategy's view of a member."""
    view = member.view
    assert view is not None, f"{member.name} is no member any more"
    fields = view.fields
    provider, region, zones = (tuple(fields.get(name, ())) for name in ("provider", "region", "zone"))
    return strategies.Member(
        member.name, MappingProxyType(dict(view.labels)), provider, region, zones, tuple(pods), sets
    )


def _below_guarantee(leaf: Queue) -> bool:
    return any(queue.parent is not None and queue.guarantee and queue.below_guarantee() for queue in path(leaf))
