"""Own wishes that a blocked workload could give up to start now: each is tried on the nodes as they
are, so that each is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from atoll.dispatcher.core.capacity.member import Member
from atoll.model import keys
from atoll.model.gang import Gang, Task
from atoll.model.query import Change, ChangeKind

Fits = Callable[[Member, Gang], bool]


def relaxations(
    gang: Gang, members: Sequence[Member], excluded: Sequence[tuple[Member, str]], fits: Fits
) -> Iterator[Change]:
    """Changes of which each one lets it start, the least consequence first.

    Args:
        gang: that does not fit.
        members: that it may use, the nearest first.
        excluded: that it may not use, and what would have to be otherwise for that.
        fits: whether a gang fits in a member, and would delay no reservation there.
    """
    yield from _tiers(gang, members, fits)
    if gang.apart is not None and gang.apart.mode == "hard":
        soft = msgspec.structs.replace(gang.apart, mode="soft")
        if found := _first(msgspec.structs.replace(gang, apart=soft), members, fits):
            yield Change(ChangeKind.WISH, f"{keys.APART_MODE}: soft; cluster {found.name} has room for it then", True)
    for member, otherwise in excluded:
        if fits(member, gang):
            yield Change(ChangeKind.POLICY, f"{otherwise}: cluster {member.name} has room for it", True)
    yield from _pods(gang, members, fits)


def _tiers(gang: Gang, members: Sequence[Member], fits: Fits) -> Iterator[Change]:
    wish = gang.network_topology
    if wish is None or not wish.limited:
        return
    trees = {member: member.nodes.tree for member in members}
    above = {tier for tree in trees.values() for tier in tree.tiers if tier > (tree.ceiling(wish) or 0)}
    for tier in sorted(above):
        wider = msgspec.structs.replace(wish, highest_tier_allowed=tier, highest_tier_name=None)
        if member := _first(msgspec.structs.replace(gang, network_topology=wider), members, fits):
            text = f"a highestTierAllowed of {tier}: cluster {member.name} has room for it in a domain of that tier"
            yield Change(ChangeKind.WISH, text, True)
            return
    if member := _first(msgspec.structs.replace(gang, network_topology=None), members, fits):
        yield Change(ChangeKind.WISH, f"no networkTopology: cluster {member.name} has room for it then", True)


def _pods(gang: Gang, members: Sequence[Member], fits: Fits) -> Iterator[Change]:
    def free(task: Task) -> Task:
        return msgspec.structs.replace(task, node_selector={}, node_terms=[])

    def tolerant(task: Task) -> Task:
        return msgspec.structs.replace(task, tolerations=[*task.tolerations, {"operator": "Exists"}])

    if any(task.node_selector or task.node_terms for task in gang.tasks):
        loose = msgspec.structs.replace(gang, tasks=[free(task) for task in gang.tasks])
        if member := _first(loose, members, fits):
            text = f"pods without nodeSelector and node affinity: cluster {member.name} has room for them"
            yield Change(ChangeKind.WISH, text, True)
    loose = msgspec.structs.replace(gang, tasks=[tolerant(task) for task in gang.tasks])
    if member := _first(loose, members, fits):
        yield Change(ChangeKind.WISH, f"tolerations of the taints of nodes in cluster {member.name}", True)


def _first(gang: Gang, members: Sequence[Member], fits: Fits) -> Member | None:
    return next((member for member in members if fits(member, gang)), None)
