"""The quota tree from what the host's objects say, computed by the dispatcher's own code: what a queue may use now,
what it is entitled to, and who borrows from whom.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from atoll.cli.bindings import QueueUse, charges, readable
from atoll.dispatcher import objects
from atoll.dispatcher.capacity import believed
from atoll.dispatcher.core.events import BindingView, QueueView
from atoll.dispatcher.core.node import Node, path, subtree
from atoll.dispatcher.core.tree import Tree
from atoll.model import keys, quantity, vector
from atoll.model.vector import Vector

Json = dict[str, Any]

OPEN = "Open"


def mapping(value: Any) -> Json:
    """What should be a mapping, and need not be one in an object that is older than the checks of its CRD."""
    return value if isinstance(value, dict) else {}


def own_state(queue: Json) -> str:
    """The state of a queue itself, whatever is above it."""
    if queue["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return str(mapping(queue.get("status")).get("state") or OPEN)


def states(queues: Sequence[Json]) -> dict[str, str]:
    """Queue -> its state; of one that is open and takes nothing all the same, why that is in brackets.

    Args:
        queues: all Queue objects.
    """
    tree = build(queues, (), (), ())
    own = {queue["metadata"]["name"]: own_state(queue) for queue in queues}

    def state(name: str) -> str:
        node = tree.nodes[name]
        if own[name] != OPEN:
            return own[name]
        if node.problem:
            return f"{OPEN} (invalid)"
        above = next((each.name for each in path(node) if own.get(each.name, OPEN) != OPEN), "")
        return f"{OPEN} ({above} is {own[above]})" if above else OPEN

    return {name: state(name) for name in own}


def missing_members(node: Node, clusters: Iterable[Json]) -> list[str]:
    """Members that a queue names and that do not exist.

    Args:
        node: the queue.
        clusters: all Cluster objects.
    """
    there = {cluster["metadata"]["name"] for cluster in clusters}
    return sorted(set(node.view.members) - there) if node.view is not None else []


def leaves(node: Node) -> list[str]:
    """Names of the queues below one that workloads may go to."""
    return sorted(each.name for each in subtree(node) if each is not node and not each.children)


def unserved(node: Node) -> str:
    """That no member has the labels that a queue, or one above it, asks for, and what to do; else empty."""
    first = next((each for each in reversed([*path(node)]) if each.serving == frozenset()), None)
    if first is None or first.view is None or not first.view.affinity:
        return ""
    return (
        f"no member matches the selector of queue {first.name} ({selector_text(first.view.affinity)}): label one"
        " (kubectl label cluster NAME KEY=VALUE), or select others (atollctl queue update"
        f" {first.name} --clusters SELECTOR)"
    )


def selector_text(selector: Mapping[str, Any]) -> str:
    """A label selector as kubectl takes it, more or less."""
    parts = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    for each in selector.get("matchExpressions") or ():
        values = f" ({','.join(each['values'])})" if each.get("values") else ""
        parts.append(f"{each.get('key')} {str(each.get('operator')).lower()}{values}")
    return ", ".join(parts)


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
    tree.set_queues(_view(item) for item in queues)
    totals: defaultdict[str, Vector] = defaultdict(dict)
    for cluster, views in believed(readable(capacities, objects.CapacityObject)).items():
        totals[cluster] = vector.total(view.total for view in views)
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
        node = tree.node(gang.queue)
        if binding.decision.phase.charged:
            where = charges(binding)
            tree.charge(node, vector.total(where.values()), where)
        elif not gang.hold:
            tree.wait(node, gang.total())
    return tree


def _view(queue: Json) -> QueueView:
    """As the dispatcher reads it; what it can't read, and leaves out, is a queue with that problem here."""
    try:
        return objects.queue_view(msgspec.convert(queue, objects.QueueObject))
    except msgspec.ValidationError as error:
        parent = mapping(queue.get("spec")).get("parent")
        return QueueView(
            queue["metadata"]["name"],
            {},
            parent=parent if isinstance(parent, str) and parent != keys.ROOT_QUEUE else "",
            problem=f"can't be read: {error}",
        )


def resources(node: Node) -> list[Json]:
    """One line per resource that is used, limited or promised: quantities as text, `share` of the limit."""
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


def held(node: Node, use: Mapping[str, QueueUse]) -> QueueUse:
    """What a queue and all below it hold.

    Args:
        node: the queue.
        use: per queue, without what is below it.
    """
    result = QueueUse()
    for each in subtree(node):
        if (own := use.get(each.name)) is not None:
            result.pending += own.pending
            result.inqueue += own.inqueue
            result.running += own.running
            vector.add(result.used, own.used)
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
        "running": held.dispatched if held else 0,
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
