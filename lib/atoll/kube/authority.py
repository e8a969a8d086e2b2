"""The webhook's certificate authority: contents of its Secret, and how one authority gives way to the next.

The Secret is the only place where replicas meet, so all that a rotation must remember is in it. It never passes
through a state in which a client trusts no served certificate:

1. `prepare`: the next CA is trusted beside the present one, which goes on signing.
2. `promote`: the next one signs; the old one is trusted as long as a certificate that it signed may be served.
3. `forget`: the old one is trusted no more.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from atoll.model import keys

SECRET: Final = "atoll-webhook-ca"
SECRET_TYPE: Final = "kubernetes.io/tls"
SIGNS_SINCE: Final = "atoll.sh/signs-since"
"""Annotation of the Secret: since when its present CA signs (RFC 3339)."""
CA_LIFE: Final = timedelta(days=3650)
LEAF_LIFE: Final = timedelta(days=90)
SETTLE: Final = timedelta(seconds=60)
SKEW: Final = timedelta(minutes=5)
"""Certificates begin this much earlier: clocks of nodes differ."""

REPAIR: Final = (
    f"delete Secret {keys.SYSTEM_NAMESPACE}/{SECRET} and run `atollctl init` again: it makes a new one, which the"
    " webhook takes up by itself"
)

Json = dict[str, Any]


class BadSecret(ValueError):
    """The Secret of the authority can't be used; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Times:
    """How long certificates live and how long an overlap lasts."""

    ca: timedelta = CA_LIFE
    leaf: timedelta = LEAF_LIFE
    settle: timedelta = SETTLE
    """From the moment that the configurations trust a CA until its certificates are served: API servers learn of a
    changed configuration by a watch, whose end is not observable."""

    def __post_init__(self) -> None:
        if min(self.ca, self.leaf, self.settle) <= timedelta(0) or self.leaf + 2 * self.settle > self.ca / 2:
            raise ValueError(
                f"a CA lives {self.ca}, a leaf {self.leaf}, and a CA must be trusted for {self.settle} before it signs:"
                " a leaf and twice that time must fit into half of the CA's life; raise --ca-seconds, or lower"
                " --leaf-seconds or --settle-seconds"
            )


@dataclass(frozen=True, slots=True)
class Signer:
    """A CA certificate with its key (PEM)."""

    key: bytes = field(repr=False)
    certificate: bytes

    def loaded(self) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
        """Key and certificate.

        Raises:
            BadSecret: one can't be read, or they don't belong together.
        """
        try:
            key = serialization.load_pem_private_key(self.key, None)
            certificate = x509.load_pem_x509_certificate(self.certificate)
        except (ValueError, TypeError) as error:
            raise BadSecret(f"{error}; {REPAIR}") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
            raise BadSecret(f"its key is not the one of its certificate; {REPAIR}")
        return key, certificate

    @property
    def begins(self) -> datetime:
        """When it was made."""
        return x509.load_pem_x509_certificate(self.certificate).not_valid_before_utc + SKEW

    @property
    def ends(self) -> datetime:
        """When it expires."""
        return x509.load_pem_x509_certificate(self.certificate).not_valid_after_utc


@dataclass(frozen=True, slots=True)
class Authority:
    """The signing CA, the next one, and the trusted ones."""

    signer: Signer
    since: datetime
    """When the signer began to sign."""
    following: Signer | None = None
    """The CA that signs next."""
    retired: tuple[bytes, ...] = ()
    """Certificates of CAs that signed before and are trusted still (PEM)."""

    @property
    def trusted(self) -> tuple[bytes, ...]:
        """Every certificate to trust (PEM), the signer's first."""
        following = (self.following.certificate,) if self.following else ()
        return (self.signer.certificate, *following, *self.retired)


