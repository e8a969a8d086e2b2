"""One class per API server: every request that Atoll makes goes through here.

Bodies are bytes in and out (typed clients are a hundred times slower and drop fields that they do not know). Each
call has a deadline; a call that is safe to repeat is repeated while the deadline lasts, honouring Retry-After.
Credentials that the server does not know any more are renewed once.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import random
import re
import socket
import ssl
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, Self

import aiohttp
import msgspec
import orjson
from yarl import URL

from atoll.kube import client_metrics, config, depth, errors
from atoll.kube.backoff import ceiling
from atoll.kube.drain import Writes, keeps_leadership
from atoll.kube.lazylog import get_logger
from atoll.kube.pace import Pace
from atoll.kube.ratelimit import RateLimit
from atoll.model.apiresource import ApiResource
from atoll.model.release import VERSION

Json = dict[str, Any]

MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

_JSON = "application/json"
_METADATA = "application/json;as={};g=meta.k8s.io;v=v1"

_IN_ONE_PIECE: Final = 1 << 20
"""Bytes of a request."""
PAGE_SIZE = 500
"""Objects in a page of a list."""
LEAST_PAGE_SIZE = 25
"""The same where larger ones do not come."""
_DEADLINE = 15.0
_CONNECT = 5.0
_LONGEST_EVENT = 2**26
"""Bytes of one watch event; stores take objects of 1.5 MB."""


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

log = get_logger(__name__)


def _page(resource: ApiResource, body: bytes) -> Page:
    """The page without the objects that are nested too deeply to be read."""
    try:
        page = _page_decoder.decode(body)
        return Page(page.metadata, page.items or [])
    except RecursionError:
        page = _page_decoder.decode(depth.flattened(body))
    all_items = page.items or []
    items = [item for item in all_items if depth.CUT not in bytes(item)]
    log.warning("objects nested too deeply are left out", resource=resource.plural, count=len(all_items) - len(items))
    return Page(page.metadata, items)


class ApiServer:
    """A client of one API server; use as an async context manager or call `close`."""

    def __init__(
        self,
        connection: config.Connection,
        *,
        user_agent: str = "atoll",
        connections: int = 64,
        rate: RateLimit | None = None,
        on_warning: Callable[[str], None] | None = None,
    ) -> None:
        """No I/O happens here.

        Args:
            connection: where it is and who we are.
            user_agent: shown in the server's audit log with the version, `atoll-agent/alpha` as
                `atoll-agent/<version> (alpha)`.
            connections: most requests under way at once; watches have connections of their own.
            rate: most requests in a second, watches included, those about leases excepted; several clients may share
                one. None: no limit but the server's own.
            on_warning: gets what the server, or a webhook, says of a request besides its answer.
        """
        self._connection = connection
        self._environment_proxy: str | None = None
        self._on_warning = on_warning
        self._user_agent = user_agent
        self._limit = connections
        self._rate = rate
        self._session: aiohttp.ClientSession | None = None
        self._watches: aiohttp.ClientSession | None = None
        #: (verb, resource, code) -> requests answered; code 0 = no answer
        self.requests: Counter[tuple[str, str, int]] = Counter()
        #: verb -> seconds until the whole answer was there; of a watch, until it began
        self.seconds: defaultdict[str, client_metrics.Durations] = defaultdict(client_metrics.Durations)
        self.writes = Writes()
        self.pace = Pace()
        client_metrics.clients.add(self)

    @classmethod
    async def from_kubeconfig(
        cls,
        kubeconfig: str | Path | None = None,
        context: str | None = None,
        *,
        user_agent: str = "atoll",
        connections: int = 64,
        rate: RateLimit | None = None,
        on_warning: Callable[[str], None] | None = None,
    ) -> Self:
        """A client by a kubeconfig file, or by what the environment offers when none is named.

        Raises:
            BadKubeconfig: it can't be used.
        """
        connection = await config.load(kubeconfig, context)
        return cls(connection, user_agent=user_agent, connections=connections, rate=rate, on_warning=on_warning)

    @property
    def url(self) -> str:
        return self._connection.url

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection; the object can be used again."""
        for session in (self._session, self._watches):
            if session is not None:
                await session.close()
        self._session = self._watches = None

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
            async with await self._watch(resource, path, params, accept, inactivity) as response:
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
            raise errors.Unreachable(f"watch of {self.url}{path} broke: {_in_words(error)}") from error

    async def _watch(
        self, resource: ApiResource, path: str, params: Mapping[str, str], accept: str, inactivity: float | None
    ) -> aiohttp.ClientResponse:
        """The answer of a watch that was taken; that must come as soon as any other, what follows may take long."""
        if self._watches is None:
            self._watches = self._new_session(0)
        if self._rate is not None:
            await self._rate.take(float("inf"))
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT, sock_read=inactivity)
        while True:
            began = asyncio.get_running_loop().time()
            async with asyncio.timeout(_DEADLINE):
                options = await self._options(accept)
                response = await self._watches.get(self._target(path), params=params, timeout=timeout, **options)
            self.requests["WATCH", resource.plural, response.status] += 1
            if response.status == 200:
                self.seconds["WATCH"].observe(asyncio.get_running_loop().time() - began)
                return response
            async with response, asyncio.timeout(_DEADLINE):
                error = errors.from_response(
                    response.status, await response.read(), response.headers.get("Retry-After"), f"WATCH {path}"
                )
                if not (isinstance(error, errors.Unauthorized) and await self._renewed(options)):
                    raise error

    # -- what goes on and on -----------------------------------------------------------------------------------------

    async def stream(
        self, resource: ApiResource, path: str, params: Mapping[str, str], *, silence: float | None = None
    ) -> AsyncGenerator[bytes, None]:
        """The body of a GET as it comes, such as a log that is followed.

        Args:
            resource: that it is about.
            path: of the request.
            params: of the query.
            silence: seconds without a byte after which the connection is taken for dead; None for any.

        Raises:
            Unreachable: it broke.
        """
        try:
            async with await self._watch(resource, path, params, "*/*", silence) as response:
                async for chunk in response.content.iter_any():
                    yield chunk
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise errors.Unreachable(f"GET {self.url}{path} broke: {_in_words(error)}") from error

    @contextlib.asynccontextmanager
    async def websocket(
        self,
        path: str,
        *,
        heartbeat: float,
        params: Sequence[tuple[str, str]] = (),
        protocols: Sequence[str] = (),
    ) -> AsyncGenerator[aiohttp.ClientWebSocketResponse, None]:
        """A connection on which both sides speak; after `heartbeat` seconds of silence a sign of life is asked for.

        Raises:
            ApiError: it is refused.
            Unreachable: it can't be made.
        """
        if self._watches is None:
            self._watches = self._new_session(0)
        options = await self._options("*/*")
        options.pop("allow_redirects")
        try:
            async with asyncio.timeout(_DEADLINE):
                socket = await self._watches.ws_connect(
                    self._target(path), heartbeat=heartbeat, params=list(params), protocols=protocols, **options
                )
        except aiohttp.WSServerHandshakeError as error:
            refused = errors.from_response(error.status, b"", None, f"GET {path}")
            if isinstance(refused, errors.Unauthorized):
                await self._renewed(options)
            raise refused from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise errors.Unreachable(f"GET {self.url}{path}: {_in_words(error)}") from error
        async with socket:
            yield socket

    # -- any request -------------------------------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content_type: str = "application/json",
        params: Mapping[str, str] | None = None,
        accept: str = _JSON,
        deadline: float = _DEADLINE,
    ) -> bytes:
        """Send a request and give the body of a 2xx answer.

        Reads are repeated while the deadline lasts when the server is unreachable or busy. Writes are repeated only
        after 429 and after a connection that could not be made, when it is certain that nothing was done. Anything is
        repeated once after 401, if the credentials could be renewed.

        Raises:
            ApiError: see `atoll.kube.errors`; `Unreachable` once the deadline has passed.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + deadline

        failures = 0
        while True:
            try:
                rate = None if keeps_leadership(path) else self._rate
                if rate is not None and not await rate.take(end - loop.time()):
                    raise errors.Busy(f"{method} {path}: our own limit, {rate.qps:g} a second, leaves no time")
                async with self.writes.passing(method, path):
                    left = max(end - loop.time(), 0.05)
                    return await self._once(method, path, body, content_type, params, accept, left)
            except errors.ApiError as error:
                pause = _pause(error, failures)
                if not _repeatable(method, error) or loop.time() + pause >= end:
                    raise
            failures += 1
            await asyncio.sleep(pause)

    async def _once(
        self,
        method: str,
        path: str,
        body: bytes | None,
        content_type: str,
        params: Mapping[str, str] | None,
        accept: str,
        timeout: float,
    ) -> bytes:
        if self._session is None:
            self._session = self._new_session(self._limit)
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            async with asyncio.timeout(timeout):
                options = await self._options(accept)
                if body is not None:
                    options["headers"]["Content-Type"] = content_type
                async with self._session.request(
                    method, self._target(path), data=_payload(body), params=params, timeout=_TIMEOUT, **options
                ) as response:
                    content = await response.read()
                    self.requests[method, _plural(path), response.status] += 1
                    self.seconds[method].observe(clock() - began)
                    if method != "GET":
                        self.pace.observe(clock() - began)
                    if self._on_warning is not None:
                        for warning in _warnings(response.headers.getall("Warning", ())):
                            self._on_warning(warning)
                    if response.status < 300:
                        return content
                    raise await self._refusal(response, content, f"{method} {path}", options)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self.requests[method, _plural(path), 0] += 1
            raise errors.Unreachable(f"{method} {self.url}{path}: {_in_words(error)}") from error

    async def _refusal(
        self, response: aiohttp.ClientResponse, content: bytes, request: str, options: Json
    ) -> errors.ApiError:
        """The error for an answer. Who raises it must not have it in a variable: it would end in a cycle with its own
        traceback, which is garbage that only a collection frees, and none does that after one came in between.
        """
        error = errors.from_response(response.status, content, response.headers.get("Retry-After"), request)
        if isinstance(error, errors.Unauthorized):
            error.renewed = await self._renewed(options)
        return error

    async def _renewed(self, refused: Json) -> bool:
        """Whether there are other credentials than the ones of a request that was answered with 401."""
        if self._connection.tls is not refused.get("ssl"):
            return True
        return await self._connection.renew(refused["headers"].get("Authorization"))

    def _target(self, path: str) -> URL:
        return URL(self._connection.url + path, encoded=True)

    async def _options(self, accept: str) -> Json:
        # An API server redirects no client; another server that does would get the token, and a POST would come back as
        # a GET.
        options: Json = {"headers": {"Accept": accept}, "allow_redirects": False}
        authorization = await self._connection.authorize()
        if authorization:
            options["headers"]["Authorization"] = authorization
        if proxy := self._connection.proxy or self._environment_proxy:
            options["proxy"] = proxy
        if self._connection.server_name:
            options["server_hostname"] = self._connection.server_name
        if self._connection.tls is not None:
            # Per request: a new certificate needs a new connection, and gets one as this is part of the pool's key.
            options["ssl"] = self._connection.tls
        return options

    def _new_session(self, limit: int) -> aiohttp.ClientSession:
        if os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy"):
            # Commands start faster without it.
            from atoll.kube import proxies

            self._environment_proxy = proxies.from_environment(self._connection.url)
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=limit, keepalive_timeout=60),
            headers={"User-Agent": _product(self._user_agent)},
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        # Only this code decides about repetitions. The session would send a PUT again whose answer was lost, and its
        # sender would get a conflict with itself; there is no public switch.
        session._retry_connection = False
        return session


_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT)
_NOTHING_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
_BACKOFF: Final = {errors.Busy: (0.1, 5.0), errors.Unreachable: (0.05, 2.0)}
"""Most seconds before a request is sent again, where the server does not say: at first, and ever; the rest is random.
"""


def _warnings(headers: Iterable[str]) -> Iterator[str]:
    """The texts of `299 - "text"` headers (RFC 7234, section 5.5), as API servers send them."""
    for header in headers:
        if (found := _WARNING.match(header)) is not None:
            yield re.sub(r"\\(.)", r"\1", found[1])


_WARNING: Final = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')


def _in_words(error: Exception) -> str:
    """Why there is no answer; aiohttp's own words name the TLS context by its place in memory."""
    if isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
        if cause.errno and not isinstance(cause, ssl.SSLError | socket.gaierror):
            return os.strerror(cause.errno)
        return cause.strerror or str(cause)
    return str(error) or ("no answer in time" if isinstance(error, TimeoutError) else type(error).__name__)


