"""Where a gang goes: whole into one member, in the tightest topology, where it leaves the least broken up.

Over several members only where its policy allows that and no single one holds all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atoll.dispatcher.core.capacity.members import Members
from atoll.dispatcher.core.capacity.shape import Shape
from atoll.dispatcher.core.placement.choice import Choice, alone
from atoll.dispatcher.core.placement.ranking import ranked
from atoll.dispatcher.core.placement.rules import ANYWHERE, Rules
from atoll.dispatcher.core.placement.sharing import share
from atoll.dispatcher.split import Division, Short, divide_as, divide_natively, sets_of
from atoll.fit import Placement, place
from atoll.model.gang import Gang
from atoll.model.verdict import Blocker, Reason, Verdict


def choose(shape: Shape, gang: Gang, members: Members, rules: Rules = ANYWHERE) -> Choice | Verdict:
    """Where the gang goes by the first of its cluster affinities that leads anywhere, or the verdict on the last.

    Args:
        shape: of the gang; enrolled.
        gang: the pods to place; equal to the shape's but for its names.
        members: up to date; not changed.
        rules: asked to settle each choice, the best first. When they refuse all, the verdict is WouldDelay unless each
            exceeds a ceiling.
    """
    verdict = Verdict(Reason.NO_CLUSTER)
    for affinity, allowed in zip(shape.affinities, members.table.allowed(shape), strict=True):
        outcome = _choose(shape, gang, members, rules.serves(allowed), rules, affinity)
        if isinstance(outcome, Choice):
            return outcome
        verdict = outcome
    if verdict.reason is Reason.NO_CLUSTER:
        return _unfit(shape, gang, members) or verdict
    return verdict


def _unfit(shape: Shape, gang: Gang, members: Members) -> Verdict | None:
    """Why each member that its policy allows is unfit for it, as of the first by name; None where one is not."""
    allowed = [
        member
        for member in members.table.order
        if any(member.accepts(affinity, shape.tolerations) for affinity in shape.affinities)
    ]
    found = [member.unfit(gang) for member in allowed]
    return found[0][0] if found and found[0] is not None and None not in found else None


def _choose(
    shape: Shape,
    gang: Gang,
    members: Members,
    matching: NDArray[np.bool_],
    rules: Rules,
    affinity: Mapping[str, Any],
) -> Choice | Verdict:
    """The best of these members, or the nearest miss."""
    table = members.table
    ready = matching & table.ready
    if not np.count_nonzero(ready):
        if not matching.any():
            return Verdict(Reason.NO_CLUSTER)
        return Verdict(Reason.CLUSTERS_NOT_READY, Blocker("Cluster", table.order[int(matching.argmax())].name))
    if rules.avoided:
        ready = ready & np.array([member.name not in rules.avoided for member in table.order], np.bool_)
        if not ready.any():
            return Verdict(Reason.AVOIDED, Blocker("Cluster", ", ".join(sorted(rules.avoided))))
    if shape.sharing is not None:
        return share(shape, gang, members, ready, affinity, rules)
    refused: list[Choice] = []
    kept, small = False, None
    if shape.least_clusters <= 1:
        for member in ranked(shape, members, ready, rules):
            if not shape.divided and rules.bars(member):
                kept = True
                continue
            placement = table.find(member, shape, gang)
            if placement is None:
                continue
            choice = alone(shape, gang, member, placement)
            if shape.divided and sum(placement.counts) < gang.replicas:
                # Perhaps all replicas fit over several members, which is better than the minimum in one.
                small = small or choice
                continue
            if (settled := rules.settle(choice)) is not None:
                return settled
            refused.append(choice)
    if shape.divided:
        rows = table.counts[list(shape.rows)]
        columns = np.flatnonzero(ready & (rows > 0).all(axis=0))
        able = [table.order[column] for column in columns]
        sets, total = sets_of(gang), gang.total()
        unit = {name: amount // sets for name, amount in total.items()}
        # Where every choice is permitted there are no ceilings.
        capped = [] if rules.permit_all else able
        ceilings = {member.name: most for member in capped if (most := rules.times(member, unit, sets)) < sets}
        places = {member.name: member.place for member in able}

        def divided(ceilings: Mapping[str, int]) -> Division | Short:
            return divide_natively(
                gang,
                {member.name: member.nodes for member in able},
                at_least=shape.least_clusters,
                at_most=shape.most_clusters,
                room=lambda name: table.room(members.by_name[name], shape),
                held=dict(zip((member.name for member in able), rows[:, columns].T.tolist(), strict=True)),
                ceilings=ceilings,
                places=places,
            )

        division: Division | Short | None
        shares = rules.shares(gang, able, rows[:, columns], ceilings)
        division = divide_as(gang, shares, {name: members.by_name[name].nodes for name in shares}) if shares else None
        if division is None:
            division = divided(ceilings)
        if isinstance(division, Short) and ceilings:
            # What stops it are the ceilings, if it would fit without.
            division = divided({})
        if isinstance(division, Division):
            choice = Choice(tuple(members.by_name[n] for n in division.clusters), division.gangs, division.placements)
            if (settled := rules.settle(choice)) is not None:
                return settled
            refused.append(choice)
        elif (
            small is None
            and not refused
            and any(table.rows.accepts(table.order[column], shape) for column in np.flatnonzero(ready))
        ):
            names = ", ".join(table.order[column].name for column in np.flatnonzero(ready))
            pods = Blocker("Clusters", names, "pods", str(division.requested), str(division.available))
            return Verdict(Reason.INSUFFICIENT_RESOURCES, pods)
    if small is not None:
        if (settled := rules.settle(small)) is not None:
            return settled
        refused.append(small)
    if kept or refused:
        first, *others = [None] if kept else [rules.capped(choice) for choice in refused]
        return Verdict(Reason.WOULD_DELAY) if first is None or None in others else first
    return _nearest(shape, gang, members, ready)


def _nearest(shape: Shape, gang: Gang, members: Members, ready: NDArray[np.bool_]) -> Verdict:
    """The verdict from the member that came nearest."""
    table = members.table
    if shape.limited:
        known = ready & np.array([member.has_domain(gang.network_topology) for member in table.order], np.bool_)
        if not known.any():
            return _without_topology(members, ready)
        ready = known
    rows = table.counts[list(shape.rows)]
    held = np.minimum(rows, np.array(shape.floor)[:, None]).sum(axis=0)
    # Of members that hold as many, one that would take it if it were empty.
    nearest = [int(column) for column in np.argsort(-held, kind="stable") if ready[column]]
    accepting = next((column for column in nearest if table.rows.accepts(table.order[column], shape)), None)
    column = nearest[0] if accepting is None else accepting
    member, wanted = table.order[column], sum(shape.floor)
    aligned = any(task.aligned for task in gang.tasks)
    if accepting is not None and not (shape.limited or aligned) and held[column] < wanted:
        pods = Blocker("Cluster", member.name, "pods", str(wanted), str(held[column]))
        return Verdict(Reason.INSUFFICIENT_RESOURCES, pods)
    miss = place(member.nodes, gang, room=table.room(member, shape))
    if isinstance(miss, Placement):
        # Its policy wants more clusters than one, and does not let it be divided.
        return Verdict(Reason.NO_CLUSTER)
    # Reasons that its figures of free amounts don't show.
    why = miss.sentence() if miss.apart or miss.by_numa or miss.empty else ""
    if miss.reason is Reason.NO_NODE_MATCHES:
        return Verdict(miss.reason, Blocker("Cluster", member.name, message=why))
    kind, name = ("Domain", f"{member.name}/{miss.domain}") if miss.domain else ("Cluster", member.name)
    return Verdict(miss.reason, Blocker(kind, name, "pods", str(miss.requested), str(miss.available), message=why))


def _without_topology(members: Members, ready: NDArray[np.bool_]) -> Verdict:
    """None of the ready members has a domain that would do; one whose HyperNodes are wrong should have one."""
    able = [member for member, is_ready in zip(members.table.order, ready.tolist(), strict=True) if is_ready]
    wrong = [(member, member.problems[0][0]) for member in able if member.problems]
    if wrong:
        member, name = wrong[0]
        return Verdict(Reason.TOPOLOGY_INVALID, Blocker("HyperNode", f"{member.name}/{name}"))
    return Verdict(Reason.NO_TOPOLOGY, Blocker("Cluster", able[0].name) if len(able) == 1 else None)
