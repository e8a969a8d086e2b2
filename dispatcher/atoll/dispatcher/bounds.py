"""What nobody can mean in what is said of a workload; `atoll.model.gang.check` is the same for what it asks for.

The core takes what it is told for granted: annotations that somebody changed by hand would end the dispatcher for
everybody.
"""

from __future__ import annotations

from atoll.model.decision import Decision
from atoll.model.timestamps import is_time


class BadDecision(ValueError):
    """No dispatcher wrote that; the message names the field."""


def check_decision(told: Decision) -> None:
    """Refuse what can't be gone by.

    Raises:
        BadDecision: it is such.
    """
    if told.deadline and not is_time(told.deadline):
        raise BadDecision(f"deadline: {told.deadline!r} is no time")
    for line in told.story:
        if not is_time(line.at):
            raise BadDecision(f"story: {line.at!r} is no time")
    for line in told.evicted:
        if not is_time(line.at):
            raise BadDecision(f"evicted: {line.at!r} is no time")
