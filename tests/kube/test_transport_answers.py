"""What a client asks for and what it makes of the answers: headers, patience, limits, metrics, nonsense."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import formatdate
from importlib.metadata import version as release

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from atoll.kube import authority, certificates, errors, http, transport
from atoll.kube.collector import KubeCollector
from atoll.kube.config import Connection, tls_context
from atoll.kube.ratelimit import RateLimit
from atoll.kube.transport import ApiServer
from atoll.model.apiresource import LEASES, PODS
from tests.kube.servers import nobody, serving


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        (" 7 ", 7.0),
        ("0", 0.0),
        (None, None),
        ("", None),
        ("-1", None),
        ("1.5", None),
        ("²", None),
        ("soon", None),
        ("Thu, 99 Jan 2026 00:00:00 GMT", None),
        (formatdate(0, usegmt=True), 0.0),
    ],
)
def test_retry_after(header: str | None, seconds: float | None) -> None:
    assert errors.from_response(429, b"", header, "GET /").retry_after == seconds


def test_retry_after_as_a_date() -> None:
    after = errors.from_response(503, b"", formatdate(time.time() + 60, usegmt=True), "GET /").retry_after
    assert after is not None
    assert 55 < after <= 60


def test_the_patience_that_a_status_asks_for_counts_where_the_header_is_missing() -> None:
    body = b'{"message": "m", "details": {"retryAfterSeconds": 3}}'
    assert errors.from_response(429, body, None, "GET /").retry_after == 3.0
    assert errors.from_response(429, body, "5", "GET /").retry_after == 5.0


@given(
    st.integers(300, 599),
    st.binary() | st.sampled_from([b"[]", b"null", b"7", b'{"details": 7}', b'{"message": {}}']),
    st.text() | st.none(),
)
def test_any_answer_is_an_error_of_ours(code: int, body: bytes, retry_after: str | None) -> None:
    error = errors.from_response(code, body, retry_after, "GET /")
    assert error.code == code
    assert error.retry_after is None or error.retry_after >= 0


async def test_the_user_agent_names_process_version_and_member() -> None:
    seen = []

    async def see(request: web.Request) -> web.Response:
        seen.append(request.headers["User-Agent"])
        return web.json_response({})

    async with serving(see) as api:
        for name in ("atoll-control", "atoll-agent/alpha"):
            async with ApiServer(api._connection, user_agent=name) as named:
                await named.get(PODS, "p", "n")
    version = release("atoll")
    assert seen == [f"atoll-control/{version}", f"atoll-agent/{version} (alpha)"]


async def test_a_list_of_nothing_may_be_null() -> None:
    """As API servers answer where there is no metadata to tell."""

    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"metadata": {"resourceVersion": "7"}, "items": None})

    async with serving(answer) as api:
        pages = [page async for page in api.pages(PODS, metadata_only=True)]
    assert [(page.metadata.resource_version, page.items) for page in pages] == [("7", [])]


async def test_metadata_and_initial_events_are_asked_for_as_the_api_wants_it() -> None:
    seen: list[tuple[str, dict[str, str]]] = []

    async def see(request: web.Request) -> web.StreamResponse:
        seen.append((request.headers["Accept"], dict(request.query)))
        return web.json_response({"metadata": {}, "items": []})

    async with serving(see) as api:
        async for _ in api.pages(PODS, metadata_only=True):
            pass
        async for _ in api.watch(PODS, metadata_only=True, initial_events=True):
            pass
        async for _ in api.watch(PODS, resource_version="5"):
            pass
    kinds = "application/json;as={};g=meta.k8s.io;v=v1,application/json"
    assert [accept for accept, _ in seen] == [
        kinds.format("PartialObjectMetadataList"),
        kinds.format("PartialObjectMetadata"),
        "application/json",
    ]
    assert {"sendInitialEvents", "resourceVersionMatch"} <= seen[1][1].keys()
    assert (seen[1][1]["resourceVersion"], seen[2][1]["resourceVersion"]) == ("", "5")
    assert not {"sendInitialEvents", "resourceVersionMatch"} & seen[2][1].keys()


async def test_a_redirect_is_not_followed() -> None:
    async def elsewhere(request: web.Request) -> web.Response:
        return web.Response(status=307, headers={"Location": "/stolen"})

    async with serving(elsewhere) as api:
        with pytest.raises(errors.Unexpected):
            await api.create(PODS, {"metadata": {"name": "p", "namespace": "n"}})


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"", b"7"])
async def test_an_answer_that_is_no_object_is_an_error_of_ours(body: bytes) -> None:
    async def nonsense(_: web.Request) -> web.Response:
        return web.Response(body=body)

    async with serving(nonsense) as api:
        with pytest.raises(errors.Unexpected, match="API server"):
            await api.get(PODS, "p", "n")


@asynccontextmanager
async def _listening(*, certificate: bool) -> AsyncIterator[int]:
    """A port where somebody takes connections and says nothing, or shows a certificate that nobody trusts."""
    tls = None
    if certificate:
        now = datetime.now(UTC)
        tls = certificates.server_context(
            certificates.issue(authority.make_signer(now, name="stranger"), ["localhost"], now)
        )

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(hear, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def _no_answer(url: str, tls: ssl.SSLContext | None, deadline: float) -> str:
    async with ApiServer(Connection(url, tls, nobody)) as api:
        with pytest.raises(errors.Unreachable) as raised:
            await api.request("POST", "/api", body=b"{}", deadline=deadline)
        return raised.value.message


async def test_no_answer_is_told_with_the_address_and_the_reason_and_nothing_of_our_own() -> None:
    async with _listening(certificate=False) as silent, _listening(certificate=True) as strange:
        # All but one are known at once, if the machine is not too busy to ask.
        told = await asyncio.gather(
            _no_answer("http://127.0.0.1:1", None, 2.0),
            _no_answer("https://127.0.0.1:1", tls_context(), 2.0),
            _no_answer(f"http://127.0.0.1:{silent}", None, 0.1),
            _no_answer(f"https://127.0.0.1:{strange}", tls_context(), 2.0),
            _no_answer("https://nobody.invalid", tls_context(), 2.0),
        )
    refused, refused_tls, hangs, untrusted, unknown = told
    assert refused == "POST http://127.0.0.1:1/api: Connection refused"
    assert refused_tls == "POST https://127.0.0.1:1/api: Connection refused"
    assert hangs == f"POST http://127.0.0.1:{silent}/api: no answer in time"
    assert untrusted.startswith(f"POST https://127.0.0.1:{strange}/api: [SSL: CERTIFICATE_VERIFY_FAILED]")
    # What a resolver says, and how fast, is the machine's.
    assert unknown.startswith("POST https://nobody.invalid/api: ")
    assert not [each for each in told if "object at" in each or "ssl:" in each]


async def test_a_watch_that_is_never_answered_ends_with_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_DEADLINE", 0.2)

    async def hang(_: web.Request) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    async with serving(hang) as api:
        with pytest.raises(errors.Unreachable):
            async with asyncio.timeout(2):
                [line async for line in api.watch(PODS)]


async def test_an_event_without_an_end_ends_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "_LONGEST_EVENT", 10_000)

    async def endless(_: web.Request) -> web.Response:
        return web.Response(body=b"x" * 1_000_000)

    async with serving(endless) as api:
        with pytest.raises(errors.Unreachable, match="more than 10000 bytes"):
            [line async for line in api.watch(PODS)]


async def test_latency_and_codes_are_shown_per_verb() -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response({})

    async with serving(answer) as api:
        await api.get(PODS, "p", "n")
        assert api.requests == {("GET", "pods", 200): 1}
        assert sum(api.seconds["GET"].counts) == 1
        registry = CollectorRegistry()
        registry.register(KubeCollector())
        text = generate_latest(registry).decode()
    assert 'atoll_api_request_seconds_bucket{le="+Inf",verb="GET"}' in text


# -- our own limit -----------------------------------------------------------------------------------------------------


@given(st.floats(0.5, 500), st.integers(1, 50), st.lists(st.floats(0, 0.5), min_size=1, max_size=100))
def test_a_limit_is_kept_and_no_reservation_is_overtaken(qps: float, burst: int, pauses: list[float]) -> None:
    limit, now, starts = RateLimit(qps, burst), 100.0, []
    for pause in pauses:
        now += pause
        wait = limit.reserve(now, float("inf"))
        assert wait is not None
        starts.append(now + wait)
    assert starts == sorted(starts)
    for first, start in enumerate(starts):
        # Never more than the burst and what has been refilled since, in any window.
        for last in range(first, len(starts)):
            assert last - first + 1 <= burst + (starts[last] - start) * qps + 1e-3


def test_the_burst_is_free_and_a_slot_that_comes_too_late_is_not_taken() -> None:
    limit = RateLimit(10, 3)
    assert [limit.reserve(0.0, 1.0) for _ in range(4)] == pytest.approx([0.0, 0.0, 0.0, 0.1])
    assert limit.reserve(0.0, 0.1) is None
    assert limit.reserve(0.0, 1.0) == pytest.approx(0.2)


@pytest.mark.parametrize(("qps", "burst"), [(0, 1), (-1, 1), (float("nan"), 1), (1, 0)])
def test_a_limit_that_lets_nothing_through_is_refused(qps: float, burst: int) -> None:
    with pytest.raises(ValueError, match="qps must be above 0"):
        RateLimit(qps, burst)


async def test_requests_wait_for_their_slot_or_fail_with_their_deadline() -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response({})

    async with serving(answer) as api, ApiServer(api._connection, rate=RateLimit(20, 1)) as limited:
        began = asyncio.get_running_loop().time()
        await asyncio.gather(*(limited.get(PODS, "p", "n") for _ in range(5)))
        assert asyncio.get_running_loop().time() - began >= 0.19
        late = [limited.request("POST", "/x", body=b"{}", deadline=0.06) for _ in range(5)]
        outcomes = await asyncio.gather(*late, return_exceptions=True)
    assert [type(each) for each in outcomes].count(errors.Busy) >= 3


async def test_a_lease_does_not_wait_behind_other_requests() -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response({})

    async with serving(answer) as api, ApiServer(api._connection, rate=RateLimit(0.1, 1)) as limited:
        await limited.get(PODS, "p", "n")
        waits = asyncio.create_task(limited.get(PODS, "p", "n"))
        await asyncio.wait_for(limited.get(LEASES, "l", "n"), 5)
        assert not waits.done()
        waits.cancel()


async def test_what_a_server_says_besides_its_answer_is_passed_on() -> None:
    async def answer(_: web.Request) -> web.Response:
        headers = [("Warning", '299 - "one \\"quoted\\" word"'), ("Warning", "no warning at all")]
        return web.Response(body=b"{}", headers=headers)

    said: list[str] = []
    async with serving(answer) as api, ApiServer(api._connection, on_warning=said.append) as told:
        await told.get(PODS, "p", "n")
    assert said == ['one "quoted" word']
