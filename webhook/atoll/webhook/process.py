"""The running webhook: caches, certificate, server, and registration once all of them work."""

from __future__ import annotations

import argparse
import asyncio
import ipaddress
import ssl
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import structlog

from atoll.kube import errors
from atoll.kube.process import Process
from atoll.kube.reflector import Reflector
from atoll.kube.transport import ApiServer
from atoll.model.apiresource import (
    MUTATING_WEBHOOKS,
    NAMESPACES,
    QUEUES,
    VALIDATING_WEBHOOKS,
    ApiResource,
)
from atoll.model.objects import Full, decode_full, decode_meta
from atoll.webhook import certificates, queues, registration, reviews, server

DEFAULT_PORT = 9443

log = structlog.get_logger(__name__)


class CannotStart(RuntimeError):
    """Something that somebody else has to set up is missing; the message says what to do."""


async def set_up(process: Process, options: argparse.Namespace) -> None:
    """Start to serve, and add the tasks that keep caches, certificate and registration.

    Raises:
        CannotStart: the host is not prepared, or the address is taken.
        ApiError: the host can't be reached.
    """
    api = await process.stack.enter_async_context(
        await ApiServer.from_kubeconfig(options.kubeconfig, user_agent="atoll-webhook")
    )
    client_config = await _client_config(api)
    try:
        names = certificates.names_of(client_config)
        authority = await certificates.shared_authority(api, datetime.now(UTC))
        tls = certificates.server_context(certificates.issue(authority, names, datetime.now(UTC)))
    except certificates.BadSecret as error:
        raise CannotStart(f"Secret {certificates.SECRET}: {error}") from error
    except ValueError as error:
        raise CannotStart(f"the address of the webhook: {error}; {_INIT}") from error

    queue_cache = Reflector(api, QUEUES, queues.decode)
    namespaces = Reflector(api, NAMESPACES, decode_meta)
    answers = reviews.Reviews(queue_cache, namespaces)
    host, port = _address(client_config, options)
    try:
        app = server.application(answers, process.metrics)
        runner = await server.serve(app, tls, host, port)
    except OSError as error:
        raise CannotStart(
            f"can't listen on {host}:{port}: {error.strerror}; free the port or give another with --port"
        ) from error
    process.stack.push_async_callback(server.leave, runner, app)
    log.info("listening", host=host, port=port, names=names)

    registered = asyncio.Event()
    for condition in (queue_cache.synced, namespaces.synced, registered):
        process.ready_when(condition.is_set)
    process.add_task("queues", queue_cache.run())
    process.add_task("namespaces", namespaces.run())
    process.add_task("certificate", _renew(tls, authority, names))

    async def register() -> None:
        await queue_cache.synced.wait()
        await namespaces.synced.wait()
        await _answers(names[-1], host, port, authority)
        await _keep_registered(api, client_config, authority.ca_bundle, registered)

    process.add_task("registration", register())


_INIT = "`atollctl init` prepares the host"


async def _client_config(api: ApiServer) -> dict[str, Any]:
    try:
        return registration.client_config_of(await api.get(MUTATING_WEBHOOKS, registration.NAME))
    except errors.NotFound as error:
        raise CannotStart(f"the host has no MutatingWebhookConfiguration {registration.NAME}; {_INIT}") from error
    except ValueError as error:
        raise CannotStart(f"MutatingWebhookConfiguration {registration.NAME}: {error}; {_INIT}") from error


def _address(client_config: dict[str, Any], options: argparse.Namespace) -> tuple[str, int]:
    """Where to listen: as the flags say, else by the URL; on loopback only if the URL is."""
    url = urlsplit(str(client_config.get("url") or ""))
    try:
        local = url.hostname == "localhost" or ipaddress.ip_address(url.hostname or "").is_loopback
    except ValueError:
        local = False
    host = options.host or (str(url.hostname) if local else "0.0.0.0")
    return host, options.port or url.port or DEFAULT_PORT


async def _answers(name: str, host: str, port: int, authority: certificates.Authority) -> None:
    """Return once the server answers a request that trusts nothing but the authority."""
    context = ssl.create_default_context(cadata=authority.bundle.decode())
    target = "127.0.0.1" if host in ("0.0.0.0", "::", "") else host
    url = f"https://{f'[{target}]' if ':' in target else target}:{port}/readyz"
    timeout = aiohttp.ClientTimeout(total=5)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.get(url, ssl=context, server_hostname=name) as response,
    ):
        response.raise_for_status()


async def _keep_registered(
    api: ApiServer, client_config: dict[str, Any], ca_bundle: str, registered: asyncio.Event
) -> None:
    """Apply the configurations now, and again whenever one of them lost our webhooks or our CA."""
    wanted = registration.configurations(client_config, ca_bundle)
    changed = asyncio.Event()
    caches: list[tuple[ApiResource, dict[str, Any], Reflector[Full]]] = []
    async with asyncio.TaskGroup() as watches:
        for resource, configuration in zip((MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS), wanted, strict=True):
            await _apply(api, resource, configuration)
            cache = Reflector(api, resource, decode_full, field_selector=f"metadata.name={registration.NAME}")
            cache.on_change(lambda *_: changed.set())
            caches.append((resource, configuration, cache))
            watches.create_task(cache.run())
        registered.set()
        log.info(
            "registered",
            webhooks=[entry["name"] for configuration in wanted for entry in configuration["webhooks"]],
        )
        while True:
            await changed.wait()
            changed.clear()
            for resource, configuration, cache in caches:
                seen = cache.get(registration.NAME)
                # One that is gone was uninstalled: made again, it would refuse everything when
                # the webhook is gone too.
                if seen is not None and not registration.trusts(seen.body, ca_bundle):
                    log.warning("registration was changed and is applied again", kind=resource.kind)
                    await _apply(api, resource, configuration)


async def _apply(api: ApiServer, resource: ApiResource, configuration: dict[str, Any]) -> None:
    await api.apply(resource, configuration, field_manager=registration.FIELD_MANAGER)


async def _renew(tls: ssl.SSLContext, authority: certificates.Authority, names: list[str]) -> None:
    """Serve a fresh certificate long before the old one ends."""
    while True:
        await asyncio.sleep(certificates.LEAF_LIFE.total_seconds() / 3)
        certificates.load_leaf(tls, certificates.issue(authority, names, datetime.now(UTC)))
        log.info("certificate renewed")
