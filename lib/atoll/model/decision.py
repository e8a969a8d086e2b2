"""The dispatcher's last word on a binding, kept on the binding itself so that a restart finds it.

Annotation `atoll.sh/decision` holds it as JSON; the states and arrows are those of the design's binding life cycle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from atoll.model.flavors import Assigned
from atoll.model.timestamps import is_time
from atoll.model.verdict import Blocker, Reason

STORY_LINES = 16
"""How many lines of its story a binding carries."""
MOVES_AFTER = 60.0
"""Seconds from a dispatch to the first request of a member to move the gang that the host follows."""


class Phase(StrEnum):
    """Where a binding is on its way; Finished is seen in its status, not decided."""

    SUSPENDED = "Suspended"
    RESERVING = "Reserving"
    DISPATCHED = "Dispatched"
    FINISHED = "Finished"
    EVICTING = "Evicting"
    LEAVING = "Leaving"
    """Taken back so long ago that its queue has its quota back, though a member still has pods of it."""

    @classmethod
    def _missing_(cls, value: object) -> Phase | None:
        # As earlier versions wrote it.
        return cls.DISPATCHED if value == "Bound" else None

    def __init__(self, value: str) -> None:
        #: whether a queue pays for it in this phase
        self.charged = value not in ("Suspended", "Finished", "Leaving")
        #: whether it was taken back, and waits for its members to let go of it
        self.going = value in ("Evicting", "Leaving")


_FOR_OTHERS = (Reason.PREEMPTED, Reason.RECLAIMED)
"""Why something goes for others."""


class Line(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One arrow of a binding's story."""

    at: str
    """RFC 3339, milliseconds."""
    phase: Phase
    reason: Reason
    text: str = ""


Gone = Mapping[str, Mapping[str, int] | None]
"""UID of a binding -> task -> pods that stay of it; None where none does."""


Spots = Sequence[tuple[str, str, int]]
"""(task, node, pods): where the pods of a part are expected."""


