"""The authority and its certificates: strict clients accept them, for the right names only."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from atoll.webhook import certificates

NOW = datetime.now(UTC)


@pytest.mark.parametrize(
    ("config", "names"),
    [
        pytest.param({"url": "https://127.0.0.1:9443"}, ["127.0.0.1"], id="an address"),
        pytest.param({"url": "https://[::1]:9443/x"}, ["::1"], id="an IPv6 address"),
        pytest.param({"url": "https://hook.example"}, ["hook.example"], id="a host name"),
        pytest.param(
            {"service": {"name": "w", "namespace": "n", "port": 443}},
            ["w", "w.n", "w.n.svc"],
            id="a service",
        ),
    ],
)
def test_names(config: dict[str, object], names: list[str]) -> None:
    assert certificates.names_of(config) == names


@pytest.mark.parametrize("config", [{}, {"url": "nowhere"}, {"service": {"name": "w"}}])
def test_an_address_without_a_name_is_refused(config: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="neither a url"):
        certificates.names_of(config)


def test_lifetimes() -> None:
    authority = certificates.make_authority(NOW)
    leaf = certificates.issue(authority, ["w.n.svc"], NOW)
    ca = x509.load_pem_x509_certificate(authority.bundle)
    served = x509.load_pem_x509_certificate(leaf.chain)
    assert ca.not_valid_after_utc - NOW > timedelta(days=3649)
    assert timedelta(days=89) < served.not_valid_after_utc - NOW <= timedelta(days=90)
    assert served.not_valid_before_utc < NOW


def test_a_bundle_in_rotation_signs_with_its_first_certificate() -> None:
    old, new = certificates.make_authority(NOW), certificates.make_authority(NOW)
    both = certificates.Authority(new.key, new.bundle + old.bundle)
    assert certificates.issue(both, ["w"], NOW).chain
    with pytest.raises(certificates.BadSecret, match="delete Secret atoll-system/atoll-webhook-ca"):
        certificates.issue(certificates.Authority(old.key, both.bundle), ["w"], NOW)


@pytest.mark.parametrize("key", [b"", b"nonsense"])
def test_an_unreadable_authority_says_what_to_do(key: bytes) -> None:
    authority = certificates.make_authority(NOW)
    with pytest.raises(certificates.BadSecret, match="delete Secret"):
        certificates.issue(certificates.Authority(key, authority.bundle), ["w"], NOW)


async def handshake(authority: certificates.Authority, trusted: bytes, name: str) -> None:
    leaf = certificates.issue(authority, ["127.0.0.1", "w.n.svc"], NOW)

    async def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(close, "127.0.0.1", 0, ssl=certificates.server_context(leaf)) as listening:
        port = listening.sockets[0].getsockname()[1]
        context = ssl.create_default_context(cadata=trusted.decode())
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)
        writer.close()
        await writer.wait_closed()


@pytest.mark.asyncio
@pytest.mark.parametrize("name", ["127.0.0.1", "w.n.svc"])
async def test_a_strict_client_trusts_the_server(name: str) -> None:
    authority = certificates.make_authority(NOW)
    await handshake(authority, authority.bundle, name)


@pytest.mark.asyncio
async def test_other_names_and_other_authorities_are_not_trusted() -> None:
    authority = certificates.make_authority(NOW)
    with pytest.raises(ssl.SSLCertVerificationError):
        await handshake(authority, authority.bundle, "other.n.svc")
    with pytest.raises(ssl.SSLCertVerificationError):
        await handshake(authority, certificates.make_authority(NOW).bundle, "w.n.svc")
