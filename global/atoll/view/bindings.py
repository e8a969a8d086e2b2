"""What the bindings on the host say, as the dispatcher reads them: the numbers behind `queue describe`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from atoll.dispatcher import flavoring
from atoll.dispatcher.core.backlog.binding import gang_of, parts_of, unreleased
from atoll.dispatcher.core.backlog.order import order_key
from atoll.dispatcher.core.events import BindingView
from atoll.dispatcher.objects import BindingObject, binding_view
from atoll.model import vector
from atoll.model.flavors import NONE, Flavors
from atoll.model.vector import Vector

Json = dict[str, Any]
T = TypeVar("T")
Memory = dict[str, tuple[Json, BindingView | None]]
"""UID of a binding -> its object and its view."""


class QueueUse(msgspec.Struct):
    """What a queue holds now."""

    pending: int = 0
    inqueue: int = 0
    """Dispatched, and not all bound yet."""
    running: int = 0
    used: Vector = {}
    """Requests of all workloads that the queue is charged for, integer units."""

    @property
    def dispatched(self) -> int:
        """All that have been, bound or not."""
        return self.inqueue + self.running


def views(bindings: Iterable[Json], flavors: Flavors = NONE, memory: Memory | None = None) -> list[BindingView]:
    """The bindings that are Atoll's, as the dispatcher's core gets them.

    Args:
        bindings: as the API server gave them.
        flavors: of resources in the whole federation.
        memory: of an earlier call, whose objects that are still the same are not read again; it is brought up to date.
    """
    before, found = memory or {}, []
    now: Memory = {}
    for item in bindings:
        uid = str(item["metadata"].get("uid", ""))
        known = before.get(uid)
        view = known[1] if known is not None and known[0] is item else _read(item)
        now[uid] = item, view
        if view is not None:
            found.append(flavoring.binding(view, flavors))
    if memory is not None:
        memory.clear()
        memory.update(now)
    return found


def _read(item: Json) -> BindingView | None:
    return next((binding_view(each) for each in readable([item], BindingObject)), None)


def readable(items: Iterable[Json], kind: type[T]) -> Iterator[T]:
    """Objects as the dispatcher reads them; unreadable ones are left out here as well."""
    for item in items:
        try:
            yield msgspec.convert(item, kind)
        except msgspec.ValidationError:
            continue


def charges(binding: BindingView) -> dict[str, Vector]:
    """Member -> what a charged workload is charged for there: its pods that have not ended for good."""
    if (gang := gang_of(binding)) is None:
        return {}
    # While it is taken back it has no parts any more, and its pods are still there.
    parts = unreleased(binding, parts_of(binding), gang)
    return {name: part.total() for name, part in parts.items()} or {"": gang.total()}


def use_by_queue(bindings: Iterable[BindingView]) -> dict[str, QueueUse]:
    """Counts and charges per queue; queues without workloads are absent."""
    result: dict[str, QueueUse] = {}
    for binding in bindings:
        if binding.gang is None or binding.finished:
            continue
        use = result.setdefault(binding.gang.queue, QueueUse())
        if binding.decision.phase.charged:
            if binding.bound:
                use.running += 1
            else:
                use.inqueue += 1
            vector.add(use.used, vector.total(charges(binding).values()))
        else:
            use.pending += 1
    return result


def waiting_line(bindings: Iterable[BindingView], queue: str) -> list[BindingView]:
    """The workloads that wait in a queue, the next one first."""
    waiting = (
        binding
        for binding in bindings
        if binding.gang is not None
        and binding.gang.queue == queue
        and not binding.finished
        and not binding.decision.phase.charged
    )
    return sorted(waiting, key=order_key)
