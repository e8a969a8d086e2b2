"""The next step for one Work: a pure function of the Work, the object in the member, and both caches."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from atoll.delivery.work import WorkObject
from atoll.kinds import Kind
from atoll.model import keys
from atoll.model.objects import Full


class Step(Enum):
    """What delivery does about a Work."""

    NOTHING = auto()
    LET_GO = auto()
    """The Work may end: nothing came of it."""
    TURN_AWAY = auto()
    """Atoll's control did not make it."""
    UNSERVED = auto()
    """No cache of this agent has objects of its kind."""
    WITHDRAW = auto()
    """The object goes, then the Work."""
    RESERVE = auto()
    """Capacity is held for it; nothing is made."""
    NO_CRD = auto()
    AWAIT_CACHE = auto()
    """It was created a moment ago. No event may follow, where it was deleted at once."""
    DELIVER = auto()
    OVERWRITE = auto()
    """An object with its name is not Atoll's, and its policy asks to replace that."""
    NAME_TAKEN = auto()
    REPLACE = auto()
    """The object is of another epoch or binding, and goes first."""
    FOLLOW = auto()
    """The object gets the changes of the host, and the host its status."""


@dataclass(frozen=True, slots=True)
class Look:
    """All that decides about the step."""

    work: WorkObject
    """With its status as last written."""
    problem: str
    """Why Atoll's control did not make the Work; empty where it did."""
    kind: Kind | None
    """None for a kind that the agent does not serve."""
    found: Full | None
    """The object in the member with the name of the workload."""
    newest: int
    """The newest epoch of the binding."""
    crd_missing: bool
    created_unseen: bool


def step(look: Look) -> Step:
    """The first one that applies."""
    work, kind, found, notes = look.work, look.kind, look.found, look.work.metadata.annotations
    going = work.metadata.deletion_timestamp is not None
    if look.problem:
        return Step.LET_GO if going else Step.TURN_AWAY
    if kind is None:
        return Step.UNSERVED
    if going:
        return Step.WITHDRAW
    # A final one is about to be deleted.
    if keys.FINAL in notes or work.epoch < look.newest:
        return Step.NOTHING
    if work.spec.suspend_dispatching:
        return Step.RESERVE
    if found is None:
        if look.crd_missing:
            return Step.NO_CRD
        if kind.finished(work.reported) is not None:
            # It has ended here, and was removed: this epoch runs once.
            return Step.NOTHING
        return Step.AWAIT_CACHE if look.created_unseen else Step.DELIVER
    theirs = found.metadata.annotations
    if keys.BINDING_UID not in theirs:
        overwrites = notes.get(keys.CONFLICT_RESOLUTION) == "overwrite" and not found.metadata.controller_uid
        return Step.OVERWRITE if overwrites else Step.NAME_TAKEN
    same = (theirs[keys.BINDING_UID], theirs.get(keys.EPOCH)) == (work.binding_uid, str(work.epoch))
    return Step.FOLLOW if same else Step.REPLACE
