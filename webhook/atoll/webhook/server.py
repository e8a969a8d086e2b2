"""The HTTPS server of the webhook: one route per review, whatever comes gets an answer.

A refusal with a reason beats a broken connection: the API server turns the latter into a timeout that nobody
understands.
"""

from __future__ import annotations

import asyncio
import ssl
import time

import structlog
from aiohttp import web
from prometheus_client import CollectorRegistry, Histogram

from atoll.webhook import reviews

#: Larger than any object that etcd takes, twice (old and new).
_MAX_BODY = 8 * 2**20
_DRAIN = 2.0
_LINGER = 1.0
"""Seconds that a server on its way out goes on: whoever sends requests has to hear of it first."""
_LEAVING = web.AppKey("leaving", asyncio.Event)
_BUCKETS = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    5.0,
)

log = structlog.get_logger(__name__)


def application(answers: reviews.Reviews, metrics: CollectorRegistry) -> web.Application:
    """The routes of all reviews, and /readyz which says that TLS and HTTP work.

    Args:
        answers: what to say.
        metrics: gets the histogram `atoll_webhook_review_seconds` by path and outcome.
    """
    seconds = Histogram(
        "atoll_webhook_review_seconds",
        "Time from a review's body to its answer.",
        ("path", "outcome"),
        buckets=_BUCKETS,
        registry=metrics,
    )

    async def review(request: web.Request) -> web.Response:
        body = await request.read()
        started = time.perf_counter()
        outcome, response = await answer(answers, request.path, body)
        if app[_LEAVING].is_set():
            # Closed by the answer, a connection can't be closed under the next request.
            response.force_close()
        seconds.labels(request.path, outcome).observe(time.perf_counter() - started)
        return response

    async def readyz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    app = web.Application(client_max_size=_MAX_BODY)
    app[_LEAVING] = asyncio.Event()
    for path in (*answers.mutations, *answers.validations):
        app.router.add_post(path, review)
    app.router.add_get("/readyz", readyz)
    return app


async def answer(answers: reviews.Reviews, path: str, body: bytes) -> tuple[str, web.Response]:
    """The outcome and the response to one review; never raises.

    Outcomes: allowed, patched, refused, malformed, failed.
    """
    try:
        request = reviews.decode(body)
    except reviews.BadReview as error:
        return "malformed", web.Response(status=400, text=f"{error}\n")
    try:
        if path in answers.mutations:
            patch = answers.mutations[path](request)
            return ("patched" if patch else "allowed"), _json(reviews.encode(request.uid, patch=patch))
        kind, check = answers.validations[path]
        refusal = reviews.refusal_of(request, kind, await check(request))
        return ("refused" if refusal else "allowed"), _json(reviews.encode(request.uid, refusal=refusal))
    except Exception as error:
        log.exception("a review failed", path=path, namespace=request.namespace, name=request.name)
        said = f"the Atoll webhook could not judge this object ({type(error).__name__}); its log tells more"
        return "failed", _json(reviews.encode(request.uid, refusal=said))


async def serve(app: web.Application, tls: ssl.SSLContext, host: str, port: int) -> web.AppRunner:
    """Listen; `cleanup` of what is returned stops that and lets requests under way finish.

    Raises:
        OSError: the address can't be had.
    """
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_DRAIN)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, ssl_context=tls).start()
    except OSError:
        await runner.cleanup()
        raise
    return runner


async def leave(runner: web.AppRunner, app: web.Application) -> None:
    """Stop in order: let connections end with their next answer, take no new ones, finish what was asked."""
    app[_LEAVING].set()
    await asyncio.sleep(_LINGER)
    for site in list(runner.sites):
        await site.stop()
    await asyncio.sleep(_LINGER / 2)
    await runner.cleanup()


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")
