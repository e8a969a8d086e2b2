"""Who asks, and whether they may: the host's API server says both.

It authenticates its users and passes requests on with its own client certificate and their names in headers (the
request-header form of Kubernetes' API aggregation). A connection without that certificate has no user, whatever its
headers say. What the user may do is asked of the API server's own authorizer.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

from atoll.dispatcher.settings import QuerySettings
from atoll.kube.transport import ApiServer
from atoll.model.apiresource import ACCESS_REVIEWS, ApiResource

Json = dict[str, Any]

CONFIG_NAMESPACE: Final = "kube-system"
CONFIG_NAME: Final = "extension-apiserver-authentication"
_MOST: Final = 1024


class Unknown(Exception):
    """The request is not one that the API server passed on."""


class NotAggregating(ValueError):
    """The API server is not set up for API aggregation; the message names the missing part."""


@dataclass(frozen=True, slots=True)
class Front:
    """How the API server presents itself, by its ConfigMap."""

    ca: str
    """PEM: whose client certificates to believe."""
    names: tuple[str, ...]
    """Common names that such a certificate may have; empty for any."""
    users: tuple[str, ...]
    uids: tuple[str, ...]
    groups: tuple[str, ...]
    extras: tuple[str, ...]
    """Prefixes of the headers for what else is known of a user."""


@dataclass(frozen=True, slots=True)
class User:
    """Who asks."""

    name: str
    uid: str
    groups: tuple[str, ...]
    extra: tuple[tuple[str, tuple[str, ...]], ...]


def read_front(config: Mapping[str, Any]) -> Front:
    """The ConfigMap `extension-apiserver-authentication`.

    Raises:
        NotAggregating: it has no authority for requests that are passed on, or can't be read.
    """
    data = config.get("data") or {}

    def names(key: str, otherwise: tuple[str, ...] = ()) -> tuple[str, ...]:
        try:
            found = json.loads(data.get(f"requestheader-{key}") or "[]")
        except ValueError as error:
            raise NotAggregating(f"requestheader-{key} is no JSON list: {error}") from error
        return tuple(str(each) for each in found) or otherwise

    ca = data.get("requestheader-client-ca-file") or ""
    if not ca:
        raise NotAggregating("its API server runs without --requestheader-client-ca-file")
    return Front(
        ca,
        names("allowed-names"),
        names("username-headers", ("X-Remote-User",)),
        names("uid-headers", ("X-Remote-Uid",)),
        names("group-headers", ("X-Remote-Group",)),
        names("extra-headers-prefix", ("X-Remote-Extra-",)),
    )


def identify(front: Front, certificate: Mapping[str, Any] | None, headers: Iterable[tuple[str, str]]) -> User:
    """The user of a request.

    Args:
        front: who may pass requests on.
        certificate: of the client, as `ssl.SSLSocket.getpeercert` gives it; verified, or None.
        headers: of the request.

    Raises:
        Unknown: it did not come by the API server.
    """
    if not certificate:
        raise Unknown("no client certificate: this API is reached through the API server of the host")
    subject = {key: value for part in certificate.get("subject") or () for key, value in part}
    if front.names and subject.get("commonName") not in front.names:
        raise Unknown("the client certificate is not that of the host's API server")
    found = [(name.lower(), value) for name, value in headers]

    def values(names: tuple[str, ...]) -> list[str]:
        wanted = {name.lower() for name in names}
        return [value for name, value in found if name in wanted and value]

    users = values(front.users)
    if not users:
        raise Unknown("the request names no user")
    extra: dict[str, list[str]] = {}
    for name, value in found:
        for prefix in front.extras:
            if name.startswith(prefix.lower()):
                extra.setdefault(unquote(name[len(prefix) :]), []).append(value)
    return User(
        users[0],
        next(iter(values(front.uids)), ""),
        tuple(values(front.groups)),
        tuple((key, tuple(extra[key])) for key in sorted(extra)),
    )


class Access:
    """What users may do, by SubjectAccessReviews; answers are remembered for some seconds."""

    def __init__(self, host: ApiServer, *, settings: QuerySettings = QuerySettings()) -> None:
        self._settings = settings
        self._host = host
        #: question -> (answer, until when it counts on the loop's clock), oldest first
        self._known: dict[tuple[User, str, str, str, str], tuple[bool, float]] = {}

    async def allowed(
        self, user: User, verb: str, resource: ApiResource, namespace: str = "", name: str = "", *, sub: str = ""
    ) -> bool:
        """Whether the user may do that; no namespace means in all of them.

        Raises:
            ApiError: the authorizer can't be asked.
        """
        key = (user, verb, f"{resource.plural}/{sub}" if sub else resource.plural, namespace, name)
        clock = asyncio.get_running_loop().time
        known = self._known.get(key)
        if known is not None and known[1] > clock():
            return known[0]
        attributes = {
            "verb": verb,
            "group": resource.group,
            "version": resource.version,
            "resource": resource.plural,
            "subresource": sub,
            "namespace": namespace,
            "name": name,
        }
        review: Json = {
            "apiVersion": ACCESS_REVIEWS.api_version,
            "kind": ACCESS_REVIEWS.kind,
            "metadata": {},
            "spec": {
                "user": user.name,
                "uid": user.uid,
                "groups": list(user.groups),
                "extra": {each: list(values) for each, values in user.extra},
                "resourceAttributes": attributes,
            },
        }
        status = (await self._host.create(ACCESS_REVIEWS, review)).get("status") or {}
        answer = bool(status.get("allowed"))
        self._known.pop(key, None)
        self._known[key] = (answer, clock() + self._settings.remembered)
        while len(self._known) > _MOST:
            del self._known[next(iter(self._known))]
        return answer
