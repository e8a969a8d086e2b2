"""The quota tree from what the host's objects say, computed by the dispatcher's own code: what a queue may use now,
what it is entitled to, and who borrows from whom.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from atoll.cli.bindings import QueueUse, readable
from atoll.dispatcher import objects
from atoll.dispatcher.capacity import capacity_view
from atoll.dispatcher.core.events import BindingView
from atoll.dispatcher.core.node import Node
from atoll.dispatcher.core.tree import Tree
from atoll.model import gang as gangs
from atoll.model import quantity, vector
from atoll.model.reports import BadReport
from atoll.model.vector import Vector

Json = dict[str, Any]


def build(
    queues: Iterable[Json], bindings: Iterable[BindingView], clusters: Iterable[Json], capacities: Iterable[Json]
) -> Tree:
    """The tree with all that is charged and waits, as the dispatcher has it.

    Args:
        queues: all Queue objects.
        bindings: all of the federation.
        clusters: all Cluster objects.
        capacities: all ClusterCapacity objects.
    """
    tree = Tree()
    tree.set_queues(objects.queue_view(item) for item in readable(queues, objects.QueueObject))
    totals: defaultdict[str, Vector] = defaultdict(dict)
    for capacity in readable(capacities, objects.CapacityObject):
        with suppress(BadReport):
            view = capacity_view(capacity)
            vector.add(totals[view.cluster], view.total)
    tree.set_members(
        {
            item["metadata"]["name"]: (totals[item["metadata"]["name"]], item["metadata"].get("labels") or {})
            for item in clusters
        }
    )
    for binding in bindings:
        gang = binding.gang
        if gang is None or binding.finished:
            continue
        node, amount = tree.node(gang.queue), gang.total()
        if binding.decision.phase.charged:
            parts = gangs.divide(gang, [counts for _, counts in binding.parts])
            tree.charge(
                node, amount, {name: part.total() for (name, _), part in zip(binding.parts, parts, strict=True)}
            )
        elif not gang.hold:
            tree.wait(node, amount)
    return tree


def resources(node: Node) -> list[Json]:
    """One line per resource that is used, limited or promised: quantities as text, `share` of the limit."""
    named = {*node.limit, *node.guarantee, *(node.view.deserved if node.view else ())}
    if not (node.view and "pods" in {**node.view.capability, **node.view.deserved, **node.view.guarantee}):
        # Every workload has some, and every node allows some.
        named.discard("pods")
    named |= node.used.keys() - {"pods"}
    deserved = node.deserved
    result = []
    for name in sorted(named):
        used = node.used.get(name, 0)
        line: Json = {"resource": name, "used": quantity.format_units(name, used)}
        for key, amounts in (("limit", node.limit), ("deserved", deserved), ("guarantee", node.guarantee)):
            if name in amounts:
                line[key] = quantity.format_units(name, amounts[name])
        if node.view and name in node.view.capability:
            line["capability"] = quantity.format_units(name, node.view.capability[name])
        if name in node.limit:
            line["share"] = round(used / node.limit[name], 3) if node.limit[name] > 0 else float(used > 0)
        if borrowed := _borrowed(node, name):
            line["borrowed"], line["lenders"] = quantity.format_units(name, borrowed), _lenders(node, name)
        result.append(line)
    return result


def branch(node: Node, use: dict[str, QueueUse]) -> Json:
    """A queue and all below it.

    Args:
        node: the queue.
        use: counts per queue.
    """
    held = use.get(node.name)
    data: Json = {
        "name": node.name,
        "pending": held.pending if held else 0,
        "running": held.running if held else 0,
        "resources": resources(node),
    }
    if node.problem:
        data["problem"] = node.problem
    if node.children:
        data["children"] = [branch(node.children[name], use) for name in sorted(node.children)]
    return data


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
