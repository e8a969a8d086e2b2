"""What every Atoll process has in common: logging, health endpoints, signals, an orderly end.

A process is an async function that is given a `Process` and adds its tasks to it; when one of them fails, all stop
and the process exits non-zero, so that its supervisor starts it again from the state in the API server.

The end, by SIGTERM, SIGINT or a failed task: no write begins any more, those under way are waited for, then every task
is cancelled and the lease is given back. All of that is over within `--drain-seconds`, whoever hangs; a second signal
ends the process at once.
"""

from __future__ import annotations

import asyncio
import math
import os
import secrets
import signal
import socket
import sys
import threading
from asyncio import sslproto
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import structlog
from prometheus_client import CollectorRegistry

from atoll.kube import client_metrics, drain, health, logs, serving, systemd, token_renewal, vitals
from atoll.kube.collector import KubeCollector
from atoll.kube.ratelimit import RateLimit
from atoll.kube.serving import Guard
from atoll.kube.settings import Api, ProcessSettings
from atoll.kube.transport import ApiServer

_LEAVE = 1.5
"""Seconds of the drain that are kept for giving the lease back and closing connections."""
TLS_BUFFER = 64 * 1024
"""Bytes that a TLS connection reads at once: four records. With asyncio's 256 KiB a burst of connections would weigh
more than all else that a process keeps, and the allocator would not give all of it back.
"""

log = structlog.get_logger(__name__)


def spare_memory() -> None:
    """From now on TLS connections of this process read so much at once."""
    sslproto.SSLProtocol.max_size = TLS_BUFFER


