"""metav1.Condition lists that keep their transition times."""

from __future__ import annotations

from typing import Any

from atoll.model.timestamps import rfc3339_seconds

Condition = dict[str, Any]


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

    Args:
        conditions: as they are; not changed.
        type_: of the condition.
        status: True, False, or None for Unknown.
        reason: CamelCase.
        message: for people.
        now: seconds since the epoch, for a transition.
        generation: metadata.generation that this was observed at.
    """
    text = "Unknown" if status is None else str(status)
    old = next((c for c in conditions if c.get("type") == type_), None)
    new: Condition = {"type": type_, "status": text, "reason": reason, "message": message}
    if generation is not None:
        new["observedGeneration"] = generation
    since = old.get("lastTransitionTime") if old is not None and old.get("status") == text else None
    new["lastTransitionTime"] = since or rfc3339_seconds(now)
    if old is None:
        return [*conditions, new]
    return [new if c is old else c for c in conditions]


def find(conditions: list[Condition], type_: str) -> Condition | None:
    """The condition of this type, if any."""
    return next((c for c in conditions if c.get("type") == type_), None)
