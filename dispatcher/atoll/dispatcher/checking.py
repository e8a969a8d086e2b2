"""Checks of the core's invariants while it runs: a broken one is reported.

Tests verify all invariants after every event. Here only the sums are verified, now and then, for each look costs as
much as there is work.
"""

from __future__ import annotations

import asyncio
import time

import structlog
from prometheus_client import Counter

from atoll.dispatcher.core import Dispatcher
from atoll.dispatcher.settings import CheckSettings
from atoll.kube.events import Recorder
from atoll.model import keys
from atoll.model.apiresource import LEASES

BROKEN = "InvariantBroken"
"""Reason of the Event."""

log = structlog.get_logger(__name__)


class Checker:
    """Looks while one leader lasts."""

    def __init__(
        self, core: Dispatcher, events: Recorder | None, broken: Counter, *, settings: CheckSettings = CheckSettings()
    ) -> None:
        """No I/O happens here; `run` looks, and whoever runs `events` writes."""
        self._settings = settings
        self._core, self._events, self._broken = core, events, broken

    async def run(self) -> None:
        """Look until cancelled."""
        pause = self._settings.interval
        while True:
            await asyncio.sleep(pause)
            pause = max(self._settings.interval, self._settings.share * self.look())

    def look(self) -> float:
        """Verify, and report broken invariants; gives the seconds that it took."""
        started = time.perf_counter()
        try:
            self._core.check_sums()
        except (AssertionError, KeyError) as error:
            self.tell(error)
        return time.perf_counter() - started

    def tell(self, error: Exception) -> None:
        """Something does not hold that must: a metric, an Event on the dispatcher's lease, and a line in the log."""
        self._broken.inc()
        log.error("an invariant of the dispatcher is broken", invariant=str(error))
        lease = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "namespace": keys.SYSTEM_NAMESPACE,
            "name": "atoll-dispatcher",
        }
        note = (
            f"{error}. Decisions go on; restarting atoll-dispatcher makes it read everything anew. Please report this."
        )
        if self._events is not None:
            self._events.record(lease, BROKEN, note, warning=True)
