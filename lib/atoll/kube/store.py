"""Objects by key, with indexes and handlers that always agree with them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

import structlog

from atoll.model.objects import HasMeta

T = TypeVar("T", bound=HasMeta)
Handler = Callable[[T | None, T | None], None]
"""Called with (old, new): old is None for an added object, new is None for a deleted one. It must not block."""

log = structlog.get_logger(__name__)


class Store(Generic[T]):
    """Objects of one resource; handlers and indexes are wired before the first object comes."""

    def __init__(self, name: str) -> None:
        self.name = name
        #: key -> object; mutated only by `put`
        self._store: dict[str, T] = {}
        self._handlers: list[Handler[T]] = []
        self._indexers: dict[str, Callable[[T], Iterable[str]]] = {}
        #: index name -> value -> keys; empty sets are removed
        self._indexes: dict[str, dict[str, set[str]]] = {}

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
        return [self._store[key] for key in self.keys_of(index, value)]

    def keys_of(self, index: str, value: str) -> list[str]:
        """Their keys alone, in order."""
        return sorted(self._indexes[index].get(value, ()))

    def replace(self, obj: T) -> None:
        """Keep this instead of an object that is there, of the same version: its derived form depends on more than
        itself. It counts as a change.
        """
        self.put(obj.metadata.key, obj, anyhow=True)

    def on_change(self, handler: Handler[T]) -> None:
        """Call `handler(old, new)` on every change, in order."""
        self._handlers.append(handler)

    def remove_handler(self, handler: Handler[T]) -> None:
        """Call it no more."""
        self._handlers.remove(handler)

    def add_index(self, name: str, indexer: Callable[[T], Iterable[str]]) -> None:
        """File objects under the values that the indexer gives."""
        self._indexers[name] = indexer
        self._indexes[name] = defaultdict(set)

    def put(self, key: str, new: T | None, *, anyhow: bool = False) -> None:
        """Store and tell; nothing where it is known already, unless `anyhow`."""
        old = self._store.get(key)
        if old is not None and new is not None:
            if old.metadata.uid != new.metadata.uid:
                # Another object of the same name: what follows from the old one must end before the new one counts.
                self._change(key, old, None)
                old = None
            elif old.metadata.resource_version == new.metadata.resource_version and not anyhow:
                return
        if old is not None or new is not None:
            self._change(key, old, new)

    def _change(self, key: str, old: T | None, new: T | None) -> None:
        if new is None:
            del self._store[key]
        else:
            self._store[key] = new
        for name, indexer in self._indexers.items():
            self._file(self._indexes[name], key, self._values(indexer, old), self._values(indexer, new))
        for handler in self._handlers:
            try:
                handler(old, new)
            except Exception:
                log.exception("a change handler failed", resource=self.name, key=key)

    def _values(self, indexer: Callable[[T], Iterable[str]], obj: T | None) -> set[str]:
        try:
            return set(indexer(obj)) if obj is not None else set()
        except Exception:
            log.exception("an indexer failed", resource=self.name)
            return set()

    @staticmethod
    def _file(index: dict[str, set[str]], key: str, before: set[str], after: set[str]) -> None:
        for value in before - after:
            index[value].discard(key)
            if not index[value]:
                del index[value]
        for value in after - before:
            index[value].add(key)
