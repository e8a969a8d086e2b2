"""The one struct into which processes decode a Queue."""

from __future__ import annotations

from typing import Any

import msgspec

from atoll.model.objects import Slim

Quantities = dict[str, str | int | float]


class Guarantee(msgspec.Struct, frozen=True, gc=False):
    """Amounts that are never lent."""

    resource: Quantities = {}


class QueueCluster(msgspec.Struct, frozen=True, gc=False):
    """Limits in one member."""

    name: str = ""
    weight: int | None = None
    capacity: Quantities = {}


class QueueSpec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """spec; admission may not have seen it, as in a member of Volcano's."""

    capability: Quantities = {}
    deserved: Quantities = {}
    guarantee: Guarantee | None = None
    weight: int | None = None
    reclaimable: bool | None = None
    parent: str | None = None
    priority: int | None = None
    dequeue_strategy: str | None = None
    extend_clusters: list[QueueCluster] = []


class QueueStatus(msgspec.Struct, frozen=True, gc=False):
    """status as it was last written; counts and conditions as they are, to compare."""

    state: str = ""
    pending: int = 0
    inqueue: int = 0
    running: int = 0
    completed: int = 0
    allocated: Quantities = {}
    conditions: list[dict[str, Any]] = []


class QueueObject(Slim, frozen=True):
    """A Queue."""

    spec: QueueSpec = QueueSpec()
    status: QueueStatus = QueueStatus()


decode_queue = msgspec.json.Decoder(QueueObject).decode
