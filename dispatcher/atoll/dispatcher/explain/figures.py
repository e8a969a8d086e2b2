"""What a queue uses and may use, resource by resource, as text: for the query API and for `atollctl queue describe`."""

from __future__ import annotations

from atoll.dispatcher.core.quota.queue import Queue
from atoll.model import quantity
from atoll.model.cards import ANY
from atoll.model.query import Figure
from atoll.model.vector import Vector


def figures(queue: Queue) -> list[Figure]:
    """One for each resource that is used, limited or guaranteed; pods only where they are limited."""
    declared = _declared(queue)
    # Where no member serves it there is nothing of all that is not declared.
    named = {*(() if queue.serving == frozenset() else queue.limit), *queue.guarantee, *declared}
    if not (queue.view and "pods" in {**queue.view.capability, **queue.view.deserved, **queue.view.guarantee}):
        # Every workload has some, and every queue allows some.
        named.discard("pods")
    named |= shown(queue).keys() - {"pods"}
    deserved = queue.deserved
    result = []
    for name in sorted(named):
        used = queue.used.get(name, 0)
        share = None
        if name in queue.limit:
            share = round(used / queue.limit[name], 3) if queue.limit[name] > 0 else float(used > 0)
        borrowed = _borrowed(queue, name)
        result.append(
            Figure(
                name,
                quantity.format_units(name, used),
                limit=_text(queue.limit, name),
                deserved=_text(deserved, name),
                guarantee=_text(queue.guarantee, name),
                capability=_text(queue.view.capability, name) if queue.view else "",
                share=share,
                borrowed=quantity.format_units(name, borrowed) if borrowed else "",
                lenders=_lenders(queue, name) if borrowed else [],
            )
        )
    return result


def shown(queue: Queue) -> Vector:
    """Amounts that a queue is charged; GPUs under any name only where they are bounded, as they repeat others."""
    if ANY in queue.limit or ANY in queue.guarantee or ANY in _declared(queue):
        return queue.used
    return {name: amount for name, amount in queue.used.items() if name != ANY}


def _declared(queue: Queue) -> set[str]:
    return {*queue.view.capability, *queue.view.deserved} if queue.view else set()


def _text(amounts: Vector, name: str) -> str:
    return quantity.format_units(name, amounts[name]) if name in amounts else ""


def _borrowed(queue: Queue, name: str) -> int:
    """Its use beyond its entitlement."""
    deserved = queue.deserved
    return max(0, queue.used.get(name, 0) - deserved[name]) if name in deserved and queue.parent is not None else 0


def _lenders(queue: Queue, name: str) -> list[str]:
    """Queues with unused amounts that this queue borrows: its siblings, else siblings of the nearest ancestor that
    has such.
    """
    up: Queue | None = queue
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
