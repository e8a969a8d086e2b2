"""Queues of a simulated federation: Volcano Queue objects as `kubectl apply` takes them, or one per name of a trace."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pydantic

from atoll.api.scheduling import Queue, QueueSpec
from atoll.dispatcher.core import QueueView
from atoll.dispatcher.objects import queue_view
from atoll.model.plurals import counted
from atoll.model.queue_object import QueueObject
from atoll.model.queues import Strategy
from atoll.sim.clusters import GPUS_PER_NODE, PHILLY
from atoll.sim.inputs import InputError, documents
from atoll.sim.jobs import GPU, Job

Json = dict[str, Any]

_NAMED = 10
"""Queues that a message names."""


def read(path: Path) -> list[QueueView]:
    """The queues of a file.

    Raises:
        InputError: a document is no Queue, or has a field that kubectl or admission would refuse.
    """
    views: dict[str, QueueView] = {}
    for number, document in enumerate(documents(path), start=1):
        place = f"{path}, document {number}"
        if document.get("kind") != "Queue":
            raise InputError(f"{place}: kind is {document.get('kind')!r}; only Queues are expected here")
        try:
            Queue.model_validate(document)
            # What kubectl refuses as unknown is a typo here as well.
            QueueSpec.model_validate(document.get("spec") or {}, extra="forbid")
            # A trace does not say how its namespaces are labelled.
            view = dataclasses.replace(queue_view(msgspec.convert(document, QueueObject)), namespaces=None)
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"])
            raise InputError(f"{place}, field {field}: {first['msg']}") from error
        except ValueError as error:
            raise InputError(f"{place}: {error}") from error
        if problem := view.problem or _negative(view):
            raise InputError(f"{place}: {problem}")
        if not view.name:
            raise InputError(f"{place}: field metadata.name is missing")
        if view.name in views:
            raise InputError(f"{place}: queue {view.name} is there twice: give every queue a name of its own")
        views[view.name] = view
    if not views:
        raise InputError(f"{path}: no queues; list at least one, or leave out --queues for one per name in the trace")
    return list(views.values())


def of_objects(objects: Iterable[Json]) -> list[QueueView]:
    """The queues of a federation, open to all namespaces; ones that the dispatcher does not follow are left out."""
    views = (queue_view(msgspec.convert(each, QueueObject)) for each in objects)
    return [dataclasses.replace(view, namespaces=None) for view in views if not view.problem]


def check(jobs: Iterable[Job], queues: Iterable[QueueView], trace: Path, file: Path) -> None:
    """Refuse jobs of queues that there are not: nobody makes a queue during a run.

    Raises:
        InputError: naming the queue, how many jobs are for it and the first of them.
    """
    known = {queue.name for queue in queues}
    if not (lost := [job for job in jobs if job.queue not in known]):
        return
    first = lost[0]
    count = sum(job.queue == first.queue for job in lost)
    raise InputError(
        f"{trace}: queue {first.queue} (of {counted(count, 'job')}, the first is {first.namespace}/{first.name}) is "
        f"not in {file}, which has {', '.join(sorted(known)[:_NAMED])}: correct the name, or add the queue"
    )


def _negative(view: QueueView) -> str:
    """The problem of an amount below 0; empty where none is."""
    amounts = {"capability": view.capability, "deserved": view.deserved, "guarantee": view.guarantee}
    ceilings = {f"extendClusters, cluster {name}": each.capability for name, each in view.members.items()}
    for field, vector in (amounts | ceilings).items():
        if below := [name for name, amount in vector.items() if amount < 0]:
            return f"field spec.{field}: {below[0]} is negative; expected 0 or more"
    return ""


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
