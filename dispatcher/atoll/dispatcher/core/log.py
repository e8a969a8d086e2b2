"""How the log of a dispatcher's core is written; see `atoll.model.eventlog`."""

from __future__ import annotations

from typing import get_args

from msgspec import Struct

from atoll.dispatcher.core.commands import Command
from atoll.dispatcher.core.events import Event, Pass
from atoll.dispatcher.core.settings import CoreSettings
from atoll.model.eventlog import EventLog


class Begin(Struct, frozen=True, forbid_unknown_fields=True):
    """A fresh core starts here."""

    settings: CoreSettings
    """As the core was made with."""


LOG: EventLog[Begin, Event, Command] = EventLog(Begin, get_args(Event), get_args(Command), Pass)
