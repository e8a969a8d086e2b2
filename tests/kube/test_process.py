"""How a process ends, says that it is alive, and logs."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import signal
import socket
import sys
import time
from asyncio import sslproto
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client import CollectorRegistry, generate_latest

from atoll.kube import drain, health, logs, systemd, vitals
from atoll.kube.collector import KubeCollector
from atoll.kube.election import Elector
from atoll.kube.errors import Busy
from atoll.kube.process import TLS_BUFFER, rate_limit, spare_memory
from atoll.kube.reflector import Reflector
from atoll.kube.serving import Guard
from atoll.kube.settings import Api, Election
from atoll.kube.transport import ApiServer
from atoll.kube.workqueue import WorkQueue
from atoll.model.apiresource import LEASES, PODS
from atoll.model.objects import decode_full
from tests.kube.servers import eventually, serving

Json = dict[str, Any]


# -- what every process has --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "limit"),
    [
        pytest.param(Api(), None, id="no limit unless asked for"),
        pytest.param(Api(qps=2.5), (2.5, 3), id="the burst is what a second allows"),
        pytest.param(Api(qps=20, burst=40), (20, 40), id="both as given"),
    ],
)
def test_the_limit_of_requests_is_as_the_settings_say(settings: Api, limit: tuple[float, int] | None) -> None:
    made = rate_limit(settings)
    assert (None if made is None else (made.qps, made.burst)) == limit


def test_a_tls_connection_of_a_process_keeps_a_small_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    # Fails where asyncio has no such attribute any more.
    monkeypatch.setattr(sslproto.SSLProtocol, "max_size", 256 * 1024)
    spare_memory()
    assert sslproto.SSLProtocol.max_size == TLS_BUFFER


# -- the gate of writes ----------------------------------------------------------------------------------------------


class Slow:
    """A server that holds every request until it is told to answer."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.asked: list[str] = []
        self.cut = 0

    async def __call__(self, request: web.Request) -> web.Response:
        self.asked.append(f"{request.method} {request.path.rpartition('/')[2]}")
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cut += 1
            raise
        return web.json_response({"metadata": {"name": "x"}})


async def test_a_write_under_way_is_waited_for_and_no_other_begins() -> None:
    slow = Slow()
    async with serving(slow) as api:
        under_way = asyncio.create_task(api.merge_patch(PODS, "first", {}, "ns"))
        await eventually(lambda: slow.asked == ["PATCH first"])
        finished = asyncio.create_task(drain.finish([api.writes], 5))
        await asyncio.sleep(0)
        late = asyncio.create_task(api.merge_patch(PODS, "second", {}, "ns"))
        read = asyncio.create_task(api.get(PODS, "read", "ns"))
        lease = asyncio.create_task(api.merge_patch(LEASES, "lease", {}, "ns"))
        await eventually(lambda: len(slow.asked) == 3)
        assert not finished.done()
        slow.go.set()
        assert await finished == 0
        await asyncio.gather(under_way, read, lease)
        assert "PATCH second" not in slow.asked
        assert not late.done()
        late.cancel()


async def test_a_write_that_is_not_answered_is_given_up_after_the_bound() -> None:
    slow = Slow()
    async with serving(slow) as api:
        tasks = [asyncio.create_task(api.merge_patch(PODS, f"p{n}", {}, "ns")) for n in range(3)]
        await eventually(lambda: len(slow.asked) == 3)
        began = time.monotonic()
        assert await drain.finish([api.writes], 0.1) == 3
        assert time.monotonic() - began < 1
        for task in tasks:
            task.cancel()


# -- the end of a process --------------------------------------------------------------------------------------------


@asynccontextmanager
async def child(
    api: ApiServer, how: str, *flags: str, env: Mapping[str, str] | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(part or "." for part in sys.path), **(env or {})}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.kube.ending", api.url, how, *flags, env=env, stderr=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def ended(process: asyncio.subprocess.Process) -> tuple[int, float, list[Json]]:
    """Exit code, seconds that it took from now, and the log."""
    began = time.monotonic()
    async with asyncio.timeout(20):
        _, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, time.monotonic() - began, [json.loads(line) for line in err.splitlines()]


