"""The member's decisions as a pure state machine: `MemberCore.handle(event) -> list[Command]`.

The agent and the simulator are two shells around it. They report observations in any order; `Pass` makes it decide, and
is due while `due` is true and at `deadline`. A pod of a `Bind` is charged to its node until an event shows it there, or
`NotBound` gives it up; a gang of which pods were given up is planned again after `Again`. Holds are answered at once.
Shells read `room`, `holds`, `storage` and `waits`, and change nothing in them.
"""

from __future__ import annotations

from atoll.agent.scheduler.core.commands import (
    Answer,
    Bind,
    Changed,
    Command,
    Deallocate,
    Evict,
    Explain,
    Nominate,
    Remake,
    Reserve,
)
from atoll.agent.scheduler.core.events import Event, Pass
from atoll.agent.scheduler.core.member import MemberCore

__all__ = [
    "Answer",
    "Bind",
    "Changed",
    "Command",
    "Deallocate",
    "Event",
    "Evict",
    "Explain",
    "MemberCore",
    "Nominate",
    "Pass",
    "Remake",
    "Reserve",
]
