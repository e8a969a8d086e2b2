"""Annotation `atoll.sh/notify`: targets, and the events of a workload that each hears of.

An example is `chat; mail: failed, waiting=2h`. Targets are names that the administrator gave, never addresses.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from atoll.model import duration

ENDED: Final = "ended"
FAILED: Final = "failed"
EVICTED: Final = "evicted"
WAITING: Final = "waiting"
MOST: Final = 4
"""Targets of one annotation."""
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class BadNotify(ValueError):
    """The annotation can't be read; the message says why."""


class Wish(NamedTuple):
    """What one target hears."""

    target: str
    events: frozenset[str]
    waiting: float | None
    """Seconds after which a workload that still waits is news; None for never."""


def parse(text: str) -> list[Wish]:
    """The wishes of an annotation.

    Raises:
        BadNotify: it can't be read.
    """
    wishes = [_wish(part) for part in text.split(";") if part.strip()]
    names = [wish.target for wish in wishes]
    if not wishes or len(wishes) > MOST or len({*names}) < len(names):
        raise BadNotify(f"{text!r}: write 1 to {MOST} different targets with ; between")
    return wishes


def _wish(text: str) -> Wish:
    target, colon, said = (part.strip() for part in text.partition(":"))
    if not _NAME.fullmatch(target):
        raise BadNotify(f"{target!r} is no name of a target: use small letters, digits and -")
    if not colon:
        return Wish(target, frozenset((ENDED, EVICTED)), None)
    events: set[str] = set()
    waiting: float | None = None
    for word in said.split(","):
        event, _, seconds = (part.strip() for part in word.partition("="))
        if event == WAITING:
            try:
                waiting = duration.parse(seconds)
            except duration.DurationError as error:
                raise BadNotify(f"waiting={seconds}: {error}") from error
        elif event in (ENDED, FAILED, EVICTED) and not seconds:
            events.add(event)
        else:
            raise BadNotify(f"{word.strip()!r} is none of ended, failed, evicted, waiting=2h")
    return Wish(target, frozenset(events), waiting)
