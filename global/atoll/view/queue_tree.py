"""The quota tree from the host's objects, computed by the dispatcher's own code: the present limit of a queue,
its entitlement, and the borrowing between queues.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from atoll.dispatcher import flavoring, objects
from atoll.dispatcher.capacity import believed
from atoll.dispatcher.core.events import BindingView, QueueView
from atoll.dispatcher.core.quota.queue import Queue, path, subtree
from atoll.dispatcher.core.quota.tree import Tree
from atoll.dispatcher.explain.figures import figures
from atoll.model import keys, quantity, selectors, vector
from atoll.model.flavors import NONE, Flavors
from atoll.model.queue_object import QueueObject
from atoll.model.vector import Vector
from atoll.view import queue_objects
from atoll.view.bindings import QueueUse, charges, readable

Json = dict[str, Any]


def states(queues: Sequence[Json]) -> dict[str, str]:
    """Queue -> its state, with problems of the tree as the dispatcher would find it.

    Args:
        queues: all Queue objects.
    """
    nodes = build(queues, (), (), ()).queues
    return queue_objects.states(queues, lambda queue: nodes[queue["metadata"]["name"]].problem)


def missing_members(node: Queue, clusters: Iterable[Json]) -> list[str]:
    """Members that a queue names and that do not exist.

    Args:
        node: the queue.
        clusters: all Cluster objects.
    """
    there = {cluster["metadata"]["name"] for cluster in clusters}
    return sorted(set(node.view.members) - there) if node.view is not None else []


def leaves(node: Queue) -> list[str]:
    """Names of the queues below one that workloads may go to."""
    return sorted(each.name for each in subtree(node) if each is not node and not each.children)


def unserved(node: Queue) -> str:
    """That no member has the labels that a queue, or one above it, asks for, and what to do; else empty."""
    first = next((each for each in reversed([*path(node)]) if each.serving == frozenset()), None)
    if first is None or first.view is None or not first.view.affinity:
        return ""
    return (
        f"no member matches the selector of queue {first.name} ({selectors.text(first.view.affinity)}): label one"
        " (atollctl cluster label NAME KEY=VALUE), or select others (atollctl queue update"
        f" {first.name} --clusters SELECTOR)"
    )


def said_use(queues: Iterable[Json]) -> dict[str, QueueUse]:
    """What queues hold by their status, which the dispatcher writes: those below which there is none."""
    queues = list(queues)
    parents = {queue_objects.parent_of(queue) or keys.ROOT_QUEUE for queue in queues}
    result = {}
    for queue in queues:
        name = queue["metadata"]["name"]
        if name in parents:
            continue
        counts = queue_objects.counts(queue)
        allocated = queue_objects.mapping(queue_objects.mapping(queue.get("status")).get("allocated"))
        used = {resource: quantity.ceil_units(resource, amount) for resource, amount in allocated.items()}
        result[name] = QueueUse(counts["pending"], counts["inqueue"], counts["running"], used)
    return result


def build(
    queues: Iterable[Json],
    bindings: Iterable[BindingView],
    clusters: Iterable[Json],
    capacities: Iterable[Json],
    *,
    use: Mapping[str, QueueUse] | None = None,
) -> Tree:
    """The tree with all that is charged and waits, as the dispatcher has it.

    Args:
        queues: all Queue objects.
        bindings: all of the federation.
        clusters: all Cluster objects.
        capacities: all ClusterCapacity objects.
        use: what queues are charged beside these bindings.
    """
    tree, queues = Tree(), list(queues)
    tree.set_queues(_view(item) for item in queues)
    flavors = flavors_of(queues)
    totals: defaultdict[str, Vector] = defaultdict(dict)
    for cluster, views in believed(readable(capacities, objects.CapacityObject)).items():
        totals[cluster] = vector.total(flavoring.capacity(view, flavors).total for view in views)
    tree.set_members(
        {
            item["metadata"]["name"]: (totals[item["metadata"]["name"]], item["metadata"].get("labels") or {})
            for item in clusters
        }
    )
    for name, held in (use or {}).items():
        tree.charge(tree.queue(name), held.used, {"": held.used})
    for binding in bindings:
        gang = binding.gang
        if gang is None or binding.finished:
            continue
        node = tree.queue(gang.queue)
        if binding.decision.phase.charged:
            where = charges(binding)
            tree.charge(node, vector.total(where.values()), where)
        elif not gang.hold:
            tree.wait(node, gang.total())
    return tree


def flavors_of(queues: Iterable[Json]) -> Flavors:
    """Of resources in the whole federation, as the root queue names them."""
    root = next((each for each in queues if each["metadata"]["name"] == keys.ROOT_QUEUE), None)
    return _view(root).flavors if root is not None else NONE


def _view(queue: Json) -> QueueView:
    """As the dispatcher reads it; an unreadable one is a queue with that problem here."""
    try:
        return objects.queue_view(msgspec.convert(queue, QueueObject))
    except msgspec.ValidationError as error:
        parent = queue_objects.mapping(queue.get("spec")).get("parent")
        return QueueView(
            queue["metadata"]["name"],
            {},
            parent=parent if isinstance(parent, str) and parent != keys.ROOT_QUEUE else "",
            problem=f"can't be read: {error}",
        )


def resources(node: Queue) -> list[Json]:
    """One line per resource that is used, limited or guaranteed: quantities as text, `share` of the limit."""
    found: list[Json] = msgspec.to_builtins(figures(node))
    return found


def branch(node: Queue, use: dict[str, QueueUse]) -> Json:
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
