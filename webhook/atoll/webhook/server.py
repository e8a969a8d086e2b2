"""The HTTPS server of the webhook: one route per review, whatever comes gets an answer.

A refusal with a reason beats a broken connection: the API server turns the latter into a timeout without
explanation.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

import structlog
from aiohttp import web
from prometheus_client import CollectorRegistry, Histogram

from atoll.kube.serving import Guard
from atoll.webhook import protocol, reviews
from atoll.webhook.surroundings import WAITED

_MAX_BODY: Final = 8 * 2**20
"""Larger than any object that etcd takes, twice (old and new)."""
_LEAVING = web.AppKey("leaving", asyncio.Event)
_BUCKETS: Final = (*(round(50e-6 * 1.25**step, 7) for step in range(38)), 0.5, 1.0, 5.0)
"""Fine enough that a quantile read from them is at most a quarter too high, from 50 us to 0.2 s."""

log = structlog.get_logger(__name__)


def application(answers: reviews.Reviews, metrics: CollectorRegistry, guard: Guard) -> web.Application:
    """The routes of all reviews, and /readyz which says that TLS and HTTP work.

    Args:
        answers: what to say.
        metrics: gets the histogram `atoll_webhook_review_seconds` by path and outcome.
        guard: of the server.
    """
    seconds = Histogram(
        "atoll_webhook_review_seconds",
        "Time from a review's body to its answer, without waits for what was made a moment before.",
        ("path", "outcome"),
        buckets=_BUCKETS,
        registry=metrics,
    )

    async def review(request: web.Request) -> web.Response:
        body = await guard.body(request, _MAX_BODY)
        WAITED.set(0.0)
        started = time.perf_counter()
        outcome, response = await answer(answers, request.path, body)
        if app[_LEAVING].is_set():
            # Closed by the answer, a connection can't be closed under the next request.
            response.force_close()
        seconds.labels(request.path, outcome).observe(time.perf_counter() - started - WAITED.get())
        return response

    async def readyz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    app = web.Application(middlewares=[guard.middleware])
    app[_LEAVING] = asyncio.Event()
    for path in answers.routes:
        app.router.add_post(path, review)
    app.router.add_get("/readyz", readyz)
    return app


async def answer(answers: reviews.Reviews, path: str, body: bytes) -> tuple[str, web.Response]:
    """The outcome and the response to one review; never raises.

    Outcomes: allowed, patched, refused, malformed, failed.
    """
    try:
        request = protocol.decode(body)
    except protocol.BadReview as error:
        if not error.uid:
            return "malformed", web.Response(status=400, text=f"{error}\n")
        refused = protocol.encode(error.uid, refusal=str(error), code=400, api_version=error.api_version)
        return "malformed", _json(refused)
    try:
        route = answers.routes[path]
        await route.prepare(request)
        patch = route.mutate(request)
        if problems := await route.validate(request):
            title = route.title or (request.object or {}).get("kind") or ""
            return "refused", _json(protocol.encode(request.uid, refusal=protocol.refusal_of(request, title, problems)))
        warnings = protocol.warnings_of(route.warn(request))
        answered = protocol.encode(request.uid, patch=patch, warnings=warnings, audit=route.audit(request))
        return "patched" if patch else "allowed", _json(answered)
    except RecursionError:
        refusal = "the object is nested too deeply to be checked; make it flatter"
        return "malformed", _json(protocol.encode(request.uid, refusal=refusal, code=400))
    except Exception as error:
        log.exception("a review failed", path=path, namespace=request.namespace, name=request.name)
        refusal = f"the Atoll webhook could not judge this object ({type(error).__name__}); its log tells more"
        return "failed", _json(protocol.encode(request.uid, refusal=refusal))


async def leave(runner: web.AppRunner, app: web.Application, seconds: float, last_accepted: float) -> None:
    """Go on serving for so long, each answer being the last of its connection; then take no new ones.

    Whoever sends requests has to hear that this replica is not ready any more, and a connection that ends with an
    answer can't be closed under the next request.
    """
    app[_LEAVING].set()
    log.info("leaving", seconds=seconds)
    await asyncio.sleep(seconds)
    for site in list(runner.sites):
        await site.stop()
    # Connections accepted in the last moment have their handshakes before the end.
    await asyncio.sleep(min(seconds, last_accepted))


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")
