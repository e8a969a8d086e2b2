"""The authority and its certificates: strict clients accept them, for the right names only, and rotation never locks out."""

from __future__ import annotations

import asyncio
import base64
import ssl
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.kube import authority as authorities
from atoll.kube import certificates
from atoll.kube.authority import BadSecret, Signer, Times, from_secret, make_authority, next_step, to_secret
from atoll.webhook import registration

NOW = datetime.now(UTC)
TIMES = Times()


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
    assert registration.names_of(config) == names


@pytest.mark.parametrize("config", [{}, {"url": "nowhere"}, {"service": {"name": "w"}}])
def test_an_address_without_a_name_is_refused(config: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="neither a url"):
        registration.names_of(config)


def test_lifetimes() -> None:
    signer = make_authority(NOW).signer
    leaf = certificates.issue(signer, ["w.n.svc"], NOW)
    served = x509.load_pem_x509_certificate(leaf.chain)
    assert signer.ends - NOW > timedelta(days=3649)
    assert timedelta(days=89) < served.not_valid_after_utc - NOW <= timedelta(days=90)
    assert served.not_valid_before_utc < NOW


def test_a_leaf_does_not_outlive_its_authority() -> None:
    signer = authorities.make_signer(NOW, timedelta(days=1))
    assert certificates.issue(signer, ["w"], NOW).ends == signer.ends


# -- the Secret --------------------------------------------------------------------------------------------------------


def test_a_secret_gives_the_authority_back() -> None:
    first = make_authority(NOW)
    assert from_secret(to_secret(first)) == first
    prepared = next_step(first, NOW + TIMES.ca / 2, TIMES, None)
    assert prepared is not None
    assert from_secret(to_secret(prepared)) == prepared
    promoted = authorities.promote(prepared, NOW)
    assert from_secret(to_secret(promoted)) == promoted
    assert promoted.retired == (first.signer.certificate,)


def spoiled(**data: str | None) -> dict[str, Any]:
    secret = to_secret(make_authority(NOW))
    for name, value in data.items():
        secret["data"][name.replace("_", ".")] = value
    return secret


def b64(content: bytes) -> str:
    return base64.b64encode(content).decode()


@pytest.mark.parametrize(
    ("secret", "about"),
    [
        pytest.param({"type": "Opaque", "data": {}}, "type is 'Opaque'", id="another type"),
        pytest.param({"type": "kubernetes.io/tls"}, "tls.crt is missing", id="nothing in it"),
        pytest.param(spoiled(tls_crt="%"), "tls.crt is not base64", id="no base64"),
        pytest.param(spoiled(tls_crt=None), "tls.crt is not base64", id="null"),
        pytest.param(spoiled(tls_crt=b64(b"x")), "no certificate that can be read", id="no certificate"),
        pytest.param(spoiled(tls_key=b64(b"x")), "delete Secret", id="no key"),
        pytest.param(
            spoiled(tls_key=b64(make_authority(NOW).signer.key)), "not the one of its certificate", id="another's key"
        ),
        pytest.param(
            spoiled(tls_crt=b64(certificates.issue(make_authority(NOW).signer, ["w"], NOW).chain)),
            "not a CA's",
            id="a serving certificate",
        ),
        pytest.param(spoiled(next_key=b64(b"x")), "next.crt is missing", id="half of the next one"),
    ],
)
def test_what_is_no_authority_says_what_to_do(secret: dict[str, Any], about: str) -> None:
    with pytest.raises(BadSecret, match=about) as said:
        from_secret(secret)
    assert "atollctl init" in str(said.value)


def test_several_certificates_of_an_older_version_are_all_trusted() -> None:
    old, new = make_authority(NOW), make_authority(NOW)
    secret = to_secret(new)
    secret["data"]["tls.crt"] = b64(new.signer.certificate + old.signer.certificate)
    assert from_secret(secret).trusted == (new.signer.certificate, old.signer.certificate)


# -- rotation ----------------------------------------------------------------------------------------------------------


def test_the_steps_of_a_rotation() -> None:
    """1. At half of its life the next CA is made; 2. once trusted long enough it signs; 3. all leaves of the old one
    have expired and it is forgotten."""
    first = make_authority(NOW)
    assert next_step(first, NOW + TIMES.ca / 2 - timedelta(days=1), TIMES, TIMES.settle) is None
    half = NOW + TIMES.ca / 2
    prepared = next_step(first, half, TIMES, None)
    assert prepared is not None
    assert prepared.following is not None
    assert prepared.signer == first.signer
    assert next_step(prepared, half, TIMES, None) is None
    assert next_step(prepared, half, TIMES, TIMES.settle / 2) is None
    promoted = next_step(prepared, half, TIMES, TIMES.settle)
    assert promoted is not None
    assert (promoted.signer, promoted.since) == (prepared.following, half)
    assert next_step(promoted, half + TIMES.leaf, TIMES, TIMES.settle) is None
    last = next_step(promoted, half + TIMES.leaf + TIMES.settle, TIMES, TIMES.settle)
    assert last is not None
    assert last.trusted == (prepared.following.certificate,)


def test_an_authority_that_has_expired_is_replaced_at_once() -> None:
    first = make_authority(NOW)
    late = NOW + TIMES.ca + timedelta(days=1)
    step = next_step(first, late, TIMES, None)
    assert step is not None
    assert step.signer.ends > late
    assert step.trusted == (step.signer.certificate,)


@given(st.lists(st.tuples(st.floats(0, 1500), st.sampled_from([None, 0.0, 30.0, 60.0, 1e6])), max_size=12))
@settings(max_examples=30, deadline=None)
def test_whatever_happens_a_leaf_that_may_be_served_is_trusted(steps: list[tuple[float, float | None]]) -> None:
    state, now = make_authority(NOW), NOW
    #: CA certificate -> when the last leaf of it has expired
    served: dict[bytes, datetime] = {}
    for days, trusted in steps:
        now += timedelta(days=days)
        served[state.signer.certificate] = now + TIMES.leaf
        step = next_step(state, now, TIMES, None if trusted is None else timedelta(seconds=trusted))
        if step is not None:
            if now >= state.signer.ends:
                served.clear()
            elif step.signer != state.signer:
                assert step.signer.certificate in state.trusted, "it was trusted before it signs"
            state = step
        for certificate, end in served.items():
            # A replica serves a leaf of the CA before until it has heard of the change.
            assert end + TIMES.settle <= now or certificate in state.trusted
        assert len(state.trusted) <= 2


@pytest.mark.parametrize("times", [{"ca": 10, "leaf": 5, "settle": 1}, {"ca": 0, "leaf": 1, "settle": 1}])
def test_times_that_do_not_fit_are_refused(times: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="--ca-seconds"):
        Times(**{name: timedelta(seconds=value) for name, value in times.items()})


# -- handshakes --------------------------------------------------------------------------------------------------------


async def handshake(signer: Signer, trusted: bytes, name: str) -> None:
    leaf = certificates.issue(signer, ["127.0.0.1", "w.n.svc"], NOW)

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
    signer = make_authority(NOW).signer
    await handshake(signer, signer.certificate, name)


@pytest.mark.asyncio
async def test_other_names_and_other_authorities_are_not_trusted() -> None:
    signer = make_authority(NOW).signer
    with pytest.raises(ssl.SSLCertVerificationError):
        await handshake(signer, signer.certificate, "other.n.svc")
    with pytest.raises(ssl.SSLCertVerificationError):
        await handshake(signer, make_authority(NOW).signer.certificate, "w.n.svc")