def _repeatable(method: str, error: BaseException) -> bool:
    match error:
        case errors.Busy():
            return method == "GET" or error.code == 429
        case errors.Unreachable():
            return method == "GET" or isinstance(error.__cause__, _NOTHING_SENT)
        case errors.Unauthorized():
            return error.renewed
    return False


def _pause(error: errors.ApiError, failures: int) -> float:
    """Seconds before it is sent again, after so many failures and this one."""
    if error.retry_after is not None:
        # Not all clients that were sent away at one moment come back at one moment.
        return error.retry_after * random.uniform(1.0, 1.1)
    first, most = _BACKOFF.get(type(error), (0.0, 0.0))
    return random.uniform(0.0, ceiling(first, failures + 1, most))


def _loads(body: bytes) -> Json:
    try:
        result = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise errors.Unexpected(f"the answer is no JSON but {body[:100]!r}: is this an API server?") from error
    if not isinstance(result, dict):
        raise errors.Unexpected(f"the answer is no object but {body[:100]!r}: is this an API server?")
    return result


def _payload(body: bytes | None) -> bytes | io.BytesIO | None:
    """A request's body as aiohttp takes it: bytes beyond a mebibyte are sent in pieces, or it warns that they block."""
    return io.BytesIO(body) if body is not None and len(body) > _IN_ONE_PIECE else body


def _plural(path: str) -> str:
    """The resource that a path of `ApiResource.path` is about; the path itself where it is of another form."""
    parts = path.split("/")[1:]
    rest = parts[2:] if parts[0] == "api" else parts[3:] if parts[0] == "apis" else []
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        rest = rest[2:]
    return rest[0] if rest else path


@cache
def _product(name: str) -> str:
    """The User-Agent of a process: `atoll-control/1.2.3`, `atoll-agent/1.2.3 (alpha)`."""
    process, _, detail = name.partition("/")
    return f"{process}/{VERSION} ({detail})" if detail else f"{process}/{VERSION}"


def _accept(reduced: str | None) -> str:
    return f"{_METADATA.format(reduced)},{_JSON}" if reduced else _JSON


def _manager(name: str) -> dict[str, str]:
    return {"fieldManager": name} if name else {}


def _selectors(labels: str, fields: str) -> dict[str, str]:
    return {**({"labelSelector": labels} if labels else {}), **({"fieldSelector": fields} if fields else {})}
