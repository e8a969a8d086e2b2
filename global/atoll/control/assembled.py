"""A cache of workloads that are several objects on the host each: pods that name the same group.

Each is put together on request, from watched objects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator

import msgspec

from atoll.kinds import Kind
from atoll.kube.reflector import Reflector
from atoll.kube.store import Handler
from atoll.kube.transport import ApiServer
from atoll.model.objects import Full, Meta, decode_full

_GROUP = "workload"


class Assembled:
    """What a `Reflector` is for workloads of one object."""

    def __init__(self, host: ApiServer, kind: Kind, uid_of: Callable[[Kind, str, list[Full]], str]) -> None:
        """No I/O happens here; `run` does it.

        Args:
            host: the API server.
            kind: one with an assembly.
            uid_of: the UID that the workload of this key and these objects has already; empty for a new one.
        """
        assert kind.assembly is not None, "others are objects themselves"
        self._kind, self._assembly, self._uid_of = kind, kind.assembly, uid_of
        self._objects: Reflector[Full] = Reflector(
            host, kind.resource, decode_full, label_selector=kind.assembly.selector
        )
        self._objects.add_index(_GROUP, self._key)
        self._objects.on_change(self._changed)
        #: key -> the workload as handlers heard of it last
        self._told: dict[str, Full] = {}
        self._handlers: list[Handler[Full]] = []

    @property
    def synced(self) -> asyncio.Event:
        return self._objects.synced

    async def run(self) -> None:
        """List and watch until cancelled."""
        await self._objects.run()

    def on_change(self, handler: Handler[Full]) -> None:
        """Call `handler(old, new)` on every change, in order; before `run`."""
        self._handlers.append(handler)

    def get(self, key: str) -> Full | None:
        """The workload by `namespace/name`."""
        objects = self._objects.by_index(_GROUP, key)
        if not objects:
            return None
        body = self._assembly.workload([each.body for each in objects], self._uid_of(self._kind, key, objects))
        return Full(msgspec.convert(body["metadata"], Meta), body)

    def keys_of(self, index: str, value: str) -> list[str]:
        """The keys of the workloads that an index of their objects has under this value."""
        return list(dict.fromkeys(key for each in self._objects.by_index(index, value) for key in self._key(each)))

    def add_index(self, name: str, indexer: Callable[[Full], Iterable[str]]) -> None:
        """File objects under the values that the indexer gives; before `run`."""
        self._objects.add_index(name, indexer)

    def __iter__(self) -> Iterator[Full]:
        keys = dict.fromkeys(key for each in self._objects for key in self._key(each))
        return (found for key in keys if (found := self.get(key)) is not None)

    def _key(self, obj: Full) -> list[str]:
        name = self._assembly.name(obj.body)
        return [f"{obj.metadata.namespace}/{name}"] if name else []

    def _changed(self, old: Full | None, new: Full | None) -> None:
        for key in dict.fromkeys(key for each in (old, new) if each is not None for key in self._key(each)):
            before, now = self._told.pop(key, None), self.get(key)
            if now is not None:
                self._told[key] = now
            for handler in self._handlers:
                handler(before, now)
