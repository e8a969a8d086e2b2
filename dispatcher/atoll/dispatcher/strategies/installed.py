"""Users' strategies around the core: loaded from entry points, timed, and reported once they are off.

Time is measured here, outside the core: an answer that came too late is used all the same, and the core gets the event
that the strategy is off (`StrategyOff`), which its log has, so a replay decides the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import structlog
from prometheus_client import Counter

from atoll.dispatcher.core.events import StrategyOff
from atoll.dispatcher.core.settings import CoreSettings
from atoll.dispatcher.strategies.budget import Failure, Strategies
from atoll.kube import strategies
from atoll.kube.events import Recorder
from atoll.model import keys
from atoll.model.apiresource import QUEUES
from atoll.model.queue_object import QueueObject
from atoll.model.strategies import SCORE, SPLIT

OFF = "StrategyOff"
"""Reason of the Event."""
_NAMED_BY = {SCORE: keys.SCORE_STRATEGY, SPLIT: keys.SPLIT_STRATEGY}

log = structlog.get_logger(__name__)


def installed(
    settings: CoreSettings, timed: Callable[[str, str, Any], Any] = lambda _group, _name, each: each
) -> Strategies:
    """Strategies installed beside this process.

    Args:
        settings: of the core.
        timed: makes of (group, name, strategy) the function that the core calls.
    """
    known: dict[str, dict[str, Any]] = {SCORE: {}, SPLIT: {}}
    broken = []
    for group, loaded in known.items():
        for name, entry in strategies.found(group).items():
            try:
                loaded[name] = timed(group, name, entry.load())
            except Exception as error:  # whatever a user's package raises as it is imported
                broken.append((group, name, f"it can't be loaded: {type(error).__name__}: {error}"))
    made = Strategies(known[SCORE], known[SPLIT], lines=settings.strategies.lines)
    for failure in broken:
        made.turn_off(*failure)
    return made


class Watch:
    """Times strategies, and reports the ones that are off."""

    def __init__(self, limit: float, failures: Counter, events: Recorder | None) -> None:
        """`limit`: seconds that an answer may take."""
        self._limit, self._failures, self._events = limit, failures, events
        self._late: list[StrategyOff] = []

    def timed(self, group: str, name: str, strategy: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        """The strategy with a clock beside it."""

        def call(workload: Any, members: Any) -> Any:
            began = time.perf_counter()
            try:
                return strategy(workload, members)
            finally:
                took = time.perf_counter() - began
                if took > self._limit:
                    why = f"an answer took {took:.3f} s; {self._limit:g} s are allowed"
                    self._late.append(StrategyOff(group, name, why))

        return call

    def take_late(self) -> list[StrategyOff]:
        """Events for the core."""
        late, self._late = self._late, []
        return late

    def tell(self, failures: Iterable[Failure], queues: Iterable[QueueObject]) -> None:
        """Strategies that are off from now on: a metric, a line in the log, an Event on each queue that names one."""
        for group, name, why in failures:
            self._failures.labels(group, name).inc()
            log.error("a strategy is off", group=group, strategy=name, why=why)
            note = f"strategy {name} of {group} is off until atoll-dispatcher starts anew: {why}"
            for queue in queues:
                if self._events is not None and queue.metadata.annotations.get(_NAMED_BY[group]) == name:
                    regarding = {
                        "apiVersion": QUEUES.api_version,
                        "kind": QUEUES.kind,
                        "name": queue.metadata.name,
                        "uid": queue.metadata.uid,
                    }
                    self._events.record(regarding, OFF, note, warning=True)
