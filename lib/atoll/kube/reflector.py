"""A cache of one resource, kept by list and watch: the only way in which Atoll learns of changes.

It lists page by page, or by a watch that begins with what exists; resumes from the last resourceVersion, bookmarks
included; lists again when that has expired and tells handlers the difference; backs off with jitter and forgets the
backoff only after a healthy stream; and takes a silent connection for dead.

Newer wins. Within one resource, resourceVersions that are decimal numbers are compared as such: Kubernetes guarantees
that from 1.35 on (KEP-5504), and before it they were etcd's revisions. A version of any other form is equal to itself
and not comparable with others; then the order of arrival counts.
"""

from __future__ import annotations

import asyncio
import gc
import math
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import NoReturn

import msgspec
import structlog

from atoll.kube import client_metrics, depth, errors
from atoll.kube.backoff import pause
from atoll.kube.shared_texts import SharedTexts
from atoll.kube.store import Store, T
from atoll.kube.transport import LEAST_PAGE_SIZE, PAGE_SIZE, ApiServer, Page
from atoll.model import versions
from atoll.model.apiresource import ApiResource
from atoll.model.objects import Meta, decode_meta

_HEALTHY_AFTER = 5.0
"""Seconds for which a stream must have lived to end a series of failures."""
_BACKOFF_FIRST, _BACKOFF_MAX = 0.2, 30.0
_INITIAL_SILENCE = 30.0
"""Seconds between what a watch-list tells: a server that does not know the wish never says that it is done."""
_ASKED_AGAIN = 6
"""Answers that there is no such resource, after which it is not asked for again until a caller says so; 6 s."""
_STALE_LISTS = 3
"""Lists older than observed versions, after which the store must have been put back to an earlier state."""
_TOMBSTONES = 1024
_TURN = 0.01
"""Seconds of work after which the event loop gets a turn."""
_FREEZE_EVERY = 10_000
"""Objects of the first list after which the garbage collector stops looking at present objects."""
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What a decoder raises: of bytes that are no JSON or of the wrong types, no UTF-8, or nested too deeply."""
_INITIAL_END = "k8s.io/initial-events-end"

log = structlog.get_logger(__name__)


class _Event(msgspec.Struct, frozen=True, gc=False):
    type: str
    object: msgspec.Raw


class _Status(msgspec.Struct, frozen=True):
    code: int = 0
    reason: str = ""
    message: str = ""


class _Marked(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    annotations: dict[str, str] = {}


class _Bookmark(msgspec.Struct, frozen=True):
    metadata: _Marked = _Marked()


_event_decoder = msgspec.json.Decoder(_Event)
_status_decoder = msgspec.json.Decoder(_Status)
_bookmark_decoder = msgspec.json.Decoder(_Bookmark)


class _Distrusted(Exception):
    """The server's answer can't be right; only a new list can help."""


class StoreWentBack(Exception):
    """The store was put back to an earlier state. Later decisions, objects and promises are not known there: only a
    process that begins anew agrees with it.
    """


class _NoWatchList(Exception):
    """The server does not close the events of what exists."""


class _Initial:
    """A watch-list that is under way."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        #: resourceVersion of the list, once complete; empty before
        self.end = ""


