"""Which limits a workload would exceed, each with its amounts as text, and what would have to change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from atoll.dispatcher.core.quota.queue import Queue, path
from atoll.model import quantity
from atoll.model.query import Limit
from atoll.model.verdict import kind_for_people
from atoll.model.weighted_shares import real_capability


def exceeded(leaf: Queue, name: str, amount: int) -> Iterator[Limit]:
    """Every limit of one resource on the path, from the root down, each as if those above it were raised as needed."""
    above: int | None = None
    for queue in [*path(leaf)][::-1]:
        up, used = queue.parent, queue.used.get(name, 0)
        own = queue.view.capability.get(name) if queue.view is not None else None
        pledged = up.pledged.get(name, 0) if up is not None else 0
        left = limit = real_capability(None, above, pledged, queue.guarantee.get(name, 0))
        if up is not None and above is not None and left is not None and (kept := up.kept.get(name, 0)):
            # What the siblings use beyond their guarantees is not left either.
            slack = sum(each.slack(name) for each in path(leaf) if each.depth > up.depth)
            left = min(left, used + max(above - up.used.get(name, 0) - kept, 0) + slack)
        # The use of ancestors was counted there.
        total = queue.total.get(name) if up is None or queue.total is not up.total else None
        if own is not None and amount > own - used:
            yield limit_of("Queue", queue.name, name, amount, own - used)
        if left is not None and amount > left - used:
            yield limit_of("Queue", queue.name, name, amount, left - used, declared=False, guaranteed=True)
        if total is not None and amount > total - used:
            yield limit_of("Queue", queue.name, name, amount, total - used, declared=False)
        # Guarantees of siblings are looked at on each level: a limit that lacks it would lack it twice below.
        bounds = [bound for bound in (own, limit, total) if bound is not None]
        above = max(min(bounds), used + amount) if bounds else None


def higher(limits: Sequence[Limit]) -> str:
    """Changes after which none of these is exceeded."""
    kinds = {
        "higher limits": [each for each in limits if each.declared],
        "lower guarantees of other queues": [each for each in limits if each.guaranteed],
        "more nodes in the members that it may use": [
            each for each in limits if not (each.declared or each.guaranteed)
        ],
    }
    texts = []
    for what, those in kinds.items():
        missing = ", ".join(
            f"{kind_for_people(each.kind)} {each.name}{f' in cluster {each.cluster}' if each.cluster else ''}: "
            f"{quantity.for_people(each.shortage)} {each.resource}"
            for each in those
        )
        if missing:
            texts.append(f"{what}, by what is short ({missing})")
    return ", and ".join(texts)


def limit_of(
    kind: str,
    name: str,
    resource: str,
    amount: int,
    available: int,
    *,
    declared: bool = True,
    guaranteed: bool = False,
    cluster: str = "",
) -> Limit:
    """A limit that has less than is needed."""
    return Limit(
        kind,
        name,
        resource,
        quantity.format_units(resource, amount),
        quantity.format_units(resource, max(available, 0)),
        quantity.format_units(resource, amount - available),
        declared,
        guaranteed,
        cluster,
    )
