"""From a command to an API server and back."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from atoll.cli.errors import CommandError
from atoll.cli.options import Settings
from atoll.cli.quick import without_authorities

with without_authorities():
    from atoll.kube.transport import ApiServer

T = TypeVar("T")
A = TypeVar("A", bound=ApiServer)

_SILENCE = 1.0
"""Seconds without an answer after which the user is told."""


def call(options: Settings, work: Callable[[A], Awaitable[T]], client: type[A] = ApiServer) -> T:  # type: ignore[assignment]
    """Connect to the host by a client of that class, do the work, disconnect.

    Raises:
        BadKubeconfig: no credentials.
        ApiError: the server said no.
        CommandError: the kubeconfig does not exist.
    """
    if options.kubeconfig is not None and not Path(options.kubeconfig).is_file():
        raise CommandError(f"kubeconfig {options.kubeconfig}: no such file")
    named = [path for path in os.environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    if options.kubeconfig is None and named and not any(Path(path).expanduser().is_file() for path in named):
        raise CommandError(f"KUBECONFIG names {', '.join(named)}: no such file; set it to another, or use --kubeconfig")

    async def run() -> T:
        async with await client.from_kubeconfig(
            options.kubeconfig, options.context, user_agent="atollctl", on_warning=warn
        ) as host:
            telling = asyncio.create_task(_tell_of_silence(host))
            try:
                return await work(host)
            finally:
                telling.cancel()

    return asyncio.run(run())


def warn(text: str) -> None:
    """Show a warning as kubectl does."""
    print(f"Warning: {text}", file=sys.stderr)


async def _tell_of_silence(host: ApiServer) -> None:
    """Say on stderr that a server which has not answered at all is still tried."""
    await asyncio.sleep(_SILENCE)
    if not any(code for _, _, code in host.requests):
        print(f"{host.url} does not answer; it is tried for some seconds more", file=sys.stderr)
