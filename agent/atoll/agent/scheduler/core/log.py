"""How the log of a member's core is written; see `atoll.model.eventlog`."""

from __future__ import annotations

from typing import get_args

from msgspec import Struct

from atoll.agent.scheduler.core.commands import Command
from atoll.agent.scheduler.core.events import Event, Pass
from atoll.agent.scheduler.core.settings import MemberCoreSettings
from atoll.model.eventlog import EventLog


class MemberBegin(Struct, frozen=True, forbid_unknown_fields=True):
    """A fresh core starts here."""

    cluster: str
    """The member's name on the host."""
    settings: MemberCoreSettings
    """As the core was made with."""


LOG: EventLog[MemberBegin, Event, Command] = EventLog(MemberBegin, get_args(Event), get_args(Command), Pass)
