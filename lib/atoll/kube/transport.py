"""One class per API server: reads, writes and watches of its objects.

Bodies are bytes in and out (typed clients are a hundred times slower and drop fields that they do not know).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Final

import aiohttp
import msgspec
import orjson

from atoll.kube import errors
from atoll.kube.http import JSON, Http, Json, in_words
from atoll.kube.lazylog import get_logger
from atoll.model.apiresource import ApiResource

MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

_METADATA = "application/json;as={};g=meta.k8s.io;v=v1"

_LONGEST_EVENT = 2**26
"""Bytes of one watch event; stores take objects of 1.5 MB."""

PAGE_SIZE: Final = 500
"""Objects in a page of a list."""
LEAST_PAGE_SIZE: Final = 25
"""The same where larger ones do not come."""

log = get_logger(__name__)


class ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    """Metadata of a list answer."""

    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class Page(msgspec.Struct, frozen=True):
    """One page of a list, its items undecoded."""

    metadata: ListMeta = ListMeta()
    items: list[msgspec.Raw] = []


class _Received(msgspec.Struct, frozen=True):
    """A page as it comes: of metadata where there is none, the items are null."""

    metadata: ListMeta = ListMeta()
    items: list[msgspec.Raw] | None = None


_page_decoder = msgspec.json.Decoder(_Received)


def _page(resource: ApiResource, body: bytes) -> Page:
    """The page without the objects that are nested too deeply to be read."""
    try:
        page = _page_decoder.decode(body)
        return Page(page.metadata, page.items or [])
    except RecursionError:
        # Commands start faster without it.
        from atoll.kube import depth

        page = _page_decoder.decode(depth.flattened(body))
    all_items = page.items or []
    items = [item for item in all_items if depth.CUT not in bytes(item)]
    log.warning("objects nested too deeply are left out", resource=resource.plural, count=len(all_items) - len(items))
    return Page(page.metadata, items)


class ApiServer(Http):
    """A client of one API server; use as an async context manager or call `close`."""

    # -- one object --------------------------------------------------------------------------------------------------

    async def get(self, resource: ApiResource, name: str, namespace: str | None = None) -> Json:
        """The object as a dict.

        Raises:
            NotFound: there is none.
        """
        return _loads(await self.request("GET", resource.path(namespace, name)))

    async def create(
        self, resource: ApiResource, obj: Mapping[str, Any], *, field_manager: str = "", dry_run: bool = False
    ) -> Json:
        """Create; the namespace is the object's own. `dry_run`: the server checks it, and keeps nothing.

        Raises:
            AlreadyExists: an object of that name is there.
            Invalid: refused.
        """
        path = resource.path(obj["metadata"].get("namespace"))
        params = {**_manager(field_manager), **({"dryRun": "All"} if dry_run else {})}
        return _loads(await self.request("POST", path, body=orjson.dumps(obj), params=params))

    async def apply(
        self,
        resource: ApiResource,
        obj: Mapping[str, Any],
        *,
        field_manager: str,
        force: bool = True,
        subresource: str | None = None,
    ) -> Json:
        """Server-side apply: creates or updates exactly the fields that are given.

        Raises:
            Conflict: another manager owns one of the fields and `force` is off.
        """
        meta = obj["metadata"]
        return _loads(
            await self.request(
                "PATCH",
                resource.path(meta.get("namespace"), meta["name"], subresource),
                body=orjson.dumps(obj),
                content_type=APPLY_PATCH,
                params={"fieldManager": field_manager, "force": "true" if force else "false"},
            )
        )

    async def merge_patch(
        self,
        resource: ApiResource,
        name: str,
        patch: Mapping[str, Any],
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        field_manager: str = "",
        strategic: bool = False,
    ) -> Json:
        """JSON merge patch (RFC 7386): null deletes. `strategic`: Kubernetes' own kind, which merges lists of built-in
        types by their keys.
        """
        path = resource.path(namespace, name, subresource)
        kind = STRATEGIC_PATCH if strategic else MERGE_PATCH
        return _loads(
            await self.request(
                "PATCH", path, body=orjson.dumps(patch), content_type=kind, params=_manager(field_manager)
            )
        )

    async def json_patch(
        self,
        resource: ApiResource,
        name: str,
        operations: Sequence[Mapping[str, Any]],
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        field_manager: str = "",
    ) -> Json:
        """JSON patch (RFC 6902), all or nothing.

        Raises:
            Invalid: a `test` operation failed, or a path does not exist.
        """
        path = resource.path(namespace, name, subresource)
        return _loads(
            await self.request(
                "PATCH", path, body=orjson.dumps(operations), content_type=JSON_PATCH, params=_manager(field_manager)
            )
        )

    async def replace(
        self, resource: ApiResource, obj: Mapping[str, Any], *, subresource: str | None = None, field_manager: str = ""
    ) -> Json:
        """Replace the object read before; its resourceVersion guards against a lost update.

        Raises:
            Conflict: it changed since.
        """
        meta = obj["metadata"]
        path = resource.path(meta.get("namespace"), meta["name"], subresource)
        return _loads(await self.request("PUT", path, body=orjson.dumps(obj), params=_manager(field_manager)))

    async def create_in(
        self, resource: ApiResource, name: str, namespace: str | None, subresource: str, obj: Mapping[str, Any]
    ) -> Json:
        """POST to a subresource: pods/binding, serviceaccounts/token."""
        return _loads(await self.request("POST", resource.path(namespace, name, subresource), body=orjson.dumps(obj)))

    async def delete(
        self,
        resource: ApiResource,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        version: str | None = None,
        grace_seconds: int | None = None,
        propagation: str | None = "Background",
    ) -> None:
        """Delete; an object that is gone already is no error. With `uid`, only that very object; with `version`, only
        while its resourceVersion is this one.

        Raises:
            Conflict: the object of that name has another UID, or version.
        """
        options: Json = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        if version is not None:
            options.setdefault("preconditions", {})["resourceVersion"] = version
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if propagation is not None:
            options["propagationPolicy"] = propagation
        try:
            await self.request("DELETE", resource.path(namespace, name), body=orjson.dumps(options))
        except errors.NotFound:
            return

    # -- collections -------------------------------------------------------------------------------------------------

    async def pages(
        self,
        resource: ApiResource,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
        page_size: int = PAGE_SIZE,
    ) -> AsyncGenerator[Page, None]:
        """A consistent list, a page at a time; a later page that does not come is asked for again, half as large.

        Args:
            resource: what to list.
            namespace: only there; None for all.
            label_selector: only objects with these labels.
            field_selector: only objects with these fields.
            metadata_only: ask for PartialObjectMetadata; a server that can't answers with whole objects.
            page_size: objects in a page, at first.

        Raises:
            Gone: the list took longer than the server keeps its state; start again.
        """
        params = _selectors(label_selector, field_selector)
        accept = _accept("PartialObjectMetadataList" if metadata_only else None)
        path = resource.path(namespace)
        while True:
            params["limit"] = str(page_size)
            try:
                page = _page(resource, await self.request("GET", path, params=params, accept=accept))
            except (errors.Unreachable, errors.Busy) as error:
                if "continue" not in params or page_size <= LEAST_PAGE_SIZE:
                    raise
                page_size = max(page_size // 2, LEAST_PAGE_SIZE)
                log.info("asking for a smaller page", resource=resource.plural, size=page_size, error=str(error))
                continue
            yield page
            if not page.metadata.continue_:
                return
            params["continue"] = page.metadata.continue_

    async def named(self, resource: ApiResource, name: str, namespace: str | None = None) -> list[Json]:
        """The object as the server, not a cache, has it; empty for none. For accounts that may list, but not get."""
        return await self.list(resource, namespace, field_selector=f"metadata.name={name}")

    async def list(
        self, resource: ApiResource, namespace: str | None = None, *, label_selector: str = "", field_selector: str = ""
    ) -> list[Json]:
        """All objects as dicts: for tools and tests; caches use a Reflector."""
        return [
            _loads(bytes(item))
            async for page in self.pages(
                resource, namespace, label_selector=label_selector, field_selector=field_selector
            )
            for item in page.items
        ]

    async def watch(
        self,
        resource: ApiResource,
        namespace: str | None = None,
        *,
        resource_version: str = "",
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
        initial_events: bool = False,
        inactivity: float = 100.0,
    ) -> AsyncGenerator[bytes, None]:
        """The stream of watch events, one JSON document each, bookmarks included; ends when the server ends it.

        Args:
            resource: what to watch.
            namespace: only there; None for all.
            resource_version: where to start.
            label_selector: only objects with these labels.
            field_selector: only objects with these fields.
            metadata_only: ask for PartialObjectMetadata; a server that can't sends whole objects.
            initial_events: ask for what exists first, as ADDED events closed by a bookmark with annotation
                `k8s.io/initial-events-end: "true"` (a watch-list), at least as new as `resource_version` ("": the
                newest). A server that can't answers Invalid.
            inactivity: seconds of silence after which the connection is taken for dead and the stream ends.

        Raises:
            Unreachable: the stream broke.
            Gone: the resourceVersion is too old (as an answer; inside the stream it is an ERROR event).
        """
        params = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            **({"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"} if initial_events else {}),
            **_selectors(label_selector, field_selector),
        }
        path, accept = resource.path(namespace), _accept("PartialObjectMetadata" if metadata_only else None)
        try:
            async with await self._opened(resource, path, params, accept, inactivity) as response:
                rest = b""
                async for chunk in response.content.iter_any():
                    lines = (rest + chunk if rest else chunk).split(b"\n")
                    rest = lines.pop()
                    if len(rest) > _LONGEST_EVENT:
                        raise errors.Unreachable(f"watch of {path}: an event of more than {_LONGEST_EVENT} bytes")
                    for line in lines:
                        if line:
                            yield line
        except aiohttp.SocketTimeoutError:
            # Silence is no failure: a quiet stream is opened anew from where it was.
            return
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self.requests["WATCH", resource.plural, 0] += 1
            raise errors.Unreachable(f"watch of {self.url}{path} broke: {in_words(error)}") from error


def _loads(body: bytes) -> Json:
    try:
        result = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise errors.Unexpected(f"the answer is no JSON but {body[:100]!r}: is this an API server?") from error
    if not isinstance(result, dict):
        raise errors.Unexpected(f"the answer is no object but {body[:100]!r}: is this an API server?")
    return result


def _accept(reduced: str | None) -> str:
    return f"{_METADATA.format(reduced)},{JSON}" if reduced else JSON


def _manager(name: str) -> dict[str, str]:
    return {"fieldManager": name} if name else {}


def _selectors(labels: str, fields: str) -> dict[str, str]:
    return {**({"labelSelector": labels} if labels else {}), **({"fieldSelector": fields} if fields else {})}
