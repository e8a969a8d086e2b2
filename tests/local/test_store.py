"""The store of a local federation is for its API servers: other users of the machine reach the port and nothing more."""

from __future__ import annotations

import asyncio
import ssl
import stat
from pathlib import Path
from urllib.parse import urlsplit

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


async def settings_of(url: str, tls: ssl.SSLContext) -> bytes:
    """The first frame of a gRPC server: what API servers ask of the store goes this way."""
    tls.set_alpn_protocols(["h2"])
    address = urlsplit(url)
    async with asyncio.timeout(10):
        reader, writer = await asyncio.open_connection(address.hostname, address.port, ssl=tls)
        try:
            writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
            return await reader.readexactly(9)
        finally:
            writer.close()


@pytest.mark.integration
async def test_no_client_reads_it_without_its_certificate(federation: AtollFederation) -> None:
    store = federation.federation
    url, own = store_of(store)
    (process,) = (each for each in store.processes.processes if each.spec.name == "etcd")
    [grpc] = [flag.partition("=")[2] for flag in process.spec.argv if flag.startswith("--listen-client-urls=")]
    assert await keys_in(url, own) == 200
    assert (await settings_of(grpc, own))[3] == 4, "a frame of settings"

    stranger = ssl.create_default_context(cafile=str(store.keys.etcd_authority.path))
    for refused in (stranger, as_client(store, store.keys.proxy), as_client(store, store.keys.serving)):
        with pytest.raises(aiohttp.ClientError):
            await keys_in(url, refused)
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            await settings_of(grpc, refused)
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
