"""Collections of garbage that do not stop the event loop for long, however much a process keeps.

A full collection goes through all objects that may be part of a cycle: with 20,000 workloads that came since the start
it took 0.3 s, in which a dispatcher decides nothing. Nearly all of them are no garbage, and go without the collector
when nobody refers to them any more. So what has survived one full collection is looked at no more, and full collections
come so often that there is little for each to look at.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Any

THRESHOLDS = (5_000, 1, 1)
"""Of `gc`: new objects between two collections of these, and how many of each generation come before one of the next.
At Python's 700 the collector looks for cycles in every decision; at these a full collection sees 30,000 new objects,
which takes some 10 ms.
"""


@contextlib.contextmanager
def short_collections() -> Iterator[None]:
    """Have them short in this process meanwhile; afterwards all that was left alone is looked at again.

    What becomes garbage in a cycle after it survived a full collection is not freed before the end: not for processes
    whose long-lived objects end in cycles.
    """
    before = gc.get_threshold()
    gc.callbacks.append(_leave_alone)
    gc.set_threshold(*THRESHOLDS)
    # A full one also waits until a quarter as much is new as the last one looked at: that is next to nothing now.
    gc.collect()
    gc.collect()
    try:
        yield
    finally:
        gc.callbacks.remove(_leave_alone)
        gc.set_threshold(*before)
        gc.unfreeze()


def _leave_alone(phase: str, info: dict[str, Any]) -> None:
    if phase == "stop" and info["generation"] == 2:
        gc.freeze()
