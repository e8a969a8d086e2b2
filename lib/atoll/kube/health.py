"""What a kubelet, a load balancer and Prometheus ask a process: /healthz, /readyz and /metrics.

Alive is a process whose loop answers and whose caches still try. An API server that is away, slow or refusing is no
reason to restart anybody: that would cure nothing and throw away caches that are good, on every node at once. So
liveness asks when a cache last *did* something (a line, a list, an attempt that failed): a cache in order does so
every two minutes at the latest, because a silent stream is opened anew and every request has a deadline. One that did
nothing for `STUCK` seconds hangs in this process, and only a restart helps. A loop that is stuck answers nothing at
all, which a kubelet counts as a failure after the probe's timeout.

Ready is a process that can do its part: a leader and an agent with caches that are synced; a standby that could take
over, which means that the API server answered its last attempt on the lease (it reads its caches when it leads, so
that it never decides on what an earlier leader saw). Being not ready restarts nothing; it holds a rollout.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest

from atoll.kube import client_metrics
from atoll.kube.serving import Guard

STUCK = 300.0
"""Seconds without any doing after which a running cache counts as hung."""


def stuck_caches(now: float) -> list[str]:
    """The caches that run and did nothing for too long, with the seconds; `now` as time.monotonic()."""
    running = [(each.name, now - each.active_at) for each in client_metrics.caches if each.active_at is not None]
    return [f"{name}: {idle:.0f} s" for name, idle in sorted(running) if idle > STUCK]


def alive() -> bool:
    """Whether /healthz says yes, given that the loop runs."""
    return not stuck_caches(time.monotonic())


def application(ready: Callable[[], bool], registry: CollectorRegistry, guard: Guard) -> web.Application:
    """The three endpoints.

    Args:
        ready: whether /readyz says yes.
        registry: what /metrics shows.
        guard: of the server.
    """

    async def healthz(_: web.Request) -> web.Response:
        stuck = stuck_caches(time.monotonic())
        if not stuck:
            return web.Response(text="ok\n")
        return web.Response(text=f"caches that neither hear nor ask: {', '.join(stuck)}\n", status=503)

    async def readyz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n") if ready() else web.Response(text="not ready\n", status=503)

    async def shown(_: web.Request) -> web.Response:
        # In a thread: a scrape of many series must not delay an answer to other requests.
        body = await asyncio.to_thread(generate_latest, registry)
        return web.Response(body=body, content_type="text/plain")

    app = web.Application(middlewares=[guard.middleware])
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", shown)
    return app
