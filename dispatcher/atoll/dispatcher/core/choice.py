"""Where a gang goes: whole into one member, in the tightest topology, where it leaves the least broken up.

Over several members only where its policy allows that and no single one holds all of it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from atoll.dispatcher.core.events import BindingView
from atoll.dispatcher.core.members import Member
from atoll.dispatcher.split import Division, divide_natively
from atoll.fit import Miss, Placement, place
from atoll.model.gang import Gang
from atoll.model.verdict import Blocker, Reason, Verdict


@dataclass(frozen=True, slots=True)
class Choice:
    """Where a gang goes."""

    members: tuple[Member, ...]
    gangs: tuple[Gang, ...]
    """Per member: the gang of its part; the whole where there is one."""
    placements: tuple[Placement, ...]
    """Per member: where its part is expected."""

    @property
    def divided(self) -> bool:
        return len(self.members) > 1

    def sentence(self) -> str:
        """For the story."""
        parts = []
        for member, gang, placement in zip(self.members, self.gangs, self.placements, strict=True):
            pods = f"{gang.replicas} pods to " if self.divided else "to "
            name = member.nodes.tree.domains[placement.domain].name if placement.domain is not None else ""
            parts.append(f"{pods}{member.name}" + (f", domain {name} expected" if name else ""))
        return "; ".join(parts)


def choose(binding: BindingView, members: Sequence[Member], avoided: Collection[str] = ()) -> Choice | Verdict:
    """Where the gang goes by the first of its cluster affinities that leads anywhere, or the verdict on the last.

    Members in `avoided` failed this shape lately.
    """
    outcome: Choice | Verdict = Verdict(Reason.NO_CLUSTER)
    for affinity in binding.affinities:
        matching = [member for member in members if member.accepts(affinity, binding.tolerations)]
        outcome = _choose(binding, matching, avoided)
        if isinstance(outcome, Choice):
            return outcome
    return outcome


def _choose(binding: BindingView, matching: Sequence[Member], avoided: Collection[str]) -> Choice | Verdict:
    """The best of these members, or the nearest miss.

    All replicas before only the minimum; then the nearest tier; then the member with the least left over; then its
    name.
    """
    gang = binding.gang
    if gang is None:
        return Verdict(Reason.INVALID_GANG)
    if not matching:
        return Verdict(Reason.NO_CLUSTER)
    ready = [member for member in matching if member.ready]
    if not ready:
        return Verdict(Reason.CLUSTERS_NOT_READY, Blocker("Cluster", matching[0].name))
    ready = [member for member in ready if member.name not in avoided]
    if not ready:
        return Verdict(Reason.AVOIDED, Blocker("Cluster", ", ".join(sorted(avoided))))
    found: list[tuple[tuple[object, ...], Choice]] = []
    misses: list[tuple[Member, Miss]] = []
    if binding.least_clusters <= 1:
        for member in ready:
            outcome = place(member.nodes, gang)
            if isinstance(outcome, Miss):
                misses.append((member, outcome))
            else:
                found.append((_preference(member, gang, outcome), Choice((member,), (gang,), (outcome,))))
    best = min(found, key=lambda each: each[0])[1] if found else None
    if binding.divided and (best is None or sum(best.placements[0].counts) < gang.replicas):
        division = divide_natively(
            gang,
            {member.name: member.nodes for member in ready},
            at_least=binding.least_clusters,
            at_most=binding.most_clusters,
        )
        if isinstance(division, Division):
            by_name = {member.name: member for member in ready}
            members = tuple(by_name[name] for name in division.clusters)
            return Choice(members, division.gangs, division.placements)
        if best is None:
            pods = Blocker(
                "Clusters", ", ".join(m.name for m in ready), "pods", str(division.requested), str(division.available)
            )
            return Verdict(Reason.INSUFFICIENT_RESOURCES, pods)
    return best or _nearest(misses)


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
