"""An API server without credentials, the kubeconfig that adds them, and the hash that stands for its authority."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What a client must know of an API server besides its credentials."""

    url: str
    ca: bytes | None = None
    """PEM; None: the machine's own authorities."""
    insecure: bool = False
    server_name: str | None = None
    proxy: str | None = None


def kubeconfig(at: Endpoint, user: str, credentials: str | Mapping[str, str], *, namespace: str | None = None) -> str:
    """A kubeconfig with one context, as YAML; with a token, or the fields of its user."""
    cluster: Json = {"server": at.url}
    if at.ca is not None:
        cluster["certificate-authority-data"] = base64.b64encode(at.ca).decode()
    if at.insecure:
        cluster["insecure-skip-tls-verify"] = True
    if at.server_name:
        cluster["tls-server-name"] = at.server_name
    if at.proxy:
        cluster["proxy-url"] = at.proxy
    fields = {"token": credentials} if isinstance(credentials, str) else dict(credentials)
    return one_context(cluster, user, fields, namespace=namespace)


def one_context(cluster: Json, user: str, credentials: Json, *, namespace: str | None = None) -> str:
    """A kubeconfig of one cluster and one user, with the fields of each, as YAML."""
    context: Json = {"cluster": "cluster", "user": user}
    if namespace:
        context["namespace"] = namespace
    content: Json = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": user,
        "clusters": [{"name": "cluster", "cluster": cluster}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": user, "context": context}],
    }
    return yaml.safe_dump(content, sort_keys=False)


def ca_hash(pem: bytes) -> str:
    """`sha256:` and the digest of the public keys of these certificates, sorted; of one certificate, kubeadm's hash.

    Raises:
        ValueError: it holds no certificate.
    """
    found = {
        each.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        for each in x509.load_pem_x509_certificates(pem)
    }
    return "sha256:" + hashlib.sha256(b"".join(sorted(found))).hexdigest()