class _Source:
    """The objects of one reflector at the server."""

    def __init__(
        self,
        api: ApiServer,
        resource: ApiResource,
        namespace: str | None,
        labels: str,
        fields: str,
        metadata_only: bool,
    ) -> None:
        """With arguments as of `Reflector`."""
        self._api, self._resource, self._namespace = api, resource, namespace
        self._labels, self._fields, self._metadata_only = labels, fields, metadata_only

    def watch(self, version: str, *, initial: bool, inactivity: float) -> AsyncGenerator[bytes, None]:
        """Lines of a stream from this version on; `initial`: events of present objects come first."""
        return self._api.watch(
            self._resource,
            self._namespace,
            resource_version=version,
            label_selector=self._labels,
            field_selector=self._fields,
            metadata_only=self._metadata_only,
            initial_events=initial,
            inactivity=inactivity,
        )

    async def version(self) -> str:
        """The server's present one."""
        async with aclosing(self._list(1, metadata_only=True)) as pages:
            return (await anext(pages)).metadata.resource_version

    async def pages(self, size: int) -> AsyncGenerator[Page, None]:
        """The pages of a list, the next one under way while the caller works on this one."""
        source = self._list(size, metadata_only=self._metadata_only)

        async def ask() -> Page | None:
            return await anext(source, None)

        ahead = asyncio.create_task(ask())
        try:
            while (page := await ahead) is not None:
                ahead = asyncio.create_task(ask())
                yield page
        finally:
            ahead.cancel()
            await asyncio.gather(ahead, return_exceptions=True)
            await source.aclose()

    def _list(self, size: int, *, metadata_only: bool) -> AsyncGenerator[Page, None]:
        return self._api.pages(
            self._resource,
            self._namespace,
            label_selector=self._labels,
            field_selector=self._fields,
            metadata_only=metadata_only,
            page_size=size,
        )


