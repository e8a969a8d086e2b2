"""What control watches on a Karmada's API server."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from atoll.control import objects
from atoll.control.karmada import gangs
from atoll.kinds import KINDS
from atoll.kube.crds import crds, wake
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import (
    BINDINGS,
    CLUSTERS,
    NAMESPACES,
    PRIORITY_CLASSES,
    QUEUES,
    WORKS,
    ApiResource,
)
from atoll.model.objects import Full, Slim, decode_full, decode_meta
from atoll.model.priority import decode_priority_class
from atoll.model.queue_object import decode_queue

_BINDING: Final = ("resourcebinding.karmada.io/namespace", "resourcebinding.karmada.io/name")
"""Annotations by which a Work of Karmada names its binding."""


class Caches:
    """One reflector per resource; `run` keeps them."""

    def __init__(self, host: ApiServer) -> None:
        self.bindings = Reflector(host, BINDINGS, decode_full)
        self.workloads: dict[ApiResource, Reflector[Full]] = {
            kind.resource: Reflector(host, kind.resource, decode_full, optional=True)
            for kind in KINDS
            if kind.assembly is None
        }
        self.crds = crds(host)
        wake(self.crds, self.workloads.values())
        self.works = Reflector(host, WORKS, decode_meta, metadata_only=True)
        self.clusters = Reflector(host, CLUSTERS, objects.decode_cluster)
        self.queues = Reflector(host, QUEUES, decode_queue)
        self.namespaces = Reflector(host, NAMESPACES, decode_meta)
        self.priority_classes = Reflector(host, PRIORITY_CLASSES, decode_priority_class)
        self._all: tuple[Reflector[Any], ...] = (
            self.crds, self.works, self.clusters, self.queues, self.namespaces, self.priority_classes, self.bindings,
            *self.workloads.values(),
        )  # fmt: skip
        self.works.add_index("binding", lambda work: [key] if (key := binding_of(work)) else [])
        self.bindings.add_index("workload", lambda binding: [str(reference(binding).get("uid") or "")])
        self.bindings.add_index(
            "cluster", lambda binding: [each["name"] for each in spec(binding).get("clusters") or ()]
        )

    @property
    def synced(self) -> bool:
        return all(reflector.synced.is_set() for reflector in self._all)

    async def run(self) -> None:
        """Keep all caches until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._all:
                group.create_task(reflector.run())

    async def wait(self) -> None:
        """Until everything has been listed once."""
        for reflector in self._all:
            await reflector.synced.wait()


def binding_of(work: Slim) -> str:
    """`namespace/name` of the binding that Karmada made a Work of; empty for a Work of anything else."""
    namespace, name = (work.metadata.annotations.get(each, "") for each in _BINDING)
    return f"{namespace}/{name}" if name else ""


def spec(binding: Full) -> dict[str, Any]:
    """Of a binding."""
    found: dict[str, Any] = binding.body.get("spec") or {}
    return found


def reference(binding: Full) -> dict[str, Any]:
    """The workload of a binding."""
    found: dict[str, Any] = spec(binding).get("resource") or {}
    return found


def is_ours(binding: Full) -> bool:
    """Whether a policy leaves a binding to Atoll."""
    return spec(binding).get("schedulerName") == keys.SCHEDULER_NAME and gangs.asks(spec(binding))
