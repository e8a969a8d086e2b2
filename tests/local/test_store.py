"""The store of a local federation is for its API servers: other users of the machine reach the port and nothing more."""

from __future__ import annotations

import ssl
import stat
from pathlib import Path

import aiohttp
import pytest

from atoll.local.atoll_federation import AtollFederation
from atoll.local.federation import Federation
from bench.seed import store_of

EVERYTHING = {"key": "AA==", "range_end": "AA==", "keys_only": True}


async def keys_in(url: str, tls: ssl.SSLContext | bool) -> int:
    """HTTP status of the question which keys there are."""
    timeout = aiohttp.ClientTimeout(total=10)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.post(f"{url}/v3/kv/range", json=EVERYTHING, ssl=tls) as answer,
    ):
        return answer.status


@pytest.mark.integration
async def test_no_client_reads_it_without_its_certificate(federation: AtollFederation) -> None:
    store = federation.federation
    url, own = store_of(store)
    assert await keys_in(url, own) == 200

    stranger = ssl.create_default_context(cafile=str(store.keys.etcd_authority.path))
    for refused in (stranger, as_client(store, store.keys.proxy), as_client(store, store.keys.serving)):
        with pytest.raises(aiohttp.ClientError):
            await keys_in(url, refused)
    with pytest.raises(aiohttp.ClientError):
        await keys_in(url.replace("https:", "http:"), False)

    for path in (store.directory, store.directory / "etcd"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    for path in (store.directory / "pki").glob("*.key"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def as_client(federation: Federation, certificate: tuple[Path, Path]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(federation.keys.etcd_authority.path))
    context.load_cert_chain(*certificate)
    return context
