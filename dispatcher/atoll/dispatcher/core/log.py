"""How the log of a dispatcher's core is written; see `atoll.model.eventlog`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from atoll.dispatcher.core.capacity.refusals import MOST_REFUSALS
from atoll.dispatcher.core.commands import Command
from atoll.dispatcher.core.events import Event, Pass
from atoll.model.eventlog import EventLog


@dataclass(frozen=True, slots=True)
class Begin:
    """A fresh core starts here."""

    commit_timeout: float
    """Seconds, as the core was made with."""
    most_refusals: int = MOST_REFUSALS
    """As the core was made with."""


LOG: EventLog[Begin, Event, Command] = EventLog(Begin, get_args(Event), get_args(Command), Pass)
