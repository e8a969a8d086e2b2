"""What our own servers serve: leaf certificates, made in memory from an authority (`atoll.kube.authority`).

Nothing but the authority has to be kept, and a new leaf needs no consent.
"""

from __future__ import annotations

import ipaddress
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from atoll.kube.authority import LEAF_LIFE, SKEW, Signer, key_usage, pem_key


@dataclass(frozen=True, slots=True)
class Leaf:
    """A serving certificate with its key (PEM)."""

    key: bytes = field(repr=False)
    chain: bytes
    issuer: bytes
    """Certificate of the CA that signed it (PEM): whoever calls us must trust it."""
    issued: datetime
    ends: datetime


def issue(
    signer: Signer,
    names: Sequence[str],
    now: datetime,
    life: timedelta = LEAF_LIFE,
    *,
    client: str = "",
    groups: Sequence[str] = (),
) -> Leaf:
    """A certificate that ends with its CA at the latest.

    Args:
        signer: the CA.
        names: DNS names and IP addresses of a server; none for a client alone.
        now: the time.
        life: how long it is valid.
        client: name as a client; empty for a server alone.
        groups: of the client.

    Raises:
        BadSecret: the CA can't be used.
    """
    loaded, issuer = signer.loaded()
    key = ec.generate_private_key(ec.SECP256R1())
    organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in groups]
    subject = x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, client or names[0][:64])])
    uses = [
        *([ExtendedKeyUsageOID.SERVER_AUTH] if names else ()),
        *([ExtendedKeyUsageOID.CLIENT_AUTH] if client else ()),
    ]
    ends = min(now + life, issuer.not_valid_after_utc)
    builder = (
        x509.CertificateBuilder(issuer.subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(key_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(loaded.public_key()), critical=False)
    )
    if names:
        alternatives = x509.SubjectAlternativeName([_alternative(name) for name in names])
        builder = builder.add_extension(alternatives, critical=False)
    chain = builder.sign(loaded, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return Leaf(pem_key(key), chain, signer.certificate, now, ends)


def load_leaf(context: ssl.SSLContext, leaf: Leaf) -> None:
    """Serve this certificate from the next handshake on."""
    # ssl reads certificates from files only; these live for the duration of the call.
    with tempfile.TemporaryDirectory(prefix="atoll-") as folder:
        key, chain = Path(folder, "tls.key"), Path(folder, "tls.crt")
        key.touch(mode=0o600)
        key.write_bytes(leaf.key)
        chain.write_bytes(leaf.chain)
        context.load_cert_chain(chain, key)


def renewal(leaf: Leaf) -> datetime:
    """When a leaf is replaced: after a third of its life, so that two more tries fit."""
    return leaf.issued + (leaf.ends - leaf.issued) / 3


def server_context(leaf: Leaf) -> ssl.SSLContext:
    """The TLS side of the server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_leaf(context, leaf)
    return context


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
