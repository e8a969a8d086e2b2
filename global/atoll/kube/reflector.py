"""A cache of one resource, kept by list and watch: the only way in which Atoll learns of changes.

It resumes from the last resourceVersion (bookmarks included), lists again when that has expired and tells handlers
the difference, backs off with jitter and forgets the backoff only after a healthy stream, and takes a silent
connection for dead.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

import msgspec
import structlog

from atoll.kube import errors, metrics
from atoll.kube.transport import ApiServer
from atoll.model.apiresource import ApiResource
from atoll.model.objects import HasMeta, decode_meta

T = TypeVar("T", bound=HasMeta)
Handler = Callable[[T | None, T | None], None]
"""Called with (old, new): old is None for an added object, new is None for a deleted one. It must not block."""

_HEALTHY_AFTER = 5.0
_BACKOFF_FIRST, _BACKOFF_MAX = 0.2, 30.0

log = structlog.get_logger(__name__)


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _Status(msgspec.Struct, frozen=True):
    code: int = 0
    reason: str = ""
    message: str = ""


class _Marked(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _Bookmark(msgspec.Struct, frozen=True):
    metadata: _Marked = _Marked()


_event_decoder = msgspec.json.Decoder(_Event)
_status_decoder = msgspec.json.Decoder(_Status)
_bookmark_decoder = msgspec.json.Decoder(_Bookmark)


class Reflector(Generic[T]):
    """The objects of one resource, as the API server last told them."""

    def __init__(
        self,
        api: ApiServer,
        resource: ApiResource,
        decode: Callable[[msgspec.Raw], T],
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
    ) -> None:
        """No I/O happens here; `run` does it.

        Args:
            api: the API server.
            resource: what to watch.
            decode: makes the cached value of an object's JSON; an object that it can't decode is logged and left out.
            namespace: only this namespace; None for all.
            label_selector: only objects with these labels.
            field_selector: only objects with these fields.
        """
        self._api = api
        self.resource = resource
        self._decode = decode
        self._namespace = namespace
        self._labels, self._fields = label_selector, field_selector
        #: key -> object; mutated only by `_put`, so that indexes and handlers always agree with it
        self._store: dict[str, T] = {}
        self._handlers: list[Handler[T]] = []
        self._indexers: dict[str, Callable[[T], Iterable[str]]] = {}
        #: index name -> value -> keys; empty sets are removed
        self._indexes: dict[str, dict[str, set[str]]] = {}
        self.synced = asyncio.Event()
        self.relists = 0
        self.heard_at = time.monotonic()
        metrics.caches.add(self)

    @property
    def name(self) -> str:
        return self.resource.plural

    # -- reading -----------------------------------------------------------------------------------------------------

    def get(self, key: str) -> T | None:
        """The object by `namespace/name` (or name)."""
        return self._store.get(key)

    def __iter__(self) -> Iterator[T]:
        return iter(self._store.values())

    def __len__(self) -> int:
        return len(self._store)

    @property
    def store(self) -> Mapping[str, T]:
        return self._store

    def by_index(self, index: str, value: str) -> list[T]:
        """The objects that the indexer filed under this value, in order of their keys."""
        return [self._store[key] for key in sorted(self._indexes[index].get(value, ()))]

    # -- wiring, before `run` ----------------------------------------------------------------------------------------

    def on_change(self, handler: Handler[T]) -> None:
        """Call `handler(old, new)` on every change, in order."""
        self._handlers.append(handler)

    def add_index(self, name: str, indexer: Callable[[T], Iterable[str]]) -> None:
        """File objects under the values that the indexer gives."""
        self._indexers[name] = indexer
        self._indexes[name] = defaultdict(set)

    # -- running -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """List and watch until cancelled."""
        version = ""
        failures = 0
        while True:
            started = asyncio.get_running_loop().time()
            try:
                if not version:
                    version = await self._list()
                    self.synced.set()
                async for line in self._api.watch(
                    self.resource,
                    self._namespace,
                    resource_version=version,
                    label_selector=self._labels,
                    field_selector=self._fields,
                ):
                    version = self._handle(line) or version
            except errors.Gone:
                version = ""
                self.relists += 1
            except msgspec.MsgspecError as error:
                # Not even the frame of an event can be read: nothing that follows in this stream can be trusted.
                version = ""
                log.warning("watch can't be read, listing again", resource=self.resource.plural, error=str(error))
            except errors.ApiError as error:
                log.warning("watch interrupted", resource=self.resource.plural, error=str(error))
            if asyncio.get_running_loop().time() - started > _HEALTHY_AFTER:
                failures = 0
            failures += 1
            ceiling = min(_BACKOFF_FIRST * 2 ** min(failures - 1, 10), _BACKOFF_MAX)
            await asyncio.sleep(random.uniform(ceiling / 2, ceiling))

    async def _list(self) -> str:
        seen: set[str] = set()
        version = ""
        self.heard_at = time.monotonic()
        async for page in self._api.pages(
            self.resource, self._namespace, label_selector=self._labels, field_selector=self._fields
        ):
            for raw in page.items:
                obj = self._decoded(raw)
                if obj is not None:
                    seen.add(obj.metadata.key)
                    self._put(obj.metadata.key, obj)
            version = page.metadata.resource_version
        for key in [key for key in self._store if key not in seen]:
            self._put(key, None)
        return version

    def _handle(self, line: bytes) -> str | None:
        """Take one watch event in and give the resourceVersion to resume from."""
        self.heard_at = time.monotonic()
        event = _event_decoder.decode(line)
        if event.type == "BOOKMARK":
            return _bookmark_decoder.decode(event.object).metadata.resource_version
        if event.type == "ERROR":
            status = _status_decoder.decode(event.object)
            message = f"watch of {self.resource.plural}: {status.message}"
            if status.code == 410:
                raise errors.Gone(message, code=410, reason=status.reason)
            raise errors.Unexpected(message, code=status.code, reason=status.reason)
        obj = None if event.type == "DELETED" else self._decoded(event.object)
        try:
            self._put(decode_meta(event.object).metadata.key, obj)
        except msgspec.MsgspecError as error:
            log.warning("object can't be named", resource=self.resource.plural, error=str(error))
        return _bookmark_decoder.decode(event.object).metadata.resource_version

    def _decoded(self, raw: msgspec.Raw) -> T | None:
        try:
            return self._decode(raw)
        except msgspec.MsgspecError as error:
            log.warning("object can't be read and is left out", resource=self.resource.plural, error=str(error))
            return None

    def _put(self, key: str, new: T | None) -> None:
        old = self._store.get(key)
        if new is None:
            if old is None:
                return
            del self._store[key]
        else:
            if old is not None and old.metadata.resource_version == new.metadata.resource_version:
                return
            self._store[key] = new
        for name, indexer in self._indexers.items():
            index = self._indexes[name]
            before = set(indexer(old)) if old is not None else set()
            after = set(indexer(new)) if new is not None else set()
            for value in before - after:
                index[value].discard(key)
                if not index[value]:
                    del index[value]
            for value in after - before:
                index[value].add(key)
        for handler in self._handlers:
            try:
                handler(old, new)
            except Exception:
                log.exception("a change handler failed", resource=self.resource.plural, key=key)
