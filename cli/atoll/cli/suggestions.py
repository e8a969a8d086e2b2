"""Names that the shell offers: of jobs, queues and members on the host.

Completion must not be felt and must not speak: whatever goes wrong, or takes longer than `_PATIENCE`, offers nothing.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from atoll.kube.transport import ApiServer

_PATIENCE = 1.5
"""Seconds."""
_MOST = 500
"""Names of a kind; more of them are not read."""


def job_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Workloads of the namespace: by name, or by KIND/NAME once a kind was typed."""
    from atoll.kinds import KINDS

    word, slash, _ = incomplete.rpartition("/")
    typed = next((kind for kind in KINDS if word in kind.words.names), KINDS[0])

    async def look(host: ApiServer, namespace: str) -> list[str]:
        if slash:
            return [f"{word}/{name}" for name in await names_of(host, typed.resource, namespace)]
        return [
            f"{kind.words.prefix}{name}" for kind in KINDS for name in await names_of(host, kind.resource, namespace)
        ]

    return _quietly(ctx, look)


def queue_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """All queues."""
    from atoll.model.apiresource import QUEUES

    return _quietly(ctx, lambda host, _: names_of(host, QUEUES, None))


def cluster_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """All members."""
    from atoll.model.apiresource import CLUSTERS

    return _quietly(ctx, lambda host, _: names_of(host, CLUSTERS, None))


async def names_of(host: ApiServer, resource: Any, namespace: str | None) -> list[str]:
    """Names of a kind, the first ones; none where they may not be listed."""
    from atoll.kube.errors import ApiError
    from atoll.model.objects import decode_meta

    found = []
    with contextlib.suppress(ApiError):
        async for page in host.pages(resource, namespace, metadata_only=True, page_size=_MOST):
            found += [decode_meta(item).metadata.name for item in page.items]
            break
    return found


def _quietly(ctx: typer.Context, look: Callable[[ApiServer, str], Awaitable[list[str]]]) -> list[str]:
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            return sorted(_asked(ctx, look))
    except Exception:
        return []


def _asked(ctx: typer.Context, look: Callable[[ApiServer, str], Awaitable[list[str]]]) -> list[str]:
    import asyncio

    from atoll.cli.connection import call
    from atoll.cli.options import Settings

    # Completion parses the line and runs no command: the root's options are still parameters.
    given = ctx.find_root().params
    options = Settings(given.get("kubeconfig"), given.get("context"), given.get("namespace"))

    async def work(host: ApiServer) -> list[str]:
        async with asyncio.timeout(_PATIENCE):
            return await look(host, options.one_namespace)

    return call(options, work)
