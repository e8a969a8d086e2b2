"""Load on one API server by a bare client, and the watch beside it: what the server can do without Atoll."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import shutil
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from yarl import URL

from atoll import install
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.local import audit
from atoll.local.cluster import ClusterHandle
from atoll.local.layout import RAISED_LIMITS
from atoll.model.apiresource import BINDINGS, CAPACITIES, NAMESPACES, ApiResource
from bench.objects import numbered_binding
from bench.report import Progress, Report, sizes

CONNECTIONS = 32
_FLUSH_S = 10.0
_TICK_S = 0.02
_ANSWER_S = 120.0


@dataclass(frozen=True, slots=True)
class Request:
    """One request, its body encoded before the clock runs."""

    method: str
    path: str
    body: bytes = b""
    content_type: str = "application/json"


async def without_policies(api: ApiServer) -> None:
    """Let an administrator write what only Atoll's processes may: the server goes on for a moment after the policies
    are deleted.
    """
    await install.remove_policies(api)
    spec = {"cluster": "probe", "generation": 0, "root": "", "objects": 1}
    capacity = {
        "apiVersion": CAPACITIES.api_version,
        "kind": CAPACITIES.kind,
        "metadata": {"name": "probe"},
        "spec": spec,
    }
    async with asyncio.timeout(_FLUSH_S):
        # Each policy goes by itself.
        await _let(api, CAPACITIES, capacity)
        await _let(api, BINDINGS, numbered_binding("default", 0))


async def _let(api: ApiServer, resource: ApiResource, probe: dict[str, Any]) -> None:
    """Return when an administrator may create such an object."""
    while True:
        with contextlib.suppress(errors.Forbidden):
            await api.request("POST", resource.path("default"), body=orjson.dumps(probe), params={"dryRun": "All"})
            return
        await asyncio.sleep(0.05)


def creation(resource: ApiResource, obj: dict[str, Any]) -> Request:
    """The request that creates the object."""
    return Request("POST", resource.path(obj["metadata"].get("namespace")), orjson.dumps(obj))


def administrator(ca: str, token: str, connections: int) -> aiohttp.ClientSession:
    """A bare client over at most so many connections (0: without limit), to be used as a context manager."""
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json", "User-Agent": "bench"}
    connector = aiohttp.TCPConnector(limit=connections, ssl=ssl.create_default_context(cadata=ca))
    return aiohttp.ClientSession(connector=connector, headers=headers)


async def ask(session: aiohttp.ClientSession, url: str, request: Request) -> bytes | None:
    """The answer; None where the server did not carry it out, as one that is asked for more than it can do.

    Raises:
        RuntimeError: it was refused for another reason.
    """
    target, content = URL(url + request.path, encoded=True), {"Content-Type": request.content_type}
    try:
        async with session.request(request.method, target, data=request.body, headers=content) as response:
            answer = await response.read()
    except (aiohttp.ClientError, TimeoutError):
        return None
    if response.status == 429 or response.status >= 500:
        return None
    if response.status >= 300:
        raise RuntimeError(f"{request.method} {request.path}: {response.status} {answer[:400]!r}")
    return answer


async def send(
    cluster: ClusterHandle, requests: Sequence[Request], connections: int = CONNECTIONS, *, lossy: bool = False
) -> list[bytes]:
    """Send all, over so many connections; the answers in the order of the requests.

    Raises:
        RuntimeError: one was refused; unless `lossy`, also where one was not carried out, whose answer is empty then.
    """
    answers = [b""] * len(requests)
    todo = iter(enumerate(requests))
    async with administrator(cluster.ca, cluster.token, connections) as session:

        async def worker() -> None:
            for number, request in todo:
                answer = await ask(session, cluster.url, request)
                if answer is None and not lossy:
                    raise RuntimeError(f"{request.method} {request.path} was not carried out")
                answers[number] = answer or b""

        async with asyncio.TaskGroup() as group:
            for _ in range(connections):
                group.create_task(worker())
    return answers


async def open_loop(
    api: ApiServer, timed: Iterable[tuple[float, Request]], refused: list[tuple[float, str]] | None = None
) -> float:
    """Send each request at its time, whatever became of those before; return when all are answered.

    Args:
        api: where to.
        timed: (seconds from now, request), the earliest first.
        refused: takes (its time, error) of each request that was not carried out.

    Returns the most seconds by which one left late.

    Raises:
        ApiError: one was not carried out, and nothing takes it; or was refused for another reason.
    """
    began, late = time.monotonic(), 0.0

    async def send_one(at: float, request: Request) -> None:
        try:
            await api.request(
                request.method,
                request.path,
                body=request.body,
                content_type=request.content_type,
                deadline=_ANSWER_S,
            )
        except (errors.Busy, errors.Unreachable) as error:
            if refused is None:
                raise
            refused.append((at, str(error)))

    async with asyncio.TaskGroup() as group:
        # A few at a time: one timer per request would measure the timer.
        for tick, due in groupby(timed, key=lambda each: each[0] // _TICK_S):
            await asyncio.sleep(max(began + tick * _TICK_S - time.monotonic(), 0))
            for at, request in due:
                late = max(late, time.monotonic() - began - at)
                group.create_task(send_one(at, request))
    return late


class Counter:
    """Counts distinct objects whose watch events hold one of the marks, and wakes who waits for so many."""

    def __init__(self, api: ApiServer, resource: ApiResource, namespace: str | None, mark: bytes) -> None:
        self._api, self._resource, self._namespace, self._mark = api, resource, namespace, mark
        self._seen: set[str] = set()
        self._changed = asyncio.Event()

    @property
    def count(self) -> int:
        """Objects seen so far."""
        return len(self._seen)

    async def reach(self, count: int, stall_s: float) -> bool:
        """Wait for so many; False when none was added for `stall_s` seconds."""
        while self.count < count:
            self._changed.clear()
            try:
                async with asyncio.timeout(stall_s):
                    await self._changed.wait()
            except TimeoutError:
                return False
        return True

    async def _run(self, version: str) -> None:
        # A busy server closes the watch of a client that reads too slowly.
        while True:
            async for line in self._api.watch(self._resource, self._namespace, resource_version=version):
                version = _value(line, b'"resourceVersion":"')
                if self._mark in line:
                    uid = _value(line, b'"uid":"')
                    if uid not in self._seen:
                        self._seen.add(uid)
                        self._changed.set()


def _value(line: bytes, key: bytes) -> str:
    """The first string of that key."""
    at = line.index(key) + len(key)
    return line[at : line.index(b'"', at)].decode()


@contextlib.asynccontextmanager
async def watching(api: ApiServer, resource: ApiResource, namespace: str | None, mark: bytes) -> AsyncIterator[Counter]:
    """An open watch from now on; objects whose own UID comes first in their JSON are told apart by it."""
    version = ""
    async for page in api.pages(resource, namespace):
        version = page.metadata.resource_version
    counter = Counter(api, resource, namespace, mark)
    task = asyncio.create_task(counter._run(version))
    try:
        yield counter
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def namespace(api: ApiServer, name: str, labels: dict[str, str] | None = None) -> None:
    """Create a namespace; opted in only where the labels say so."""
    meta = {"name": name, "labels": labels or {}}
    await api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": meta})


async def clear(api: ApiServer, resource: ApiResource, name: str) -> None:
    """Delete all objects of the collection."""
    await api.request("DELETE", resource.path(name), deadline=60)


async def read_log(
    path: Path, complete: Callable[[list[audit.Event]], bool], where: str | None = None
) -> list[audit.Event]:
    """The events of an audit log, or those of one namespace, once it is complete: the server writes a line after it
    has answered.

    What is there after some seconds is given in any case.
    """

    def events_now() -> list[audit.Event]:
        return [each for each in audit.read(path) if where is None or each.object_ref.namespace == where]

    loop = asyncio.get_running_loop()
    end = loop.time() + _FLUSH_S
    while True:
        events = await asyncio.to_thread(events_now)
        if complete(events) or loop.time() > end:
            return events
        await asyncio.sleep(0.1)


def measured(
    chosen: argparse.Namespace,
    told: Progress,
    play: Callable[[Report, dict[str, Any], Path, Progress], Coroutine[Any, Any, None]],
    name: str,
    quick: dict[str, Any],
    full: dict[str, Any],
    **facts: Any,
) -> Report:
    """The report of a benchmark on local API servers.

    Args:
        chosen: the options, `directory` among them.
        told: progress.
        play: adds figures to the report, with the sizes and a folder for the federation.
        name: of the benchmark.
        quick: sizes with which it only shows that it works.
        full: sizes that count.
        facts: further parameters of the report.
    """
    params = sizes(chosen, quick, full)
    report = Report(name, {**params, "in_flight_limits": RAISED_LIMITS, **facts})
    with workspace(chosen.directory) as directory:
        asyncio.run(play(report, params, directory, told))
    return report


@contextlib.contextmanager
def workspace(asked: Path | None) -> Iterator[Path]:
    """The folder for a federation: the one asked for, which stays, or one that goes."""
    if asked is not None:
        asked.mkdir(parents=True, exist_ok=True)
        yield asked.resolve()
        return
    made = Path(tempfile.mkdtemp(prefix="atoll-bench-"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
