"""How much of each node is in use, by the metrics API of the member, for scorings that ask for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from atoll.agent.scheduler.core.events import Measured
from atoll.agent.settings import UsageSettings
from atoll.kube import errors
from atoll.kube.transport import ApiServer
from atoll.model import quantity
from atoll.model.apiresource import NODE_METRICS

log = structlog.get_logger(__name__)


def read(items: list[dict[str, Any]]) -> Measured:
    """NodeMetrics in the core's units; what can't be read is left out."""
    found: dict[str, tuple[int, int]] = {}
    for each in items:
        try:
            use = quantity.capacity(each["usage"])
            found[each["metadata"]["name"]] = use["cpu"], use["memory"]
        except (KeyError, TypeError, ValueError):
            continue
    return Measured(found)


class Meter:
    """Asks for the use of nodes while it is wanted. Metrics are no objects that could be watched."""

    def __init__(
        self,
        member: ApiServer,
        wanted: Callable[[], bool],
        handle: Callable[[Measured], None],
        *,
        settings: UsageSettings = UsageSettings(),
    ) -> None:
        """No I/O happens here; `run` does it."""
        self._member, self._wanted, self._handle, self._settings = member, wanted, handle, settings
        self._failed = False

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            if self._wanted():
                await self._ask()
            await asyncio.sleep(self._settings.every)

    async def _ask(self) -> None:
        try:
            items = await self._member.list(NODE_METRICS)
        except (errors.ApiError, OSError, TimeoutError) as error:
            # Old figures mislead: nodes count as not measured.
            self._handle(Measured({}))
            if not self._failed:
                log.warning("the use of nodes is not known, scorings go on without it", error=str(error))
            self._failed = True
            return
        self._failed = False
        self._handle(read(items))
