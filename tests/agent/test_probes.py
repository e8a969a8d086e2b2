"""Pods that answer and pods that do not, as the member's agent finds out; the pods are sockets of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from atoll.agent.cache import MemberCache
from atoll.agent.jobs.probes import Probes
from atoll.agent.objects import Pod
from atoll.agent.settings import ProbeSettings
from atoll.model import keys, probes
from atoll.model.objects import Full, Meta
from atoll.model.probes import Probe
from tests.agent.builders import make_job, make_pod, make_task


def pods(*addresses: str, phase: str = "Running") -> list[Pod]:
    made = (make_pod(f"train-w-{i}", task="w", phase=phase) for i, _ in enumerate(addresses))
    return [msgspec.structs.replace(pod, ip=address) for pod, address in zip(made, addresses, strict=True)]


def make_member(existing: list[Pod], *asked: Probe, phase: str = "Running") -> MemberCache:
    body = make_job(make_task("w", 2), phase=phase)
    body["metadata"]["annotations"][keys.PROBES] = probes.encode(list(asked))
    meta = Meta(name="train", namespace="default", uid="j1", annotations=body["metadata"]["annotations"])
    owned = SimpleNamespace(by_index=lambda _, uid: existing if uid == "j1" else [])
    return cast(MemberCache, SimpleNamespace(jobs=[Full(meta, body)], pods=owned))


@asynccontextmanager
async def server(status: int = 200) -> AsyncIterator[tuple[int, list[web.Request]]]:
    seen = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(request)
        return web.Response(status=status)

    app = web.Application()
    app.router.add_get("/{any:.*}", answer)
    async with TestServer(app) as running:
        assert running.port is not None
        yield running.port, seen


async def outcome(member: MemberCache) -> list[dict[str, Any]] | None:
    told = asyncio.Event()
    tried = Probes(member, lambda _: told.set(), settings=ProbeSettings(every=0.01, patience=1.0))
    running = asyncio.create_task(tried.run())
    try:
        async with asyncio.timeout(5):
            await told.wait()
        return tried.of("j1")
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def test_pods_that_answer_are_counted() -> None:
    async with server() as (port, seen):
        asked = [Probe("w", port, "/ready", ("X-A", "b")), Probe("w", port)]
        assert await outcome(make_member(pods("127.0.0.1"), *asked)) == [{"answered": 1}, {"answered": 1}]
    assert (seen[0].path, seen[0].headers["X-A"]) == ("/ready", "b")


@pytest.mark.parametrize("status", [404, 500])
async def test_a_bad_answer_is_none(status: int) -> None:
    async with server(status) as (port, _):
        found = await outcome(make_member(pods("127.0.0.1"), Probe("w", port, "/")))
    assert found == [{"answered": 0, "message": f"pod train-w-0: it answers {status}"}]


async def test_why_a_pod_does_not_answer_is_said() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    found = await outcome(make_member(pods("127.0.0.1"), Probe("w", port)))
    assert found is not None
    assert found[0]["answered"] == 0
    assert "train-w-0" in found[0]["message"]
    assert await outcome(make_member(pods(""), Probe("w", port))) == [
        {"answered": 0, "message": "pod train-w-0: it has no address"}
    ]


@pytest.mark.parametrize(
    "probe",
    [Probe("w", 99999), Probe("w", -1), Probe("w", 80, "//[x"), Probe("w", 80, "/", ("X\nY", "b"))],
    ids=["too large a port", "a negative port", "no path", "no header"],
)
async def test_what_no_request_can_be_made_of_is_no_answer(probe: Probe) -> None:
    """Whoever may write Jobs may write the annotation."""
    found = await outcome(make_member(pods("127.0.0.1"), probe))
    assert found is not None
    assert found[0]["answered"] == 0
    assert found[0]["message"].startswith("pod train-w-0: ")


async def test_pods_that_do_not_run_and_other_tasks_are_not_tried() -> None:
    assert await outcome(make_member(pods("127.0.0.1", phase="Pending"), Probe("w", 1))) == [{"answered": 0}]
    assert await outcome(make_member(pods("127.0.0.1"), Probe("other", 1))) == [{"answered": 0}]


async def test_an_annotation_that_can_not_be_read_asks_for_nothing() -> None:
    assert probes.decode("no JSON") == probes.decode(None) == []
    assert len(probes.decode(probes.encode([Probe("w", 1)] * 99))) == probes.MOST
