"""Objects of the host that one user may read, kept by watches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import msgspec

from atoll.kube.reflector import Reflector, StoreWentBack
from atoll.kube.transport import ApiServer
from atoll.model.apiresource import (
    BINDINGS,
    CAPACITIES,
    CLUSTERS,
    LEASES,
    NAMESPACES,
    QUEUES,
    WORKS,
    ApiResource,
)
from atoll.model.objects import Full, decode_full
from atoll.view import queue_description
from atoll.view.bindings import Memory
from atoll.view.queue_description import Federation

Json = dict[str, Any]
T = TypeVar("T")

_SYNC_S = 15.0
"""Seconds to wait for the first lists; after that a page shows the objects that are there."""
_FRESH_S = 5.0
"""Seconds after which a page is made anew though no object changed: ages, and answers of the dispatcher."""
_PAGES = 64
"""Most pages that are kept for further streams of the same page."""
_WORDS: dict[ApiResource, str] = {
    BINDINGS: "workloads",
    QUEUES: "queues",
    CLUSTERS: "members",
    CAPACITIES: "capacity of members",
    WORKS: "Works: how far they are delivered",
    LEASES: "reports of members and processes of Atoll",
    NAMESPACES: "weights of namespaces",
}
"""Watched objects, in words for a user who may not see them."""


@dataclass(slots=True)
class _Page:
    version: int
    until: float
    content: asyncio.Future[Any]


class World:
    """Use as an async context manager."""

    def __init__(self, host: ApiServer, only: str | None, own: str) -> None:
        """No I/O happens here.

        Args:
            host: client with the credentials of the user.
            only: namespace of the workloads; None for all.
            own: namespace to show where the user may not see all.
        """
        self.host = host
        self.own = own
        #: its user asked for one namespace
        self.alone = only is not None
        self._namespace = only
        #: raised by every change of an object
        self.version = 0
        self._changed = asyncio.Event()
        self._watches: dict[ApiResource, Reflector[Full]] = {}
        self._tasks: dict[ApiResource, asyncio.Task[None]] = {}
        self._pages: dict[str, _Page] = {}
        self._memory: Memory = {}

    async def __aenter__(self) -> Self:
        for resource in _WORDS:
            self._watch(resource, self._namespace if resource == BINDINGS else None)
        await self._synced()
        if self._namespace is None and self._watches[BINDINGS].absent:
            self._namespace = self.own
            self._tasks[BINDINGS].cancel()
            self._watch(BINDINGS, self.own)
            await self._synced()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _watch(self, resource: ApiResource, namespace: str | None) -> None:
        decode = _work if resource == WORKS else decode_full

        def made() -> Reflector[Full]:
            watch = Reflector(self.host, resource, decode, namespace=namespace, optional=True, withheld=True)
            watch.on_change(lambda *_: self._note())
            return watch

        async def keep() -> None:
            while True:
                with suppress(StoreWentBack):
                    await self._watches[resource].run()
                # The host was restored from a backup: versions of the old store mean nothing in the new one.
                self._watches[resource] = made()

        self._watches[resource] = made()
        self._tasks[resource] = asyncio.create_task(keep())

    async def _synced(self) -> None:
        waits = [watch.synced.wait() for watch in self._watches.values()]
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*waits), _SYNC_S)

    def _note(self) -> None:
        self.version += 1
        self._changed.set()

    async def change(self, since: int) -> None:
        """Return once an object changed since that version, and after some seconds in any case."""
        if self.version == since:
            self._changed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), _FRESH_S)

    async def shared(self, key: str, make: Callable[[], Awaitable[T]], *, lasting: bool = False) -> T:
        """One result of `make` for all who ask for the same page of the same state of the host.

        Args:
            key: of the result.
            make: computes it.
            lasting: the result outlives changes of the host, for some seconds.
        """
        now = time.monotonic()
        page = self._pages.get(key)
        if page is None or page.until < now or (page.version != self.version and not lasting):
            while len(self._pages) >= _PAGES:
                del self._pages[next(iter(self._pages))]
            page = _Page(self.version, now + _FRESH_S, asyncio.ensure_future(make()))
            self._pages[key] = page
        found: T = await asyncio.shield(page.content)
        return found

    # -- reading -----------------------------------------------------------------------------------------------------

    def bodies(self, resource: ApiResource) -> list[Json]:
        """The objects in the order of their names."""
        store = self._watches[resource].store
        return [store[key].body for key in sorted(store)]

    def binding(self, namespace: str, name: str) -> Json | None:
        """The binding, where there is one that the user may see."""
        found = self._watches[BINDINGS].get(f"{namespace}/{name}")
        return found.body if found is not None else None

    @property
    def shown(self) -> str:
        """The one namespace whose workloads are shown; else the user's own."""
        return self._namespace or self.own

    @property
    def whole(self) -> bool:
        """The workloads of all namespaces are there."""
        return self._namespace is None

    def listed(self, resource: ApiResource) -> list[Json] | None:
        """The objects, as `bodies` has them; None where the user may not see them."""
        return None if self._watches[resource].absent else self.bodies(resource)

    @property
    def unseen(self) -> list[str]:
        """Objects that the user may not see, in words."""
        words = [_WORDS[resource] for resource, watch in self._watches.items() if watch.absent]
        return [*([f"workloads outside namespace {self._namespace}"] if self._namespace else []), *words]

    async def federation(self) -> Federation:
        """Queues and workloads as the dispatcher computes them."""
        return await self.shared("", self._federation)

    async def _federation(self) -> Federation:
        clusters = self.listed(CLUSTERS)
        queues, bindings, capacities, namespaces = map(self.bodies, (QUEUES, BINDINGS, CAPACITIES, NAMESPACES))
        return await asyncio.to_thread(
            queue_description.read,
            queues,
            bindings,
            clusters=clusters,
            capacities=capacities,
            namespaces=namespaces,
            partial=self._namespace is not None,
            unseen=self.unseen,
            memory=self._memory,
        )


def _work(raw: msgspec.Raw) -> Full:
    """A Work without its manifests, which are most of it."""
    found = decode_full(raw)
    status = found.body.get("status") or {}
    meta = {"name": found.metadata.name, "namespace": found.metadata.namespace}
    return Full(found.metadata, {"metadata": meta, "status": {"conditions": status.get("conditions") or []}})