class Question(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Question to members before any eviction for a workload: whether its parts would fit if these pods were gone.

    It is open for as long as the decision carries it; every question has an epoch of its own.
    """

    parts: dict[str, dict[str, int]]
    """Member -> task -> pods of the workload's part there."""
    victims: list[str] = []
    """UIDs of the workloads that would go whole."""
    sizes: dict[str, dict[str, int]] = {}
    """UID of a workload that would shrink -> task -> pods that it keeps."""

    @property
    def gone(self) -> Gone:
        """What to leave out."""
        return {**dict.fromkeys(self.victims), **self.sizes}


class Refused(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """What members' API servers and admission refused of a workload."""

    counts: dict[str, int] = {}
    """Member -> how often, since its user acted last."""
    attempt: str = ""
    """The gang's `attempt` then."""
    member: str = ""
    """That refused it last."""
    message: str = ""
    """In that member's words."""


class Kept(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Capacity reserved for a workload, as the next leader must know it."""

    since: str
    """RFC 3339: when that began; longer waits come first."""
    first: str = ""
    """RFC 3339: when it was to start, as was said at first; empty where nobody knew."""


class Decision(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """The last decision."""

    epoch: int = 0
    phase: Phase = Phase.SUSPENDED
    reason: Reason = Reason.SUBMITTED
    blocker: Blocker | None = None
    deadline: str = ""
    """RFC 3339: by when this phase must be left; empty when it may last."""
    story: list[Line] = []
    nominated: list[str] = []
    """Members in which others are evicted for it, while it waits for that."""
    room_for: str = ""
    """UID of the workload that it was evicted for."""
    question: Question | None = None
    """Asked of members on its behalf, while it waits; with it, `nominated` names the members that are asked."""
    rounds: int = 0
    """How often in a row it was taken back because its pods were bound and did not run."""
    not_before: str = ""
    """RFC 3339: it is not tried again earlier."""
    expected: dict[str, Spots] = {}
    """Member -> nodes on which the workload is in nobody's way for whom room is kept there; the member puts it there if
    it can.
    """

    kept: Kept | None = None
    """Room was kept for it while it waited, when this was written."""
    dispatched: str = ""
    """RFC 3339: when it was dispatched, as long as it is; empty too where an earlier version wrote it."""
    evicted: list[Line] = []
    """When and why it went for others: a story is too short to count them by."""

    @property
    def evictions(self) -> list[Line]:
        """The times that it went for others; of one that an earlier version wrote, those that its story tells of."""
        known = [line for line in self.story if line.reason in _FOR_OTHERS]
        return self.evicted if len(self.evicted) >= len(known) else known

    def evicted_by(self, line: Line) -> list[Line]:
        """`evicted`, once it is taken back with this line of its story."""
        if line.reason not in _FOR_OTHERS:
            return self.evictions
        return [*self.evictions, Line(line.at, line.phase, line.reason)][-STORY_LINES:]

    moved: str = ""
    """RFC 3339: when it was moved last, so that another one fits into a topology domain."""
    refused: Refused | None = None
    """How often members refused it; kept until it runs."""
    flavors: list[Assigned] = []
    """That it got where it left them open: while it is dispatched, and while members are asked about it."""
    preserved: dict[str, str] = {}
    """Labels of its next copies, by what the status of one said that it left behind."""

    def told(self, line: Line) -> list[Line]:
        """The story with one more line, bounded."""
        return [*self.story, line][-STORY_LINES:]


class BadDecision(ValueError):
    """No dispatcher wrote that; the message names the field."""


def check(told: Decision) -> None:
    """Refuse what nobody can mean: readers take times for granted, and anybody may have changed them by hand.

    Raises:
        BadDecision: it is such.
    """
    for name, text in (
        ("deadline", told.deadline),
        ("notBefore", told.not_before),
        ("dispatched", told.dispatched),
        ("moved", told.moved),
    ):
        if text and not is_time(text):
            raise BadDecision(f"{name}: {text!r} is no time")
    if told.rounds < 0:
        raise BadDecision(f"rounds: {told.rounds} is below 0")
    for line in told.story:
        if not is_time(line.at):
            raise BadDecision(f"story: {line.at!r} is no time")
    for when in (told.kept.since, told.kept.first) if told.kept is not None else ():
        if when and not is_time(when):
            raise BadDecision(f"kept: {when!r} is no time")
    for line in told.evicted:
        if not is_time(line.at):
            raise BadDecision(f"evicted: {line.at!r} is no time")


def encode(decision: Decision) -> str:
    """The annotation's text."""
    return msgspec.json.encode(decision).decode()


_decoder = msgspec.json.Decoder(Decision)
_spots = msgspec.json.Decoder(list[tuple[str, str, int]])
_gone = msgspec.json.Decoder(dict[str, dict[str, int] | None])


def decode(text: str | bytes | None) -> Decision:
    """Read the annotation; none yet means a fresh, suspended binding.

    Raises:
        msgspec.MsgspecError: not JSON, or not a decision.
    """
    return _decoder.decode(text) if text else Decision()


def encode_spots(spots: Spots) -> str:
    """The text by which a Work says where its pods are expected."""
    return msgspec.json.encode(spots).decode()


def decode_spots(text: str | bytes) -> Spots:
    """The inverse of `encode_spots`.

    Raises:
        msgspec.MsgspecError: not JSON, or not of that form.
    """
    return _spots.decode(text)


def encode_gone(gone: Gone) -> str:
    """The text by which a Work says that it only asks, and what to leave out."""
    return msgspec.json.encode(gone, order="sorted").decode()


def decode_gone(text: str | bytes) -> Gone:
    """The inverse of `encode_gone`.

    Raises:
        msgspec.MsgspecError: not JSON, or not of that form.
    """
    return _gone.decode(text)
