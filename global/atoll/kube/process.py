"""What every Atoll process has in common: flags, logging, health endpoints, signals, an orderly end.

A process is an async function that is given a `Process` and adds its tasks to it; when one of them fails, all stop
and the process exits non-zero, so that its supervisor starts it again from the state in the API server.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import orjson
import structlog
from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest

from atoll.kube.metrics import KubeCollector

log = structlog.get_logger(__name__)


class Process:
    """The running process: its tasks, its readiness, its metrics."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.identity = f"{socket.gethostname()}-{os.getpid()}"
        self.stack = AsyncExitStack()
        self.metrics = CollectorRegistry()
        self.metrics.register(KubeCollector())
        self.stopping = asyncio.Event()
        self._tasks: list[tuple[str, Coroutine[Any, Any, None]]] = []
        self._ready: list[Callable[[], bool]] = []

    def add_task(self, name: str, task: Coroutine[Any, Any, None]) -> None:
        """Run this until the process ends; its failure ends the process."""
        self._tasks.append((name, task))

    def ready_when(self, condition: Callable[[], bool]) -> None:
        """/readyz answers 200 once every such condition holds."""
        self._ready.append(condition)

    @property
    def ready(self) -> bool:
        return not self.stopping.is_set() and all(condition() for condition in self._ready)

    async def run(self, health_host: str, health_port: int) -> None:
        """Run all tasks until one ends or a signal asks to stop."""
        async with self.stack:
            if health_port:
                try:
                    await self._serve_health(health_host, health_port)
                except OSError as error:
                    for _, coroutine in self._tasks:
                        coroutine.close()
                    raise SystemExit(
                        f"{self.name}: --health-port {health_port} can't be used: {error.strerror}"
                    ) from error
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self.stopping.set)
            tasks = {asyncio.create_task(task, name=name) for name, task in self._tasks}
            stop = asyncio.create_task(self.stopping.wait(), name="signal")
            log.info("started", process=self.name, identity=self.identity)
            done, _ = await asyncio.wait({*tasks, stop}, return_when=asyncio.FIRST_COMPLETED)
            self.stopping.set()
            for task in (*tasks, stop):
                task.cancel()
            await asyncio.gather(*tasks, stop, return_exceptions=True)
            for task in done - {stop}:
                if task.exception() is not None:
                    log.error("task failed", task=task.get_name(), exc_info=task.exception())
                raise SystemExit(f"{self.name}: task {task.get_name()} ended")
            log.info("stopped", process=self.name)

    async def _serve_health(self, host: str, port: int) -> None:
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        self.stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, host, port).start()

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n") if self.ready else web.Response(text="not ready\n", status=503)

    async def _metrics(self, _: web.Request) -> web.Response:
        body = await asyncio.to_thread(generate_latest, self.metrics)
        return web.Response(body=body, content_type="text/plain")


HEALTH_PORTS = {"webhook": 8081, "control": 8082, "dispatcher": 8083, "agent": 8084}
"""One per process, so that all of them run on one machine."""


def arguments(name: str, description: str) -> argparse.ArgumentParser:
    """The flags that every process has; a process adds its own."""
    parser = argparse.ArgumentParser(prog=f"atoll-{name}", description=description)
    parser.add_argument("--kubeconfig", type=Path, help="credentials for the host (default: the pod's service account)")
    parser.add_argument(
        "--health-port",
        type=int,
        default=HEALTH_PORTS.get(name, 8080),
        help="/healthz, /readyz and /metrics; 0 turns them off",
    )
    parser.add_argument("--health-host", default="127.0.0.1", help="address that the health port listens on")
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    return parser


def run(name: str, options: argparse.Namespace, setup: Callable[[Process], Awaitable[None]]) -> None:
    """Configure logging, set the process up, run it to its end."""
    configure_logging(options.log_level, process=name)

    async def main() -> None:
        process = Process(name)
        async with AsyncExitStack() as until_ready:
            until_ready.push_async_callback(process.stack.aclose)
            await setup(process)
            until_ready.pop_all()
        await process.run(options.health_host, options.health_port)

    asyncio.run(main())


def configure_logging(level: str, **bound: str) -> None:
    """JSON lines on stderr, one per happening, with these fields in each."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(serializer=lambda value, **_: orjson.dumps(value, default=str).decode()),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    structlog.contextvars.bind_contextvars(**bound)
