"""Moves of whole gangs out of a topology domain, so that a waiting gang has it: pure arithmetic on nodes.

The total free capacity may suffice for a gang that fits in no single rack. A plan lifts gangs out of one domain, places
the claimant there, and then all lifted gangs elsewhere, together; without a place for each of them there is no plan.
Domains are tried in the order of an estimate of the lost work, and the one that loses least is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from atoll.dispatcher.core.capacity.member import Member
from atoll.dispatcher.core.capacity.shape import Shape
from atoll.dispatcher.core.placement.choice import Choice
from atoll.fit import Nodes, Placement, place
from atoll.fit.pods import Pods
from atoll.model.gang import Gang
from atoll.model.plurals import counted

_DOMAINS = 8
"""Domains that one search tries: each costs a placement per lifted gang, and nothing is dispatched meanwhile."""
_GANGS = 8
"""Gangs that one plan moves: every one of them is a restart for its user."""
_HOUR = 3600.0


@dataclass(frozen=True, slots=True, eq=False)
class Movable:
    """A running gang that may be moved."""

    uid: str
    member: Member
    gang: Gang
    """Its part, which is all of it."""
    pods: Pods
    """Its places."""
    lost: float
    """Pod-seconds that a move costs: restarts, and work since the start or the last checkpoint."""


class Move(NamedTuple):
    """The next place of a moved gang."""

    uid: str
    shape: Shape
    """Not enrolled."""
    member: Member
    placement: Placement


class Freed(NamedTuple):
    """A domain that a search frees."""

    choice: Choice
    moves: list[Move]
    domain: str
    pods: int
    """Pods that leave."""
    lost: float
    """Pod-seconds."""


@dataclass(frozen=True, slots=True)
class Moving:
    """Moves that free a domain for a waiting gang, with both costs."""

    freed: Freed
    waiting: float
    """Pod-seconds of the claimant until it would start without moves."""
    estimated: bool = True
    """Whether `waiting` follows from estimates; else from the setting for an unknown end."""

    @property
    def pays(self) -> bool:
        """Whether the moves cost less than waiting."""
        return self.freed.lost < self.waiting

    def sentence(self) -> str:
        """The arithmetic for a person."""
        freed, verb = self.freed, "would leave"
        if self.pays:
            verb = "leaves" if freed.pods == 1 else "leave"
        gangs, where = counted(len(freed.moves), "gang"), f"{freed.domain} of {freed.choice.members[0].name}"
        text = f"{counted(freed.pods, 'pod')} of {gangs} {verb} {where}: {freed.lost / _HOUR:.2f} pod-hours lost"
        text += f"; waiting {'would cost' if self.pays else 'costs'} {self.waiting / _HOUR:.2f} pod-hours"
        return text if self.estimated else f"{text} (no estimate says when it could start)"


Targets = Callable[[str], tuple[Shape, Sequence[Member]] | None]
"""UID of a gang -> its shape and the members where it may start again, the best first; None where it must stay."""


class Lifting:
    """Copies of members' nodes, on which gangs are lifted and placed; the members are never changed."""

    def __init__(self, shape: Shape, movable: Sequence[Movable], targets: Targets, most: int = _GANGS) -> None:
        """`shape`: the claimant's; `most`: gangs that may be lifted."""
        self._gang, self._movable, self._targets = shape.least, movable, targets
        self._most = min(most, _GANGS)

    def search(self, members: Sequence[Member]) -> Freed | None:
        """The domain that costs least, of these members; None where some lifted gang would have no place."""
        best: Freed | None = None
        bound = math.inf
        found = [(cost, member.name, domain, member) for member in members for cost, domain in self._domains(member)]
        for _, _, domain, member in sorted(found, key=lambda each: each[:3])[:_DOMAINS]:
            attempt = self._free(member, domain, bound)
            if attempt is not None:
                best, bound = attempt, attempt.lost
        return best

    def fits(self, member: Member, uids: Collection[str]) -> bool:
        """Whether the claimant has a place in a member, and each of these gangs one elsewhere, by present figures."""
        lifted = [each for each in self._movable if each.uid in uids]
        nodes = member.nodes.copy()
        for each in lifted:
            _lift(nodes, each)
        placement = place(nodes, self._gang)
        if len(lifted) < len(uids) or not isinstance(placement, Placement):
            return False
        return self._settle(member, nodes, placement, lifted) is not None

    def _domains(self, member: Member) -> Iterator[tuple[float, int]]:
        """(estimate of the lost pod-seconds, domain) of the domains that gangs could leave."""
        nodes = member.nodes.seen_by(self._gang.network_topology)
        here = [each for each in self._movable if each.member is member]
        rooms = [np.where(nodes.accepting(task), nodes.room(task.requests), 0) for task in self._gang.tasks]
        room = np.sum(rooms, axis=0)
        for level in nodes.tree.levels(self._gang.network_topology) or () if here else ():
            for domain in np.unique(nodes.domain[level][nodes.domain[level] >= 0]).tolist():
                inside = nodes.domain[level] == domain
                # Pods of other sizes free more or less than one place each: the estimate only orders domains.
                missing = self._gang.replicas - int(np.minimum(room[inside], self._gang.replicas).sum())
                cost = 0.0
                for each in _cheapest(here, inside):
                    if cost and missing <= 0:
                        break
                    missing, cost = missing - _pods_in(each, inside), cost + each.lost
                if cost:
                    yield cost, domain

    def _free(self, member: Member, domain: int, bound: float) -> Freed | None:
        """Lift gangs out of the domain, the cheapest per pod first, until the claimant fits; and no more than it
        needs.
        """
        nodes = member.nodes.copy()
        tree = nodes.seen_by(self._gang.network_topology)
        inside = tree.layout.at_tier_of(domain) == domain
        lifted: list[Movable] = []
        placement: object = None
        for each in _cheapest([m for m in self._movable if m.member is member], inside):
            if len(lifted) == self._most or sum(other.lost for other in lifted) >= bound:
                return None
            if self._targets(each.uid) is None:
                continue
            _lift(nodes, each)
            lifted.append(each)
            placement = place(nodes, self._gang, within=domain)
            if isinstance(placement, Placement):
                break
        if not isinstance(placement, Placement):
            return None
        for each in sorted(lifted[:-1], key=lambda m: (-m.lost, m.uid)):
            _lift(nodes, each, -1)
            without = place(nodes, self._gang, within=domain)
            if isinstance(without, Placement):
                lifted.remove(each)
                placement = without
            else:
                _lift(nodes, each)
        pods, lost = sum(each.gang.replicas for each in lifted), sum(each.lost for each in lifted)
        settled = self._settle(member, nodes, placement, lifted) if lost < bound else None
        return None if settled is None else Freed(*settled, _name(tree, domain), pods, lost)

    def _settle(
        self, member: Member, nodes: Nodes, placement: Placement, lifted: Sequence[Movable]
    ) -> tuple[Choice, list[Move]] | None:
        """The claimant placed, and each lifted gang whole on the nodes that the others leave; None where one has no
        place. `nodes`: the member's without the lifted gangs; changed.
        """
        nodes.put(self._gang.tasks, placement)
        there, moves = {member.name: nodes}, []
        for each in sorted(lifted, key=lambda m: (-m.gang.replicas, m.uid)):
            known = self._targets(each.uid)
            move = None if known is None else _elsewhere(each, *known, there)
            if move is None:
                return None
            moves.append(move)
        return Choice((member,), (self._gang,), (placement,)), moves


