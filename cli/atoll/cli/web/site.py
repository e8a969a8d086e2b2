"""The HTTP server: pages, one stream of changes for each open page, and the headers that keep others out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from importlib import resources
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import orjson
from aiohttp import web
from yarl import URL

from atoll.cli.errors import CommandError
from atoll.cli.web import page, pages, questions
from atoll.cli.web.world import World
from atoll.kube import serving
from atoll.kube.errors import ApiError, Forbidden, NotFound

MOST_STREAMS: Final = 64
"""Streams of one process."""
_PACE_S: Final = 0.25
"""Least seconds between two changes of a stream."""
_IDLE_SHARE: Final = 3.0
"""Seconds of rest for each second that a page took: large federations get fewer changes instead of a busy process."""
_QUIET_S: Final = 15.0
"""Seconds after which a stream without changes says that it lives."""
_WRITE_S: Final = 30.0
"""Seconds in which a browser has to take a change."""
_MOST_FORM: Final = 2**18
"""Bytes of a form: a manifest of the largest size, with each of its letters escaped."""
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none';"
    " require-trusted-types-for 'script'; trusted-types atoll",
    "X-Content-Type-Options": "nosniff",
    # Without a referrer for itself a browser sends no Origin with a form either.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_STATIC: Final = {"page.js": "text/javascript", "page.css": "text/css", "icon.svg": "image/svg+xml"}

_EXPECTED: Final = (web.HTTPException, ApiError, CommandError)
"""Errors that a reader can do something about."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Access(Protocol):
    """Who gets in, and with which rights."""

    @property
    def pastes(self) -> bool:
        """Whether users paste their tokens."""

    def knows_host(self, host: str) -> bool:
        """Whether a browser may have this in its Host header; a page of others that resolves to here has its own."""

    async def world(self, request: web.Request) -> World:
        """Objects that the user of a request may see.

        Raises:
            HTTPException: the user is not known.
        """

    def add_to(self, app: web.Application) -> None:
        """Add the ways to get in."""


class Site:
    """One server."""

    def __init__(self, access: Access, streams: int = MOST_STREAMS) -> None:
        """No I/O happens here.

        Args:
            access: who gets in.
            streams: most streams at once.
        """
        self._access = access
        self._streams = streams

    def app(self) -> web.Application:
        """The application."""
        app = web.Application(middlewares=[self._guarded], client_max_size=_MOST_FORM)
        app.on_response_prepare.append(_protect)
        self._access.add_to(app)
        for name in _STATIC:
            app.router.add_get(f"/static/{name}", _static)
        app.router.add_get("/changes", self._changes)
        app.router.add_get(questions.PATH, self._what_if)
        app.router.add_post(questions.PATH, self._what_if)
        app.router.add_get("/{path:.*}", self._page)
        return app

    async def listen(self, **where: Any) -> web.AppRunner:
        """See `serving.serve`."""
        guard, app = serving.Guard(), self.app()
        app.middlewares.insert(0, guard.middleware)
        return await serving.serve(app, guard, None, shutdown_timeout=0.5, **where)

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse requests that another site makes a browser send, and turn errors into pages."""
        if not self._access.knows_host(request.host):
            return web.Response(status=421, text="this is not the address of this page\n")
        elsewhere = request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin")
        # Not every browser sends Sec-Fetch-Site, but all send Origin with a form.
        if request.method == "POST" and request.headers.get("Origin", "").partition("://")[2] != request.host:
            elsewhere = True
        if elsewhere:
            return web.Response(status=403, text="another site made this request: open the address by hand\n")
        try:
            return await handler(request)
        except web.HTTPRedirection:
            raise
        except _EXPECTED as error:
            status, text = _in_words(error)
            if status == web.HTTPUnauthorized.status_code and self._access.pastes:
                return _html(page.form(text), status)
            return _html(page.error(status, text), status)

    async def _page(self, request: web.Request) -> web.Response:
        world = await self._access.world(request)
        view = pages.find(request.rel_url)
        return _html(page.whole(await _made(world, view), leave=self._access.pastes), 200)

    async def _what_if(self, request: web.Request) -> web.Response:
        """The form, and the answer once it is sent: a question is never asked again by itself."""
        world = await self._access.world(request)
        asks = request.method == "POST"
        fields = {key: str(value) for key, value in (await request.post() if asks else request.query).items()}
        return _html(page.whole(await questions.page(world, fields, asks=asks), leave=self._access.pastes), 200)

    async def _changes(self, request: web.Request) -> web.StreamResponse:
        """The page's content, and its parts that change, until the browser leaves."""
        await self._access.world(request)
        view = pages.find(URL(urlsplit(request.query.get("of", "/"))._replace(scheme="", netloc="").geturl()))
        if self._streams <= 0:
            raise web.HTTPServiceUnavailable(text="too many pages are open", headers={"Retry-After": "10"})
        self._streams -= 1
        try:
            response = web.StreamResponse(
                headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"},
            )
            await response.prepare(request)
            with suppress(ConnectionError, TimeoutError):
                try:
                    await self._follow(view, request, response)
                except _EXPECTED as error:
                    await response.write(b"event: gone\ndata: " + orjson.dumps(_in_words(error)[1]) + b"\n\n")
            return response
        finally:
            self._streams += 1

    async def _follow(self, view: pages.View, request: web.Request, response: web.StreamResponse) -> None:
        loop = asyncio.get_running_loop()
        shown: list[str] = []
        wrote = loop.time()
        while request.transport is not None and not request.transport.is_closing():
            # Rights may have ended since the last change.
            world = await self._access.world(request)
            began, version = loop.time(), world.version
            parts = (await _made(world, view)).parts
            now = loop.time()
            if parts != shown:
                before = {part: index for index, part in enumerate(shown)}
                event = b"data: " + orjson.dumps([before.get(part, part) for part in parts]) + b"\n\n"
            else:
                event = b": still here\n\n" if now - wrote > _QUIET_S else b""
            if event:
                async with asyncio.timeout(_WRITE_S):
                    await response.write(event)
                shown, wrote = parts, now
            await asyncio.sleep(max(_PACE_S, _IDLE_SHARE * (now - began)))
            await world.change(version)


def _in_words(error: Exception) -> tuple[int, str]:
    """Status and text for a reader."""
    if isinstance(error, web.HTTPException):
        return error.status, error.text or error.reason
    if isinstance(error, ApiError):
        return {NotFound: 404, Forbidden: 403}.get(type(error), 502), error.said
    return 404, str(error)


async def _made(world: World, view: pages.View) -> page.Page:
    return await world.shared(view.key, lambda: view.make(world))


async def _protect(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)


async def _static(request: web.Request) -> web.Response:
    name = request.path.rpartition("/")[2]
    text = resources.files("atoll.cli.web").joinpath("static", name).read_text("utf-8")
    return web.Response(text=text, content_type=_STATIC[name], charset="utf-8")


def _html(text: str, status: int) -> web.Response:
    return web.Response(text=text, status=status, content_type="text/html", charset="utf-8")
