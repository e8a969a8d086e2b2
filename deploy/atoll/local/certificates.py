"""The keys of one federation: a certificate authority, serving certificates, one signing key.

One authority for all clusters lets a kubeconfig be written before its server runs, and lets a
proxy that ends TLS present a certificate that the same kubeconfig accepts.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME = datetime.timedelta(days=365)


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, also while it is being written."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


class Authority:
    """A certificate authority that lives as long as its federation, with its files in a folder."""

    def __init__(self, directory: Path, name: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(self._name, self._name, self._key.public_key(), self._key.public_key())
        self._certificate = (
            builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(ca=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        #: PEM of the authority.
        self.pem = self._certificate.public_bytes(serialization.Encoding.PEM)
        #: File that holds it.
        self.path = directory / f"{name}.crt"
        self.path.write_bytes(self.pem)

    def issue(
        self, name: str, *, also: Sequence[str] = (), addresses: Sequence[str] = (), groups: Sequence[str] = ()
    ) -> tuple[Path, Path]:
        """Write a certificate for loopback servers, of these DNS names and addresses too, and clients of these groups;
        return (certificate, key).
        """
        key = ec.generate_private_key(ec.SECP256R1())
        organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in groups]
        subject = x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = (
            _builder(subject, self._name, key.public_key(), self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(ca=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .add_extension(
                x509.SubjectAlternativeName(
                    [
                        x509.DNSName("localhost"),
                        x509.DNSName("kubernetes.default.svc"),
                        *(x509.DNSName(each) for each in also),
                        *(x509.IPAddress(ipaddress.ip_address(each)) for each in ("127.0.0.1", "::1", *addresses)),
                    ]
                ),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )
        certificate_path = self._directory / f"{name}.crt"
        key_path = self._directory / f"{name}.key"
        certificate_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        write_private(key_path, _private_pem(key))
        return certificate_path, key_path


def write_signing_key(directory: Path) -> tuple[Path, Path]:
    """Write the key pair that signs service account tokens; return (private, public)."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private, public = directory / "service-account.key", directory / "service-account.pub"
    write_private(private, _private_pem(key))
    public.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return private, public


def _private_pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    issuer_public: ec.EllipticCurvePublicKey,
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    # Both key identifiers are there because Python's strict verification asks for them.
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_public), critical=False)
    )


def _usage(*, ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=not ca,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=ca,
        crl_sign=ca,
        encipher_only=False,
        decipher_only=False,
    )