def _elsewhere(each: Movable, shape: Shape, targets: Sequence[Member], there: dict[str, Nodes]) -> Move | None:
    """The first member that holds all of a lifted gang. `there`: copies of members' nodes; added to and changed."""
    for target in targets:
        nodes = there.setdefault(target.name, target.nodes.copy())
        placement = place(nodes, each.gang)
        if isinstance(placement, Placement) and sum(placement.counts) == each.gang.replicas:
            nodes.put(each.gang.tasks, placement)
            return Move(each.uid, shape, target, placement)
    return None


def _lift(nodes: Nodes, each: Movable, times: int = 1) -> None:
    nodes.take(each.gang.requests(), Placement(list(each.pods)), -times)


def _pods_in(each: Movable, inside: NDArray[np.bool_]) -> int:
    return sum(count for _, node, count in each.pods if inside[node])


def _cheapest(movable: Sequence[Movable], inside: NDArray[np.bool_]) -> list[Movable]:
    """Gangs with pods on these nodes, by lost work for each pod that leaves them; ties by UID."""
    found = [(each, pods) for each in movable if (pods := _pods_in(each, inside))]
    return [each for each, _ in sorted(found, key=lambda pair: (pair[0].lost / pair[1], pair[0].uid))]


def _name(nodes: Nodes, domain: int) -> str:
    found = nodes.tree.domains[domain]
    return f"{found.tier_name or 'domain'} {found.name}"


def lost_by(ran: float, pods: int, restart: float, checkpoint: float) -> float:
    """Pod-seconds that a move costs a gang that ran so long. `checkpoint`: seconds between checkpoints; 0 for none."""
    work = min(ran, checkpoint) if checkpoint else ran
    return pods * (restart + max(work, 0.0))


def waits_for(start: float, now: float, pods: int, unknown: float) -> tuple[float, bool]:
    """(pod-seconds that a gang waits until `start`, whether that is known); `unknown`: seconds where it is not."""
    known = start < math.inf
    return pods * (max(start - now, 0.0) if known else unknown), known
