"""A binding as its own fields tell, without the dispatcher's code: enough for lists and explanations, and quick."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from atoll.model import decision, gang, keys, numbers
from atoll.model.conditions import condition, is_true
from atoll.model.decision import Decision, Phase
from atoll.model.gang import Gang

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a binding of Atoll says."""

    namespace: str
    name: str
    uid: str
    created: str
    epoch: int
    gang: Gang | None
    """None where its annotation can't be read."""
    decision: Decision
    finished: bool


class Told(Protocol):
    """What says how long a workload waits."""

    @property
    def gang(self) -> Gang | None: ...

    @property
    def decision(self) -> Decision: ...

    @property
    def created(self) -> str: ...


def seen(binding: Json) -> Seen | None:
    """The binding, read; None for one that is not Atoll's (no gang annotation)."""
    meta = binding["metadata"]
    annotations = meta.get("annotations") or {}
    if keys.GANG not in annotations:
        return None
    wish: Gang | None = None
    told = Decision()
    try:
        wish = gang.decode(annotations[keys.GANG])
        gang.check(wish)
    except (msgspec.MsgspecError, gang.BadGang):
        wish = None
    try:
        said = decision.decode(annotations.get(keys.DECISION))
        decision.check(said)
        told = said
    except (msgspec.MsgspecError, decision.BadDecision):
        pass
    return Seen(
        str(meta.get("namespace", "")),
        meta["name"],
        str(meta.get("uid", "")),
        str(meta.get("creationTimestamp", "")),
        numbers.whole(annotations.get(keys.EPOCH)) or 0,
        wish,
        told,
        is_true(condition(binding, "Finished")),
    )


def held_up(binding: Json) -> dict[str, str]:
    """Member -> why containers of pods that have nodes do not run there, as it says."""
    reports = (binding.get("status") or {}).get("aggregatedStatus") or ()
    said = {each.get("clusterName", ""): (each.get("status") or {}).get("placement") or {} for each in reports}
    return {name: str(place["starting"]) for name, place in said.items() if place.get("starting")}


def waits_since(binding: Told) -> str:
    """RFC 3339: when it came to its queue, or came back from where it ran, as far as its story reaches."""
    since = binding.gang.submitted if binding.gang is not None else ""
    ran = False
    for line in binding.decision.story:
        ran = ran or line.phase is Phase.DISPATCHED
        if ran:
            since = line.at
        ran = ran and line.phase is not Phase.SUSPENDED
    return since or binding.created
