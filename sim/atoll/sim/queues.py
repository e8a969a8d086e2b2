"""Queues of a simulated federation: Volcano Queue objects as `kubectl apply` takes them, or one per name of a trace."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pydantic

from atoll.api.scheduling import Queue
from atoll.dispatcher.core import QueueView
from atoll.dispatcher.core.events import Strategy
from atoll.dispatcher.objects import QueueObject, queue_view
from atoll.sim.clusters import GPUS_PER_NODE, PHILLY
from atoll.sim.inputs import InputError, documents
from atoll.sim.jobs import GPU, Job


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
            Queue.model_validate(document)
            view = queue_view(msgspec.convert(document, QueueObject))
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"])
            raise InputError(f"{place}, field {field}: {first['msg']}") from error
        except ValueError as error:
            raise InputError(f"{place}: {error}") from error
        if view.problem:
            raise InputError(f"{place}: {view.problem}")
        views.append(view)
    return views


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
