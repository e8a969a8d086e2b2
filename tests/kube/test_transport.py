"""What is repeated and what is not."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model.apiresource import PODS
from tests.kube.servers import client, serving

POD = {"metadata": {"name": "p", "namespace": "ns"}}


class Script:
    """Answers with these codes in turn, the last one for ever."""

    def __init__(self, *codes: int, retry_after: str | None = None) -> None:
        self.codes, self.headers = list(codes), {"Retry-After": retry_after} if retry_after else {}
        self.seen: list[str] = []
        self.at: list[float] = []

    async def __call__(self, request: web.Request) -> web.Response:
        self.seen.append(f"{request.method} {request.path_qs}")
        self.at.append(asyncio.get_running_loop().time())
        code = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
        return web.json_response({"message": "m"}, status=code, headers=self.headers if code == 429 else {})


async def get(api: ApiServer) -> object:
    return await api.get(PODS, "p", "ns")


async def create(api: ApiServer) -> object:
    return await api.create(PODS, POD)


async def patch(api: ApiServer) -> object:
    return await api.json_patch(PODS, "p", [], "ns")


@pytest.mark.parametrize(
    ("call", "codes", "times"),
    [
        pytest.param(get, (500, 503, 200), 3, id="a read is repeated while the server is busy"),
        pytest.param(create, (429, 201), 2, id="a write is repeated after 429"),
        pytest.param(patch, (429, 200), 2, id="a patch is repeated after 429"),
    ],
)
async def test_repeated(call, codes: tuple[int, ...], times: int) -> None:
    script = Script(*codes)
    async with serving(script) as api:
        await call(api)
    assert len(script.seen) == times


@pytest.mark.parametrize("call", [create, patch])
@pytest.mark.parametrize("code", [500, 503, 504])
async def test_a_write_is_not_repeated_after(call, code: int) -> None:
    script = Script(code)
    async with serving(script) as api:
        with pytest.raises(errors.Busy):
            await call(api)
    assert len(script.seen) == 1


async def test_retry_after_is_honoured() -> None:
    script = Script(429, 200, retry_after="1")
    async with serving(script) as api:
        await get(api)
    assert script.at[1] - script.at[0] >= 1.0


async def test_a_wait_beyond_the_deadline_is_not_begun() -> None:
    script = Script(429, retry_after="60")
    async with serving(script) as api:
        with pytest.raises(errors.Busy):
            async with asyncio.timeout(2):
                await api.request("GET", "/x", deadline=1.0)
    assert len(script.seen) == 1


async def test_a_write_to_no_server_is_repeated_until_the_deadline() -> None:
    async with client(1) as api:
        with pytest.raises(errors.Unreachable):
            await api.request("POST", "/x", body=b"{}", deadline=0.3)
        assert sum(n for (verb, _, code), n in api.requests.items() if (verb, code) == ("POST", 0)) > 1


async def test_a_write_whose_answer_is_lost_is_not_repeated() -> None:
    seen = []

    async def drop(request: web.Request) -> web.Response:
        seen.append(request.method)
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with serving(drop) as api:
        with pytest.raises(errors.Unreachable):
            await create(api)
    assert seen == ["POST"]


async def test_deleting_what_is_gone_is_no_error() -> None:
    async with serving(Script(404)) as api:
        await api.delete(PODS, "p", "ns", uid="u")
        with pytest.raises(errors.NotFound):
            await get(api)


async def test_a_list_goes_on_to_its_last_page() -> None:
    async def pages(request: web.Request) -> web.Response:
        last = request.query.get("continue") == "next"
        names = ["c"] if last else ["a", "b"]
        meta = {"resourceVersion": "5", **({} if last else {"continue": "next"})}
        return web.json_response({"metadata": meta, "items": [{"metadata": {"name": n}} for n in names]})

    async with serving(pages) as api:
        assert [item["metadata"]["name"] for item in await api.list(PODS, "ns")] == ["a", "b", "c"]


async def test_a_page_that_does_not_come_is_asked_for_again_and_smaller_not_the_list_from_its_beginning() -> None:
    asked: list[tuple[str, int]] = []

    async def pages(request: web.Request) -> web.Response:
        token, limit = request.query.get("continue", ""), int(request.query["limit"])
        asked.append((token, limit))
        if token and limit > 125:
            # More patience than there is: the request is given up at once.
            return web.json_response({"message": "too much"}, status=503, headers={"Retry-After": "100"})
        following = {"": "1", "1": "2"}.get(token)
        meta = {"resourceVersion": "5", **({"continue": following} if following else {})}
        return web.json_response({"metadata": meta, "items": [{"metadata": {"name": f"p{token}"}}]})

    async with serving(pages) as api:
        assert [item["metadata"]["name"] for item in await api.list(PODS, "ns")] == ["p", "p1", "p2"]
    assert asked == [("", 500), ("1", 500), ("1", 250), ("1", 125), ("2", 125)]


async def test_a_server_that_gives_no_page_at_all_is_told_so_at_once() -> None:
    async def busy(_: web.Request) -> web.Response:
        return web.json_response({"message": "no"}, status=503, headers={"Retry-After": "100"})

    async with serving(busy) as api:
        with pytest.raises(errors.Busy):
            await api.list(PODS, "ns")
