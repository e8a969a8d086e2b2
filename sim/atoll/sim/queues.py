"""Queues of a simulated federation: Volcano Queue objects as `kubectl apply` takes them, or one per name of a trace."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path

import pydantic

from atoll.api.scheduling import Queue
from atoll.dispatcher.core import QueueView
from atoll.dispatcher.core.events import Ceiling, Strategy
from atoll.model import keys, quantity
from atoll.model.vector import Vector
from atoll.sim.clusters import GPUS_PER_NODE, PHILLY
from atoll.sim.inputs import InputError, documents
from atoll.sim.jobs import GPU, Job

_STRATEGY = "atoll.sh/dequeue-strategy"
_SLA = "sla-waiting-time"


def read(path: Path) -> list[QueueView]:
    """The queues of a file.

    Raises:
        InputError: a document is no Queue, or has a field that admission would refuse.
    """
    views = []
    for number, document in enumerate(documents(path), start=1):
        place = f"{path}, document {number}"
        if document.get("kind") != "Queue":
            raise InputError(f"{place}: kind is {document.get('kind')!r}; only Queues are expected here")
        try:
            views.append(_view(Queue.model_validate(document)))
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"])
            raise InputError(f"{place}, field {field}: {first['msg']}") from error
        except ValueError as error:
            raise InputError(f"{place}: {error}") from error
    return views


def _view(queue: Queue) -> QueueView:
    spec, meta = queue.spec, queue.metadata
    annotations = meta.get("annotations") or {}
    strategy = annotations.get(_STRATEGY) or spec.dequeue_strategy or Strategy.TRAVERSE
    return QueueView(
        name=str(meta["name"]),
        capability=_amounts(spec.capability),
        priority=spec.priority or 0,
        parent="" if spec.parent in (None, keys.ROOT_QUEUE) else spec.parent or "",
        guarantee=_amounts(spec.guarantee.resource) if spec.guarantee else {},
        deserved=_amounts(spec.deserved),
        weight=spec.weight,
        reclaimable=spec.reclaimable,
        strategy=Strategy(strategy),
        members={
            part.name: Ceiling(part.weight or 1, _amounts(part.capacity)) for part in spec.extend_clusters if part.name
        },
        patience=float(annotations[_SLA].removesuffix("s")) if _SLA in annotations else None,
    )


def _amounts(resources: Mapping[str, str | int]) -> Vector:
    return quantity.capacity(dict(resources))


def philly() -> list[QueueView]:
    """A queue per virtual cluster that deserves as many GPUs as the cluster has."""
    return [QueueView(name, {}, deserved={GPU: nodes * GPUS_PER_NODE}) for name, nodes in PHILLY.items()]


def named_by(jobs: Iterable[Job]) -> list[QueueView]:
    """A queue without limits per name in the trace."""
    return [QueueView(name, {}) for name in sorted({job.queue for job in jobs})]


def with_strategy(queues: Iterable[QueueView], strategy: Strategy | None) -> list[QueueView]:
    """All queues with this strategy; unchanged without one."""
    if strategy is None:
        return list(queues)
    return [dataclasses.replace(queue, strategy=strategy) for queue in queues]
