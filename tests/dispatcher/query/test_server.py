"""What a question may look like, without the API server that passes it on."""

from __future__ import annotations

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from atoll.dispatcher.query import server
from atoll.dispatcher.query.access import User
from atoll.dispatcher.shell import Shell
from atoll.kube.serving import Guard
from atoll.model.apiresource import VERDICTS
from tests.kube.servers import serving


async def _list(monkeypatch: pytest.MonkeyPatch, limit: str) -> tuple[int, str]:
    """(status, message) of a list with this limit."""

    async def allow(_: web.Request) -> web.Response:
        return web.json_response({"status": {"allowed": True}}, status=201)

    monkeypatch.setattr(server, "identify", lambda *_: User("somebody", "", (), ()))
    async with serving(allow) as host:
        app = server.Server(host, Shell(host), lambda: None, Guard()).application()  # type: ignore[arg-type, return-value]
        async with TestClient(TestServer(app)) as client:
            answer = await client.get(VERDICTS.path("ns"), params={"limit": limit})
            body = await answer.json()
            assert body.get("code", 200) == answer.status
            return answer.status, body.get("message", "")


@pytest.mark.parametrize(
    "limit",
    [
        pytest.param("9" * 5000, id="of more digits than Python reads"),
        pytest.param("9" * 19, id="beyond 63 bits"),
        pytest.param("-1", id="below zero"),
        pytest.param("ten", id="a word"),
        pytest.param("²", id="a superscript"),
        pytest.param("٣", id="digits of another script"),
    ],
)
async def test_a_limit_that_is_no_number_is_a_bad_request(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    status, message = await _list(monkeypatch, limit)
    assert status == 400
    assert message.startswith("limit: ")
    assert message.endswith("is not a whole number between 0 and 999999999999999999")
    assert len(message) < 200


@pytest.mark.parametrize("limit", ["", "0", "00", "7", "500", "9" * 18])
async def test_a_limit_is_any_whole_number(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await _list(monkeypatch, limit) == (200, "")
