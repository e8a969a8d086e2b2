"""What a queue uses and may use, resource by resource, as text: for the query API and for `atollctl queue describe`."""

from __future__ import annotations

from atoll.dispatcher.core.node import Node
from atoll.model import quantity
from atoll.model.query import Figure
from atoll.model.vector import Vector


def figures(node: Node) -> list[Figure]:
    """One for each resource that is used, limited or promised; pods only where somebody limits them."""
    declared = {*node.view.capability, *node.view.deserved} if node.view else set()
    # Where no member serves it there is nothing of all that is not declared.
    named = {*(() if node.serving == frozenset() else node.limit), *node.guarantee, *declared}
    if not (node.view and "pods" in {**node.view.capability, **node.view.deserved, **node.view.guarantee}):
        # Every workload has some, and every node allows some.
        named.discard("pods")
    named |= node.used.keys() - {"pods"}
    deserved = node.deserved
    result = []
    for name in sorted(named):
        used = node.used.get(name, 0)
        share = None
        if name in node.limit:
            share = round(used / node.limit[name], 3) if node.limit[name] > 0 else float(used > 0)
        borrowed = _borrowed(node, name)
        result.append(
            Figure(
                name,
                quantity.format_units(name, used),
                limit=_text(node.limit, name),
                deserved=_text(deserved, name),
                guarantee=_text(node.guarantee, name),
                capability=_text(node.view.capability, name) if node.view else "",
                share=share,
                borrowed=quantity.format_units(name, borrowed) if borrowed else "",
                lenders=_lenders(node, name) if borrowed else [],
            )
        )
    return result


def _text(amounts: Vector, name: str) -> str:
    return quantity.format_units(name, amounts[name]) if name in amounts else ""


def _borrowed(node: Node, name: str) -> int:
    """What it uses beyond its entitlement."""
    deserved = node.deserved
    return max(0, node.used.get(name, 0) - deserved[name]) if name in deserved and node.parent is not None else 0


def _lenders(node: Node, name: str) -> list[str]:
    """Who leaves unused what this queue borrows: its siblings, else those of the nearest queue above that has such."""
    up: Node | None = node
    while up is not None and up.parent is not None:
        spare = {
            each.name: each.deserved[name] - each.used.get(name, 0)
            for each in up.parent.children.values()
            if each is not up and name in each.deserved
        }
        found = sorted((-amount, lender) for lender, amount in spare.items() if amount > 0)
        if found:
            return [lender for _, lender in found]
        up = up.parent
    return []
