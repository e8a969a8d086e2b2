"""Collections of garbage that do not stop the event loop for long, however much a process keeps.

A full collection goes through all objects that may be part of a cycle: with 20,000 workloads that came since the start
it took 0.3 s, in which a dispatcher decides nothing. Nearly all of them are no garbage, and go without the collector
when nobody refers to them any more. So each object is looked at once, in the first collection after it was made, and
never again: there is little for any collection to look at, and no need of generations.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Any

YOUNG = 5000
"""New objects between two collections: they look at so many, which takes some 10 ms where much is kept. At Python's 700
the collector looks for cycles in every decision.
"""


@contextlib.contextmanager
def short_collections() -> Iterator[None]:
    """Have them short in this process meanwhile; afterwards all that was left alone is looked at again.

    What becomes garbage in a cycle after it survived a collection is not freed before the end: not for processes
    whose long-lived objects end in cycles.
    """
    before = gc.get_threshold()
    gc.callbacks.append(_leave_alone)
    gc.set_threshold(YOUNG)
    gc.collect()
    try:
        yield
    finally:
        gc.callbacks.remove(_leave_alone)
        gc.set_threshold(*before)
        gc.unfreeze()


def _leave_alone(phase: str, _: dict[str, Any]) -> None:
    if phase == "stop":
        gc.freeze()
