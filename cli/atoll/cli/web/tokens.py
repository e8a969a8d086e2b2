"""Access with the token of each user, from a proxy's Authorization header or pasted: the server has no rights."""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from aiohttp import web

from atoll.cli.web import page
from atoll.cli.web.settings import WebSettings
from atoll.cli.web.world import World
from atoll.kube import process
from atoll.kube.access import Access
from atoll.kube.config import Connection
from atoll.kube.errors import Unauthorized
from atoll.kube.transport import ApiServer
from atoll.model.apiresource import SUBJECT_REVIEWS

CHECKED_S: Final = 60.0
"""Seconds for which a token counts as valid after the host confirmed it."""
IDLE_S: Final = 120.0
"""Seconds after the last request or change of a stream until the watches of a user end."""
_SESSIONS_PER_USER: Final = 16
_COOKIE: Final = "__Host-atoll"
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/=-]{1,12288}")
_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_ACCOUNT: Final = "system:serviceaccount:"


class Login(NamedTuple):
    """Credentials of a request."""

    token: str
    namespace: str
    """Of the workloads to show; empty for all that the user may see."""

    @property
    def key(self) -> str:
        """Names the same login in memory, without its token."""
        return hashlib.sha256(f"{self.namespace} {self.token}".encode()).hexdigest()


@dataclass(slots=True)
class _User:
    opened: asyncio.Task[World]
    host: ApiServer
    stack: AsyncExitStack
    checked: float
    seen: float


@dataclass(slots=True)
class _Session:
    login: Login
    until: float


@dataclass(slots=True)
class Tokens:
    """Users by their tokens."""

    access: Access
    """Address and certificate authority of the host."""
    settings: WebSettings
    _users: dict[str, _User] = field(default_factory=dict)
    _sessions: dict[str, _Session] = field(default_factory=dict)

    @property
    def pastes(self) -> bool:
        """They may."""
        return True

    def knows_host(self, host: str) -> bool:
        """The names of the settings alone."""
        return host in self.settings.names.split(",")

    def add_to(self, app: web.Application) -> None:
        """Add the form for a token, and the way out."""
        app.router.add_get("/enter", self._form)
        app.router.add_post("/enter", self._enter)
        app.router.add_post("/leave", self._leave)

    async def world(self, request: web.Request) -> World:
        """Objects that the user of this request may see.

        Raises:
            HTTPException: no token, one that the host does not know, or too many users.
        """
        login = self._login(request)
        if login is None:
            raise web.HTTPUnauthorized(text="no token came with this request")
        return await self._world(login)

    async def sweep(self) -> None:
        """End the watches of users who have gone, until cancelled; then of all."""
        try:
            while True:
                await asyncio.sleep(IDLE_S / 4)
                now = time.monotonic()
                for key in [key for key, user in self._users.items() if now - user.seen > IDLE_S]:
                    await self._drop(key)
                self._sessions = {key: each for key, each in self._sessions.items() if each.until > now}
        finally:
            for key in [*self._users]:
                await self._drop(key)

    def _login(self, request: web.Request) -> Login | None:
        session = self._sessions.get(request.cookies.get(_COOKIE, ""))
        if session is not None and session.until < time.monotonic():
            session = None
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        if kind.lower() == "bearer" and _TOKEN.fullmatch(token):
            return Login(token, session.login.namespace if session is not None else "")
        return session.login if session is not None and session.login.token else None

    async def _world(self, login: Login) -> World:
        try:
            return await self._opened(login)
        except Unauthorized:
            await self._drop(login.key)
            raise web.HTTPUnauthorized(text="the host does not know this token, or it has expired") from None

    async def _opened(self, login: Login) -> World:
        now = time.monotonic()
        user = self._users.get(login.key)
        if user is None:
            if len(self._users) >= self.settings.users:
                raise web.HTTPServiceUnavailable(text="too many users are here", headers={"Retry-After": "60"})
            host, stack = self._client(login.token), AsyncExitStack()
            user = _User(asyncio.ensure_future(_open(host, stack, login)), host, stack, now, now)
            self._users[login.key] = user
        elif now - user.checked > CHECKED_S:
            await _name(user.host)
            user.checked = now
        user.seen = now
        try:
            return await asyncio.shield(user.opened)
        except Exception:
            await self._drop(login.key)
            raise

    def _client(self, token: str) -> ApiServer:
        async def authorize() -> str:
            return f"Bearer {token}"

        host = Connection(
            self.access.url,
            self.access.tls(),
            authorize,
            proxy=self.access.proxy,
            server_name=self.access.server_name,
        )
        return ApiServer(host, user_agent="atoll-web", rate=process.rate_limit(self.settings.api))

    async def _drop(self, key: str) -> None:
        if (user := self._users.pop(key, None)) is not None:
            user.opened.cancel()
            await asyncio.gather(user.opened, return_exceptions=True)
            await user.stack.aclose()
            await user.host.close()

    # -- the form ----------------------------------------------------------------------------------------------------

    async def _form(self, request: web.Request) -> web.Response:
        return web.Response(text=page.form(""), content_type="text/html", charset="utf-8")

    async def _enter(self, request: web.Request) -> web.Response:
        fields = await request.post()
        token, namespace = (str(fields.get(name, "")).strip() for name in ("token", "namespace"))
        proxied = self._login(request) is not None and "Authorization" in request.headers
        if not (_TOKEN.fullmatch(token) or (proxied and not token)):
            raise web.HTTPUnauthorized(text="this is no token")
        if namespace and not _NAMESPACE.fullmatch(namespace):
            raise web.HTTPBadRequest(text="this is no name of a namespace")
        login = Login(token, namespace)
        if token:
            await self._world(login)
        while len(self._sessions) >= self.settings.users * _SESSIONS_PER_USER:
            del self._sessions[next(iter(self._sessions))]
        key = secrets.token_urlsafe(32)
        self._sessions[key] = _Session(login, time.monotonic() + self.settings.session)
        response = web.HTTPSeeOther("/")
        response.set_cookie(_COOKIE, key, httponly=True, secure=True, samesite="Strict", path="/")
        raise response

    async def _leave(self, request: web.Request) -> web.Response:
        session = self._sessions.pop(request.cookies.get(_COOKIE, ""), None)
        if session is not None:
            await self._drop(session.login.key)
        response = web.HTTPSeeOther("/enter")
        response.del_cookie(_COOKIE, httponly=True, secure=True, samesite="Strict", path="/")
        raise response


async def _open(host: ApiServer, stack: AsyncExitStack, login: Login) -> World:
    name = await _name(host)
    # A service account most often has rights in its own namespace.
    own = name.removeprefix(_ACCOUNT).partition(":")[0] if name.startswith(_ACCOUNT) else "default"
    return await stack.enter_async_context(World(host, login.namespace or None, own))


async def _name(host: ApiServer) -> str:
    """The user as the host knows it; every user may ask.

    Raises:
        Unauthorized: the host does not know the token.
    """
    review = {"apiVersion": SUBJECT_REVIEWS.api_version, "kind": SUBJECT_REVIEWS.kind, "metadata": {}}
    return str((await host.create(SUBJECT_REVIEWS, review))["status"]["userInfo"]["username"])


def without_credentials(access: Access) -> Access:
    """The address of a host and the authority that signs for it, nothing else."""
    return replace(access, header=None, certificate=None, key=None)
