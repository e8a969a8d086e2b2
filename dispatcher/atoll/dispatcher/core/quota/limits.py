"""Consequences of a queue's declaration: its limit, guarantee, entitlement and problems.

Apart from the tree because these figures depend on queues and members alone, never on use.
"""

from __future__ import annotations

from collections.abc import Mapping

from atoll.dispatcher.core.quota.queue import Queue
from atoll.model import queues, vector
from atoll.model.flavors import SIGN
from atoll.model.selectors import label_selector_matches
from atoll.model.vector import Vector
from atoll.model.weighted_shares import entitlement, real_capability

Totals = Mapping[str, tuple[Vector, Mapping[str, str]]]
"""Member -> (allocatable total, labels); an empty total is an unknown one."""


def guarantee_of(queue: Queue) -> Vector:
    """Amount reserved for a queue among its siblings."""
    # In a circle it has no place in the tree from which it could take a guarantee away from others.
    if queue.view is None or queue.circle:
        return {}
    return queues.reserved(queue.view.guarantee, queue.view.capability)


def compute(queue: Queue, members: Totals) -> tuple[bool, bool]:
    """Set what follows from the views, the members and the parent; the children's guarantees are already set.

    Returns whether what only its children see changed, and whether what others see did.
    """
    before = (queue.limit, queue.guarantee, queue.declared, queue.problem, queue.serving, queue.closed)
    shaped = (queue.pledged, queue.claimed, queue.divided)
    up, said = queue.parent, queue.said
    queue.pledged = vector.total(child.guarantee for child in queue.children.values())
    queue.claimed = tuple(sorted({name for child in queue.children.values() for name in child.said.deserved}))
    queue.closed = (up is not None and up.closed) or not said.open
    queue.serving = _serving(queue, members)
    total = queue.total = _total(queue, members)
    if up is None:
        queue.guarantee = queue.pledged
        queue.limit = vector.lower(said.capability, total)
        queue.declared = queue.entitled = queue.limit
        shared: tuple[str, ...] = ()
    else:
        queue.limit = _limit(queue, up, said.capability, total)
        queue.declared = _declared(queue, up)
        queue.problem = _problem(queue, up)
        shared = (*up.claimed, *up.divided)
    # Of a flavor that no queue deserves nothing is due: its resource is divided already.
    divided = {*queue.limit, *shared}.difference(queue.claimed)
    queue.divided = tuple(sorted(name for name in divided if SIGN not in name))
    for each in (queue, up):
        if each is not None:
            each.stale, each.divided_from = True, None
            each.unrank()
    outer = before != (queue.limit, queue.guarantee, queue.declared, queue.problem, queue.serving, queue.closed)
    inner = shaped != (queue.pledged, queue.claimed, queue.divided)
    return inner, outer


def _serving(queue: Queue, members: Totals) -> frozenset[str] | None:
    above = queue.parent.serving if queue.parent else None
    said = queue.said
    if not (said.members or said.affinity):
        return above
    return frozenset(
        name
        for name, (_, labels) in members.items()
        if (above is None or name in above)
        and (not said.members or name in said.members)
        and (not said.affinity or label_selector_matches(said.affinity, labels))
    )


def _total(queue: Queue, members: Totals) -> Vector:
    """What the members that serve it have; empty where that is unknown."""
    if not members:
        return {}
    if queue.parent is not None and queue.serving == queue.parent.serving:
        return queue.parent.total
    totals = [total for name, (total, _) in members.items() if queue.serving is None or name in queue.serving]
    if not all(totals):
        return {}
    # What only other members have is not unlimited here, it is zero.
    everywhere = dict.fromkeys((name for total, _ in members.values() for name in total), 0)
    return {**everywhere, **vector.total(totals)}


def _limit(queue: Queue, up: Queue, capability: Vector, total: Vector) -> Vector:
    limit: Vector = {}
    for name in {**up.limit, **capability}:
        value = real_capability(
            capability.get(name), up.limit.get(name), up.pledged.get(name, 0), queue.guarantee.get(name, 0)
        )
        if value is not None:
            limit[name] = value
    return vector.lower(limit, total)


def _declared(queue: Queue, up: Queue) -> Vector:
    names = {**dict.fromkeys(up.claimed, 0), **queue.guarantee}
    return {
        name: entitlement(queue.said.deserved.get(name, 0), queue.limit.get(name), queue.guarantee.get(name, 0))
        for name in names
    }


def _problem(queue: Queue, up: Queue) -> str:
    view = queue.view
    if view is None:
        return up.problem
    if view.problem:
        return f"queue {queue.name}: {view.problem}"
    if queue.circle:
        return f"queue {queue.name}: its parents form a circle: {' -> '.join((*queue.circle, queue.name))}"
    if up.view is None and up.parent is not None:
        return f"queue {queue.name}: its parent {up.name} does not exist"
    if over := queues.over_capability(view.guarantee, view.capability):
        return f"queue {queue.name}: it is guaranteed {over} of its capability"
    if over := queues.over_guarantee(queue.pledged, queue.guarantee):
        return f"queue {queue.name}: the queues below it are guaranteed {over} of its own guarantee"
    return up.problem
