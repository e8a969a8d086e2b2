"""Caches that reviews read, and waiting for what a moment before was made."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Final

from atoll.admission.problems import Json, Problem
from atoll.kube.reflector import Reflector
from atoll.model import keys
from atoll.model.apiresource import ApiResource
from atoll.model.flavors import SIGN
from atoll.model.objects import Full, Slim
from atoll.webhook import queues, resources
from atoll.webhook.protocol import Request

_CHILDREN: Final = "children"
WAITED: Final = ContextVar("WAITED", default=0.0)
"""Seconds for which the review of this task waited for its caches: they are no time that it took."""
_READS_CACHE: Final = frozenset({"spec.parent", "metadata.name", queues.GUARANTEE})


class Surroundings:
    """Queues, namespaces and all else on the host that decides about an object."""

    def __init__(
        self,
        queue_cache: Reflector[queues.Queue],
        namespaces: Reflector[Slim],
        priority_classes: Reflector[Slim] | None = None,
        clusters: Reflector[resources.Cluster] | None = None,
        referable: Mapping[ApiResource, Reflector[Full]] = MappingProxyType({}),
    ) -> None:
        """Adds an index and handlers, so call it before the caches run; see `Reviews`."""
        self.queues, self.namespaces = queue_cache, namespaces
        self.priority_classes, self.clusters, self.referable = priority_classes, clusters, referable
        #: set and replaced at each change of a queue, or of an object that workloads name
        self._changed = asyncio.Event()
        queue_cache.add_index(_CHILDREN, lambda queue: [queue.parent])
        queue_cache.on_change(self._notice)
        for each in referable.values():
            each.on_change(self._notice)

    def _notice(self, *_: object) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def labels(self, namespace: str) -> dict[str, str]:
        """Labels of a namespace; none where it is unknown."""
        found = self.namespaces.get(namespace)
        return found.metadata.labels if found is not None else {}

    def annotations(self, namespace: str) -> dict[str, str]:
        """Annotations of a namespace; none where it is unknown."""
        found = self.namespaces.get(namespace)
        return found.metadata.annotations if found is not None else {}

    def of_queue(self, name: str) -> tuple[Mapping[str, str], str] | None:
        """(annotations, parent) of a queue."""
        found = self.queues.get(name)
        return (found.metadata.annotations, found.parent) if found is not None else None

    def below(self, queue: str) -> list[queues.Queue]:
        """Queues right below a queue."""
        return self.queues.by_index(_CHILDREN, queue)

    def children(self, queue: str) -> list[str]:
        """Names of the queues right below a queue."""
        # Every queue without a parent is below the root, which is refused by its name already.
        return [] if queue == keys.ROOT_QUEUE else [each.metadata.name for each in self.below(queue)]

    def unknown_resources(
        self,
        request: Request,
        named: Callable[[Json], Iterable[resources.Named]],
        others: Iterable[str] = (),
    ) -> list[Problem]:
        """Resources that an object names from now on, and that no member has; see `resources.unknown`."""
        members = self.clusters
        if request.object is None or members is None or not members.synced.is_set():
            return []
        before = set(named(request.old_object or {}))
        return list(resources.unknown((each for each in named(request.object) if each not in before), members, others))

    async def wait(self, seconds: float, missing: Callable[[], object]) -> None:
        """Until nothing is missing any more, or so long; `WAITED` tells how long that was."""
        try:
            async with asyncio.timeout(seconds):
                while missing():
                    began = time.perf_counter()
                    try:
                        await self._changed.wait()
                    finally:
                        WAITED.set(WAITED.get() + time.perf_counter() - began)
        except TimeoutError:
            return

    async def settled(self, check: Callable[[], list[Problem]], seconds: float) -> list[Problem]:
        """The outcome of a check that reads the cache of queues; a bad one only when that had time."""
        problems: list[Problem] = []

        def wrong() -> bool:
            nonlocal problems
            problems = check()
            return any(problem.field in _READS_CACHE or SIGN in problem.field for problem in problems)

        await self.wait(seconds, wrong)
        return problems