async def test_sigterm_lets_the_writes_under_way_end_and_exits_0() -> None:
    slow = Slow()
    async with serving(slow) as api, child(api, "well") as process:
        await eventually(lambda: len(slow.asked) == 4, within=20)
        process.send_signal(signal.SIGTERM)
        asyncio.get_running_loop().call_later(0.5, slow.go.set)
        code, seconds, lines = await ended(process)
    assert (code, slow.cut, len(slow.asked)) == (0, 0, 4)
    assert seconds > 0.4
    assert [line["event"] for line in lines] == ["started", "stopping", "stopped"]


async def test_a_server_that_hangs_delays_the_end_until_the_bound_and_no_longer() -> None:
    slow = Slow()
    async with serving(slow) as api, child(api, "well", "--drain-seconds=3") as process:
        await eventually(lambda: len(slow.asked) == 4, within=20)
        process.send_signal(signal.SIGTERM)
        code, seconds, lines = await ended(process)
    # What has not ended at the bound exits with 1.
    assert code == 0
    assert 1.4 < seconds < 6
    [warning] = [line for line in lines if line["level"] == "warning"]
    assert warning["writes"] == 4


@pytest.mark.parametrize("abstract", [False, True], ids=["a path", "an abstract name"])
async def test_systemd_hears_that_a_process_is_ready_lives_and_stops(tmp_path: Path, *, abstract: bool) -> None:
    name = str(tmp_path / "notify")
    slow = Slow()
    slow.go.set()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.setblocking(False)
        systemd.bind("\0" + name if abstract else name)

        async def heard() -> str:
            async with asyncio.timeout(60):
                return (await asyncio.get_running_loop().sock_recv(systemd, 64)).decode()

        address = "@" + name if abstract else name
        async with serving(slow) as api, child(api, "well", env={"NOTIFY_SOCKET": address}) as process:
            assert [await heard(), await heard(), await heard()] == ["READY=1", "WATCHDOG=1", "WATCHDOG=1"]
            process.send_signal(signal.SIGTERM)
            while (last := await heard()) == "WATCHDOG=1":
                pass
            code, _, _ = await ended(process)
    assert (code, last) == (0, "STOPPING=1")


async def test_systemd_hears_nothing_of_a_process_that_is_neither_ready_nor_alive(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setattr(systemd, "_PERIOD", 0.0)
    looks = iter([False] * 5)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.setblocking(False)
        receiver.bind(str(tmp_path / "notify"))
        with pytest.raises(RuntimeError):
            await systemd.keep_informed(lambda: False, lambda: next(looks))
        with pytest.raises(BlockingIOError):
            receiver.recv(64)


@pytest.mark.parametrize("how", ["deaf", "blocked"])
async def test_what_does_not_want_to_end_is_ended_at_the_bound(how: str) -> None:
    slow = Slow()
    slow.go.set()
    async with serving(slow) as api, child(api, how, "--drain-seconds=1") as process:
        await eventually(lambda: len(slow.asked) > 4, within=20)
        process.send_signal(signal.SIGTERM)
        code, seconds, lines = await ended(process)
    assert code == 1
    assert 0.9 < seconds < 6
    assert lines[-1]["event"] == "the process did not end in time and is ended"


async def test_a_second_signal_ends_the_process_at_once() -> None:
    slow = Slow()
    async with serving(slow) as api, child(api, "well", "--drain-seconds=30") as process:
        await eventually(lambda: len(slow.asked) == 4, within=20)
        process.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.3)
        assert process.returncode is None
        process.send_signal(signal.SIGTERM)
        code, seconds, _ = await ended(process)
    assert code == -signal.SIGTERM
    assert seconds < 6


async def test_a_task_that_fails_ends_the_process_with_an_error_and_no_write_is_cut() -> None:
    slow = Slow()
    async with serving(slow) as api, child(api, "failing") as process:
        await eventually(lambda: len(slow.asked) == 4, within=20)
        asyncio.get_running_loop().call_later(0.5, slow.go.set)
        code, _, lines = await ended_with_text(process)
    assert (code, slow.cut) == (1, 0)
    [failure] = [line for line in lines if line["event"] == "task failed"]
    assert "a bug" in failure["exception"]
    assert "abcdefghijklmnop" not in failure["exception"]


