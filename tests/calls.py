"""The cost of an act that is the same on every machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType


def calls(act: Callable[[], object]) -> int:
    """Functions that are called meanwhile, those of C included: the same number in each run."""
    count = 0

    def see(_: FrameType, event: str, __: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        act()
    finally:
        sys.setprofile(before)
    return count
