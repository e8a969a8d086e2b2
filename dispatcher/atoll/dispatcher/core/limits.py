"""What follows for a queue from what is declared: its limit, its guarantee, its entitlement, what is wrong with it.

Apart from the tree because these figures depend on queues and members alone, never on what is used.
"""

from __future__ import annotations

from collections.abc import Mapping

from atoll.dispatcher.core.node import Node
from atoll.dispatcher.core.shares import entitlement, real_capability
from atoll.model import queues, vector
from atoll.model.flavors import SIGN
from atoll.model.selectors import label_selector_matches
from atoll.model.vector import Vector

Members = Mapping[str, tuple[Vector, Mapping[str, str]]]
"""Member -> (allocatable total, labels); an empty total is an unknown one."""


def guarantee_of(node: Node) -> Vector:
    """What is reserved for a queue among its siblings."""
    # In a circle it has no place in the tree from which it could take a guarantee away from others.
    if node.view is None or node.circle:
        return {}
    return queues.reserved(node.view.guarantee, node.view.capability)


def compute(node: Node, members: Members) -> tuple[bool, bool]:
    """Set what follows from the views, the members and the parent; the children's guarantees are already set.

    Returns whether what only its children see changed, and whether what others see did.
    """
    before = (node.limit, node.guarantee, node.declared, node.problem, node.serving, node.closed)
    shaped = (node.pledged, node.claimed, node.divided)
    up, view = node.parent, node.view
    views = [child.view for child in node.children.values() if child.view is not None]
    node.pledged = vector.total(child.guarantee for child in node.children.values())
    node.claimed = tuple(sorted({name for each in views for name in each.deserved}))
    node.closed = (up is not None and up.closed) or (view is not None and not view.open)
    node.serving = _serving(node, members)
    total = node.total = _total(node, members)
    capability = view.capability if view else {}
    if up is None:
        node.guarantee = node.pledged
        node.limit = vector.lower(capability, total)
        node.declared = node.entitled = node.limit
        shared: tuple[str, ...] = ()
    else:
        node.limit = _limit(node, up, capability, total)
        node.declared = _declared(node, up)
        node.problem = _problem(node, up)
        shared = (*up.claimed, *up.divided)
    # Of a flavor that nobody deserves nothing is due: its resource is divided already.
    divided = {*node.limit, *shared}.difference(node.claimed)
    node.divided = tuple(sorted(name for name in divided if SIGN not in name))
    for each in (node, up):
        if each is not None:
            each.stale, each.divided_from = True, None
            each.unrank()
    outer = before != (node.limit, node.guarantee, node.declared, node.problem, node.serving, node.closed)
    inner = shaped != (node.pledged, node.claimed, node.divided)
    return inner, outer


def _serving(node: Node, members: Members) -> frozenset[str] | None:
    above = node.parent.serving if node.parent else None
    view = node.view
    if view is None or not (view.members or view.affinity):
        return above
    return frozenset(
        name
        for name, (_, labels) in members.items()
        if (above is None or name in above)
        and (not view.members or name in view.members)
        and (not view.affinity or label_selector_matches(view.affinity, labels))
    )


def _total(node: Node, members: Members) -> Vector:
    """What the members that serve it have; empty where that is unknown."""
    if not members:
        return {}
    if node.parent is not None and node.serving == node.parent.serving:
        return node.parent.total
    totals = [total for name, (total, _) in members.items() if node.serving is None or name in node.serving]
    if not all(totals):
        return {}
    # What only other members have is not unlimited here, it is zero.
    everywhere = dict.fromkeys((name for total, _ in members.values() for name in total), 0)
    return {**everywhere, **vector.total(totals)}


def _limit(node: Node, up: Node, capability: Vector, total: Vector) -> Vector:
    limit: Vector = {}
    for name in {**up.limit, **capability}:
        value = real_capability(
            capability.get(name), up.limit.get(name), up.pledged.get(name, 0), node.guarantee.get(name, 0)
        )
        if value is not None:
            limit[name] = value
    return vector.lower(limit, total)


def _declared(node: Node, up: Node) -> Vector:
    wish = node.view.deserved if node.view else {}
    names = {**dict.fromkeys(up.claimed, 0), **node.guarantee}
    return {name: entitlement(wish.get(name, 0), node.limit.get(name), node.guarantee.get(name, 0)) for name in names}


def _problem(node: Node, up: Node) -> str:
    view = node.view
    if view is None:
        return up.problem
    if view.problem:
        return f"queue {node.name}: {view.problem}"
    if node.circle:
        return f"queue {node.name}: its parents form a circle: {' -> '.join((*node.circle, node.name))}"
    if up.view is None and up.parent is not None:
        return f"queue {node.name}: its parent {up.name} does not exist"
    if over := queues.over_capability(view.guarantee, view.capability):
        return f"queue {node.name}: it is guaranteed {over} of its capability"
    if over := queues.over_guarantee(node.pledged, node.guarantee):
        return f"queue {node.name}: the queues below it are guaranteed {over} of its own guarantee"
    return up.problem
