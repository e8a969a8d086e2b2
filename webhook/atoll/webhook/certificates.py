"""The webhook's certificate authority, shared by its replicas, and what it issues.

The authority is a Secret; whoever creates it first wins and the others read it. Leaf certificates are made in memory
by each replica, so nothing but the authority has to be kept, and a new leaf needs nobody's consent. An authority may
carry several CA certificates: the first one signs, all are trusted, which is what a rotation needs.
"""

from __future__ import annotations

import base64
import ipaddress
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model import keys
from atoll.model.apiresource import SECRETS

SECRET: Final = "atoll-webhook-ca"
CA_LIFE: Final = timedelta(days=3650)
LEAF_LIFE: Final = timedelta(days=90)
_SKEW = timedelta(minutes=5)
"""Certificates begin this much earlier: clocks of nodes differ."""


class BadSecret(ValueError):
    """The Secret of the authority can't be used; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Authority:
    """A key that signs, and the certificates to trust (PEM)."""

    key: bytes
    bundle: bytes

    @property
    def ca_bundle(self) -> str:
        """The certificates as a webhook configuration wants them: base64 of PEM."""
        return base64.b64encode(self.bundle).decode()


@dataclass(frozen=True, slots=True)
class Leaf:
    """A serving certificate with its key (PEM)."""

    key: bytes
    chain: bytes


def make_authority(now: datetime) -> Authority:
    """A new authority, valid for ten years."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "atoll-webhook-ca")])
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + CA_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(identifier, critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    return Authority(_pem_key(key), certificate.public_bytes(serialization.Encoding.PEM))


def issue(authority: Authority, names: Sequence[str], now: datetime) -> Leaf:
    """A serving certificate for these DNS names and IP addresses, valid for 90 days.

    Raises:
        BadSecret: the authority's key or certificate can't be read, or they don't belong together.
    """
    try:
        loaded = serialization.load_pem_private_key(authority.key, None)
        issuer = x509.load_pem_x509_certificates(authority.bundle)[0]
    except (ValueError, TypeError, IndexError) as error:
        raise BadSecret(f"{error}; {_REPAIR}") from error
    if not isinstance(loaded, ec.EllipticCurvePrivateKey) or loaded.public_key() != issuer.public_key():
        raise BadSecret(f"its key is not the one of its first certificate; {_REPAIR}")
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    certificate = (
        x509.CertificateBuilder(issuer.subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(min(now + LEAF_LIFE, issuer.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_alternative(name) for name in names]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(loaded.public_key()), critical=False)
        .sign(loaded, hashes.SHA256())
    )
    return Leaf(_pem_key(key), certificate.public_bytes(serialization.Encoding.PEM))


def names_of(client_config: dict[str, Any]) -> list[str]:
    """The names by which the API server calls the webhook of a client config.

    The config is `{url}` or `{service}`.

    Raises:
        ValueError: it has neither.
    """
    if client_config.get("url"):
        host = urlsplit(str(client_config["url"])).hostname
        if host:
            return [host]
    service = client_config.get("service") or {}
    name, namespace = service.get("name"), service.get("namespace")
    if not name or not namespace:
        raise ValueError(
            'neither a url such as {"url": "https://127.0.0.1:9443"} nor a service with name and namespace'
        )
    return [name, f"{name}.{namespace}", f"{name}.{namespace}.svc"]


async def shared_authority(api: ApiServer, now: datetime) -> Authority:
    """The authority that all replicas share, made if there is none.

    Raises:
        BadSecret: its Secret lacks a key.
        ApiError: the Secret can be neither read nor created.
    """
    try:
        return _from_secret(await api.get(SECRETS, SECRET, keys.SYSTEM_NAMESPACE))
    except errors.NotFound:
        made = make_authority(now)
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET, "namespace": keys.SYSTEM_NAMESPACE},
        "type": "kubernetes.io/tls",
        "data": {"tls.crt": made.ca_bundle, "tls.key": base64.b64encode(made.key).decode()},
    }
    try:
        await api.create(SECRETS, secret)
    except errors.AlreadyExists:
        return _from_secret(await api.get(SECRETS, SECRET, keys.SYSTEM_NAMESPACE))
    return made


def load_leaf(context: ssl.SSLContext, leaf: Leaf) -> None:
    """Serve this certificate from the next handshake on."""
    # ssl reads certificates from files only; these live for the duration of the call.
    with tempfile.TemporaryDirectory(prefix="atoll-webhook-") as folder:
        key, chain = Path(folder, "tls.key"), Path(folder, "tls.crt")
        key.touch(mode=0o600)
        key.write_bytes(leaf.key)
        chain.write_bytes(leaf.chain)
        context.load_cert_chain(chain, key)


def server_context(leaf: Leaf) -> ssl.SSLContext:
    """The TLS side of the server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_leaf(context, leaf)
    return context


def _from_secret(secret: dict[str, Any]) -> Authority:
    data = secret.get("data") or {}
    try:
        return Authority(base64.b64decode(data["tls.key"]), base64.b64decode(data["tls.crt"]))
    except (KeyError, ValueError) as error:
        raise BadSecret(f"{error} can't be read; {_REPAIR}") from error


_REPAIR = f"delete Secret {keys.SYSTEM_NAMESPACE}/{SECRET} and start all replicas of the webhook again"


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
