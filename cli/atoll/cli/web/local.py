"""A page on loopback for the one user whose kubeconfig it has."""

from __future__ import annotations

import asyncio
import hmac
import secrets
import socket
from collections.abc import Callable
from errno import EADDRINUSE

from aiohttp import web

from atoll.cli.errors import CommandError
from atoll.cli.queues import not_the_host
from atoll.cli.web.site import Site
from atoll.cli.web.world import World
from atoll.kube.transport import ApiServer

_ADDRESS = "127.0.0.1"


class Loopback:
    """Access for browsers that know the secret of this start: other users of the machine reach the port as well."""

    pastes = False

    def __init__(self, world: World, port: int) -> None:
        self._world = world
        self._hosts = {f"{name}:{port}" for name in (_ADDRESS, "localhost")}
        self._secret = secrets.token_urlsafe(32)
        # Cookies do not tell ports apart: two of these pages have one each.
        self._cookie = f"atoll-{port}"
        self.address = f"http://{_ADDRESS}:{port}/enter?secret={self._secret}"

    def knows_host(self, host: str) -> bool:
        """Names of this machine only: a name that another site resolves to loopback is not among them."""
        return host in self._hosts

    async def world(self, request: web.Request) -> World:
        """Objects that the kubeconfig's user may see."""
        if not self._is_secret(request.cookies.get(self._cookie, "")):
            raise web.HTTPUnauthorized(text="open the address that atollctl web has printed")
        return self._world

    def add_to(self, app: web.Application) -> None:
        """Add the address that is printed."""
        app.router.add_get("/enter", self._enter)

    async def _enter(self, request: web.Request) -> web.Response:
        if not self._is_secret(request.query.get("secret", "")):
            raise web.HTTPUnauthorized(text="this address is of an earlier start of atollctl web")
        response = web.HTTPSeeOther("/")
        response.set_cookie(self._cookie, self._secret, httponly=True, samesite="Strict")
        raise response

    def _is_secret(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), self._secret.encode())


async def serve(host: ApiServer, only: str | None, own: str, port: int, say: Callable[[str], None]) -> None:
    """Serve until cancelled.

    Args:
        host: client of the host.
        only: namespace of the workloads; None for all that the user may see.
        own: namespace to show where the user may not see all.
        port: to listen on; 0 for a free one.
        say: gets the address.

    Raises:
        CommandError: the port is taken, or this is no host of Atoll.
    """
    if elsewhere := await not_the_host(host):
        raise CommandError(elsewhere)
    try:
        listener = socket.create_server((_ADDRESS, port))
    except OSError as error:
        why = "is in use" if error.errno == EADDRINUSE else f"can't be used: {error.strerror}"
        raise CommandError(f"port {port} {why}; --port 0 takes a free one") from error
    async with World(host, only, own) as world:
        access = Loopback(world, listener.getsockname()[1])
        runner = await Site(access).listen(sock=listener)
        try:
            say(f"open {access.address}\nstop with Ctrl-C")
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()
