"""Which member takes a gang: whole, in the tightest topology, where it leaves the least broken up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from atoll.dispatcher.core.events import BindingView
from atoll.dispatcher.core.members import Member
from atoll.fit import Miss, Placement, place
from atoll.model.gang import Gang
from atoll.model.verdict import Blocker, Reason, Verdict


@dataclass(frozen=True, slots=True)
class Choice:
    """A member and where in it the gang is expected."""

    member: Member
    placement: Placement

    def sentence(self) -> str:
        """For the story."""
        domain = self.placement.domain
        where = f", domain {self.member.nodes.tree.domains[domain].name} expected" if domain is not None else ""
        return f"to {self.member.name}{where}"


def choose(binding: BindingView, members: Sequence[Member]) -> Choice | Verdict:
    """The best member that holds the gang, or the nearest miss.

    All replicas before only the minimum; then the nearest tier; then the member with the least left over; then its
    name.
    """
    gang = binding.gang
    if gang is None:
        return Verdict(Reason.INVALID_GANG)
    matching = [member for member in members if member.accepts(binding)]
    if not matching:
        return Verdict(Reason.NO_CLUSTER)
    ready = [member for member in matching if member.ready]
    if not ready:
        return Verdict(Reason.CLUSTERS_NOT_READY, Blocker("Cluster", matching[0].name))
    found: list[tuple[tuple[object, ...], Choice]] = []
    misses: list[tuple[Member, Miss]] = []
    for member in ready:
        outcome = place(member.nodes, gang)
        if isinstance(outcome, Miss):
            misses.append((member, outcome))
        else:
            found.append((_preference(member, gang, outcome), Choice(member, outcome)))
    if found:
        return min(found, key=lambda each: each[0])[1]
    return _nearest(misses)


def _preference(member: Member, gang: Gang, placement: Placement) -> tuple[object, ...]:
    tier = placement.tier if placement.tier is not None else 10**6
    return (-sum(placement.counts), tier, _left_over(member, gang), member.name)


def _left_over(member: Member, gang: Gang) -> int:
    """Pods of the gang's first task that the member still holds: small is tight."""
    return int(member.nodes.room(gang.tasks[0].requests).sum())


def _nearest(misses: Sequence[tuple[Member, Miss]]) -> Verdict:
    """The verdict from the member that came nearest."""
    member, miss = min(misses, key=lambda each: (each[1].requested - each[1].available, each[0].name))
    if miss.reason is Reason.NO_NODE_MATCHES:
        return Verdict(miss.reason, Blocker("Cluster", member.name))
    kind, name = ("Domain", f"{member.name}/{miss.domain}") if miss.domain else ("Cluster", member.name)
    return Verdict(miss.reason, Blocker(kind, name, "pods", str(miss.requested), str(miss.available)))