async def ended_with_text(process: asyncio.subprocess.Process) -> tuple[int, float, list[Json]]:
    """As `ended`, for a process whose last line is a sentence for whoever started it."""
    async with asyncio.timeout(20):
        _, err = await process.communicate()
    assert process.returncode is not None
    *lines, last = err.splitlines()
    assert b"ended" in last
    return process.returncode, 0.0, [json.loads(line) for line in lines]


# -- health ----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def asking(ready: bool = True) -> AsyncIterator[TestClient[web.Request, web.Application]]:
    registry = CollectorRegistry()
    vitals.register(registry)
    async with TestClient(TestServer(health.application(lambda: ready, registry, Guard()))) as found:
        yield found


async def test_a_cache_whose_server_is_away_is_alive() -> None:
    """Restarting us would not bring the server back."""

    async def refuse(request: web.Request) -> web.Response:
        return web.json_response({}, status=503)

    async with serving(refuse) as api, asking() as http:
        cache = Reflector(api, PODS, decode_full)
        cache.heard_at = -10_000
        task = asyncio.create_task(cache.run())
        await eventually(lambda: cache.active_at is not None)
        assert (await http.get("/healthz")).status == 200
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_cache_that_does_not_run_is_not_shown_as_silent() -> None:
    """What a leader leaves when it loses its lease hears nothing any more, and that is as it should be."""

    def silent() -> dict[str, float]:
        [family] = [each for each in KubeCollector().collect() if each.name == "atoll_cache_silence_seconds"]
        return {sample.labels["resource"]: sample.value for sample in family.samples}

    async with serving(Slow()) as api:
        cache = Reflector(api, LEASES, decode_full)
        assert "leases" not in silent()
        task = asyncio.create_task(cache.run())
        await eventually(lambda: "leases" in silent())
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert "leases" not in silent()