def make_signer(now: datetime, life: timedelta = CA_LIFE, name: str = SECRET) -> Signer:
    """A new CA: EC P-256, fit to sign serving certificates only."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + life)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(key_usage(signs=True), critical=True)
        .add_extension(identifier, critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    return Signer(pem_key(key), certificate.public_bytes(serialization.Encoding.PEM))


def make_authority(now: datetime, life: timedelta = CA_LIFE) -> Authority:
    """The first authority of a host."""
    return Authority(make_signer(now, life), now)


# -- rotation ----------------------------------------------------------------------------------------------------------


def next_step(authority: Authority, now: datetime, times: Times, trusted_for: timedelta | None) -> Authority | None:
    """The authority to write now; None if there is nothing to do yet.

    Args:
        authority: as it is.
        now: the time.
        times: of certificates and overlaps.
        trusted_for: how long the configurations have trusted all of it without a break; None if they don't.
    """
    if now >= authority.signer.ends:
        # No process rotated it in time. Its certificates are refused already: there is nothing to overlap with.
        return make_authority(now, times.ca)
    settled = trusted_for is not None and trusted_for >= times.settle
    if authority.retired and settled and now >= authority.since + times.leaf + times.settle:
        return replace(authority, retired=())
    if authority.following is not None:
        return promote(authority, now) if settled else None
    # One rotation at a time: the step before must be forgotten first, or the bundle would grow.
    if not authority.retired and now >= renewal(authority, times):
        return replace(authority, following=make_signer(now, times.ca))
    return None


def renewal(authority: Authority, times: Times) -> datetime:
    """When the next CA is made: at half of its life, or earlier if the life asked for is shorter than its own."""
    signer = authority.signer
    return signer.begins + min(times.ca, signer.ends - signer.begins) / 2


def next_due(authority: Authority, times: Times) -> datetime:
    """When `next_step` may have something to do, given that the configurations trust all of it."""
    if authority.retired:
        return authority.since + times.leaf + times.settle
    return renewal(authority, times)


def promote(authority: Authority, now: datetime) -> Authority:
    """The following CA signs, the present one is still trusted.

    Raises:
        ValueError: there is no following one.
    """
    if authority.following is None:
        raise ValueError("there is no CA to follow")
    return Authority(authority.following, now, None, (authority.signer.certificate, *authority.retired))


# -- the Secret --------------------------------------------------------------------------------------------------------


def to_secret(authority: Authority, metadata: Mapping[str, Any] | None = None) -> Json:
    """The Secret as it is written.

    Args:
        authority: its new contents.
        metadata: of the Secret that is replaced; labels and resourceVersion stay.
    """
    data = {"tls.crt": authority.signer.certificate, "tls.key": authority.signer.key}
    if authority.following is not None:
        data |= {"next.crt": authority.following.certificate, "next.key": authority.following.key}
    if authority.retired:
        data["retired.crt"] = b"".join(authority.retired)
    base = dict(metadata or {"name": SECRET, "namespace": keys.SYSTEM_NAMESPACE})
    base["annotations"] = {**(base.get("annotations") or {}), SIGNS_SINCE: authority.since.isoformat()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": base,
        "type": SECRET_TYPE,
        "data": {name: base64.b64encode(value).decode() for name, value in data.items()},
    }


def from_secret(secret: Mapping[str, Any]) -> Authority:
    """The authority that a Secret holds.

    Raises:
        BadSecret: another type, a field that is missing or can't be read, or a key that is not that of its
            certificate.
    """
    if secret.get("type") != SECRET_TYPE:
        raise BadSecret(f"its type is {secret.get('type')!r}, not {SECRET_TYPE!r}; {REPAIR}")
    data = secret.get("data") or {}
    first, *others = _certificates(data, "tls.crt")
    following = None
    if "next.crt" in data or "next.key" in data:
        following = Signer(_bytes(data, "next.key"), _certificates(data, "next.crt")[0])
        following.loaded()
    # More than one certificate in tls.crt: how an overlap was kept before it had fields of its own.
    retired = (*others, *(_certificates(data, "retired.crt") if "retired.crt" in data else ()))
    signer = Signer(_bytes(data, "tls.key"), first)
    signer.loaded()
    text = ((secret.get("metadata") or {}).get("annotations") or {}).get(SIGNS_SINCE)
    try:
        since = datetime.fromisoformat(text) if text else signer.begins
    except (TypeError, ValueError):
        # A user changed it by hand: the time of its making errs on no side that matters, `settle` still holds.
        since = signer.begins
    return Authority(signer, since if since.tzinfo else since.replace(tzinfo=UTC), following, retired)


def split_pem(pem: bytes) -> tuple[bytes, ...]:
    """Each certificate of a bundle by itself, in one spelling, so that they can be compared.

    Raises:
        ValueError: it holds something else.
    """
    return tuple(each.public_bytes(serialization.Encoding.PEM) for each in x509.load_pem_x509_certificates(pem))


def ca_bundle(certificates: tuple[bytes, ...]) -> str:
    """Certificates as a webhook configuration wants them: base64 of PEM."""
    return base64.b64encode(b"".join(certificates)).decode()


def trusted_by(configuration: Mapping[str, Any]) -> tuple[bytes, ...] | None:
    """The CA certificates (PEM) that all webhooks of a configuration trust; None if it has no webhooks."""
    bundles = [entry["clientConfig"].get("caBundle") or "" for entry in configuration.get("webhooks") or ()]
    if not bundles:
        return None
    found = []
    for bundle in dict.fromkeys(bundles):
        try:
            found.append(split_pem(base64.b64decode(bundle)))
        except ValueError:
            # Another writer's text: nothing in it is worth keeping.
            return ()
    return tuple(each for each in found[0] if all(each in others for others in found))


def _certificates(data: Mapping[str, Any], name: str) -> tuple[bytes, ...]:
    try:
        found = split_pem(_bytes(data, name))
    except ValueError as error:
        raise BadSecret(f"{name} holds no certificate that can be read ({error}); {REPAIR}") from error
    if not all(_may_sign(x509.load_pem_x509_certificate(each)) for each in found):
        raise BadSecret(f"{name} holds a certificate that is not a CA's; {REPAIR}")
    return found


def _may_sign(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        return False


def _bytes(data: Mapping[str, Any], name: str) -> bytes:
    try:
        return base64.b64decode(data[name], validate=True)
    except KeyError as error:
        raise BadSecret(f"{name} is missing; {REPAIR}") from error
    except (TypeError, ValueError, binascii.Error) as error:
        raise BadSecret(f"{name} is not base64; {REPAIR}") from error


# -- for those who issue certificates ----------------------------------------------------------------------------------


def key_usage(*, signs: bool) -> x509.KeyUsage:
    """What a key may be used for: to sign certificates, or to serve TLS."""
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


def pem_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A private key in PEM."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
