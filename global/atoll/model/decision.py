"""The dispatcher's last word on a binding, kept on the binding itself so that a restart finds it.

Annotation `atoll.sh/decision` holds it as JSON; the states and arrows are those of the design's binding life cycle.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from atoll.model.verdict import Blocker, Reason

STORY_LINES = 16
"""How many lines of its story a binding carries."""


class Phase(StrEnum):
    """Where a binding is on its way; Running and Finished are seen in its status, not decided."""

    SUSPENDED = "Suspended"
    RESERVING = "Reserving"
    RESERVED = "Reserved"
    BOUND = "Bound"
    RUNNING = "Running"
    FINISHED = "Finished"
    EVICTING = "Evicting"

    @property
    def charged(self) -> bool:
        """Whether a queue pays for it in this phase."""
        return self not in (Phase.SUSPENDED, Phase.FINISHED)


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One arrow of a binding's story."""

    at: str
    """RFC 3339, milliseconds."""
    phase: Phase
    reason: Reason
    text: str = ""


class Decision(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What was decided last."""

    epoch: int = 0
    phase: Phase = Phase.SUSPENDED
    reason: Reason = Reason.SUBMITTED
    blocker: Blocker | None = None
    deadline: str = ""
    """RFC 3339: by when this phase must be left; empty when it may last."""
    story: list[Line] = []
    nominated: list[str] = []
    """Members in which others make room for it, while it waits for that."""
    room_for: str = ""
    """UID of the workload that it was evicted for."""

    def told(self, line: Line) -> list[Line]:
        """The story with one more line, bounded."""
        return [*self.story, line][-STORY_LINES:]


def encode(decision: Decision) -> str:
    """The annotation's text."""
    return msgspec.json.encode(decision).decode()


_decoder = msgspec.json.Decoder(Decision)


def decode(text: str | bytes | None) -> Decision:
    """Read the annotation; none yet means a fresh, suspended binding.

    Raises:
        msgspec.MsgspecError: not JSON, or not a decision.
    """
    return _decoder.decode(text) if text else Decision()
