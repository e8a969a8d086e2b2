"""What UFM answers over HTTP, from a server that answers as one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import tenacity
from aiohttp import web
from aiohttp.test_utils import TestServer

from atoll.topology import ufm as module
from atoll.topology.ufm import PORTS, Ufm, UfmError, ports

PORT = {"system_name": "node-1", "peer_node_name": "leaf-1", "description": "Computer Port"}
AT_ONCE = tenacity.wait_none()


@asynccontextmanager
async def serving(*answers: Callable[[], web.Response]) -> AsyncIterator[tuple[Ufm, list[web.Request]]]:
    """A server that gives these answers one after the other, the last for ever."""
    asked: list[web.Request] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request)
        return answers[min(len(asked), len(answers)) - 1]()

    app = web.Application()
    app.router.add_get(PORTS, answer)
    async with TestServer(app) as server:
        yield Ufm(str(server.make_url("")).rstrip("/")), asked


def busy() -> web.Response:
    return web.Response(status=503)


async def test_a_server_that_is_busy_is_asked_again() -> None:
    async with serving(busy, busy, lambda: web.json_response([PORT])) as (ufm, asked):
        assert await ports(ufm, wait=AT_ONCE) == [PORT]
    assert len(asked) == 3


@pytest.mark.parametrize(
    ("answer", "times", "said"),
    [
        pytest.param(lambda: web.Response(status=401), 1, "HTTP 401; are user, password", id="a refusal is final"),
        pytest.param(busy, 4, "HTTP 503", id="after four attempts it is given up"),
        pytest.param(lambda: web.Response(text="<html>"), 1, "no JSON", id="a page is no list"),
        pytest.param(lambda: web.json_response({"a": 1}), 1, "no list of ports", id="an object is no list"),
        pytest.param(
            lambda: web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"}), 1, "HTTP 302",
            id="it is not followed to another server",
        ),
    ],
)  # fmt: skip
async def test_what_is_no_list_of_ports_is_said(answer: Callable[[], web.Response], times: int, said: str) -> None:
    async with serving(answer) as (ufm, asked):
        with pytest.raises(UfmError, match=said):
            await ports(ufm, wait=AT_ONCE)
    assert len(asked) == times


async def test_an_answer_without_end_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 1 << 20)
    async with serving(lambda: web.Response(body=b" " * (3 << 20))) as (ufm, _):
        with pytest.raises(UfmError, match="more than 1 MiB"):
            await ports(ufm, wait=AT_ONCE)


async def test_a_server_that_is_not_there_is_said() -> None:
    with pytest.raises(UfmError, match=r"127\.0\.0\.1:1/ufmRest") as said:
        await ports(Ufm("http://127.0.0.1:1"), wait=AT_ONCE)
    assert "SSLContext" not in str(said.value)


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({"url": "ufm.example"}, "write https://HOST"),
        ({"url": "https://ufm", "user": "reader"}, "go together"),
        ({"url": "http://ufm", "user": "reader", "passwordFile": "p"}, "over https:// alone"),
    ],
)
def test_a_form_that_can_not_be_meant_is_refused(about: dict[str, str], said: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=said):
        msgspec.convert(about, Ufm)


def test_a_password_goes_into_a_header_alone(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("secret\n")
    ufm = Ufm("https://ufm", "reader", str(file))
    assert "secret" not in repr(ufm)
