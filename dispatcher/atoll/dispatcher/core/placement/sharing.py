"""Where a workload goes that its policy shares out in one of Karmada's ways: a copy for each member, by weights, over
regions, or in overflow tiers.

Replicas of Karmada's scheduler are sets here (`sets_of`): for one task they are its pods. Unlike
there, all of it is placed or nothing: parts that weights give to a member that can't take them wait. Copies go to the
members that can take all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atoll.dispatcher.core.capacity.member import Member
from atoll.dispatcher.core.capacity.members import Members
from atoll.dispatcher.core.capacity.shape import Shape
from atoll.dispatcher.core.placement.choice import Choice
from atoll.dispatcher.core.placement.rules import Rules
from atoll.dispatcher.split import Division, divide_as, karmada, sets_of
from atoll.dispatcher.split.native import most_sets
from atoll.dispatcher.split.shared import shares
from atoll.model.gang import Gang
from atoll.model.verdict import Blocker, Reason, Verdict

Json = Mapping[str, Any]


def share(
    shape: Shape, gang: Gang, members: Members, ready: NDArray[np.bool_], affinity: Json, rules: Rules
) -> Choice | Verdict:
    """Where the gang of a shape with `sharing` goes, or why it does not.

    Args:
        shape: enrolled.
        gang: equal to the shape's but for its names.
        members: up to date.
        ready: bool[members] that may take it, one at least.
        affinity: the cluster affinity by which they may.
        rules: asked to settle the choice.
    """
    able = [members.table.order[column] for column in np.flatnonzero(ready)]
    room = {member.name: _room(shape, gang, member, members, rules) for member in able}
    assert shape.sharing is not None, "this shape is divided natively"
    found = shares(gang, shape.sharing, [offer(member, room[member.name]) for member in able], affinity)
    if isinstance(found, Verdict):
        return found
    choice = _placed(shape, gang, members, found, room)
    if isinstance(choice, Verdict):
        return choice
    return rules.settle(choice) or rules.capped(choice) or Verdict(Reason.WOULD_DELAY)


def offer(member: Member, room: int) -> karmada.Candidate:
    """A member that can take so many further sets, as Karmada's ways ask for it."""
    view = member.view
    assert view is not None, f"{member.name} has no Cluster and takes nothing"
    fields = {name: [each for each in values if each] for name, values in view.fields.items()}
    return karmada.Candidate(member.name, room, room, labels=view.labels, fields=fields)


def _room(shape: Shape, gang: Gang, member: Member, members: Members, rules: Rules) -> int:
    """Sets of the gang that a member can take, by its nodes and by ceilings of queues there."""
    sets = sets_of(gang)
    unit = [task.replicas // sets for task in gang.tasks]
    counts = members.table.counts[list(shape.rows), members.table.column(member.name)].tolist()
    room = min((held // each for held, each in zip(counts, unit, strict=True) if each), default=0)
    if room and (len(unit) > 1 or shape.limited or member.nodes.in_turn(gang)):
        # Tasks beside each other, or in one domain, or on nodes one by one: what each of them finds says too much.
        room = most_sets(gang, unit, member.nodes, members.table.room(member, shape), min(room, sets))
    return rules.times(member, {name: amount // sets for name, amount in gang.total().items()}, room)


def _placed(
    shape: Shape, gang: Gang, members: Members, found: Mapping[str, int], room: Mapping[str, int]
) -> Choice | Verdict:
    """The shares on the nodes of their members."""
    sets, names = sets_of(gang), sorted(found)
    pods = gang.replicas // sets
    for name in names:
        if found[name] > room[name]:
            block = Blocker("Cluster", name, "pods", str(found[name] * pods), str(room[name] * pods))
            return Verdict(Reason.INSUFFICIENT_RESOURCES, block)
    division: Division | None
    if gang.copies or len(names) == 1:
        placements = [members.table.find(members.by_name[name], shape, gang) for name in names]
        whole = tuple(each for each in placements if each is not None)
        division = Division(tuple(names), (gang,) * len(names), whole) if len(whole) == len(names) else None
    else:
        division = divide_as(gang, found, {name: members.by_name[name].nodes for name in names})
    if division is None:
        return Verdict(Reason.INSUFFICIENT_RESOURCES, Blocker("Clusters", ", ".join(names)))
    return Choice(tuple(members.by_name[name] for name in names), division.gangs, division.placements)