class Reflector(Store[T]):
    """The objects of one resource, as last reported by the API server.

    Handlers hear of every object in the order of its changes: never an older state after a newer one, and of an
    object that was deleted and made anew under the same name first the deletion, then the new object. States in
    between may be left out where the stream was interrupted.
    """

    def __init__(
        self,
        api: ApiServer,
        resource: ApiResource,
        decode: Callable[[msgspec.Raw], T],
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
        watch_list: bool = False,
        inactivity: float = 100.0,
        relist_after: float = math.inf,
        optional: bool = False,
        withheld: bool = False,
    ) -> None:
        """No I/O happens here; `run` does it.

        Args:
            api: the API server.
            resource: what to watch.
            decode: makes the cached value of an object's JSON; an object that it can't decode is logged and left out.
            namespace: only this namespace; None for all.
            label_selector: only objects with these labels.
            field_selector: only objects with these fields.
            metadata_only: have the server send nothing but metadata.
            watch_list: have the first state sent as a stream, which costs the server less memory than a list; where
                it refuses, pages are read.
            inactivity: seconds of silence after which a stream is opened anew; longer than the server's bookmarks
                are apart (a minute).
            relist_after: seconds of silence before an interruption after which what exists is listed, and the changes
                since are left out: for handlers that act on each state, also on one that is long over.
            optional: a server without this resource has no objects of it, instead of being broken; `look` says that it
                may have it now.
            withheld: the same of a server that does not let this account read it.
        """
        super().__init__(resource.plural)
        self.resource = resource
        self._decode = decode
        self._source = _Source(api, resource, namespace, label_selector, field_selector, metadata_only)
        self._watch_list, self._inactivity, self._relist_after = watch_list, inactivity, relist_after
        #: objects in the first page of the next list
        self._page_size = PAGE_SIZE
        #: where a watch is resumed; empty when only a list can help
        self._version = ""
        #: whether the server did not answer the last attempt
        self._was_away = False
        #: whether the last stream ended before its time
        self._interrupted = False
        #: the highest number that was seen as a version, and that of the last list; -1 = none
        self._newest = self._listed = -1
        self._deleted = _Tombstones()
        #: lists in a row older than observed versions
        self._stale_lists = 0
        #: the watch-list that is under way
        self._initial: _Initial | None = None
        #: number of the version at which the current stream began
        self._opened_at = -1
        #: loop time of the first sign of life of the current stream
        self._alive_since: float | None = None
        self._texts = SharedTexts()
        #: objects present when the garbage collector was last frozen
        self._frozen = 0
        self.synced = asyncio.Event()
        #: set when `_newest` rises
        self._rose = asyncio.Event()
        self._optional, self._withheld = optional, withheld
        #: answers in a row that there is no such resource
        self._missed = 0
        self._may_be_there = asyncio.Event()
        #: whether the server has no such resource, by its last answer
        self.absent = False
        self.relists = 0
        #: events older than known versions
        self.stale = 0
        self.heard_at = time.monotonic()
        #: time.monotonic() of the last attempt to list or watch; None while `run` does not run
        self._tried_at: float | None = None
        client_metrics.caches.add(self)

    @property
    def active_at(self) -> float | None:
        """time.monotonic() of the last attempt or sign of life; None while `run` does not run.

        A server that is away does not make this old: only a task that hangs does.
        """
        return None if self._tried_at is None else max(self._tried_at, self.heard_at)

    def look(self) -> None:
        """The server may have this resource now: ask at once."""
        self._may_be_there.set()

    async def reach(self, version: str) -> None:
        """Wait until all changes up to this version, a number, are in the cache. Where none follows, only a bookmark
        says so, a minute later.
        """
        while self._newest < versions.number(version):
            self._rose.clear()
            await self._rose.wait()

    def begin_anew(self) -> None:
        """List what exists when `run` runs next; `synced` waits for that."""
        self._version = ""
        self.synced.clear()

    async def run(self) -> None:
        """List and watch until cancelled.

        Raises:
            StoreWentBack: the process has to end, and to be started again.
        """
        try:
            await self._keep()
        finally:
            self._tried_at = None

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            self._tried_at = time.monotonic()
            self._may_be_there.clear()
            self._alive_since, at_least, orderly = None, 0.0, False
            try:
                await self._follow_from_where_it_was()
                orderly = True
            except (errors.Gone, errors.Invalid, errors.Unexpected) as error:
                # An ordinary end for Gone; whatever else the server has against this version, a list has none.
                self._version = ""
                log.info("listing again", resource=self.name, why=str(error))
            except (_Distrusted, *_UNREADABLE) as error:
                # Where not even the frame of an event can be read, nothing that follows in the stream can be trusted.
                self._version = ""
                log.warning("watch can't be trusted, listing again", resource=self.name, error=str(error))
            except (errors.NotFound, errors.Forbidden) as error:
                if not (self._optional if isinstance(error, errors.NotFound) else self._withheld):
                    log.warning("watch interrupted", resource=self.name, error=str(error))
                elif await self._is_absent():
                    failures = 0
                    continue
            except errors.ApiError as error:
                at_least = min(error.retry_after or 0.0, _BACKOFF_MAX)
                log.warning("watch interrupted", resource=self.name, error=str(error))
                self._was_away = self._was_away or self._alive_since is None
                self._interrupted = True
            if self._alive_since is not None and loop.time() - self._alive_since >= _HEALTHY_AFTER:
                failures = 0
                if orderly:
                    # Servers end every watch after some minutes; nothing is wrong.
                    continue
            failures += 1
            await asyncio.sleep(max(pause(_BACKOFF_FIRST, failures, _BACKOFF_MAX), at_least))

    async def _is_absent(self) -> bool:
        """Whether there is no such resource; then this returns when that may have changed.

        Objects that are known are forgotten only when the server insists. After `look`, it is asked for a while: a
        resource is served some time after its definition is there.
        """
        self._version = ""
        self._missed += 1
        if len(self._store) and self._missed < _STALE_LISTS:
            return False
        await self._complete(set(), "")
        if not self.absent:
            self.absent = True
            log.info("the server does not have this resource", resource=self.name)
        if self._missed <= _ASKED_AGAIN:
            return False
        self._tried_at = None
        await self._may_be_there.wait()
        self._missed = 0
        return True

    async def _follow_from_where_it_was(self) -> None:
        if not self._version and self._watch_list and not self._stale_lists:
            try:
                return await self._follow(_Initial())
            except (errors.Invalid, _NoWatchList):
                self._watch_list = False
                log.info("the server has no watch-list, reading pages", resource=self.name)
        if self._interrupted and time.monotonic() - self.heard_at > self._relist_after:
            self._version = ""
        if self._version and self._was_away:
            await self._compare_with_server()
        self._was_away = self._interrupted = False
        if not self._version:
            await self._list()
        return await self._follow(None)

    async def _compare_with_server(self) -> None:
        """After a time without an answer: where the store was put back, a watch from a version that it does not have
        any more is silent, and what changed is never heard.
        """
        now = await self._source.version()
        if 0 <= versions.number(now) < versions.number(self._version):
            raise _Distrusted(f"the server is at {now}, before {self._version}")

    async def _follow(self, initial: _Initial | None) -> None:
        """Watch until the stream ends; with `initial`, what exists comes first."""
        loop = asyncio.get_running_loop()
        self._initial, opened, turn = initial, loop.time(), _Turn()
        self._opened_at = versions.number(self._version)
        lines = self._source.watch(self._version, initial=initial is not None, inactivity=self._inactivity)
        try:
            async with asyncio.timeout(_INITIAL_SILENCE if initial is not None else None) as limit, aclosing(lines):
                async for line in lines:
                    if self._alive_since is None:
                        self._alive_since = loop.time()
                    self.take_line(line)
                    if initial is not None and initial.end:
                        limit.reschedule(None)
                        await self._complete(initial.seen, initial.end)
                        self._initial = initial = None
                    if await turn.give() and initial is not None:
                        limit.reschedule(loop.time() + _INITIAL_SILENCE)
        except TimeoutError:
            raise _NoWatchList from None
        finally:
            self._initial = None
        if self._alive_since is None:
            # No events came, and ended as it should: a quiet resource.
            self._alive_since = opened

    async def _list(self) -> None:
        """Read all pages; the next attempt begins with smaller ones if not even the first comes."""
        turn, seen, version = _Turn(), set[str](), ""
        size, self._page_size = self._page_size, max(self._page_size // 2, LEAST_PAGE_SIZE)
        async with aclosing(self._source.pages(size)) as pages:
            async for page in pages:
                self.heard_at = time.monotonic()
                if not version:
                    self._compare_with_seen(page.metadata.resource_version)
                for raw in page.items:
                    obj = self._decoded(raw)
                    if obj is not None:
                        key = obj.metadata.key
                        seen.add(key)
                        known = self._store.get(key)
                        if known is not None and versions.older(
                            obj.metadata.resource_version, known.metadata.resource_version
                        ):
                            self._doubt(f"{self.name} {key} is older in a list than it was before")
                        self.put(key, obj)
                    await turn.give()
                version = page.metadata.resource_version
                self._freeze()
        self._page_size = PAGE_SIZE
        await self._complete(seen, version)

    async def _complete(self, seen: set[str], version: str) -> None:
        """The list is complete: objects outside of it are gone."""
        turn = _Turn()
        if self._initial is not None:
            self._compare_with_seen(version)
        for key in [key for key in self._store if key not in seen]:
            self.put(key, None)
            await turn.give()
        self._version, self._listed, self._stale_lists = version, versions.number(version), 0
        if version:
            self._missed, self.absent = 0, False
        self._newest = self._listed
        self._rose.set()
        self._deleted = _Tombstones()
        if self.synced.is_set():
            self.relists += 1
        self._freeze()
        self.synced.set()

    def _compare_with_seen(self, version: str) -> None:
        """Doubt a list that goes back behind observed versions, and believe it when the server insists.

        An API server that lags behind the one asked before must not undo the newer answer; but after the store was
        restored from a backup its versions are lower for good.
        """
        if versions.number(version) < 0 or versions.number(version) >= self._newest:
            return
        self._doubt(f"{self.name} are at {version} after {self._newest}")

    def _doubt(self, why: str) -> NoReturn:
        self._stale_lists += 1
        if self._stale_lists < _STALE_LISTS:
            raise _Distrusted(why)
        raise StoreWentBack(f"{why}: the store was put back")

    def take_line(self, line: bytes) -> str | None:
        """Take one watch event in and give its resourceVersion."""
        self.heard_at = time.monotonic()
        too_deep = False
        try:
            event = _event_decoder.decode(line)
        except RecursionError:
            event = _event_decoder.decode(depth.flattened(line))
            too_deep = depth.CUT in bytes(event.object)
            log.warning("object is nested too deeply and is left out", resource=self.name)
        if event.type == "BOOKMARK":
            return self._bookmark(event.object)
        if event.type == "ERROR":
            status = _status_decoder.decode(event.object)
            message = f"watch of {self.name}: {status.message}"
            if status.code == 410:
                raise errors.Gone(message, code=410, reason=status.reason)
            raise errors.Unexpected(message, code=status.code, reason=status.reason)
        deleted = event.type == "DELETED"
        obj = None if deleted or too_deep else self._decoded(event.object)
        try:
            meta: Meta = obj.metadata if obj is not None else decode_meta(event.object).metadata
        except _UNREADABLE as error:
            log.warning("object can't be named", resource=self.name, error=str(error))
            return self._advanced(_bookmark_decoder.decode(event.object).metadata.resource_version)
        key = meta.key
        if self._outdated(key, meta.resource_version):
            self.stale += 1
        else:
            self.put(key, obj)
            if deleted:
                # No late event brings it back.
                self._deleted.add(key, versions.number(meta.resource_version))
        if self._initial is not None:
            self._initial.seen.add(key)
            return meta.resource_version
        return self._advanced(meta.resource_version)

    def _bookmark(self, raw: msgspec.Raw) -> str:
        mark = _bookmark_decoder.decode(raw).metadata
        if self._initial is None:
            if 0 <= versions.number(mark.resource_version) < self._opened_at:
                raise _Distrusted(f"the server is at {mark.resource_version}, before {self._opened_at} of this stream")
            return self._advanced(mark.resource_version)
        if mark.annotations.get(_INITIAL_END) == "true":
            self._initial.end = mark.resource_version
        return mark.resource_version

    def _advanced(self, version: str) -> str:
        """Resume here from now on; not at an event that came too late."""
        number = versions.number(version)
        if number < 0 or number >= self._newest:
            self._version, self._newest = version, max(number, self._newest)
            self._rose.set()
        return version

    def _outdated(self, key: str, version: str) -> bool:
        """Whether an event tells nothing new about an object.

        A stream is in the order of versions, so this is the case of a server, or of something on the way, that
        repeats events or mixes their order.
        """
        number = versions.number(version)
        if number > self._newest or number < 0:
            return False
        known = self._store.get(key)
        if known is not None:
            return number < versions.number(known.metadata.resource_version)
        if self._initial is not None:
            return False
        if number <= max(self._listed, self._deleted.at(key)):
            return True
        if number <= self._deleted.forgotten:
            raise _Distrusted(f"{key} at {version} comes too late to tell whether it was deleted since")
        return False

    def _decoded(self, raw: msgspec.Raw) -> T | None:
        try:
            obj = self._decode(raw)
            self._texts.share(obj.metadata, len(self._store))
            return obj
        except Exception as error:  # any content of an object: it must not keep us from the others
            log.warning("object can't be read and is left out", resource=self.name, error=str(error))
            return None

    def _freeze(self) -> None:
        """Keep the garbage collector from looking at every object of a large cache, and stopping the loop for it."""
        if not self.synced.is_set() and len(self._store) >= self._frozen + _FREEZE_EVERY:
            self._frozen = len(self._store)
            gc.freeze()


class _Tombstones:
    """Versions at which objects were deleted, the last ones by key."""

    def __init__(self) -> None:
        self._at: dict[str, int] = {}
        #: the highest version of one that is not known by key any more; -1 = none
        self.forgotten = -1

    def add(self, key: str, version: int) -> None:
        self._at[key] = version
        if len(self._at) > _TOMBSTONES:
            self.forgotten = max(self.forgotten, self._at.pop(next(iter(self._at))))

    def at(self, key: str) -> int:
        """The version at which it was deleted; -1 = not known."""
        return self._at.get(key, -1)


class _Turn:
    """Gives the event loop a turn when there was none for a while."""

    def __init__(self) -> None:
        self._since = time.perf_counter()

    async def give(self) -> bool:
        """Whether it was given one."""
        if time.perf_counter() - self._since < _TURN:
            return False
        await asyncio.sleep(0)
        self._since = time.perf_counter()
        return True
