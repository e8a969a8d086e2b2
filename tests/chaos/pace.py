"""How much slower than the suite's own seconds this machine is at present: other work on it counts as slowness."""

from __future__ import annotations

import statistics
import time

_TURNS = 200_000
_TURNS_S = 0.011
"""For which so many turns last on an idle machine of 2026."""
_MOST = 4.0
"""Beyond this, leases of seconds tell as little as the run itself."""


def measured(seconds: float = 3.0) -> float:
    """The factor for every wait: 1.0 on an idle machine, at most 4.0."""
    found, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.perf_counter()
        for _ in range(_TURNS):
            pass
        found.append(time.perf_counter() - began)
        time.sleep(0.02)
    return min(max(statistics.fmean(found) / _TURNS_S, 1.0), _MOST)
