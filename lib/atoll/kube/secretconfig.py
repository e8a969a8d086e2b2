"""Connections from Secrets: whoever wrote the Secret may choose a server and a credential, and nothing else.

A kubeconfig can run programs, read files of the process that loads it, and switch TLS off. One that comes out of a
Secret may do none of that, in any of its entries: permitted fields are listed, all else is refused by name.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, NoReturn

from yarl import URL

from atoll.kube.access import BadKubeconfig, load_chain, tls_context
from atoll.kube.config import Connection
from atoll.model import documents

MAX_BYTES = 256 * 1024
"""Of a kubeconfig; a Secret may hold 1 MiB, and YAML of that size takes seconds to read."""

_CLUSTER = frozenset(
    ("server", "certificate-authority-data", "tls-server-name", "proxy-url", "disable-compression", "extensions")
)
_USER = frozenset(("token", "client-certificate-data", "client-key-data", "extensions"))
_HINTS = {
    "exec": "programs are not run for a Secret; put a token there",
    "auth-provider": "put the token itself there",
    "certificate-authority": "files are not read for a Secret; use certificate-authority-data",
    "client-certificate": "files are not read for a Secret; use client-certificate-data",
    "client-key": "files are not read for a Secret; use client-key-data",
    "tokenFile": "files are not read for a Secret; use token",
    "insecure-skip-tls-verify": "use certificate-authority-data",
    "username": "use a token or a client certificate",
    "password": "use a token or a client certificate",
    "as": "use the credentials of that user",
}

Json = dict[str, Any]


def from_secret(data: Mapping[str, str], source: str, *, endpoint: str = "") -> Connection:
    """The connection that a Secret describes.

    Args:
        data: its `data`, values in base64: `kubeconfig`, or else `token` and optionally `caBundle` (as Karmada has
            them) for the server at `endpoint`.
        source: what to call it in errors: `Secret namespace/name`.
        endpoint: URL of the API server, where there is no kubeconfig.

    Raises:
        BadKubeconfig: a field is missing, wrong or not allowed; the message names it.
    """
    if "kubeconfig" in data:
        return _from_kubeconfig(_decoded(data["kubeconfig"], f"{source}: data.kubeconfig"), source)
    if "token" not in data:
        raise BadKubeconfig(f"{source}: data: it has neither `kubeconfig` nor `token`; put one of them there")
    cluster: Json = {"server": endpoint}
    if data.get("caBundle"):
        cluster["certificate-authority-data"] = data["caBundle"]
    if not endpoint:
        raise BadKubeconfig(f"{source}: with a token the Cluster must say where it is valid: set spec.apiEndpoint")
    token = _decoded(data["token"], f"{source}: data.token").decode(errors="replace").strip()
    return _connection(cluster, {"token": token}, source, "Cluster spec.apiEndpoint", "data")


def _from_kubeconfig(text: bytes, source: str) -> Connection:
    where = f"{source}: kubeconfig"
    try:
        config = documents.read_yaml(text, largest=MAX_BYTES)
    except documents.BadDocument as error:
        raise BadKubeconfig(f"{where}: {error}") from error
    config = _mapping(config, where)
    clusters = _named(config, "clusters", "cluster", _CLUSTER, where)
    users = _named(config, "users", "user", _USER, where)
    contexts = _named(config, "contexts", "context", None, where)
    name = config.get("current-context")
    if not name and len(contexts) == 1:
        name = next(iter(contexts))
    if not isinstance(name, str) or name not in contexts:
        raise BadKubeconfig(f"{where}: current-context: {name!r:.100} is none of its {len(contexts)} contexts")
    context = contexts[name]
    found = []
    for field, entries in (("cluster", clusters), ("user", users)):
        wanted = context.get(field)
        if not isinstance(wanted, str) or wanted not in entries:
            raise BadKubeconfig(f"{where}: contexts[{name}].context.{field}: there is no {field} {wanted!r:.100}")
        found.append(entries[wanted])
    cluster, user = found
    return _connection(cluster, user, where, "clusters[].cluster.server", "users[].user")


def _named(config: Json, plural: str, singular: str, allowed: frozenset[str] | None, where: str) -> dict[str, Json]:
    """Name -> content of a list of a kubeconfig, all of whose entries must be harmless."""
    entries = config.get(plural) or []
    if not isinstance(entries, list):
        raise BadKubeconfig(f"{where}: {plural}: a list is wanted")
    result: dict[str, Json] = {}
    for number, entry in enumerate(entries):
        field = f"{plural}[{number}]"
        name = _mapping(entry, f"{where}: {field}").get("name")
        content = _mapping(entry.get(singular) or {}, f"{where}: {field}.{singular}")
        if not isinstance(name, str) or name in result:
            raise BadKubeconfig(f"{where}: {field}.name: {name!r:.100} is no name, or there twice")
        for key in content if allowed is not None else ():
            if allowed is not None and key not in allowed:
                hint = _HINTS.get(key, "remove it") if isinstance(key, str) else "remove it"
                raise BadKubeconfig(f"{where}: {field}.{singular}.{key!s:.60}: not allowed in a Secret; {hint}")
        result[name] = content
    return result


def _connection(cluster: Json, user: Json, where: str, server_field: str, user_field: str) -> Connection:
    def bad(field: str, why: str) -> NoReturn:
        raise BadKubeconfig(f"{where}: {field}: {why}")

    def text(content: Json, field: str, of: str) -> str | None:
        value = content.get(field)
        if value is not None and not isinstance(value, str):
            bad(f"{of}.{field}", f"text is wanted, not {type(value).__name__}")
        return value or None

    server = _url(text(cluster, "server", "cluster"), ("https",))
    if server is None:
        bad(server_field, f"{cluster.get('server')!r:.200} is no https URL of a server")
    proxy = text(cluster, "proxy-url", "cluster")
    if proxy is not None and (proxy := _url(proxy, ("https", "http"))) is None:
        bad("cluster.proxy-url", "it is no http(s) URL of a proxy")
    token = text(user, "token", user_field)
    certificate = text(user, "client-certificate-data", user_field)
    key = text(user, "client-key-data", user_field)
    if token is None and certificate is None:
        bad(user_field, "it has neither token nor client-certificate-data")
    if token is not None and not (token.isascii() and token.isprintable() and " " not in token):
        bad(f"{user_field}.token", "it has characters that no token has")
    if (certificate is None) != (key is None):
        bad(user_field, "client-certificate-data and client-key-data belong together")
    authority = text(cluster, "certificate-authority-data", "cluster")
    try:
        pem = _decoded(authority, "").decode("ascii") if authority else None
        tls = tls_context(ca_data=pem)
    except (ValueError, OSError):
        bad("certificate-authority-data", "it is no certificate in PEM form (base64)")
    if certificate is not None and key is not None:
        try:
            load_chain(tls, _decoded(certificate, "") + b"\n" + _decoded(key, ""))
        except (ValueError, OSError):
            bad(user_field, "client-certificate-data and client-key-data are no certificate with its key (PEM, base64)")
    header = None if token is None else f"Bearer {token}"

    async def authorize() -> str | None:
        return header

    return Connection(server, tls, authorize, proxy, text(cluster, "tls-server-name", "cluster"))


def _url(text: str | None, schemes: tuple[str, ...]) -> str | None:
    """The URL without a slash at its end; None where it is not just scheme, host, port and path."""
    try:
        url = URL(text or "")
        plain = url.scheme in schemes and url.host and url.port and not (url.user or url.password)
        return str(url).rstrip("/") if plain and not (url.query_string or url.fragment) else None
    except (ValueError, TypeError):
        return None


def _decoded(value: object, where: str) -> bytes:
    try:
        return base64.b64decode("".join(str(value).split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadKubeconfig(f"{where}: it is not base64") from error


def _mapping(value: object, where: str) -> Json:
    if not isinstance(value, dict):
        raise BadKubeconfig(f"{where}: an object is wanted, not {type(value).__name__}")
    return value
