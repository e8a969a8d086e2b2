"""The running webhook: caches, certificates, server, and registration once all of them work."""

from __future__ import annotations

import gc
import ipaddress
import socket
import ssl
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import structlog
from aiohttp import web

from atoll.kinds import KINDS
from atoll.kube import certificates, errors
from atoll.kube.authority import Times
from atoll.kube.certificates import Leaf
from atoll.kube.process import Process
from atoll.kube.reflector import Reflector
from atoll.kube.serving import Guard, serve
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import (
    CLUSTER_OVERRIDES,
    CLUSTER_POLICIES,
    CLUSTERS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    OVERRIDES,
    POD_GROUPS,
    POLICIES,
    PRIORITY_CLASSES,
    QUEUES,
    WORKLOAD_KINDS,
)
from atoll.model.objects import decode_full, decode_meta
from atoll.model.overrides import decode_override
from atoll.model.policies import decode_policy
from atoll.webhook import networks, overrides, queues, registration, resources, reviews, server
from atoll.webhook.rotation import Keeper
from atoll.webhook.settings import ReviewSettings, WebhookSettings

DEFAULT_PORT = 9443

log = structlog.get_logger(__name__)


class CannotStart(RuntimeError):
    """A prerequisite of the process is missing; the message names the remedy."""


async def set_up(process: Process, settings: WebhookSettings) -> None:
    """Add the tasks that keep caches, certificates and registration; they start to serve once there is an authority.

    Raises:
        CannotStart: the host is not prepared, or the flags can't be followed.
        ApiError: the host can't be reached.
    """
    try:
        times = Times(
            timedelta(seconds=settings.certificates.ca),
            timedelta(seconds=settings.certificates.leaf),
            timedelta(seconds=settings.certificates.settle),
        )
    except ValueError as error:
        raise CannotStart(str(error)) from error
    api = await process.connect(settings)
    client_config = await _client_config(api)
    queue_cache = Reflector(api, QUEUES, queues.decode)
    namespaces = Reflector(api, NAMESPACES, decode_meta)
    priority_classes = Reflector(api, PRIORITY_CLASSES, decode_meta)
    clusters = Reflector(api, CLUSTERS, resources.decode_cluster)
    declared = Reflector(api, WORKLOAD_KINDS, decode_full, optional=True, withheld=True)
    referable = {
        each: Reflector(api, each, decode_full, optional=True, withheld=True)
        for kind in KINDS
        if kind.referred is not None
        for each in kind.referred.resources
    } | {POD_GROUPS: Reflector(api, POD_GROUPS, decode_full, optional=True, withheld=True)}
    policies = networks.Policies(
        Reflector(api, POLICIES, decode_policy, optional=True, withheld=True),
        Reflector(api, CLUSTER_POLICIES, decode_policy, optional=True, withheld=True),
    )
    override_policies = overrides.Policies(
        Reflector(api, OVERRIDES, decode_override, optional=True, withheld=True),
        Reflector(api, CLUSTER_OVERRIDES, decode_override, optional=True, withheld=True),
    )
    guard = Guard()
    answers = reviews.Reviews(
        queue_cache,
        namespaces,
        priority_classes,
        clusters,
        declared,
        referable,
        policies,
        override_policies,
        settings=settings.reviews,
    )
    app = server.application(answers, process.metrics, guard)
    listener = _Listener(app, guard, _bound(*_address(client_config, settings)), settings.reviews)
    process.stack.push_async_callback(listener.close)

    async def serve(leaf: Leaf) -> None:
        await listener.serve(leaf)
        if not keeper.registered.is_set():
            await queue_cache.synced.wait()
            await namespaces.synced.wait()
            await declared.synced.wait()
            await listener.check(keeper.names[-1], leaf)
            # Present objects stay: the collector would only find that out again, while a review waits for it.
            gc.collect()
            gc.freeze()

    try:
        keeper = Keeper(
            api, client_config, times=times, again=settings.certificates.again, serve=serve, metrics=process.metrics
        )
    except ValueError as error:
        raise CannotStart(f"the address of the webhook: {error}; {_INIT}") from error
    for condition in (queue_cache.synced, namespaces.synced, declared.synced, keeper.registered):
        process.ready_when(condition.is_set)
    process.before_end(lambda: listener.leave(settings.linger))
    process.add_task("queues", queue_cache.run())
    process.add_task("namespaces", namespaces.run())
    process.add_task("declared kinds", declared.run())
    # Without them only warnings are missing, so nothing waits for them.
    process.add_task("priority classes", priority_classes.run())
    process.add_task("clusters", clusters.run())
    process.add_task("policies", policies.own.run())
    process.add_task("cluster policies", policies.common.run())
    process.add_task("override policies", override_policies.own.run())
    process.add_task("cluster override policies", override_policies.common.run())
    # Without it workloads that name such an object are refused.
    for resource, cache in referable.items():
        process.add_task(resource.plural, cache.run())
    process.add_task("certificates and registration", keeper.run())


