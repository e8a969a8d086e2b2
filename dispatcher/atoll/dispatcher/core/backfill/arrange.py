"""Where workloads with reservations in a member will be: beside each other, on its nodes as these will be then."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from atoll.dispatcher.core.backfill.reservation import Reservation, Spot
from atoll.fit import Nodes, Placement
from atoll.fit.place import find
from atoll.model.vector import Vector

Taken = tuple[Sequence[Vector], Placement, float]
"""(requests per task, where it runs, until when)."""
Future = Callable[[Reservation], Nodes]
"""The member's nodes when a reservation starts, without any; not changed."""
Plan = dict[Reservation, Spot]
"""What each of some reservations in a member finds there."""


def arrange(reservations: Sequence[Reservation], future: Future, taken: Taken | None = None) -> Plan:
    """Arrange all reservations of a member, each at its time.

    In their order, each where it was before if it fits there; where not all fit so, in the order in which they start.

    Args:
        reservations: in one member, the first rank first.
        future: the member's nodes then.
        taken: what runs there besides.
    """
    plan = _in_turn(reservations, future, taken)
    if is_whole(plan):
        return plan
    return in_order_of_starts(reservations, future, taken) or plan


def in_order_of_starts(reservations: Sequence[Reservation], future: Future, taken: Taken | None = None) -> Plan | None:
    """All of them in the order in which they start; None where one of them does not fit."""
    plan = _in_turn(sorted(reservations, key=lambda each: each.starts), future, taken)
    return plan if is_whole(plan) else None


def is_whole(plan: Plan) -> bool:
    """Whether each of them fits."""
    return all(spot.placement is not None for spot in plan.values())


def _in_turn(reservations: Sequence[Reservation], future: Future, taken: Taken | None) -> Plan:
    plan: Plan = {}
    for each in reservations:
        plan[each] = beside(each, plan, future, taken, reservations)
    return plan


def beside(
    reservation: Reservation,
    plan: Mapping[Reservation, Spot],
    future: Future,
    taken: Taken | None = None,
    others: Sequence[Reservation] = (),
) -> Spot:
    """Places for a reservation beside a plan's for other workloads. `others`: no claim takes their places."""
    nodes = future(reservation).copy()
    if taken is not None and not taken[2] + reservation.settings.settle <= reservation.at < math.inf:
        nodes.take(taken[0], taken[1])
    for other, spot in plan.items():
        if spot.placement is None or other.is_over_by(reservation.at) or other.uid == reservation.uid:
            continue
        if other.starts <= reservation.at:
            nodes.take(other.gang.requests(), _once(other, plan, spot.placement))
        elif other.at < reservation.at + reservation.lasts + reservation.settings.settle:
            np.minimum(nodes.free, spot.rest.free, out=nodes.free)
    placement = None
    if reservation.placement is not None:
        placement = find(nodes, reservation.gang, reservation.placement)
    if placement is None:
        free = nodes if not reservation.claim else _without(nodes, [o for o in others if o.age < reservation.age])
        placement = find(free, reservation.gang)
    if placement is None:
        return Spot(None, nodes)
    nodes.take(reservation.gang.requests(), placement)
    return Spot(placement, nodes)


def _without(nodes: Nodes, others: Sequence[Reservation]) -> Nodes:
    """Nodes without the places of others: a claim starts before them, and takes no place that they had earlier."""
    nodes = nodes.copy()
    for other in others:
        if not other.claim and other.placement is not None:
            pods = [each for each in other.placement.pods if each[1] < len(nodes)]
            nodes.take(other.gang.requests(), replace(other.placement, pods=pods))
    return nodes


def _once(reservation: Reservation, plan: Mapping[Reservation, Spot], placement: Placement) -> Placement:
    """What a reservation takes that a claim of the same workload does not take already."""
    claim = next(
        (each for each in plan if each.claim and each.uid == reservation.uid and each is not reservation), None
    )
    claimed = plan[claim].placement if claim is not None else None
    if claimed is None:
        return placement
    there = {(task, node): count for task, node, count in claimed.pods}
    pods = [(task, node, count - there.get((task, node), 0)) for task, node, count in placement.pods]
    return replace(placement, pods=[each for each in pods if each[2] > 0])
