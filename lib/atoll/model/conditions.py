"""metav1.Condition lists that keep their transition times.

`lastTransitionTime` answers "since when": it changes with the status alone, so neither a new reason nor a restart of
the process that writes it makes an old fact look new.
"""

from __future__ import annotations

from typing import Any

from atoll.model.timestamps import rfc3339_seconds

Condition = dict[str, Any]

_MESSAGE_MAX = 32768
"""Characters; the schema of metav1.Condition refuses more."""


def with_condition(
    conditions: list[Condition],
    type_: str,
    status: bool | None,
    reason: str,
    message: str,
    *,
    now: float,
    generation: int | None = None,
) -> list[Condition]:
    """The list with one condition set; equal content gives an equal list, so that callers can skip the write.

    The others stay as they are, in their order. A type that is there more than once, which no API allows, is there
    once afterwards.

    Args:
        conditions: as they are; not changed.
        type_: of the condition.
        status: True, False, or None for Unknown.
        reason: CamelCase.
        message: for people; cut at 32,768 characters.
        now: seconds since the epoch, for a transition.
        generation: metadata.generation that this was observed at; None where that has no meaning.
    """
    text = "Unknown" if status is None else str(status)
    old = find(conditions, type_)
    new: Condition = {"type": type_, "status": text, "reason": reason, "message": message[:_MESSAGE_MAX]}
    if generation is not None:
        new["observedGeneration"] = generation
    since = old.get("lastTransitionTime") if old is not None and old.get("status") == text else None
    new["lastTransitionTime"] = since or rfc3339_seconds(now)
    if old is None:
        return [*conditions, new]
    return [new if c is old else c for c in conditions if c is old or c.get("type") != type_]


def find(conditions: list[Condition], type_: str) -> Condition | None:
    """The condition of this type, if any."""
    return next((c for c in conditions if c.get("type") == type_), None)


def condition(item: dict[str, Any], type_: str) -> Condition:
    """The condition of this type of an object; empty where there is none."""
    return find((item.get("status") or {}).get("conditions") or [], type_) or {}


def is_true(found: Condition) -> bool:
    """Whether a condition holds."""
    return found.get("status") == "True"
