"""Why indices of a JobArray failed: at most `MOST` reasons, each with its indices and the last message.

An index that has failed for good never runs again in its array, so entries only grow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from atoll.model.array_states import LARGEST, ranges, written
from atoll.model.reports import BadReport, Check, items, number, readable, record, text

Json = dict[str, Any]

MOST: Final = 8
"""Reasons of one array; the last one takes all further ones."""
OTHERS: Final = "other reasons"
MOST_INDICES: Final = 200
"""Characters of the indices of one reason; `…` at the end where some are missing."""
_MOST_SAID: Final = 100_000
"""Indices of one text that are looked at."""
_MOST_REASON: Final = 120
_MOST_LAST: Final = 400
_OF_POD: Final = re.compile(r"(?:.*; )?pod \S+, (.*?)(?:, last output: .*)?", re.DOTALL)
_TAIL: Final = re.compile(r"(\d+)(?:-(\d+))?$", re.ASCII)

CHECK: Final[Check[list[Json]]] = items(
    record(reason=text(_MOST_REASON), count=number(), indices=text(MOST_INDICES + 20), last=text(_MOST_LAST)), MOST
)
"""Of what a member reports."""


def read(known: Any) -> list[Json]:
    """Entries as an object has them; none where they can't be read."""
    try:
        found = CHECK(known, "failures")
    except BadReport:
        return []
    return [{"reason": OTHERS, "count": 0, "indices": "", "last": "", **each} for each in found]


def reason_of(message: str) -> str:
    """What equal failures of several indices have in common: no names of pods, no output."""
    found = _OF_POD.fullmatch(message)
    return readable(found[1] if found else message, _MOST_REASON) or "failed without a message"


def added(known: Sequence[Json], failed: Mapping[int, str]) -> list[Json]:
    """The entries after further failures.

    Args:
        known: entries before.
        failed: index -> message of its Job.
    """
    entries = {str(each["reason"]): each for each in known}
    for index, message in sorted(failed.items()):
        reason = reason_of(message)
        if reason not in entries and len(entries) >= MOST - 1:
            reason = OTHERS
        old = entries.get(reason, {"count": 0, "indices": ""})
        entries[reason] = {
            "reason": reason,
            "count": old["count"] + 1,
            "indices": _with(old["indices"], index),
            "last": readable(f"index {index}: {message}", _MOST_LAST),
        }
    return list(entries.values())


def joined(known: Sequence[Json], others: Sequence[Json]) -> list[Json]:
    """The entries of two lists, of which the second may contain entries of the first, and say more of them."""
    entries = {str(each["reason"]): each for each in known}
    for each in others:
        reason = str(each["reason"])
        if reason not in entries and len(entries) >= MOST - 1:
            reason = OTHERS
        old = entries.get(reason, {"count": 0, "indices": ""})
        if (indices := _both(old["indices"], each["indices"])) == old["indices"]:
            continue
        count = sum(map(len, ranges(_indices(indices))))
        entries[reason] = {
            "reason": reason,
            "count": max(old["count"], each["count"], count),
            "indices": indices,
            "last": each["last"],
        }
    return list(entries.values())


def _both(indices: str, others: str) -> str:
    """Ranges of either text, in rising order."""
    found = ",".join(
        map(written, ranges(sorted({*islice(_indices(indices), _MOST_SAID), *islice(_indices(others), _MOST_SAID)})))
    )
    if len(found) <= MOST_INDICES:
        return found
    return found[:MOST_INDICES].rpartition(",")[0] + ",…"


def _indices(text: str) -> Iterator[int]:
    """Of ranges in any order; what can't be read is left out."""
    for part in text.split(","):
        if (tail := _TAIL.fullmatch(part)) is not None:
            yield from range(int(tail[1]), min(int(tail[2] or tail[1]), LARGEST) + 1)


def _with(indices: str, index: int) -> str:
    """Ranges with one more index at their end, in the order in which indices failed."""
    tail = _TAIL.search(indices)
    if tail is not None and int(tail[2] or tail[1]) == index - 1:
        return f"{indices[: tail.start()]}{tail[1]}-{index}"
    if indices.endswith("…"):
        return indices
    return ",".join(filter(None, (indices, str(index) if len(indices) < MOST_INDICES else "…")))
