"""An event loop whose clock jumps to the next timer as soon as nothing is left to do.

Sockets stay real. What a server on the loopback interface of the same loop has sent is there at once, unless the
machine is so busy that the kernel leaves deliveries to a thread of its own. So this process really sleeps for a moment
before time moves on by much: else a deadline would pass on an answer that is there.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_MUCH_S = 0.1
_DELIVERY_S = 0.002


class VirtualLoop(asyncio.SelectorEventLoop):
    """Starts at a time of its own, so that mixing it with the real clock shows."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        super().__init__(_Selector(self))

    def time(self) -> float:
        return self.now


class _Selector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            return super().select(None)
        ready = super().select(_DELIVERY_S if timeout > _MUCH_S else 0)
        if not ready and timeout:
            self._loop.now += timeout
        return ready


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run it to its end on a loop of its own."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(coroutine)


def sleep_through(seconds: float) -> None:
    """Let time pass in which the loop does not run at all, as while a process is stopped."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.now += seconds