_INIT = "`atollctl init` prepares the host"


async def _client_config(api: ApiServer) -> dict[str, Any]:
    try:
        return registration.client_config_of(await api.get(MUTATING_WEBHOOKS, keys.WEBHOOKS))
    except errors.NotFound as error:
        raise CannotStart(f"the host has no MutatingWebhookConfiguration {keys.WEBHOOKS}; {_INIT}") from error
    except ValueError as error:
        raise CannotStart(f"MutatingWebhookConfiguration {keys.WEBHOOKS}: {error}; {_INIT}") from error


def _address(client_config: dict[str, Any], settings: WebhookSettings) -> tuple[str, int]:
    """Where to listen: as the flags say, else by the URL; on loopback only if the URL is."""
    url = urlsplit(str(client_config.get("url") or ""))
    try:
        local = url.hostname == "localhost" or ipaddress.ip_address(url.hostname or "").is_loopback
    except ValueError:
        local = False
    host = settings.host or (str(url.hostname) if local else "")
    return host, settings.port or url.port or DEFAULT_PORT


def _bound(host: str, port: int) -> socket.socket:
    """The address, or all of them, taken but not listened on yet: a start that can't succeed fails at once."""
    try:
        if not host and socket.has_dualstack_ipv6():
            taken = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
            taken.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(("", port))
            return taken
        found = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
        taken = socket.socket(family, kind, protocol)
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(address)
    except OSError as error:
        raise CannotStart(
            f"can't listen on {host or 'all addresses'}, port {port}: {error.strerror}; free the port or give another"
            " with --port"
        ) from error
    return taken


class _Listener:
    """The HTTPS server, from its first certificate on."""

    def __init__(self, app: web.Application, guard: Guard, bound: socket.socket, settings: ReviewSettings) -> None:
        self._settings = settings
        self._app, self._guard, self._bound = app, guard, bound
        self._tls: ssl.SSLContext | None = None
        self._runner: web.AppRunner | None = None

    async def serve(self, leaf: Leaf) -> None:
        """Listen with this leaf, or use it from the next handshake on."""
        if self._tls is not None:
            certificates.load_leaf(self._tls, leaf)
            return
        self._tls = certificates.server_context(leaf)
        self._runner = await serve(
            self._app, self._guard, self._tls, shutdown_timeout=self._settings.cut, sock=self._bound
        )
        log.info("listening", address=self._bound.getsockname()[:2])

    async def check(self, name: str, leaf: Leaf) -> None:
        """Return once the server answers a request that trusts nothing but the CA of this leaf."""
        context = ssl.create_default_context(cadata=leaf.issuer.decode())
        host, port = self._bound.getsockname()[:2]
        target = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        url = f"https://{f'[{target}]' if ':' in target else target}:{port}/readyz"
        timeout = aiohttp.ClientTimeout(total=5)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(url, ssl=context, server_hostname=name) as response,
        ):
            response.raise_for_status()

    async def leave(self, seconds: float) -> None:
        """Let clients go, for so long."""
        if self._runner is not None:
            await server.leave(self._runner, self._app, seconds, self._settings.last_accepted)

    async def close(self) -> None:
        """Finish open requests and stop."""
        if self._runner is not None:
            await self._runner.cleanup()
        self._bound.close()
