"""A process that ends cuts none of its writes.

A write that is cut may have been carried out or not, and leaves a line in the audit log without an explanation. So
every client counts its writes under way, and a process that was asked to stop first closes the gate: writes that have
not begun wait there until their task is cancelled, and begun ones are waited for. Between two writes every
controller may stop, as it may be killed there.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

_LEASES = "/apis/coordination.k8s.io/"


def keeps_leadership(path: str) -> bool:
    """Whether a request to this path is about a lease: it must not wait behind the others. Nor must one for a token of
    our own, which a standby needs as well.
    """
    return path.startswith(_LEASES) or path.endswith("/token")


class Writes:
    """The writes of one client."""

    def __init__(self) -> None:
        self.under_way = 0
        self._closed = False
        #: asked right before each write: whether this process may write now
        self.guard: Callable[[], bool] = lambda: True
        #: seconds for which no other process leads: a write that the server carries out later must be dropped
        self.lasts: Callable[[], float] = lambda: math.inf
        self._ended: Callable[[], None] = lambda: None

    @asynccontextmanager
    async def passing(self, method: str, path: str) -> AsyncIterator[float]:
        """Hold this around every single request; one that may not begin any more waits until it is cancelled.

        Gives the seconds that the server has for it; infinity where it may take its time.
        """
        if method == "GET":
            yield math.inf
            return
        # Leases stay open: leadership is kept while the rest ends, and given back last.
        kept = keeps_leadership(path)
        if (self._closed or not self.guard()) and not kept:
            await asyncio.get_running_loop().create_future()
        self.under_way += 1
        try:
            yield math.inf if kept else self.lasts()
        finally:
            self.under_way -= 1
            self._ended()

    def close(self, ended: Callable[[], None]) -> None:
        """Let no further write begin; call `ended` whenever one is over."""
        self._closed, self._ended = True, ended


async def finish(clients: Iterable[Writes], seconds: float) -> int:
    """Close the gates and wait for the writes under way; gives how many are left when the time is over.

    When it gives 0, none is under way until the caller's next await.
    """
    gates = list(clients)
    ended = asyncio.Event()
    for gate in gates:
        gate.close(ended.set)

    def left() -> int:
        return sum(gate.under_way for gate in gates)

    try:
        async with asyncio.timeout(seconds):
            # Again after each wake-up: a renewal of the lease may have begun meanwhile.
            while left():
                ended.clear()
                await ended.wait()
    except TimeoutError:
        return left()
    return 0
