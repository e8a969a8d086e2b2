"""Serves the query API while this process leads, and tells the host's API server where.

Only the leader knows anything, so only the leader is addressed: it writes its own address where the API server looks
(the EndpointSlice of Service `atoll-query`, or the port of an ExternalName Service) and its CA into the APIService. The
CA is its own, made in memory for this term: there is no key to keep, and nothing that a standby must know. Before an
orderly end the APIService is removed, which leaves the API unknown rather than broken: a broken one would keep
namespaces from being deleted.
"""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlsplit

import structlog
from aiohttp import web

from atoll.dispatcher.query.access import CONFIG_NAME, CONFIG_NAMESPACE, Front, NotAggregating, read_front
from atoll.dispatcher.query.server import Server
from atoll.dispatcher.settings import LogSettings, QuerySettings
from atoll.dispatcher.shell import Shell
from atoll.kube import authority, certificates, errors, serving
from atoll.kube.certificates import Leaf
from atoll.kube.serving import Guard
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import API_SERVICES, CONFIGMAPS, ENDPOINT_SLICES, SERVICES, VERDICTS

Json = dict[str, Any]

SERVICE_PORT: Final = 443
"""Of the Service, where it is one with endpoints."""
_SYSTEM: Final = keys.SYSTEM_NAMESPACE
_NAMES: Final = [f"{keys.QUERY_SERVICE}.{_SYSTEM}.svc", f"{keys.QUERY_SERVICE}.{_SYSTEM}", keys.QUERY_SERVICE]

log = structlog.get_logger(__name__)


class Query:
    """The API of one term of leadership."""

    def __init__(
        self,
        host: ApiServer,
        shell: Shell,
        *,
        settings: QuerySettings = QuerySettings(),
        logs: LogSettings = LogSettings(),
    ) -> None:
        """No I/O happens here."""
        self._settings, self._logs = settings, logs
        self._host, self._shell = host, shell
        self._front: Front | None = None
        self._signer: authority.Signer | None = None
        self._leaf: Leaf | None = None
        self._runner: web.AppRunner | None = None
        self._tls: ssl.SSLContext | None = None
        #: this process is no longer registered at the API server
        self._left = False
        #: set once this process is registered at the API server
        self.registered = asyncio.Event()

    async def run(self) -> None:
        """Serve, once all is read, until cancelled; missing objects on the host are waited for, as decisions come
        first.
        """
        await self._shell.all_read.wait()
        complained = ""
        try:
            while True:
                pause = self._settings.round
                try:
                    await self._round(datetime.now(UTC))
                    complained = ""
                except (errors.ApiError, OSError, NotAggregating) as error:
                    pause = self._settings.again
                    if str(error) != complained:
                        log.warning("the query API is not served", error=str(error))
                    complained = str(error)
                except Exception:
                    # A defect of ours here is no reason to decide nothing.
                    log.exception("the query API is not served")
                await asyncio.sleep(pause)
        finally:
            await self._stop()

    async def leave(self) -> None:
        """Tell the API server, while this process leads, that the API is not served any more."""
        self._left = True
        if self.registered.is_set():
            try:
                await self._host.delete(API_SERVICES, keys.QUERY_API)
            except errors.ApiError as error:
                log.warning("the query API is still registered, and no dispatcher serves it", error=str(error))

    # -- one round ---------------------------------------------------------------------------------------------------

    async def _round(self, now: datetime) -> None:
        front = read_front(await self._host.get(CONFIGMAPS, CONFIG_NAME, CONFIG_NAMESPACE))
        if self._signer is None:
            self._signer = authority.make_signer(now, name=keys.QUERY_SERVICE)
        if self._leaf is None or now >= certificates.renewal(self._leaf):
            self._leaf = certificates.issue(self._signer, _NAMES, now)
            if self._tls is not None:
                certificates.load_leaf(self._tls, self._leaf)
        if self._front is None or front.ca != self._front.ca:
            # What a context once trusted it trusts for ever.
            await self._stop()
            self._front = front
            try:
                await self._start(self._leaf, front)
            except BaseException:
                # Else the next round would take it for served, and say so to the API server.
                await self._stop()
                raise
        self._front = front
        await self.register(self._signer.certificate)

    async def _start(self, leaf: Leaf, front: Front) -> None:
        self._tls = certificates.server_context(leaf)
        # Whoever is not the API server gets no further than the handshake.
        self._tls.verify_mode = ssl.CERT_REQUIRED
        try:
            self._tls.load_verify_locations(cadata=front.ca)
        except ssl.SSLError as error:
            raise NotAggregating(f"requestheader-client-ca-file can't be read: {error}") from error
        guard = Guard()
        app = Server(
            self._host, self._shell, self._present_front, guard, settings=self._settings, logs=self._logs
        ).application()
        where = {"host": self._settings.host or None, "port": self._settings.port, "reuse_address": True}
        self._runner = await serving.serve(app, guard, self._tls, shutdown_timeout=0.5, **where)

    def _present_front(self) -> Front:
        assert self._front is not None, "it is read before anything is served"
        return self._front

    async def _stop(self) -> None:
        self._front = self._tls = None
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()

    async def register(self, ca: bytes) -> None:
        """Tell the API server where this process answers, and whose certificate (PEM) it shows.

        Raises:
            ApiError: the registration fails.
        """
        if self._left:
            return
        service = await self._host.get(SERVICES, keys.QUERY_SERVICE, _SYSTEM)
        seen_as = self._settings.address or _own_address(self._host.url)
        port = SERVICE_PORT
        if service["spec"].get("type") == "ExternalName":
            port = self._settings.port
            # That name can't be an IPv6 address: then it is the one that was given to `atollctl init`.
            if not _is_ipv6(seen_as) and service["spec"].get("externalName") != seen_as:
                await self._host.merge_patch(
                    SERVICES, keys.QUERY_SERVICE, {"spec": {"externalName": seen_as}}, _SYSTEM
                )  # fmt: skip
        else:
            ports = [{"name": "https", "port": self._settings.port, "protocol": "TCP"}]
            for name, family in keys.QUERY_ENDPOINTS.items():
                here = _is_ipv6(seen_as) == (family == "IPv6")
                found = [{"addresses": [seen_as], "conditions": {"ready": True}}] if here else []
                endpoints = {"endpoints": found, "ports": ports if here else []}
                await self._host.merge_patch(ENDPOINT_SLICES, name, endpoints, _SYSTEM)
        spec = {
            "group": VERDICTS.group,
            "version": VERDICTS.version,
            "groupPriorityMinimum": 1000,
            "versionPriority": 10,
            "service": {"namespace": _SYSTEM, "name": keys.QUERY_SERVICE, "port": port},
            "caBundle": base64.b64encode(ca).decode(),
        }
        head = {"apiVersion": API_SERVICES.api_version, "kind": API_SERVICES.kind}
        service = {**head, "metadata": {"name": keys.QUERY_API}, "spec": spec}
        await self._host.apply(API_SERVICES, service, field_manager="atoll-dispatcher")
        if not self.registered.is_set():
            self.registered.set()
            log.info("the query API is served", address=seen_as, port=self._settings.port)


def _is_ipv6(address: str) -> bool:
    return ":" in address


def _own_address(url: str) -> str:
    """The address from which this machine reaches the API server; nothing is sent for that."""
    target = urlsplit(url)
    family, kind, _, _, address = socket.getaddrinfo(target.hostname, target.port or 443, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])
