"""A process renews the credentials that it was started with, and stores them where they came from.

Tokens of ServiceAccounts, and certificates of agents, carry who they are for and how long they are valid; another one,
as long valid, is asked for with the old one once four fifths of its life are over. A credential of another kind (any
other client certificate, a plugin, the pod's own account, which its kubelet renews) is left alone.
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
from atoll.model import certificates, keys
from atoll.model.apiresource import SERVICE_ACCOUNTS

Json = dict[str, Any]

RENEWED_AFTER: Final = 0.8
"""Of its life."""
_LOOK: Final = 300.0
"""Most seconds between two looks: another process may have renewed the same token."""
_AGAIN: Final = 60.0
_SHORTEST: Final = 600
"""Seconds; API servers grant nothing shorter."""
_FIELDS: Final = (("token",), (certificates.CERTIFICATE, certificates.KEY))

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Claims:
    """What the token of a ServiceAccount, or the certificate of an agent, says of itself."""

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
        return _claims(str(said["sub"]), float(said["iat"]), float(said["exp"]))
    except (IndexError, KeyError, TypeError, ValueError):
        return None


def claims_in(credentials: Mapping[str, str]) -> Claims | None:
    """The same of the fields of a user in a kubeconfig; None as well for certificates of others than agents."""
    if token := credentials.get("token"):
        return claims_of(token)
    # Parsing certificates is a large import, which processes with tokens can do without.
    from atoll.kube import client_certificates

    found = client_certificates.times_of(credentials.get(certificates.CERTIFICATE, ""))
    claims = _claims(found[0], found[1].timestamp(), found[2].timestamp()) if found is not None else None
    if claims is None or claims.name != certificates.AGENT or not claims.namespace.startswith(keys.EXECUTION_PREFIX):
        return None
    return claims


def _claims(user: str, issued: float, expires: float) -> Claims | None:
    prefix, _, account = user.partition(certificates.ACCOUNT)
    namespace, _, name = account.partition(":")
    return None if prefix or not namespace or not name else Claims(namespace, name, issued, expires)


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


Credentials = Mapping[str, str]
"""Fields of a user in a kubeconfig: `token`, or `client-certificate-data` and `client-key-data`."""
Read = Callable[[], Awaitable[Credentials | None]]
Store = Callable[[Credentials, Credentials], Awaitable[None]]
"""Puts the second ones where the first ones are."""


class Renewal:
    """Keeps one token or certificate valid."""

    def __init__(self, api: ApiServer, read: Read, store: Store) -> None:
        """No I/O happens here.

        Args:
            api: whose token or certificate it is, reached with it.
            read: the credentials as they are stored now; None where there are none to renew.
            store: see `Store`.
        """
        self._api, self._read, self._store = api, read, store
        #: when they end, seconds since the epoch; 0 while that is not known
        self.expires = 0.0
        #: why they were not renewed although it is time; empty where it is well
        self.problem = ""

    async def run(self) -> None:
        """Renew until cancelled."""
        while True:
            pause = await self.look(time.time())
            await asyncio.sleep(pause)

    async def look(self, now: float) -> float:
        """Renew if it is time; gives the seconds until the next look."""
        try:
            credentials = await self._read()
            claims = claims_in(credentials) if credentials is not None else None
            if credentials is None or claims is None:
                self.expires, self.problem = 0.0, ""
                return _LOOK
            self.expires = claims.expires
            if now < claims.due:
                self.problem = ""
                return min(claims.due - now, _LOOK)
            await self.renew(credentials, claims)
        except (errors.ApiError, OSError, ValueError) as error:
            self.problem = str(error) or type(error).__name__
            log.warning("credentials were not renewed", server=self._api.url, error=self.problem)
            return _AGAIN
        return 1.0

    async def renew(self, credentials: Credentials, claims: Claims) -> None:
        """Ask for others of the same kind and store them.

        Raises:
            ApiError, NotSigned: the server gives none.
            OSError: they can't be stored.
        """
        fresh = await (self._token(claims) if "token" in credentials else self._certificate(claims))
        await self._store(credentials, fresh)
        self.problem = ""
        found = claims_in(fresh)
        self.expires = found.expires if found is not None else 0.0
        log.info("credentials were renewed", server=self._api.url, until=int(self.expires))

    async def _certificate(self, claims: Claims) -> Credentials:
        from atoll.kube import client_certificates

        return await client_certificates.ask(self._api, keys.cluster_of(claims.namespace))

    async def _token(self, claims: Claims) -> Credentials:
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": max(int(claims.expires - claims.issued), _SHORTEST)},
        }
        answer = await self._api.create_in(SERVICE_ACCOUNTS, claims.name, claims.namespace, "token", request)
        return {"token": str(answer["status"]["token"])}


def in_kubeconfig(text: str) -> dict[str, str] | None:
    """The token, or the certificate with its key, of a kubeconfig's only user; None where there is neither."""
    content = yaml.safe_load(text)
    users = content.get("users") if isinstance(content, dict) else None
    if not isinstance(users, list) or len(users) != 1:
        return None
    user = (users[0] or {}).get("user") or {}
    for fields in _FIELDS:
        if all(isinstance(user.get(each), str) for each in fields):
            return {each: user[each] for each in fields}
    return None


def replaced(text: str, old: Credentials, new: Credentials) -> str:
    """A kubeconfig with new credentials; unchanged where it has others than the old ones."""
    for field, value in old.items():
        text = text.replace(value, new[field])
    return text


def expiry_in(kubeconfig: str) -> float:
    """When the credentials in a kubeconfig file expire, seconds since the epoch; 0 where there are none that do."""
    try:
        claims = claims_in(in_kubeconfig(Path(kubeconfig).read_text("utf-8")) or {})
    except (OSError, ValueError, yaml.YAMLError):
        return 0.0
    return claims.expires if claims is not None else 0.0


def of_file(api: ApiServer, kubeconfig: str | Path | None) -> Renewal | None:
    """The renewal of the credentials in a kubeconfig file; None where no file is named."""
    if kubeconfig is None:
        return None
    path = Path(kubeconfig)

    async def read() -> Credentials | None:
        return in_kubeconfig(await asyncio.to_thread(path.read_text))

    async def store(old: Credentials, new: Credentials) -> None:
        await asyncio.to_thread(_replace_in, path, old, new)

    return Renewal(api, read, store)


def _replace_in(path: Path, old: Credentials, new: Credentials) -> None:
    """At once: who reads the file meanwhile finds the one or the other."""
    text = path.read_text()
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(replaced(text, old, new))
    fresh.replace(path)
