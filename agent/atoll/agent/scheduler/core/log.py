"""How the log of a member's core is written; see `atoll.model.eventlog`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from atoll.agent.scheduler.core.commands import Command
from atoll.agent.scheduler.core.events import Event, Pass
from atoll.model.eventlog import EventLog


@dataclass(frozen=True, slots=True)
class MemberBegin:
    """A fresh core starts here."""

    cluster: str
    """The member's name on the host."""


LOG: EventLog[MemberBegin, Event, Command] = EventLog(MemberBegin, get_args(Event), get_args(Command), Pass)
