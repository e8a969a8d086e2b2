"""The order inside a queue by fair share: within a priority class, whose dominant share is least goes first.

Dominant resource fairness (Ghodsi et al., NSDI 2011) over namespaces, or over jobs. A namespace's share is the largest
part that it uses of any resource that the queue may use, divided by the namespace's weight; a waiting job's is the part
that it would use of the queue once it runs. Equal shares go by age.

With a half-life a namespace counts with its average use of late where that exceeds its present use: in the
average, use counts half as much after each half-life.

Classes of a queue by namespaces hold workloads of one namespace each, so a share that changes moves classes, never
workloads: a charge costs O(classes of its namespace x log classes), and queues without this order pay nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from atoll.dispatcher.core.backlog.backlog import Key, ShapeClass, Waiting, shared
from atoll.dispatcher.core.quota.queue import Queue
from atoll.model import vector
from atoll.model.fairness import Order
from atoll.model.query import Share
from atoll.model.vector import Vector

_MOST = 999_999.0
"""Share of a resource of which the queue may use nothing."""
_FORGOTTEN = 1e-6
"""An average of this part of the queue counts as none."""


@dataclass(slots=True)
class _Use:
    """What a namespace uses of a queue."""

    charged: Vector = field(default_factory=dict)
    #: its average use of late, at the time `at`; empty without a half-life
    average: dict[str, float] = field(default_factory=dict)
    at: float = 0.0
    #: its classes that wait in the queue
    classes: dict[ShapeClass, None] = field(default_factory=dict)
    #: as its classes are filed
    told: str = ""

    def age(self, now: float, half_life: float | None) -> None:
        """Average its charged use over the time that has passed."""
        if half_life is None:
            self.average.clear()
        else:
            kept = 2.0 ** (-max(now - self.at, 0.0) / half_life)
            names = sorted(self.charged.keys() | self.average.keys())
            self.average = {
                name: (charged := self.charged.get(name, 0)) + (self.average.get(name, 0.0) - charged) * kept
                for name in names
            }
        self.at = now

    def counted(self) -> dict[str, float]:
        """What counts of each resource."""
        return {
            name: max(float(self.charged.get(name, 0)), self.average.get(name, 0.0))
            for name in sorted(self.charged.keys() | self.average.keys())
        }


@dataclass(slots=True)
class _Record:
    """A queue with such an order."""

    order: Order
    limit: Vector
    uses: dict[str, _Use] = field(default_factory=dict)


class FairShares:
    """Keeps the classes of such queues in order; see the module."""

    def __init__(
        self,
        waiting: Waiting,
        weight: Callable[[str], float],
        charged: Callable[[Queue], Iterable[tuple[str, Vector]]],
        every: float,
    ) -> None:
        """Begin empty.

        Args:
            waiting: whose classes these are.
            weight: of a namespace.
            charged: (namespace, amount) of each workload that a queue is charged for.
            every: seconds after which averages are computed again.
        """
        self._waiting, self._weight, self._charged, self._every = waiting, weight, charged, every
        self._records: dict[Queue, _Record] = {}
        #: called with a queue of which another workload may be the first
        self.on_reordered: list[Callable[[Queue], None]] = []
        #: of the last pass
        self._now = 0.0
        #: when averages are computed again
        self._due = 0.0

    # -- what happens ------------------------------------------------------------------------------------------------

    def waits(self, namespace: str, group: ShapeClass) -> None:
        """A workload waits in this class."""
        if (record := self._record(group.leaf)) is None:
            return
        if record.order is Order.FAIR_JOBS:
            self._tell_job(group)
        else:
            use = self._use(record, namespace)
            use.classes[group] = None
            self._tell(group.leaf, namespace, use)

    def waits_no_more(self, namespace: str, group: ShapeClass) -> None:
        """A workload waits in this class no longer."""
        record = self._records.get(group.leaf)
        if record is not None and not group.members and namespace in record.uses:
            record.uses[namespace].classes.pop(group, None)

    def used(self, leaf: Queue, namespace: str, amount: Vector, times: int) -> None:
        """A queue was charged for a workload of the namespace, or given something back."""
        record = self._records.get(leaf)
        if record is None or record.order is not Order.FAIR_NAMESPACES:
            return
        use = self._use(record, namespace)
        use.age(self._now, leaf.said.half_life)
        vector.add(use.charged, amount, times)
        self._tell(leaf, namespace, use)

    def weighed(self, namespace: str) -> None:
        """The namespace has another weight."""
        for leaf, record in self._records.items():
            if namespace in record.uses:
                self._tell(leaf, namespace, record.uses[namespace])

    def queues_changed(self) -> None:
        """Queues or their limits changed."""
        for leaf, record in list(self._records.items()):
            if leaf.said.order is not record.order:
                del self._records[leaf]
            elif leaf.limit != record.limit:
                record.limit = dict(leaf.limit)
                if record.order is Order.FAIR_JOBS:
                    for group in self._waiting.classes(leaf).values():
                        self._tell_job(group)
                for namespace, use in record.uses.items():
                    self._tell(leaf, namespace, use)

    def pass_begins(self, now: float) -> None:
        """Time has passed."""
        self._now = now
        if now < self._due:
            return
        self._due = now + self._every
        for leaf, record in self._records.items():
            half_life = leaf.said.half_life
            for namespace, use in list(record.uses.items()):
                use.age(now, half_life)
                self._tell(leaf, namespace, use)
                if not use.charged and not use.classes and dominant(leaf, use.average)[1] < _FORGOTTEN:
                    del record.uses[namespace]

    @property
    def next(self) -> float | None:
        """When averages are computed again, where something waits that may go in another order then."""
        for leaf, record in self._records.items():
            if leaf.said.half_life is not None and any(use.classes for use in record.uses.values()):
                return self._due
        return None

    # -- looking in --------------------------------------------------------------------------------------------------

    def key(self, leaf: Queue, namespace: str, request: Vector, key: Key) -> Key:
        """The place of a workload in its queue's order. `request`: its present or future use."""
        record = self._records.get(leaf)
        if record is None:
            return key
        if record.order is Order.FAIR_JOBS:
            told = _text(dominant(leaf, request)[1])
        else:
            told = record.uses[namespace].told if namespace in record.uses else _text(0.0)
        return shared(key, told)

    def standing(self, leaf: Queue, namespace: str, request: Vector) -> Share | None:
        """The share by which a workload is ordered; None where its queue has no such order."""
        record = self._records.get(leaf)
        if record is None:
            return None
        if record.order is Order.FAIR_JOBS:
            resource, part = dominant(leaf, request)
            return Share(record.order.value, resource, round(part, 6))
        use = record.uses.get(namespace)
        resource, part = dominant(leaf, use.counted() if use is not None else {})
        return Share(record.order.value, resource, round(part, 6), self._weight(namespace))

    # -- keeping -----------------------------------------------------------------------------------------------------

    def _record(self, leaf: Queue) -> _Record | None:
        """Record of a queue with such an order; made from its charges where it has none yet."""
        order = leaf.said.order
        if order is Order.PRIORITY:
            return None
        record = self._records.get(leaf)
        if record is None or record.order is not order:
            record = self._records[leaf] = _Record(order, dict(leaf.limit))
            for namespace, amount in self._charged(leaf) if order is Order.FAIR_NAMESPACES else ():
                vector.add(self._use(record, namespace).charged, amount)
            for use in record.uses.values():
                # Its earlier use is unknown, so its present use counts as its average.
                use.average = {name: float(amount) for name, amount in use.charged.items()}
        return record

    def _use(self, record: _Record, namespace: str) -> _Use:
        use = record.uses.get(namespace)
        if use is None:
            use = record.uses[namespace] = _Use(at=self._now)
        return use

    def _tell_job(self, group: ShapeClass) -> None:
        self._waiting.share([group], _text(dominant(group.leaf, group.shape.request)[1]))

    def _tell(self, leaf: Queue, namespace: str, use: _Use) -> None:
        told = _text(dominant(leaf, use.counted())[1] / self._weight(namespace))
        moved = told != use.told
        use.told = told
        self._waiting.share(use.classes, told)
        for reordered in self.on_reordered if moved and use.classes else ():
            reordered(leaf)


def dominant(leaf: Queue, amounts: Mapping[str, float]) -> tuple[str, float]:
    """The resource of which an amount is the largest part of what the queue may use, and that part; of equal parts the
    first name. Pods count only where the queue itself limits them.
    """
    found, most, own = "", 0.0, leaf.said.capability
    for name in sorted(amounts):
        limit = leaf.limit.get(name)
        if amounts[name] <= 0 or limit is None or (name == "pods" and name not in own):
            continue
        part = min(amounts[name] / limit, _MOST) if limit > 0 else _MOST
        if part > most:
            found, most = name, part
    return found, most


def _text(share: float) -> str:
    """A share as text that is ordered as shares are, without what arithmetic leaves behind; an age may follow."""
    return f"{min(share, _MOST):016.9f} "
