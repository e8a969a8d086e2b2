"""Members that are emptied: how a taint says it, for those who write it and those who go by it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from atoll.model import keys, selectors

ALL_AT_ONCE: Final = "all"
ONE_BY_ONE: Final = "one-by-one"


class Drain(NamedTuple):
    """That a member is emptied."""

    begin: float
    """Seconds since the epoch; infinite while nobody has written that."""
    one_by_one: bool
    end: float
    """When all that is left goes at once; infinite for never."""


def value(*, one_by_one: bool, seconds: float | None = None) -> str:
    """Of the taint. `seconds`: after which all that is left goes at once, where workloads go one by one."""
    if not one_by_one:
        return ALL_AT_ONCE
    return ONE_BY_ONE if seconds is None else f"{ONE_BY_ONE}-{max(int(seconds), 1)}"


def drain_of(taints: Iterable[Mapping[str, Any]]) -> Drain | None:
    """What the taints of a member say; None where it is not emptied."""
    taint = next((each for each in taints if each.get("key") == keys.DRAINED), None)
    if taint is None:
        return None
    begin, said = selectors.added(taint), str(taint.get("value") or "")
    how, _, seconds = said.removeprefix(ONE_BY_ONE).partition("-")
    if how or not said.startswith(ONE_BY_ONE):
        return Drain(begin, False, begin)
    return Drain(begin, True, begin + float(seconds) if seconds.isdecimal() else math.inf)
