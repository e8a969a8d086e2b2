"""HTTPS_PROXY and NO_PROXY, by the rules of Kubernetes' own clients; and requests that really go through a proxy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from atoll.kube import errors
from atoll.kube.config import Connection
from atoll.kube.proxies import from_environment
from atoll.kube.transport import ApiServer

URL = "https://api.example.org:6443"


@pytest.mark.parametrize(
    ("url", "exceptions", "proxied"),
    [
        (URL, "", True),
        (URL, "*", False),
        (URL, "example.org", False),
        (URL, ".example.org", False),
        (URL, "*.example.org", False),
        (URL, "api.example.org", False),
        (URL, ".api.example.org", True),
        (URL, "ample.org", True),
        (URL, "api.example.org:6443", False),
        (URL, "api.example.org:443", True),
        (URL, "other.org, api.example.org", False),
        ("https://10.96.0.1", "10.0.0.0/8,.svc", False),
        ("https://11.96.0.1", "10.0.0.0/8,.svc", True),
        ("https://10.96.0.1:443", "10.96.0.1", False),
        ("https://[fd00::1]:6443", "fd00::/8", False),
        ("https://[fd00::1]:6443", "[fd00::1]:6443", False),
        ("https://kubernetes.default.svc", "10.0.0.0/8,.svc", False),
        ("https://127.0.0.1:6443", "", False),
        ("https://localhost:6443", "", False),
        ("http://api.example.org", "", False),
    ],
)
def test_a_proxy_is_for_addresses_that_are_no_exception(url: str, exceptions: str, proxied: bool) -> None:
    environment = {"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": exceptions}
    assert from_environment(url, environment) == ("http://proxy:3128" if proxied else None)


def test_names_in_lower_case_and_without_scheme_are_taken() -> None:
    assert from_environment(URL, {"https_proxy": "proxy:3128"}) == "http://proxy:3128"
    assert from_environment(URL, {"https_proxy": "proxy:3128", "no_proxy": "example.org"}) is None
    assert from_environment(URL, {}) is None


@pytest_asyncio.fixture
async def proxy() -> AsyncIterator[tuple[str, list[str]]]:
    """A proxy that writes down what it is asked for, and lets nobody through."""
    asked: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).decode().partition("\r\n")[0])
        writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}", asked


async def test_requests_ask_the_proxy_of_the_environment(
    proxy: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, asked = proxy
    monkeypatch.setenv("HTTPS_PROXY", url)

    async def nobody() -> str | None:
        return None

    async with ApiServer(Connection(URL, None, nobody)) as api:
        with pytest.raises(errors.ApiError):
            await api.request("GET", "/version", deadline=5)
    assert set(asked) == {"CONNECT api.example.org:6443 HTTP/1.1"}
