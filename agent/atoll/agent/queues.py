"""Queues of the member itself, as far as work that enters there is ordered by them."""

from __future__ import annotations

import msgspec

from atoll.model import duration, keys, quantity
from atoll.model.objects import Slim
from atoll.model.queue_object import Quantities, QueueSpec
from atoll.model.vector import Vector


class Queue(Slim, frozen=True):
    """A Queue of the member."""

    spec: QueueSpec = QueueSpec()

    def alike(self, other: Queue) -> bool:
        """Whether nothing that placing reads differs."""
        return (self.spec, self.waiting_time) == (other.spec, other.waiting_time)

    @property
    def parent(self) -> str:
        """The queue above it; empty for the root."""
        return "" if self.spec.parent == keys.ROOT_QUEUE else self.spec.parent or ""

    @property
    def weight(self) -> int:
        """Its weight, against its siblings', for amounts that no queue deserves."""
        return max(self.spec.weight or 1, 1)

    @property
    def capability(self) -> Vector:
        """The most that it may use; of resources that it names."""
        return _amounts(self.spec.capability)

    @property
    def deserved(self) -> Vector:
        """Its deserved amounts; of resources that it names."""
        return _amounts(self.spec.deserved)

    @property
    def waiting_time(self) -> float | None:
        """Seconds after which its gangs have waited too long; None where it says nothing."""
        return duration.parse_or_none(self.metadata.annotations.get(keys.SLA_WAITING_TIME))


def _amounts(said: Quantities) -> Vector:
    try:
        return quantity.capacity(said)
    except ValueError:
        # Admission refuses it; an older one counts as undeclared.
        return {}


decode_queue = msgspec.json.Decoder(Queue).decode
