"""Kubeconfigs that need nothing but reading: one file with a server and a token, a token file or a client certificate.

The `kubernetes` package reads every kubeconfig there is, and its import costs more CPU time than all else that a short
command does. What this module does not know, or would have to complain about, it leaves to that package.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from atoll.kube.access import Access, Material
from atoll.model.documents import BadDocument, read_yaml, read_yaml_file

Json = dict[str, Any]

_IGNORED: Final = {"extensions", "disable-compression"}
_CLUSTER: Final = {
    "server",
    "certificate-authority",
    "certificate-authority-data",
    "insecure-skip-tls-verify",
    "tls-server-name",
    "proxy-url",
    *_IGNORED,
}
_USER: Final = {
    "token",
    "tokenFile",
    "client-certificate",
    "client-certificate-data",
    "client-key",
    "client-key-data",
    *_IGNORED,
}
_LARGEST: Final = 256 * 1024
ACCOUNT_FOLDER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds the token of its ServiceAccount and the authority of the API server; the kubelet replaces both."""


class _NotPlain(Exception):
    """The other reader must judge it."""


def parse(path: str) -> Json | None:
    """The content of a kubeconfig; None where there is none that is a mapping of a sane size.

    Args:
        path: of the file.
    """
    try:
        text = Path(path).expanduser().read_bytes()
        found = read_yaml(text, largest=_LARGEST)
    except (OSError, BadDocument):
        return None
    return found if isinstance(found, dict) else None


def fault(path: str, context: str | None) -> str:
    """Problem of the form of a kubeconfig, in words; empty for none, or where a parser has to say it.

    Args:
        path: of the file.
        context: of the file; None for its current one.
    """
    try:
        found = next(iter(read_yaml_file(Path(path).expanduser().read_bytes().decode())), None)
    except OSError as error:
        return f"it can't be read: {error.strerror}"
    except UnicodeDecodeError:
        return "it is not UTF-8 text"
    except BadDocument as error:
        return str(error)
    if not isinstance(found, dict):
        said = "it is empty" if found is None else f"a {type(found).__name__} is there"
        return f"it is no kubeconfig, which has clusters, users and contexts: {said}"
    try:
        names = {}
        for plural in ("contexts", "clusters", "users"):
            entries = found.get(plural) or []
            if not isinstance(entries, list) or not all(
                isinstance(each, dict) and each.get("name") for each in entries
            ):
                return f"{plural}: a list of entries with a name is wanted"
            names[plural] = {str(each["name"]): each for each in entries}
        chosen = context or found.get("current-context")
        if not isinstance(chosen, str) or chosen not in names["contexts"]:
            there = ", ".join(names["contexts"]) or "none"
            field = "--context" if context else "current-context"
            return f"{field}: there is no context {chosen!r}; there is {there}" if chosen else f"{field}: it is not set"
        content = names["contexts"][chosen].get("context") or {}
        for plural, field in (("clusters", "cluster"), ("users", "user")):
            wanted = content.get(field)
            if not isinstance(wanted, str) or wanted not in names[plural]:
                return f"contexts[{chosen}].context.{field}: there is no {field} {wanted!r}"
    except (AttributeError, TypeError):
        return "it is no kubeconfig: fields are not of the form that they should have"
    return ""


def namespace(paths: list[str], context: str | None) -> str:
    """The namespace that the chosen context of these kubeconfigs names; empty where none does.

    Args:
        paths: of kubeconfigs, the first one that says something wins.
        context: the chosen one; None for the current one.
    """
    contexts: Json = {}
    for path in paths:
        content = parse(path) or {}
        current = content.get("current-context")
        context = context or (current if isinstance(current, str) else None)
        entries = content.get("contexts")
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict) and isinstance(entry.get("name"), str):
                contexts.setdefault(entry["name"], entry.get("context"))
    chosen = contexts.get(context or "")
    return str(chosen.get("namespace") or "") if isinstance(chosen, dict) else ""


def read_one(paths: str, context: str | None) -> Access | None:
    """The access that the only file of several that exists describes; None where it needs the other reader.

    Args:
        paths: separated as in $KUBECONFIG.
        context: of the file; None for its current one.
    """
    there = existing(paths)
    return read(there[0], context) if len(there) == 1 else None


def in_cluster(environ: Mapping[str, str]) -> Access | None:
    """The access of the pod that this process runs in; None outside of pods.

    Args:
        environ: of the process; the kubelet adds the address of the API server.

    Raises:
        OSError: the account is mounted and can't be read.
    """
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    token, authority = ACCOUNT_FOLDER / "token", ACCOUNT_FOLDER / "ca.crt"
    if not (host and port and token.exists()):
        return None
    return Access(
        f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        f"Bearer {token.read_text().strip()}",
        str(authority),
        files=frozenset((str(token), str(authority))),
    )


def existing(paths: str) -> list[str]:
    """The existing ones of several files.

    Args:
        paths: separated as in $KUBECONFIG.
    """
    return [path for path in paths.split(os.pathsep) if path and os.path.exists(os.path.expanduser(path))]


def read(path: str, context: str | None) -> Access | None:
    """The access that a kubeconfig describes; None where it needs the other reader.

    Args:
        path: of the file.
        context: of the file; None for its current one.
    """
    config = parse(path)
    if config is None:
        return None
    try:
        chosen = _named(config, "contexts", "context", context or config.get("current-context"))
        cluster = _named(config, "clusters", "cluster", chosen.get("cluster"))
        user = _named(config, "users", "user", chosen.get("user"))
        if not (cluster.keys() <= _CLUSTER and user.keys() <= _USER):
            return None
        return _access(os.path.expanduser(path), cluster, user)
    except (_NotPlain, OSError, ValueError):
        return None


def _named(config: Json, plural: str, singular: str, name: object) -> Json:
    entries = config.get(plural)
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise _NotPlain
        if entry["name"] == name:
            content = entry.get(singular)
            if isinstance(content, dict):
                return content
    raise _NotPlain


def _access(path: str, cluster: Json, user: Json) -> Access:
    base = os.path.abspath(os.path.dirname(path))
    server = _text(cluster, "server") or ""
    if not server.startswith(("https://", "http://")):
        raise _NotPlain
    insecure = cluster.get("insecure-skip-tls-verify", False)
    if not isinstance(insecure, bool):
        raise _NotPlain
    files = {path}

    def material(content: Mapping[str, Any], field: str) -> Material | None:
        data, file = _text(content, f"{field}-data"), _text(content, field)
        if data is not None:
            pem = base64.b64decode("".join(data.split()), validate=True)
            if not pem:
                # No authority would mean the machine's.
                raise _NotPlain
            return pem
        if file is None:
            return None
        full = os.path.normpath(os.path.join(base, file))
        if not os.path.isfile(full):
            raise _NotPlain
        files.add(full)
        return full

    token, token_file = _text(user, "token"), _text(user, "tokenFile")
    if token is None and token_file is not None:
        full = os.path.normpath(os.path.join(base, token_file))
        files.add(full)
        token = Path(full).read_text()
    certificate, key = material(user, "client-certificate"), material(user, "client-key")
    if (certificate is None) != (key is None):
        raise _NotPlain
    return Access(
        server.rstrip("/"),
        f"Bearer {token}" if token else None,
        material(cluster, "certificate-authority"),
        certificate,
        key,
        not insecure,
        _text(cluster, "proxy-url"),
        _text(cluster, "tls-server-name"),
        files=frozenset(files),
    )


def _text(content: Mapping[str, Any], field: str) -> str | None:
    value = content.get(field)
    if field in content and not (isinstance(value, str) and value):
        raise _NotPlain
    return value
