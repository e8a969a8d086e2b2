"""The faults that there are, and one of them as it is being played."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from tests.faults.request import Request


class Fault(StrEnum):
    """What can happen on the way; what `seconds` and `after_bytes` of `FaultProxy.play` mean to it."""

    DROP = "drop"
    """The connection is closed in the middle of the answer, or of an event of a watch; after `after_bytes`."""
    HANG = "hang"
    """The request is not passed on and nothing is answered; after `seconds`, or when the play stops, the connection
    is closed. An open watch falls silent for as long."""
    BUSY = "busy"
    """429 with Retry-After `seconds` (1); not carried out."""
    ERROR = "error"
    """500; not carried out."""
    GONE = "gone"
    """410: answered to a list or a new watch, sent as an ERROR event in an open watch."""
    SLOW = "slow"
    """The answer, or an event of a watch, takes `seconds` (2) to come, byte by byte as it were."""
    DUPLICATE = "duplicate"
    """An event of a watch is sent twice."""
    REORDER = "reorder"
    """An event of a watch is sent after the one that follows it."""
    STALE = "stale"
    """After an event of a watch, an earlier one about the same object is sent again."""
    LATENCY = "latency"
    """The request, or an event of a watch, is passed on `seconds` (0.2) late."""
    RESET = "reset"
    """The connection is reset (RST): a request is not passed on, an open watch breaks."""
    BLACKHOLE = "blackhole"
    """For `seconds`, or until the play stops, nothing passes on any connection and new ones are accepted by the
    kernel alone. What was sent meanwhile arrives afterwards, as TCP would deliver it. Takes no filter."""
    HALF_OPEN = "half-open"
    """The server forgets the connection, the client is not told: the answer stops after `after_bytes`, or the watch
    falls silent, for as long as the client keeps the connection."""
    LOST_ANSWER = "lost-answer"
    """The request is carried out, then the connection is closed without an answer. No watch is hit."""


#: Happen to the events of a watch and to nothing else.
EVENTS_ONLY = frozenset({Fault.DUPLICATE, Fault.REORDER, Fault.STALE})
#: Happen to a watch that is open, at once if need be.
STRIKES = frozenset({Fault.DROP, Fault.HANG, Fault.GONE, Fault.RESET, Fault.HALF_OPEN})
#: Happen to a request as it comes in; the rest of a watch's faults belong to its stream.
BEFORE = frozenset({Fault.HANG, Fault.BUSY, Fault.ERROR, Fault.GONE, Fault.LATENCY, Fault.RESET})
#: Happen to the answer of a request that is no watch.
AFTER = frozenset({Fault.DROP, Fault.SLOW, Fault.HALF_OPEN, Fault.LOST_ANSWER})


@dataclass(slots=True, eq=False)
class Play:
    """A fault that is being played until it has hit often enough or is stopped."""

    fault: Fault
    method: str | None = None
    resource: str | None = None
    watch: bool | None = None
    probability: float = 1.0
    times: int | None = 1
    seconds: float | None = None
    after_bytes: int | None = None
    #: how often it happened
    hits: int = 0
    #: set by `stop`; hits that last end with it
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    on_stop: Callable[[], None] = lambda: None

    @property
    def active(self) -> bool:
        """Whether it can hit once more."""
        return not self.stopped.is_set() and (self.times is None or self.hits < self.times)

    def stop(self) -> None:
        """Hit no more, and end what is still hanging. Safe to repeat."""
        if not self.stopped.is_set():
            self.stopped.set()
            self.on_stop()

    def meets(self, request: Request) -> bool:
        """Whether the request is one that it may hit."""
        if self.fault is Fault.GONE and (request.method != "GET" or request.name):
            return False
        return (
            (self.method is None or request.method == self.method)
            and (self.resource is None or request.about(self.resource))
            and (self.watch is None or request.watch == self.watch)
        )

    async def over(self) -> None:
        """Return once a hit that lasts is over."""
        try:
            async with asyncio.timeout(self.seconds):
                await self.stopped.wait()
        except TimeoutError:
            return
