"""What a namespace may use now: free amounts of members, the largest gangs that fit, and amounts left in its queues.

Questions only, as in `verdicts`. Decisions go by the same free amounts: dispatched pods that no member has published
yet are subtracted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from atoll.dispatcher.core.capacity.member import Member
from atoll.dispatcher.core.quota.queue import Queue, Standing, path
from atoll.fit.placement import Ints
from atoll.model import claim_shapes, quantity
from atoll.model.cards import ANY
from atoll.model.query import Available, GangSize, QueueLeft, Stock
from atoll.model.topology import NO_DOMAIN

if TYPE_CHECKING:
    from atoll.dispatcher.core.dispatcher import Dispatcher

MOST_QUEUES = 10
MOST_STOCKS = 16
MOST_GANGS = 10


def queues_of(core: Dispatcher, namespace: str, only: str = "") -> list[Queue]:
    """Queues that take workloads of a namespace, the ones that name their namespaces first.

    Args:
        core: not changed.
        namespace: of the workloads.
        only: name of a queue; empty for all.
    """
    tree = core.tree
    named = tree.queues.values() if not only else [tree.queues[only]] if only in tree.queues else []
    found = [
        queue
        for queue in named
        if tree.standing(queue) is Standing.OPEN and core.state.outside(queue, namespace) is None
    ]
    return sorted(found, key=lambda queue: (queue.said.namespaces is None, queue.name))


def available(core: Dispatcher, namespace: str, member: Member, queues: list[Queue]) -> Available:
    """What a namespace may use of a member.

    Args:
        core: not changed.
        namespace: of the workloads.
        member: of `core`.
        queues: of `queues_of`.
    """
    stocks = [_stock(member, name) for name in _resources(member)]
    names = [stock.resource for stock in stocks]
    serving = [queue for queue in queues if queue.serving is None or member.name in queue.serving]
    lefts = [_left(core, namespace, member.name, queue, names) for queue in serving[:MOST_QUEUES]]
    return Available(_message(member), stocks, lefts, len(serving) - len(lefts))


def _message(member: Member) -> str:
    view = member.view
    if view is None or not view.ready:
        return "is not ready: it takes nothing"
    if view.skew:
        return view.skew
    if view.cordoned:
        return "is cordoned: it takes nothing new"
    if taints := sorted({str(each.get("key")) for each in view.taints if each.get("effect") != "PreferNoSchedule"}):
        return f"takes only workloads of policies that tolerate {', '.join(taints)}"
    return ""


def _resources(member: Member) -> list[str]:
    """Devices of a member, flavors among them; its CPUs where it has none."""
    devices = sorted(name for name in member.resources() if "/" in name and not claim_shapes.is_shape(name))
    return [name for name in devices if name != ANY][:MOST_STOCKS] or ["cpu"]


def _stock(member: Member, resource: str) -> Stock:
    nodes = member.nodes
    if resource not in nodes.resources:
        return Stock(resource, "0", "0", "0")
    free = np.maximum(nodes.free[nodes.resources.index(resource)], 0)
    largest = int(free.max(initial=0))
    unit = quantity.floor_units(resource, 1)
    sizes = [unit << power for power in range(MOST_GANGS) if unit << power <= largest]
    lowest = nodes.domain[0] if len(nodes.domain) else np.zeros(0, np.int64)

    def text(amount: int) -> str:
        return quantity.format_units(resource, amount)

    return Stock(
        resource,
        text(int(free.sum())),
        text(member.total().get(resource, 0)),
        text(largest),
        [GangSize(text(size), int((free // size).sum()), _near(free // size, lowest)) for size in sizes],
    )


def _near(pods: Ints, lowest: Ints) -> int:
    """The most pods in one of these domains.

    Args:
        pods: int64[N], on each node.
        lowest: int64[N], the domain of each node; int64[0] where there are no domains.
    """
    inside = lowest != NO_DOMAIN
    if not inside.any():
        return 0
    return int(np.bincount(lowest[inside], weights=pods[inside]).max())


def _left(core: Dispatcher, namespace: str, member: str, leaf: Queue, resources: list[str]) -> QueueLeft:
    found: dict[str, str] = {}
    for name in resources:
        lefts = [*_bounds(core, namespace, member, leaf, name)]
        if lefts:
            found[name] = quantity.format_units(name, max(min(lefts), 0))
    return QueueLeft(leaf.name, found)


def _bounds(core: Dispatcher, namespace: str, member: str, leaf: Queue, resource: str) -> Iterator[int]:
    """What each bound leaves of a resource: limits on the path, ceilings in the member, quotas of the namespace."""
    for queue in path(leaf):
        if (left := queue.left(resource, leaf)) is not None:
            yield left
        if (ceiling := queue.ceilings.get(member, {}).get(resource)) is not None:
            yield ceiling - queue.used_in.get(member, {}).get(resource, 0)
    for bound in core.state.namespaces.bounds(namespace, {(): {resource: 1}}):
        if (hard := bound.hard.get(resource)) is not None:
            yield hard - bound.used.get(resource, 0)
