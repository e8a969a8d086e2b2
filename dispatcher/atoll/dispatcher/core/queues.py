"""Queues: who is charged, who waits, and in which order.

Pending workloads of one queue that ask for the same are one *class*: when its first member does not fit, no other
does, so the class is parked with the verdict until something that blocked it grows.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from atoll.dispatcher.core.events import BindingView, QueueView
from atoll.model import vector
from atoll.model.vector import Vector
from atoll.model.verdict import Reason, Verdict, blocker

Key = tuple[int, str, str]
"""(-priority, created, uid): the order inside a queue, total because of the UID."""

QUEUE_REASONS = frozenset({Reason.QUEUE_NOT_FOUND, Reason.QUEUE_CLOSED, Reason.QUOTA_EXCEEDED})
"""Verdicts that only a change of the queue can lift."""
MEMBER_REASONS = frozenset(Reason) - QUEUE_REASONS
"""Verdicts that a change of a member can lift."""


def order_key(binding: BindingView) -> Key:
    """Priority first, then the original age, then the UID."""
    gang = binding.gang
    return (-(gang.priority if gang else 0), (gang.submitted if gang else "") or binding.created, binding.uid)


def shape_of(binding: BindingView) -> bytes:
    """What makes two workloads interchangeable for fitting: equal bytes, equal verdicts."""
    gang = binding.gang
    tasks = [msgspec.structs.replace(task, name="") for task in gang.tasks] if gang else None
    wish = (gang.min_available, gang.network_topology) if gang else None
    spread = (binding.divided, binding.least_clusters, binding.most_clusters)
    return msgspec.json.encode((tasks, wish, binding.affinities, binding.tolerations, spread), order="sorted")


@dataclass(slots=True)
class ShapeClass:
    """Pending workloads of one queue with one shape."""

    shape: bytes
    #: in order; never empty while the class is in its queue
    members: list[Key] = field(default_factory=list)
    #: why its first member does not fit; None = not known to be blocked
    parked: Verdict | None = None


@dataclass(slots=True)
class Queue:
    """One queue, known or only named by workloads."""

    name: str
    #: None while no such Queue object exists
    view: QueueView | None = None
    #: sum of the charges in `charges`
    used: Vector = field(default_factory=dict)
    #: UID -> what is charged for it; exactly the bindings between Reserving and Evicting
    charges: dict[str, Vector] = field(default_factory=dict)
    #: shape -> class; every pending binding is in exactly one
    classes: dict[bytes, ShapeClass] = field(default_factory=dict)

    def add(self, shape: bytes, key: Key) -> ShapeClass:
        """A workload starts to wait."""
        group = self.classes.setdefault(shape, ShapeClass(shape))
        bisect.insort(group.members, key)
        return group

    def remove(self, shape: bytes, key: Key) -> None:
        """A workload waits no longer."""
        group = self.classes[shape]
        del group.members[bisect.bisect_left(group.members, key)]
        if not group.members:
            del self.classes[shape]

    def charge(self, uid: str, amount: Vector) -> None:
        """Count a workload's request, replacing what was counted for it."""
        self.release(uid)
        self.charges[uid] = amount
        vector.add(self.used, amount)

    def release(self, uid: str) -> bool:
        """Stop counting a workload; True when it was counted."""
        amount = self.charges.pop(uid, None)
        if amount is None:
            return False
        vector.add(self.used, amount, -1)
        return True

    def candidates(self) -> Iterator[ShapeClass]:
        """Classes that are not parked."""
        return (group for group in self.classes.values() if group.parked is None)

    def admits(self, request: Vector) -> Verdict | None:
        """None when the queue lets this request in; else why not."""
        if self.view is None:
            return Verdict(Reason.QUEUE_NOT_FOUND, blocker("Queue", self.name, "", 0, 0))
        if not self.view.open:
            return Verdict(Reason.QUEUE_CLOSED, blocker("Queue", self.name, "", 0, 0))
        short = vector.shortage(self.used, request, self.view.capability)
        if short is None:
            return None
        return Verdict(Reason.QUOTA_EXCEEDED, blocker("Queue", self.name, *short))

    def wake(self, reasons: frozenset[Reason] | None = None) -> None:
        """Look at the classes again that are parked for these reasons (or any)."""
        for group in self.classes.values():
            if group.parked is not None and (reasons is None or group.parked.reason in reasons):
                group.parked = None

    def rank(self) -> tuple[int, float]:
        """Between queues: priority first, then the smaller dominant share of the capability."""
        if self.view is None:
            return (0, 0.0)
        return (-self.view.priority, vector.share(self.used, self.view.capability))