async def test_a_cache_that_hangs_in_this_process_is_named_by_healthz(monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = asyncio.Event()
    async with serving(Slow()) as api, asking() as http:
        cache = Reflector(api, PODS, decode_full)
        monkeypatch.setattr(api, "pages", lambda *_, **__: hanging(stuck))
        monkeypatch.setattr(api, "watch", lambda *_, **__: hanging(stuck))
        task = asyncio.create_task(cache.run())
        await eventually(lambda: cache.active_at is not None)
        assert (await http.get("/healthz")).status == 200
        with monkeypatch.context() as patched:
            # Caches of other tests in this process would hang as well.
            patched.setattr(health, "STUCK", -1.0)
            answer = await http.get("/healthz")
            assert (answer.status, "pods" in await answer.text()) == (503, True)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        # A cache that was stopped, as that of a leader who is none any more, hangs nobody.
        assert cache.active_at is None
        assert (await http.get("/healthz")).status == 200


async def hanging(stuck: asyncio.Event) -> AsyncIterator[Any]:
    await stuck.wait()
    yield b""


@pytest.mark.parametrize(("ready", "status"), [(True, 200), (False, 503)])
async def test_readyz_says_what_the_process_says(ready: bool, status: int) -> None:
    async with asking(ready) as http:
        assert (await http.get("/readyz")).status == status


async def test_metrics_have_memory_and_cpu_time() -> None:
    async with asking() as http:
        text = await (await http.get("/metrics")).text()
    assert "process_resident_memory_bytes " in text
    assert "process_cpu_seconds_total " in text


async def test_a_loop_that_is_blocked_shows_in_the_lag() -> None:
    registry = CollectorRegistry()
    task = asyncio.create_task(vitals.watch_loop(vitals.lag_histogram(registry)))
    await asyncio.sleep(vitals.PERIOD / 2)
    time.sleep(vitals.PERIOD + 0.2)  # noqa: ASYNC251
    await asyncio.sleep(0.01)
    task.cancel()
    text = generate_latest(registry).decode()
    assert 'atoll_loop_lag_seconds_bucket{le="0.1"} 0.0' in text
    assert 'atoll_loop_lag_seconds_bucket{le="0.5"} 1.0' in text


def test_pauses_of_the_collector_are_measured_without_a_lock() -> None:
    import gc

    pauses = vitals.GcPauses()
    pauses.watch()
    try:
        gc.collect()
    finally:
        pauses.unwatch()
    assert pauses.amount[2] >= 1
    assert 0 < pauses.longest <= sum(pauses.seconds)
    assert pauses._tell not in gc.callbacks


# -- logs ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def log_lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """What a configured process writes; the configuration of the tests comes back afterwards."""
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    handlers, level = logging.root.handlers[:], logging.root.level
    logs.configure("info", process="test")

    def read() -> list[Json]:
        return [json.loads(line) for line in out.getvalue().splitlines()]

    yield read
    logging.captureWarnings(False)
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def test_lines_of_libraries_are_json_too(log_lines: Any) -> None:
    logging.getLogger("aiohttp.server").warning("odd request from %s", "somebody")
    logging.getLogger("chatty").info("not written")
    structlog.get_logger("x").info("ours", number=1)
    first, second = log_lines()
    assert (first["event"], first["logger"], first["process"]) == (
        "odd request from somebody",
        "aiohttp.server",
        "test",
    )
    assert (second["event"], second["number"], second["process"], second["level"]) == ("ours", 1, "test", "info")


SECRETS = (
    "Authorization: Bearer abc.def-ghi_jkl/mno=",
    "token eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl in a sentence",
    "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\n-----END EC PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----\nMHcCAQEEcut",
)
PARTS = ("abc.def", "eyJ", "MHcCAQEE")


@pytest.mark.parametrize("secret", SECRETS)
def test_credentials_are_hidden_wherever_they_are(log_lines: Any, secret: str) -> None:
    log = structlog.get_logger("x")
    log.info("in a field", error=secret)
    log.info("deeper", value={"a": [secret]}, other=ValueError(secret))
    log.info(secret)
    logging.getLogger("lib").error("failed: %s", secret)
    try:
        raise RuntimeError(secret)
    except RuntimeError:
        log.exception("raised")
    text = json.dumps(log_lines())
    assert len(log_lines()) == 5
    assert not [part for part in PARTS if part in text]


def test_fields_that_are_credentials_by_name_are_hidden(log_lines: Any) -> None:
    structlog.get_logger("x").info("e", token="short", password="p", headers={"Authorization": "Basic eDp5"}, name="n")
    [line] = log_lines()
    assert (line["token"], line["password"], line["headers"]["Authorization"]) == ("(hidden)",) * 3
    assert line["name"] == "n"


async def test_a_line_from_a_reconciler_names_what_it_works_on_and_the_next_key_does_not_inherit_it(
    log_lines: Any,
) -> None:
    queue: WorkQueue[str] = WorkQueue("q", lambda key: {"workload": key} if key != "c" else {})
    log = structlog.get_logger("x")
    done = asyncio.Event()

    async def reconcile(key: str) -> None:
        log.info("working")
        if key == "b":
            raise Busy("later")
        if key == "c":
            done.set()

    for key in ("a", "b", "c"):
        queue.add(key)
    task = asyncio.create_task(queue.run(reconcile))
    await asyncio.wait_for(done.wait(), 5)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    said = [(line["event"], line.get("workload"), line["controller"]) for line in log_lines()][:4]
    assert said == [("working", "a", "q"), ("working", "b", "q"), ("will try again", "b", "q"), ("working", None, "q")]


# -- a standby -------------------------------------------------------------------------------------------------------


async def test_a_standby_can_lead_while_the_api_server_answers_its_attempts() -> None:
    """Whoever has the lease: a rollout may go on as soon as the new replica could take over."""
    away = asyncio.Event()
    spec = {"holderIdentity": "somebody", "leaseDurationSeconds": 60}

    async def answer(request: web.Request) -> web.Response:
        if away.is_set():
            return web.json_response({}, status=503)
        return web.json_response({"metadata": {"name": "l", "resourceVersion": "1"}, "spec": spec})

    async def work() -> None:
        raise AssertionError("it must not lead")

    async with serving(answer) as api:
        elector = Elector(api, "l", "me", Election(lease=0.6, renew_deadline=0.2, retry_period=0.05))
        assert not elector.can_lead
        task = asyncio.create_task(elector.run(work))
        await eventually(lambda: elector.can_lead)
        assert not elector.leading.is_set()
        away.set()
        await eventually(lambda: not elector.can_lead)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
