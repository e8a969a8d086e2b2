"""A process renews the ServiceAccount token that it was started with, and stores it where that came from.

Tokens carry who they are for and how long they are valid; another one, as long valid, is asked for with the old one
once four fifths of its life are over. A credential of another kind (a client certificate, a plugin, the pod's own
account, which its kubelet renews) is left alone.
"""

from __future__ import annotations

import asyncio
import base64
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson
import structlog
import yaml
from prometheus_client import CollectorRegistry, Gauge

from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model.apiresource import SERVICE_ACCOUNTS

Json = dict[str, Any]

RENEWED_AFTER: Final = 0.8
"""Of its life."""
_LOOK: Final = 300.0
"""Most seconds between two looks: another process may have renewed the same token."""
_AGAIN: Final = 60.0
_SHORTEST: Final = 600
"""Seconds; API servers grant nothing shorter."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Claims:
    """What a ServiceAccount token says of itself."""

    namespace: str
    name: str
    issued: float
    expires: float
    """Seconds since the epoch."""

    @property
    def due(self) -> float:
        """Time of its renewal."""
        return self.issued + RENEWED_AFTER * (self.expires - self.issued)


def claims_of(token: str) -> Claims | None:
    """The claims of a token, unproven; None for one that is no token of a ServiceAccount, or does not expire."""
    try:
        payload = token.split(".")[1]
        said = orjson.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        prefix, _, account = str(said["sub"]).partition("system:serviceaccount:")
        namespace, _, name = account.partition(":")
        if prefix or not namespace or not name:
            return None
        return Claims(namespace, name, float(said["iat"]), float(said["exp"]))
    except (IndexError, KeyError, TypeError, ValueError):
        return None


def show_expiry(registry: CollectorRegistry, ends: Mapping[str, Callable[[], float]]) -> None:
    """Export for each cluster when the token for it expires."""
    gauge = Gauge(
        "atoll_token_expiry_timestamp_seconds",
        "When the token for this cluster expires; 0 where there is none that does",
        ["cluster"],
        registry=registry,
    )
    for cluster, expires in ends.items():
        gauge.labels(cluster).set_function(expires)


Read = Callable[[], Awaitable[str | None]]
Store = Callable[[str, str], Awaitable[None]]
"""Puts the second token where the first one is."""


class Renewal:
    """Keeps one token valid."""

    def __init__(self, api: ApiServer, read: Read, store: Store) -> None:
        """No I/O happens here.

        Args:
            api: whose token it is, reached with it.
            read: the token as it is stored now; None where there is none to renew.
            store: see `Store`.
        """
        self._api, self._read, self._store = api, read, store
        #: when the token ends, seconds since the epoch; 0 while that is not known
        self.expires = 0.0
        #: why it was not renewed although it is time; empty where it is well
        self.problem = ""

    async def run(self) -> None:
        """Renew until cancelled."""
        while True:
            pause = await self.look(time.time())
            await asyncio.sleep(pause)

    async def look(self, now: float) -> float:
        """Renew if it is time; gives the seconds until the next look."""
        try:
            token = await self._read()
            claims = claims_of(token or "")
            if token is None or claims is None:
                self.expires, self.problem = 0.0, ""
                return _LOOK
            self.expires = claims.expires
            if now < claims.due:
                self.problem = ""
                return min(claims.due - now, _LOOK)
            await self.renew(token, claims)
        except (errors.ApiError, OSError, ValueError) as error:
            self.problem = str(error) or type(error).__name__
            log.warning("a token was not renewed", server=self._api.url, error=self.problem)
            return _AGAIN
        return 1.0

    async def renew(self, token: str, claims: Claims) -> None:
        """Ask for another token and store it.

        Raises:
            ApiError: the server gives none.
            OSError: it can't be stored.
        """
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": max(int(claims.expires - claims.issued), _SHORTEST)},
        }
        answer = await self._api.create_in(SERVICE_ACCOUNTS, claims.name, claims.namespace, "token", request)
        fresh = str(answer["status"]["token"])
        await self._store(token, fresh)
        self.problem = ""
        found = claims_of(fresh)
        self.expires = found.expires if found is not None else 0.0
        log.info("a token was renewed", server=self._api.url, until=answer["status"].get("expirationTimestamp"))


def in_kubeconfig(text: str) -> str | None:
    """The token in a kubeconfig's only user; None where there is none."""
    content = yaml.safe_load(text)
    users = content.get("users") if isinstance(content, dict) else None
    if not isinstance(users, list) or len(users) != 1:
        return None
    token = ((users[0] or {}).get("user") or {}).get("token")
    return token if isinstance(token, str) else None


def expiry_in(kubeconfig: str) -> float:
    """When the token in a kubeconfig file expires, seconds since the epoch; 0 where there is none that does."""
    try:
        claims = claims_of(in_kubeconfig(Path(kubeconfig).read_text("utf-8")) or "")
    except (OSError, ValueError, yaml.YAMLError):
        return 0.0
    return claims.expires if claims is not None else 0.0


def of_file(api: ApiServer, kubeconfig: str | Path | None) -> Renewal | None:
    """The renewal of the token in a kubeconfig file; None where no file is named."""
    if kubeconfig is None:
        return None
    path = Path(kubeconfig)

    async def read() -> str | None:
        return in_kubeconfig(await asyncio.to_thread(path.read_text))

    async def store(old: str, new: str) -> None:
        await asyncio.to_thread(_replace_in, path, old, new)

    return Renewal(api, read, store)


def _replace_in(path: Path, old: str, new: str) -> None:
    """At once: who reads the file meanwhile finds the one or the other."""
    text = path.read_text()
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text.replace(old, new))
    fresh.replace(path)