class Process:
    """The running process: its tasks, its readiness, its metrics."""

    def __init__(self, name: str, *, drain_seconds: float = ProcessSettings().drain) -> None:
        self.name = name
        # Two containers on one node may share host name and process id; two leaders may not share a name.
        self.identity = f"{socket.gethostname()}-{secrets.token_hex(4)}-{os.getpid()}"
        self.stack = AsyncExitStack()
        spare_memory()
        self.metrics = CollectorRegistry()
        self.metrics.register(KubeCollector())
        vitals.register(self.metrics)
        self.stopping = asyncio.Event()
        self._drain_seconds = drain_seconds
        self._pauses = vitals.GcPauses()
        self.metrics.register(self._pauses)
        self._tasks: list[tuple[str, Coroutine[Any, Any, None]]] = []
        self._ready: list[Callable[[], bool]] = []
        self._farewells: list[Callable[[], Awaitable[None]]] = []
        self.add_task("vitals", vitals.watch_loop(vitals.lag_histogram(self.metrics)))
        if systemd.supervises():
            self.add_task("systemd", systemd.keep_informed(lambda: self.ready, health.alive))

    def add_task(self, name: str, task: Coroutine[Any, Any, None]) -> None:
        """Run this until the process ends; its failure ends the process."""
        self._tasks.append((name, task))

    def before_end(self, farewell: Callable[[], Awaitable[None]]) -> None:
        """After a signal and before the drain: /readyz fails already, all tasks go on until this returns."""
        self._farewells.append(farewell)

    def ready_when(self, condition: Callable[[], bool]) -> None:
        """/readyz answers 200 once every such condition holds."""
        self._ready.append(condition)

    async def connect(self, settings: ProcessSettings) -> ApiServer:
        """A client of the host until the process ends; /metrics says when the token in the named file expires.

        Raises:
            BadKubeconfig: the credentials can't be used.
        """
        named, rate = settings.kubeconfig, rate_limit(settings.api)
        client = await ApiServer.from_kubeconfig(named or None, user_agent=f"atoll-{self.name}", rate=rate)
        self.stack.push_async_callback(client.close)
        if named:
            token_renewal.show_expiry(self.metrics, {"host": partial(token_renewal.expiry_in, named)})
        return client

    @property
    def ready(self) -> bool:
        return not self.stopping.is_set() and all(condition() for condition in self._ready)

    async def run(self, health_host: str, health_port: int) -> None:
        """Run all tasks until one ends or a signal asks to stop.

        Raises:
            SystemExit: the health port can't be had, or a task ended.
        """
        async with self.stack:
            if health_port:
                try:
                    await self._serve_health(health_host, health_port)
                except OSError as error:
                    self.discard()
                    raise SystemExit(
                        f"{self.name}: --health-port {health_port} can't be used: {error.strerror}"
                    ) from error
            self._pauses.watch()
            self.stack.callback(self._pauses.unwatch)
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._asked_to_stop)
            tasks = {asyncio.create_task(task, name=name) for name, task in self._tasks}
            stop = asyncio.create_task(self.stopping.wait(), name="signal")
            log.info("started", identity=self.identity)
            done, _ = await asyncio.wait({*tasks, stop}, return_when=asyncio.FIRST_COMPLETED)
            self.stopping.set()
            if done == {stop}:
                for farewell in self._farewells:
                    await farewell()
            await self._end({*tasks, stop})
            for task in done - {stop}:
                if task.exception() is not None:
                    log.error("task failed", task=task.get_name(), exc_info=task.exception())
                raise SystemExit(f"{self.name}: task {task.get_name()} ended")
        log.info("stopped")

    def discard(self) -> None:
        """Close the tasks of a process that will not run."""
        for _, task in self._tasks:
            task.close()

    def _asked_to_stop(self) -> None:
        self.stopping.set()
        # The second signal is for a process, or an operator, that has no time: the system ends us without our help.
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    async def _end(self, tasks: set[asyncio.Task[Any]]) -> None:
        systemd.notify("STOPPING=1")
        log.info("stopping", seconds=self._drain_seconds)
        _give_up_after(self._drain_seconds)
        end = asyncio.get_running_loop().time() + self._drain_seconds
        patience = max(self._drain_seconds - _LEAVE, self._drain_seconds / 2)
        left = await drain.finish((client.writes for client in client_metrics.clients), patience)
        if left:
            log.warning("writes are cut: no answer while the process could wait", writes=left)
        for task in tasks:
            task.cancel()
        # Some give a lease back now; those that can't without an answer are cancelled in that too.
        rest = end - asyncio.get_running_loop().time() - _LEAVE / 2
        _, late = await asyncio.wait(tasks, timeout=max(rest, 0.1))
        for task in late:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve_health(self, host: str, port: int) -> None:
        guard = Guard()
        app = health.application(lambda: self.ready, self.metrics, guard)
        runner = await serving.serve(app, guard, None, shutdown_timeout=0.5, host=host, port=port)
        self.stack.push_async_callback(runner.cleanup)


def _give_up_after(seconds: float) -> None:
    """End this process after so long, whatever hangs in it: the loop may, and so may a thread."""

    def leave() -> None:
        log.error("the process did not end in time and is ended", seconds=seconds)
        os._exit(1)

    timer = threading.Timer(seconds, leave)
    timer.daemon = True
    timer.start()


def rate_limit(settings: Api) -> RateLimit | None:
    """What these settings allow towards one API server; each has a limit of its own. None: no limit."""
    return None if settings.qps is None else RateLimit(settings.qps, settings.burst or math.ceil(settings.qps))


def run(name: str, settings: ProcessSettings, setup: Callable[[Process], Awaitable[None]], **bound: str) -> None:
    """Configure logging, set the process up, run it to its end.

    Args:
        name: of the process.
        settings: of the process.
        setup: adds the tasks.
        bound: fields of every log line besides `process`.
    """
    logs.configure(settings.log_level, process=name, **bound)
    sys.excepthook = _last_words

    async def main() -> None:
        process = Process(name, drain_seconds=settings.drain)
        async with AsyncExitStack() as until_ready:
            until_ready.push_async_callback(process.stack.aclose)
            until_ready.callback(process.discard)
            await setup(process)
            until_ready.pop_all()
        await process.run(settings.health.host, settings.health.port)

    asyncio.run(main())


def _last_words(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    log.critical("the process failed", exc_info=(kind, error, trace))
