"""Waits for conditions without an event loop."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually(check: Callable[[], bool], deadline_s: float = 20) -> bool:
    ends = time.monotonic() + deadline_s
    while not check():
        if time.monotonic() > ends:
            return False
        time.sleep(0.05)
    return True
