"""The query API is registered only where it is served."""

from __future__ import annotations

import asyncio
import socket
from datetime import UTC, datetime

import pytest
from aiohttp import web

from atoll.dispatcher.query import Query
from atoll.dispatcher.settings import QuerySettings
from atoll.dispatcher.shell import Shell
from atoll.kube import authority
from tests.kube.servers import serving


async def test_a_port_that_was_taken_is_listened_on_once_it_is_free() -> None:
    """1. Another process still has the port. 2. It lets go of it. 3. The next round serves, and only then registers."""
    now = datetime.now(UTC)
    ca = authority.make_signer(now, name="front").certificate.decode()
    written: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        if request.method == "GET" and request.path.endswith("extension-apiserver-authentication"):
            return web.json_response({"data": {"requestheader-client-ca-file": ca}})
        if request.method != "GET":
            written.append(request.path)
        return web.json_response({"metadata": {}, "spec": {}})

    async with serving(answer) as host:
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            query = Query(host, Shell(host), settings=QuerySettings(host="127.0.0.1", port=port, address="127.0.0.1"))
            for _ in range(2):
                with pytest.raises(OSError, match="address already in use"):
                    await query._round(now)
        assert not written
        try:
            await query._round(now)
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            assert query.registered.is_set()
        finally:
            await query._stop()
