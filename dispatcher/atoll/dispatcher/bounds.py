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
    for name, text in (("deadline", told.deadline), ("notBefore", told.not_before)):
        if text and not is_time(text):
            raise BadDecision(f"{name}: {text!r} is no time")
    if told.rounds < 0:
        raise BadDecision(f"rounds: {told.rounds} is below 0")
    for line in told.story:
        if not is_time(line.at):
            raise BadDecision(f"story: {line.at!r} is no time")
    for line in told.evicted:
        if not is_time(line.at):
            raise BadDecision(f"evicted: {line.at!r} is no time")
